"""What code of users can still do: tried as root, as an ordinary user, as one of its own, and without namespaces."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.sandboxed import (
    EVERYBODY,
    ORDINARY,
    OWN,
    ROOT,
    SHUT_IN,
    WORKER,
    Who,
    has_namespaces,
    means,
    sandboxed,
)
from workers import landlock
from workers.privileges import OWN_FILES
from workers.sandbox import FILTER, OOM_SCORE, OWN_ACCOUNT_FILES

everybody = pytest.mark.parametrize("who", EVERYBODY)
with_namespaces = pytest.mark.skipif(not has_namespaces(), reason="no namespace can be made here")

LISTENS = "socket.create_server(('127.0.0.1', 0))"
TALKS = f"(lambda server: socket.create_connection(server.getsockname(), 5).close())({LISTENS})"


@pytest.fixture
def port() -> Iterator[int]:
    """A server of this machine: such as the database or the broker."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def abstract_name() -> Iterator[str]:
    name = f"trainshed-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        yield name


class TestNetwork:
    @everybody
    def test_servers_of_the_machine_cannot_be_reached(self, who: Who, port: int, tmp_path: Path) -> None:
        found = sandboxed(f"[how, tried(lambda: socket.create_connection(('127.0.0.1', {port}), 5))]", tmp_path, who)

        assert found[0] in means(who)
        assert found[1] == ("EPERM" if found[0] == FILTER else "ECONNREFUSED")

    @everybody
    def test_nor_can_the_world(self, who: Who, tmp_path: Path) -> None:
        # An address of the block that is reserved for documentation (RFC 5737): nobody ever answers there.
        found = sandboxed("[how, tried(lambda: socket.create_connection(('192.0.2.1', 53), 5))]", tmp_path, who)

        assert found[1] == ("EPERM" if found[0] == FILTER else "ENETUNREACH")

    @everybody
    def test_job_that_may_have_it_keeps_it(self, who: Who, port: int, tmp_path: Path) -> None:
        asked = f"[how, tried(lambda: socket.create_connection(('127.0.0.1', {port}), 5).close())]"

        assert sandboxed(asked, tmp_path, who, network=True) == [None, None]

    @with_namespaces
    @pytest.mark.parametrize("who", EVERYBODY[:3])
    def test_processes_of_a_job_talk_over_the_loopback_device(self, who: Who, tmp_path: Path) -> None:
        assert sandboxed(f"tried(lambda: {TALKS})", tmp_path, who, needs_loopback=True) is None

    def test_where_that_cannot_be_had_the_sentence_says_what_to_do(self, tmp_path: Path) -> None:
        said = sandboxed("0", tmp_path, SHUT_IN, needs_loopback=True)

        assert "cannot shut off the network of a job that needs the loopback device" in said
        assert "'network': true" in said

    @everybody
    def test_sockets_between_its_own_processes_work(self, who: Who, tmp_path: Path) -> None:
        asked = "(lambda ends: [ends[0].send(b'ok'), ends[1].recv(2).decode()])(socket.socketpair())"

        assert sandboxed(asked, tmp_path, who) == [2, "ok"]

    @with_namespaces
    @pytest.mark.parametrize("who", EVERYBODY[:3])
    def test_abstract_sockets_of_the_machine_are_out_of_reach(
        self, who: Who, abstract_name: str, tmp_path: Path
    ) -> None:
        asked = f"tried(lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + {abstract_name!r}))"

        assert sandboxed(asked, tmp_path, who) in ("ECONNREFUSED", "EPERM")


class TestLimits:
    @everybody
    def test_file_of_a_terabyte_of_holes_is_refused(self, who: Who, tmp_path: Path) -> None:
        asked = "tried(lambda: os.truncate(os.open('hole', os.O_CREAT | os.O_RDWR, 0o600), 1 << 40))"

        assert sandboxed(asked, tmp_path, who, max_file_bytes=1 << 20) == "EFBIG"

    @everybody
    def test_nothing_can_be_raised_again(self, who: Who, tmp_path: Path) -> None:
        names = ("CORE", "FSIZE")
        limits = [f"resource.getrlimit(resource.RLIMIT_{name})" for name in names]

        assert sandboxed(f"[{', '.join(limits)}]", tmp_path, who, max_file_bytes=4096) == [[0, 0], [4096, 4096]]

    @pytest.mark.parametrize("who", [pytest.param(ORDINARY, id="ordinary"), *EVERYBODY[2:]])
    def test_processes_end_at_the_limit(self, who: Who, tmp_path: Path) -> None:
        """Each child waits until its parent has ended, which closes the pipe; the last fork is refused."""
        waits = "[os.close(write), os.read(read, 1), os._exit(0)]"
        forks = f"[tried(os.fork) or {waits} for _ in range(60)]"
        asked = f"(lambda read, write: [pid for pid in {forks} if isinstance(pid, int)])(*os.pipe())"

        found = sandboxed(f"[{asked}, tried(os.fork)]", tmp_path, who, max_processes=20)

        assert found[1] == "EAGAIN"
        assert 10 <= len(found[0]) <= 20

    @everybody
    def test_memory_of_the_service_is_worth_more(self, who: Who, tmp_path: Path) -> None:
        present = int(Path("/proc/self/oom_score_adj").read_text())

        found = int(sandboxed("open('/proc/self/oom_score_adj').read()", tmp_path, who))

        assert found == max(OOM_SCORE, present)


class TestRights:
    @everybody
    def test_none_is_left(self, who: Who, tmp_path: Path) -> None:
        lines = "[line.split()[1] for line in open('/proc/self/status') if line[:6] in ('CapPrm', 'CapEff', 'NoNewP')]"

        assert sandboxed(lines, tmp_path, who) == ["0" * 16, "0" * 16, "1"]

    @everybody
    @pytest.mark.parametrize(
        "call",
        [
            "'ptrace', 0, 0, 0, 0",
            "'unshare', 0x10000000",
            "'mount', None, b'/', b'tmpfs', 0, None",
            "'setns', 0, 0",
            "'syscall', 425, 8, None",
        ],
        ids=["ptrace", "unshare", "mount", "setns", "io_uring_setup"],
    )
    def test_calls_that_holes_are_reached_by_are_refused(self, who: Who, call: str, tmp_path: Path) -> None:
        assert sandboxed(f"called({call})", tmp_path, who) == "EPERM"

    @everybody
    def test_new_namespace_by_a_clone_is_refused_too(self, who: Who, tmp_path: Path) -> None:
        number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
        flags = 0x10000000 | 17  # CLONE_NEWUSER, SIGCHLD

        assert sandboxed(f"called('syscall', {number}, {flags}, 0, 0, 0, 0)", tmp_path, who) == "EPERM"

    @everybody
    def test_threads_and_children_work(self, who: Who, tmp_path: Path) -> None:
        thread = (
            "(lambda found: [(t := threading.Thread(target=found.append, args=(1,))).start(), t.join(), found][2])([])"
        )
        child = "(lambda pid: os._exit(7) if pid == 0 else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))(os.fork())"

        assert sandboxed(f"[{thread}, {child}]", tmp_path, who) == [[1], 7]

    @everybody
    def test_files_move_between_folders(self, who: Who, tmp_path: Path) -> None:
        asked = "[os.mkdir('a'), os.mkdir('b'), open('a/x', 'w').close(), os.rename('a/x', 'b/y'), os.listdir('b')]"

        assert sandboxed(asked, tmp_path, who)[-1] == ["y"]

    @everybody
    def test_what_it_makes_is_for_nobody_else(self, who: Who, tmp_path: Path) -> None:
        mask = OWN_FILES if who.uid is not None else OWN_ACCOUNT_FILES

        assert sandboxed("os.umask(0)", tmp_path, who) == mask

    @everybody
    def test_it_is_still_who_it_was_to_be(self, who: Who, tmp_path: Path) -> None:
        expected = who.uid if who.uid is not None else 65_534 if who.as_nobody else os.getuid()

        assert sandboxed("[os.getuid(), os.getgid()]", tmp_path, who)[0] == expected


@pytest.mark.skipif(landlock.version() < 6, reason="this kernel's Landlock keeps no signals in (before Linux 6.12)")
class TestOthers:
    @everybody
    def test_process_of_the_same_user_gets_no_signal(self, who: Who, tmp_path: Path) -> None:
        assert sandboxed("tried(lambda: os.kill(parent, 0))", tmp_path, who) == "EPERM"

    @everybody
    def test_its_environment_cannot_be_read(self, who: Who, tmp_path: Path) -> None:
        assert sandboxed("tried(lambda: open(f'/proc/{parent}/environ', 'rb').read())", tmp_path, who) == "EACCES"

    @everybody
    def test_its_own_children_get_signals(self, who: Who, tmp_path: Path) -> None:
        kill = "(lambda pid: signal.pause() if pid == 0 else [os.kill(pid, 9), os.waitpid(pid, 0)[1]])(os.fork())"

        assert sandboxed(kill, tmp_path, who)[1] == 9


class TestImport:
    def test_costs_a_launcher_nothing_but_the_standard_library(self) -> None:
        asked = "import sys, workers.sandbox; print([name for name in sys.modules if name.partition('.')[0] in NAMES])"
        code = asked.replace("NAMES", "('app', 'numpy', 'pydantic', 'dataclasses', 'pathlib', 'subprocess')")

        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

        assert done.stdout == "[]\n"


def test_everybody_is_tried() -> None:
    assert [parameter.values[0] for parameter in EVERYBODY] == [WORKER, ORDINARY, OWN, SHUT_IN]
