"""The Makefile and the search for an interpreter, run with stand-ins for the interpreters of a machine."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGET = re.compile(r"^([a-z-]+):(?!=)(?:.*?## (.*))?", re.MULTILINE)
VERBS = {
    "help",
    "compose-test",
    "monitoring-test",
    "gpu-test",
    "setup",
    "demo",
    "up",
    "test",
    "check",
    "full",
    "bench",
    "format",
    "clean",
}


# `make test` hands its own state to what it starts; a make that is under test must not see it.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}


MAKE = shutil.which("make") or "make"


def make(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MAKE, *arguments], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False)


class TestHelp:
    def test_lists_every_verb_with_one_sentence(self) -> None:
        lines = make("help").stdout.splitlines()
        listed = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
        assert set(listed) == VERBS
        for sentence in listed.values():
            assert re.fullmatch(r"[A-Z].*\.", sentence)
            assert len(sentence) <= 90

    def test_is_what_make_alone_prints(self) -> None:
        assert make().stdout == make("help").stdout

    def test_no_target_is_left_out(self) -> None:
        text = (ROOT / "Makefile").read_text(encoding="utf-8")
        targets = {match[1]: match[2] for match in TARGET.finditer(text) if match[1] != "remake"}
        assert set(targets) == VERBS
        assert all(targets.values())

    def test_every_verb_is_phony(self) -> None:
        text = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert set(re.findall(r"^\.PHONY: (\S+)$", text, re.MULTILINE)) == VERBS | {"remake"}


class TestSetup:
    def test_uses_pip_with_the_pins_and_all_extras(self) -> None:
        plan = make("--always-make", "--dry-run", "setup").stdout
        assert "--constraint constraints.txt --editable '.[api,worker,torch,tensorflow,dev]'" in plan
        assert "index" not in plan  # the machine's own pip configuration decides where packages come from
        assert "uv " not in plan

    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        """A checkout whose .venv holds a stand-in for Python, which writes down what it is asked to do."""
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            (tmp_path / name).write_bytes((ROOT / name).read_bytes())
        script(tmp_path / ".venv/bin/python", 'case "$1" in -c) exit 0;; esac; echo "$@" >> calls')
        (tmp_path / "scripts").mkdir()
        (tmp_path / "scripts/find_python.sh").write_text(f"echo '{tmp_path}/venv-maker'\n", encoding="utf-8")
        script(tmp_path / "venv-maker", 'echo "made: $@" >> calls')
        (tmp_path / ".venv/made-in").write_text(f"{tmp_path}\n", encoding="utf-8")
        return tmp_path

    def calls(self, tree: Path) -> str:
        path = tree / "calls"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def test_does_nothing_a_second_time(self, tree: Path) -> None:
        assert make("setup", cwd=tree).returncode == 0
        assert self.calls(tree) == ""

    @pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
    def test_installs_again_into_the_same_environment_after_a_change(self, tree: Path, name: str) -> None:
        newer = (tree / ".venv/made-in").stat().st_mtime + 10
        os.utime(tree / name, (newer, newer))
        assert make("setup", cwd=tree).returncode == 0
        assert "--editable" in self.calls(tree)
        assert "made:" not in self.calls(tree)

    def test_environment_copied_from_another_folder_is_made_again(self, tree: Path) -> None:
        (tree / ".venv/made-in").write_text("/somewhere/else\n", encoding="utf-8")
        assert make("setup", cwd=tree).returncode == 0
        assert "made: -m venv --clear .venv" in self.calls(tree)
        assert (tree / ".venv/made-in").read_text(encoding="utf-8") == f"{tree}\n"

    def test_environment_whose_python_went_away_is_made_again(self, tree: Path) -> None:
        script(tree / ".venv/bin/python", 'case "$1" in -c) exit 127;; esac; echo "$@" >> calls')
        assert make("setup", cwd=tree).returncode == 0
        assert "made: -m venv --clear .venv" in self.calls(tree)

    def test_failed_installation_is_tried_again(self, tree: Path) -> None:
        script(tree / ".venv/bin/python", 'case "$1" in -c) exit 0;; esac; echo "$@" >> calls; exit 1')
        (tree / ".venv/made-in").write_text("/somewhere/else\n", encoding="utf-8")
        assert make("setup", cwd=tree).returncode != 0
        first = self.calls(tree)
        assert make("setup", cwd=tree).returncode != 0
        assert len(self.calls(tree)) > len(first)


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


class TestFindPython:
    """Each stand-in behaves as a real interpreter was seen to behave."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """A folder that is PATH; the shell's own tools are linked into it."""
        for tool in ("sh", "head"):
            (tmp_path / tool).symlink_to(next(p for p in (Path("/bin") / tool, Path("/usr/bin") / tool) if p.exists()))
        return tmp_path

    def find(self, path: Path, python: str = "") -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(path), "PYTHON": python}
        command = [str(path / "sh"), str(ROOT / "scripts/find_python.sh")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def real(self, path: Path, name: str) -> None:
        """The interpreter of this test, which is in range."""
        script(path / name, f'exec "{sys.executable}" "$@"')

    def broken_shim(self, path: Path, name: str) -> None:
        script(path / name, f'echo "pyenv: {name}: command not found" >&2; exit 127')

    def old(self, path: Path, name: str) -> None:
        script(path / name, 'echo "it is version 3.10" >&2; exit 1')

    def test_python3_in_range_is_preferred(self, path: Path) -> None:
        self.real(path, "python3")
        self.broken_shim(path, "python3.13")
        assert self.find(path).stdout == f"{sys.executable}\n"

    def test_command_that_is_there_but_starts_nothing_is_passed_over(self, path: Path) -> None:
        self.old(path, "python3")
        self.broken_shim(path, "python3.13")
        self.real(path, "python3.12")
        assert self.find(path).stdout == f"{sys.executable}\n"

    def test_python_variable_decides(self, path: Path) -> None:
        self.broken_shim(path, "python3")
        chosen = path / "a folder" / "python"
        self.real(chosen.parent, "python")
        assert self.find(path, str(chosen)).stdout == f"{sys.executable}\n"

    def test_python_variable_out_of_range_is_an_error_although_others_would_do(self, path: Path) -> None:
        self.real(path, "python3")
        self.old(path, "python3.10")
        found = self.find(path, "python3.10")
        assert found.returncode == 1
        assert "python3.10: it is version 3.10" in found.stderr
        assert found.stdout == ""

    def test_nothing_found_names_each_candidate_and_what_to_do(self, path: Path) -> None:
        self.old(path, "python3")
        self.broken_shim(path, "python3.12")
        found = self.find(path)
        assert found.returncode == 1
        assert found.stderr.splitlines() == [
            "No Python 3.11, 3.12 or 3.13 that can make a virtual environment. Tried:",
            "  python3: it is version 3.10",
            "  python3.13: not found",
            "  python3.12: pyenv: python3.12: command not found",
            "  python3.11: not found",
            "Install one, or name it: make setup PYTHON=/usr/bin/python3.11",
        ]

    def test_python_without_ensurepip_says_what_to_install(self, path: Path, tmp_path: Path) -> None:
        # As Debian ships python3 without python3-venv.
        hidden = tmp_path / "hidden"
        hidden.mkdir()
        (hidden / "ensurepip.py").write_text("raise ModuleNotFoundError('no', name='ensurepip')\n", encoding="utf-8")
        script(path / "python3", f'PYTHONPATH="{hidden}" exec "{sys.executable}" "$@"')
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        found = self.find(path)
        expected = f"it has no module ensurepip (Debian and Ubuntu: apt install python{version}-venv)"
        assert f"python3: {expected}" in found.stderr

    def test_is_executable(self) -> None:
        assert (ROOT / "scripts/find_python.sh").stat().st_mode & stat.S_IXUSR
