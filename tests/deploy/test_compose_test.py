"""The command behind `make compose-test`: where it cannot run it says why, and it leaves nothing behind."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import app
from scripts.compose_test import __main__ as command
from scripts.compose_test import moves
from scripts.compose_test.commands import Shell
from scripts.compose_test.engine import Engine, Skipped
from scripts.compose_test.report import Report
from scripts.compose_test.stack import Stack, free_port, taken_down
from tests.deploy.programs import Programs

ROOT = Path(__file__).resolve().parents[2]


def nothing() -> str:
    return ""


def cannot() -> str:
    raise Skipped("no registry")


def breaks() -> str:
    raise LookupError("gone")


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    made = Programs(tmp_path / "bin")
    made.add("docker", '[ "$1" != inspect ] || echo \'[{"State": {"Status": "running"}}]\'')
    made.add("docker-compose")
    return made


@pytest.fixture
def stack(programs: Programs, tmp_path: Path) -> Stack:
    shell = Shell(programs.environ(), tmp_path / "log", tmp_path)
    engine = Engine(shell, ("docker-compose",), "0", ours=False)
    return Stack(engine, tmp_path, "t-1", {"API_IMAGE": "x/api:t-1"}, tmp_path / "override.json")


class TestSkipped:
    def test_machine_without_docker_is_told_and_no_failure(self, tmp_path: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "scripts.compose_test"],
            cwd=ROOT,
            env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "SKIPPED: the program docker is not installed\n"), done.stderr

    def test_reason_of_a_step_ends_everything(self) -> None:
        with pytest.raises(Skipped, match="no registry"):
            command.needed(Report(lambda _line: None), "base images", cannot)

    def test_failure_of_a_needed_step_ends_it_as_a_failure(self) -> None:
        report = Report(lambda _line: None)
        with pytest.raises(command.StepFailed, match="up"):
            command.needed(report, "up", breaks)
        assert not report.passed


class TestStack:
    def test_compose_gets_project_files_and_no_settings_of_a_person(self, stack: Stack, programs: Programs) -> None:
        (stack.root / ".env").write_text("API_ADDRESS=0.0.0.0\n")
        stack.up()
        (call,) = programs.called("docker-compose")
        assert f"--project-name t-1 --project-directory {stack.root} --env-file {stack.root}/empty.env" in call
        assert f"-f {stack.root}/docker-compose.yml -f {stack.override}" in call
        assert (stack.root / "empty.env").read_text() == ""

    def test_is_taken_down_with_its_volumes_also_after_a_failure(self, stack: Stack, programs: Programs) -> None:
        with pytest.raises(LookupError), taken_down(stack):
            breaks()
        (call,) = programs.called("docker-compose")
        assert call.endswith("down --volumes --remove-orphans --timeout 30")

    def test_second_interruption_does_not_stop_the_taking_down(self, stack: Stack, programs: Programs) -> None:
        # The shell that compose runs in gets the signal that a terminal sends to all.
        programs.add("docker-compose", f"kill -INT {os.getpid()}; kill -INT $$; touch {stack.root}/done")
        before = signal.getsignal(signal.SIGINT)
        with taken_down(stack):
            pass
        assert (stack.root / "done").exists()
        assert signal.getsignal(signal.SIGINT) is before

    def test_container_that_is_not_there_is_named(self, stack: Stack) -> None:
        with pytest.raises(LookupError, match="worker has no container"):
            stack.container("worker")

    def test_leftovers_are_told_by_kind(self, stack: Stack, programs: Programs) -> None:
        programs.add("docker", '[ "$1" != volume ] || echo t-1_data')
        assert stack.leftovers() == ["volume t-1_data"]
        with pytest.raises(command.StepFailed, match="volume t-1_data"):
            command._gone(stack)

    def test_health_is_the_check_s_word_else_the_state(self, stack: Stack, programs: Programs) -> None:
        programs.add("docker", 'case $1 in ps) echo c1;; inspect) echo \'[{"State": {"Status": "exited"}}]\';; esac')
        assert stack.health("api") == "exited"
        healthy = {"Status": "running", "Health": {"Status": "healthy"}}
        programs.add("docker", f"case $1 in ps) echo c1;; inspect) echo '{json.dumps([{'State': healthy}])}';; esac")
        assert stack.health("api") == "healthy"

    def test_port_can_be_bound(self) -> None:
        assert 1024 < free_port() < 65536


class TestImages:
    LISTED = "case $* in *ls*) echo x/api:t-1; echo x/api:cache; echo x/worker:t-1-next;; esac"

    def test_layers_stay_for_the_next_run(self, stack: Stack, programs: Programs) -> None:
        programs.add("docker", self.LISTED)
        with command._images_removed(stack, whole=False):
            pass
        assert programs.called("docker")[1:] == [
            "docker tag x/api:t-1 x/api:cache",
            "docker image rm x/api:t-1",
            "docker image rm x/worker:t-1-next",
        ]

    def test_nothing_stays_when_asked(self, stack: Stack, programs: Programs) -> None:
        programs.add("docker", self.LISTED)
        with command._images_removed(stack, whole=True):
            pass
        assert [call.split()[-1] for call in programs.called("docker image rm")] == [
            "x/api:t-1",
            "x/api:cache",
            "x/worker:t-1-next",
        ]


class TestSteps:
    def test_each_has_a_name_of_its_own(self) -> None:
        names = [name for name, _work in command.steps(argparse.Namespace(stack=None))]  # type: ignore[arg-type]
        assert len(set(names)) == len(names)
        for service in ("Redis", "PostgreSQL", "worker"):
            assert any(name.startswith(f"restart {service}") or f"restart the {service}" in name for name in names)


class TestNextVersion:
    def test_is_the_version_with_a_local_part(self) -> None:
        version, text = moves.next_version((ROOT / moves.VERSION_FILE).read_text(encoding="utf-8"))
        assert version == f"{app.__version__}+next"
        assert re.search(rf'^__version__ = "{re.escape(version)}"$', text, re.MULTILINE)

    def test_is_built_from_a_copy_of_the_sources(self, stack: Stack, programs: Programs, tmp_path: Path) -> None:
        source = stack.root / moves.VERSION_FILE
        source.parent.mkdir()
        source.write_text('__version__ = "1.2"\n')
        for folder in (".git", ".venv", "bin/build"):
            (stack.root / folder).mkdir(parents=True)
        stack = Stack(stack.engine, stack.root, "t-1", {"API_IMAGE": "a:1", "WORKER_IMAGE": "w:1"}, stack.override)
        later, version = moves.build_next(stack, tmp_path.parent / f"{tmp_path.name}-next")
        assert version == "1.2+next"
        assert source.read_text() == '__version__ = "1.2"\n'
        assert (later.root / moves.VERSION_FILE).read_text() == '__version__ = "1.2+next"\n'
        assert not (later.root / ".git").exists()
        assert later.variables == {"API_IMAGE": "a:1-next", "WORKER_IMAGE": "w:1-next"}
        assert programs.called("docker-compose")[-1].endswith("build api worker")
