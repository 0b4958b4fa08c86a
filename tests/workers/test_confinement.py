"""What a confined process can still do, tried in a process of its own: the limits are for good."""

import ast
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from workers import confinement

ROOT = Path(__file__).parents[2]


def confined(lines: str, memory: int = 2**30) -> subprocess.CompletedProcess[str]:
    code = f"import os, socket\nfrom workers.confinement import confine, end_with\nshut = confine({memory})\n{lines}"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


class TestNetwork:
    def test_is_shut_off_on_the_machines_that_we_know(self) -> None:
        assert platform.machine() in {"x86_64", "aarch64"}
        assert confined("print(shut)").stdout == "True\n"

    @pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK"])
    def test_no_family_but_unix_is_left(self, family: str) -> None:
        done = confined(f"socket.socket(socket.{family}, socket.SOCK_RAW if '{family}' == 'AF_NETLINK' else 1)")

        assert "PermissionError: [Errno 1] Operation not permitted" in done.stderr

    def test_sockets_of_this_machine_work(self) -> None:
        done = confined("a, b = socket.socketpair()\na.send(b'hello')\nprint(b.recv(5))")

        assert done.stdout == "b'hello'\n"

    def test_children_are_confined_too(self) -> None:
        done = confined(
            "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import socket; socket.socket()'])"
        )

        assert "PermissionError" in done.stderr

    def test_machine_that_we_do_not_know_stays_as_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "host", "6.1", "1", "riscv64")))

        assert not confinement._shut_off_network()


class TestMemory:
    def test_more_than_allowed_is_an_error_and_not_the_end(self) -> None:
        done = confined("try:\n    bytearray(2**29)\nexcept MemoryError:\n    print('still here')", memory=2**28)

        assert done.stdout == "still here\n"

    def test_what_is_allowed_is_there(self) -> None:
        assert confined("print(len(bytearray(2**27)))", memory=2**28).stdout == f"{2**27}\n"

    def test_limit_cannot_be_raised_again(self) -> None:
        done = confined("import resource\nprint(resource.getrlimit(resource.RLIMIT_DATA))", memory=2**28)

        assert done.stdout == f"({2**28}, {2**28})\n"

    def test_dies_without_a_dump(self) -> None:
        assert confined("import resource\nprint(resource.getrlimit(resource.RLIMIT_CORE))").stdout == "(0, 0)\n"


class TestEnd:
    def test_process_of_another_parent_does_not_begin(self) -> None:
        done = confined("end_with(1 if os.getppid() != 1 else 2)\nprint('began')")

        assert (done.returncode, done.stdout) == (1, "")
        assert "The process that asked for this has ended." in done.stderr

    def test_process_of_this_parent_goes_on(self) -> None:
        assert confined("end_with(os.getppid())\nprint('began')").stdout == "began\n"

    def test_ends_with_the_process_that_started_it(self) -> None:
        """The parent is killed after its child has said that it waits; the pipe then ends, since both are gone."""
        child = (
            "import os, time; from workers.confinement import end_with; end_with(os.getppid()); "
            "print('waiting', flush=True); time.sleep(300)"
        )
        parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
        with subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
            process.kill()

            assert process.stdout.read() == ""


class TestCapabilities:
    def test_none_is_left_and_none_comes_by_another_program(self) -> None:
        show = "print([line.split()[1] for line in open('/proc/self/status') if line[:3] in ('Cap', 'NoN')])"
        shown = confined(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {show!r}])").stdout

        # In the order of proc_pid_status(5): inheritable, permitted, effective, the bound, ambient; no new privileges.
        inherited, permitted, effective, _, ambient, locked = ast.literal_eval(shown)
        assert {inherited, permitted, effective, ambient} == {"0" * 16}
        assert locked == "1"
