"""The child that makes an environment, run as the worker runs it, with other commands than pip."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workers.environments.journal import PLENTY, PYTHON
from workers.environments.child import run_step
from workers.environments.errors import EnvironmentFailed
from workers.environments.step import BASE_LINK, DISK_FULL, TOO_LARGE, make
from workers.processes import LAUNCH_TAG, all_pids, launch_of

MB = 1024 * 1024
TAG = {LAUNCH_TAG: f"test-{os.getpid()}", "PATH": os.environ["PATH"]}


class Stop(Exception):
    """What a check raises here."""


@pytest.fixture
def question(tmp_path: Path) -> dict[str, Any]:
    for name in ("folder", "scratch"):
        (tmp_path / name).mkdir()
    return {
        "uid": None,
        "parent": os.getpid(),
        "folder": str(tmp_path / "folder"),
        "scratch": str(tmp_path / "scratch"),
        "most_bytes": PLENTY,
        "reserve_bytes": 0,
        "files": {},
        "make": None,
        "command": [],
    }


def nothing() -> None:
    """A check that lets it go on."""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


class TestRunning:
    def test_lines_are_heard_and_the_exit_code_is_the_commands(self, question: dict[str, Any]) -> None:
        lines: list[str] = []
        code = "import sys; print('one\\n\\n  two\\rthree'); sys.stderr.write('last'); sys.exit(7)"
        question["command"] = python(code)
        assert run_step(PYTHON, question, TAG, lines.append, nothing) == 7
        assert lines == ["one", "  two", "three", "last"]

    def test_letters_that_are_none_and_endless_lines_are_borne(self, question: dict[str, Any]) -> None:
        lines: list[str] = []
        question["command"] = python("import os; os.write(1, b'\\xff\\xc3\\xa9\\n' + b'x' * 1_000_000)")
        assert run_step(PYTHON, question, TAG, lines.append, nothing) == 0
        assert lines[0] == "\ufffd\u00e9"
        assert len(lines[1]) <= 4_000

    def test_files_are_there_for_it_and_it_runs_beside_them(self, question: dict[str, Any]) -> None:
        lines: list[str] = []
        question |= {"files": {"asked": "for this"}, "command": python("print(open('asked').read())")}
        assert run_step(PYTHON, question, TAG, lines.append, nothing) == 0
        assert lines == ["for this"]

    def test_a_signal_is_told_as_a_shell_does(self, question: dict[str, Any]) -> None:
        question["command"] = python("import os; os.kill(os.getpid(), 9)")
        assert run_step(PYTHON, question, TAG, print, nothing) == 128 + 9

    def test_what_it_leaves_running_is_ended(self, question: dict[str, Any]) -> None:
        # It keeps the pipe, and has left the group.
        code = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)"
        question["command"] = python(code)
        assert run_step(PYTHON, question, TAG, print, nothing) == 0
        assert [pid for pid in all_pids() if launch_of(pid) == TAG[LAUNCH_TAG]] == []

    def test_a_check_stops_it(self, question: dict[str, Any]) -> None:
        heard: list[str] = []

        def check() -> None:
            if heard:
                raise Stop

        question["command"] = python("print('began', flush=True); import time; time.sleep(600)")
        with pytest.raises(Stop):
            run_step(PYTHON, question, TAG, heard.append, check)
        assert [pid for pid in all_pids() if launch_of(pid) == TAG[LAUNCH_TAG]] == []

    def test_it_does_not_begin_for_a_worker_that_has_gone(self, question: dict[str, Any]) -> None:
        lines: list[str] = []
        question |= {"parent": 1, "command": python("print('ran')")}
        assert run_step(PYTHON, question, TAG, lines.append, nothing) != 0
        assert lines == ["The worker has gone."]

    def test_an_interpreter_that_does_not_start_is_told(self, question: dict[str, Any], tmp_path: Path) -> None:
        with pytest.raises(EnvironmentFailed, match="could not be started: No such file"):
            run_step(tmp_path / "python", question, TAG, print, nothing)


class TestTheDisk:
    def test_many_files_may_be_too_much(self, question: dict[str, Any]) -> None:
        code = "for n in range(4): open(f'part-{n}', 'wb').write(b'x' * 1_000_000)\nimport time; time.sleep(600)"
        question |= {"most_bytes": 3 * MB, "command": python(code)}
        assert run_step(PYTHON, question, TAG, print, nothing) == TOO_LARGE

    def test_one_file_cannot_be(self, question: dict[str, Any]) -> None:
        lines: list[str] = []
        question |= {"most_bytes": MB, "command": python("open('file', 'wb').write(b'x' * 2_000_000)")}
        assert run_step(PYTHON, question, TAG, lines.append, nothing) != 0
        assert "File too large" in lines[-1]

    def test_a_disk_that_must_keep_room(self, question: dict[str, Any]) -> None:
        question |= {"reserve_bytes": 1 << 60, "command": python("import time; time.sleep(600)")}
        assert run_step(PYTHON, question, TAG, print, nothing) == DISK_FULL


class TestMaking:
    @pytest.fixture
    def made(self, tmp_path: Path) -> Path:
        base = tmp_path / "it's the base"
        base.mkdir()
        (base / "of_the_base.py").write_text("def main():\n    print('of the base')\n    return 4\n")
        scripts = {"program": ("of_the_base", "main"), "python": ("of_the_base", "main"), "../out": ("x", "y")}
        make(tmp_path / "made", [str(base)], scripts, {"tensorflow": "2.21.0"})
        return tmp_path / "made"

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def test_it_sees_what_the_base_has(self, made: Path) -> None:
        done = self.run(str(made / "bin" / "python"), "-P", "-c", "import of_the_base; of_the_base.main()")
        assert done.stdout == "of the base\n"

    def test_it_has_the_programs_of_the_base(self, made: Path) -> None:
        done = self.run(str(made / "bin" / "program"))
        assert (done.returncode, done.stdout) == (4, "of the base\n")

    def test_no_program_replaces_the_interpreter_or_lies_elsewhere(self, made: Path) -> None:
        assert (made / "bin" / "python").is_symlink()
        assert not (made / "out").exists()

    def test_another_name_of_a_package_has_its_version(self, made: Path) -> None:
        code = "from importlib.metadata import version; print(version('tensorflow'))"
        assert self.run(str(made / "bin" / "python"), "-P", "-c", code).stdout == "2.21.0\n"

    def test_pip_takes_the_other_name_for_installed(self, made: Path) -> None:
        command = [PYTHON, "-m", "pip", "--python", made / "bin" / "python", "list", "--format", "json", "--path"]
        (link,) = made.glob(f"lib/*/site-packages/{BASE_LINK}")
        listed = json.loads(self.run(*map(str, [*command, link.parent])).stdout)
        assert listed == [{"name": "tensorflow", "version": "2.21.0"}]
