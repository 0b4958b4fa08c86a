"""Which Docker engine the compose test uses: the one that answers, else its own, else none and why."""

import os
from pathlib import Path

import pytest

from scripts.compose_test.commands import Shell
from scripts.compose_test.engine import Skipped, engine, mounts_below
from tests.deploy.programs import Programs

ANSWERS = 'case "$*" in version*) echo 27.1;; compose*|buildx*) exit 0;; esac'
# Answers once its own daemon has made the socket that DOCKER_HOST names.
ANSWERS_LATER = """
case "$*" in
version*) [ -e "${DOCKER_HOST#unix://}" ] && echo 20.10 || { echo "Cannot connect" >&2; exit 1; };;
compose*|buildx*) exit 1;;
esac"""
DAEMON = 'touch "${2#unix://}"; exec sleep 60'


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on how full this machine's disk is."""
    monkeypatch.setattr("scripts.compose_test.engine.SPACE_BYTES", 0)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path / "bin")


@pytest.fixture
def shell(programs: Programs, tmp_path: Path) -> Shell:
    return Shell(programs.environ(), tmp_path / "log", tmp_path)


class TestOneThatAnswers:
    def test_is_used_as_it_is(self, programs: Programs, shell: Shell, tmp_path: Path) -> None:
        programs.add("docker", ANSWERS)
        programs.add("dockerd")
        with engine(shell, tmp_path / "engine", uid=0) as found:
            assert (found.version, found.ours) == ("27.1", False)
            assert found.shell.environ == shell.environ
        assert programs.called("dockerd") == []

    def test_plugin_is_preferred_to_the_older_program(self, programs: Programs, shell: Shell, tmp_path: Path) -> None:
        programs.add("docker", ANSWERS)
        programs.add("docker-compose")
        with engine(shell, tmp_path / "engine", uid=1000) as found:
            assert found.compose == ("docker", "compose")

    def test_without_buildx_the_older_builder_is_asked_for(
        self, programs: Programs, shell: Shell, tmp_path: Path
    ) -> None:
        programs.add("docker", 'case "$*" in version*) echo 28.2;; *) exit 1;; esac')
        programs.add("docker-compose")
        with engine(shell, tmp_path / "engine", uid=1000) as found:
            assert found.compose == ("docker-compose",)
            assert found.shell.environ["DOCKER_BUILDKIT"] == "0"
            assert found.shell.environ["COMPOSE_DOCKER_CLI_BUILD"] == "0"


class TestOneOfOurOwn:
    def test_runs_in_its_folder_for_the_time_of_the_block(
        self, programs: Programs, shell: Shell, tmp_path: Path
    ) -> None:
        programs.add("docker", ANSWERS_LATER)
        programs.add("docker-compose")
        programs.add("dockerd", f'echo $$ > "{tmp_path}/pid"\n{DAEMON}')
        root = tmp_path / "engine"
        with engine(shell, root, uid=0) as found:
            assert (found.version, found.ours) == ("20.10", True)
            assert found.shell.environ["DOCKER_HOST"] == f"unix://{root}/docker.sock"
            pid = int((tmp_path / "pid").read_text())
            os.kill(pid, 0)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        (call,) = programs.called("dockerd")
        assert f"--data-root {root}/data --exec-root {root}/exec" in call
        assert call.endswith("--bridge none")

    def test_is_stopped_also_when_the_block_fails(self, programs: Programs, shell: Shell, tmp_path: Path) -> None:
        programs.add("docker", ANSWERS_LATER)
        programs.add("docker-compose")
        programs.add("dockerd", f'echo $$ > "{tmp_path}/pid"\n{DAEMON}')
        with pytest.raises(KeyboardInterrupt), engine(shell, tmp_path / "engine", uid=0):
            raise KeyboardInterrupt
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)


class TestMounts:
    # Lines as a kernel writes them: proc(5), /proc/[pid]/mountinfo.
    INFO = (
        "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        "90 22 0:4 net:[4026531840] /srv/a\\040b/exec/netns/default rw shared:1 - nsfs nsfs rw\n"
        "91 22 254:0 /x /srv/a\\040b/exec rw shared:1 - ext4 /dev/vda rw\n"
        "92 22 254:0 /y /srv/a\\040bc rw shared:1 - ext4 /dev/vda rw\n"
    )

    def test_below_the_folder_are_found_the_innermost_first(self) -> None:
        assert mounts_below(Path("/srv/a b"), self.INFO) == ["/srv/a b/exec/netns/default", "/srv/a b/exec"]

    def test_of_this_machine_are_read(self, tmp_path: Path) -> None:
        info = Path("/proc/self/mountinfo").read_text()
        assert mounts_below(tmp_path, info) == []
        assert mounts_below(Path("/"), info) != []


class TestNone:
    def test_without_docker(self, shell: Shell, tmp_path: Path) -> None:
        with pytest.raises(Skipped, match="docker is not installed"), engine(shell, tmp_path, uid=0):
            pass

    def test_without_dockerd(self, programs: Programs, shell: Shell, tmp_path: Path) -> None:
        programs.add("docker", "exit 1")
        with pytest.raises(Skipped, match="dockerd is not installed"), engine(shell, tmp_path, uid=0):
            pass

    def test_without_root(self, programs: Programs, shell: Shell, tmp_path: Path) -> None:
        programs.add("docker", "exit 1")
        programs.add("dockerd", DAEMON)
        with pytest.raises(Skipped, match="starting one takes root"), engine(shell, tmp_path, uid=1000):
            pass
        assert programs.called("dockerd") == []

    def test_without_room_for_images(
        self, programs: Programs, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        programs.add("docker", "exit 1")
        programs.add("dockerd", DAEMON)
        monkeypatch.setattr("scripts.compose_test.engine.SPACE_BYTES", 10**18)
        with pytest.raises(Skipped, match=r"has \d+ GB instead of 25"), engine(shell, tmp_path, uid=0):
            pass
        assert programs.called("dockerd") == []

    def test_daemon_that_does_not_start_tells_its_last_line(
        self, programs: Programs, shell: Shell, tmp_path: Path
    ) -> None:
        programs.add("docker", "exit 1")
        programs.add("dockerd", "echo 'failed to mount cgroup: operation not permitted' >&2; exit 1")
        with (
            pytest.raises(Skipped, match="did not start: failed to mount cgroup: operation not permitted"),
            engine(shell, tmp_path / "engine", uid=0),
        ):
            pass

    def test_without_compose(self, programs: Programs, shell: Shell, tmp_path: Path) -> None:
        programs.add("docker", 'case "$*" in version*) echo 27.1;; *) exit 1;; esac')
        with pytest.raises(Skipped, match="Compose is not installed"), engine(shell, tmp_path, uid=0):
            pass
