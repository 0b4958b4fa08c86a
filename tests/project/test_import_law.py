"""The import contracts: they hold, they cover every module, and each one catches a planted breach."""

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def contracts() -> dict[str, dict[str, Any]]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return {item["id"]: item for item in tomllib.loads(text)["tool"]["importlinter"]["contracts"]}


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "lint-imports"
    command = [str(program), "--no-logo", "--no-cache"]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources, to plant breaches in."""
    for folder in ("app", "workers"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


class TestLaw:
    def test_holds(self) -> None:
        done = lint(ROOT)
        assert done.returncode == 0, done.stdout + done.stderr

    @pytest.mark.parametrize(
        ("path", "statement", "contract"),
        [
            ("app/spec/planted.py", "import app.db", "layers"),
            ("app/clock.py", "import app.series", "layers"),
            ("app/jobs/planted.py", "from app.scheduling import plan", "layers"),
            ("app/accounts/planted.py", "import app.artifacts", "layers"),
            ("app/planted.py", "", "layers"),
            ("app/api/planted.py", "import workers.protocol", "workers-beside-api"),
            ("workers/loop.py", "import app.api", "workers-beside-api"),
            ("app/jobs/planted.py", "import fastapi", "fastapi"),
            ("workers/channel.py", "from starlette.requests import Request", "fastapi"),
            ("workers/data/planted.py", "import sqlalchemy", "trainer-side"),
            ("workers/processes.py", "import redis", "trainer-side"),
            ("workers/protocol.py", "import app.settings", "trainer-side"),
            ("app/tables/planted.py", "import httpx", "shared-with-trainer"),
            ("app/scheduling/planted.py", "import torch", "frameworks"),
            ("workers/backends/tensorflow/planted.py", "import torch", "frameworks"),
            ("workers/loop.py", "import workers.backends.torch", "backends-by-name"),
        ],
    )
    def test_planted_breach_breaks_its_contract(self, tree: Path, path: str, statement: str, contract: str) -> None:
        with (tree / path).open("a", encoding="utf-8") as file:
            file.write(f"\n{statement}\n")
        done = lint(tree)
        assert done.returncode == 1
        assert contract in {name for name, item in contracts().items() if is_broken(done.stdout, item["name"])}


def is_broken(output: str, name: str) -> bool:
    """The report wraps long names at the end of a line."""
    return f"{name} BROKEN" in " ".join(output.split())


class TestCoverage:
    def test_every_way_into_the_trainer_is_named(self) -> None:
        ways_in = {"workers.launcher", "workers.trainer", "workers.loop", "workers.data", "workers.backends"}
        assert ways_in <= set(contracts()["trainer-side"]["source_modules"])

    def test_frameworks_of_the_contract_are_those_of_the_extras(self) -> None:
        assert contracts()["frameworks"]["forbidden_modules"] == ["torch", "tensorflow", "keras"]

    def test_launcher_and_what_it_imports_need_the_standard_library_alone(self) -> None:
        # It starts before anything is known to work, in any framework's environment, and with one thread.
        waiting, seen, foreign = ["workers.launcher"], set(), set()
        while waiting:
            module = waiting.pop()
            seen.add(module)
            for name in imported(ROOT / f"{module.replace('.', '/')}.py"):
                if name.partition(".")[0] == "workers":
                    waiting += [name] if name not in seen else []
                elif name.partition(".")[0] not in sys.stdlib_module_names:
                    foreign.add(f"{module} imports {name}")
        assert foreign == set()
        assert len(seen) < 10


def imported(path: Path) -> set[str]:
    """Every module that a file imports, in full."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return plain | named
