"""What a base interpreter says of itself."""

import platform
import site
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from app.errors import Cause
from tests.workers.environments.journal import PYTHON
from workers.environments.base import Bases, ask
from workers.environments.errors import EnvironmentFailed


class TestAsking:
    def test_this_interpreter_is_what_it_is(self) -> None:
        base = ask("torch", PYTHON)
        assert (base.framework, base.python) == ("torch", PYTHON)
        assert base.version == platform.python_version()
        assert base.short_version == f"{sys.version_info.major}.{sys.version_info.minor}"
        assert base.packages["trainshed"] == metadata.version("trainshed")
        assert base.packages["scikit-learn"] == metadata.version("scikit-learn")
        assert list(base.paths) == [path for path in site.getsitepackages() if Path(path).is_dir()]
        assert base.scripts["lint-imports"] == ("importlinter.cli", "lint_imports_command")

    def test_what_our_trainer_needs_is_what_the_project_needs_without_extras(self) -> None:
        names = {line.split(">")[0] for line in ask("torch", PYTHON).needs}
        assert {"numpy", "pydantic", "polars"} <= names
        assert not names & {"sqlalchemy", "torch", "celery"}

    @pytest.fixture
    def program(self, tmp_path: Path) -> Callable[[str], Path]:
        def write(text: str) -> Path:
            path = tmp_path / "python"
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
            return path

        return write

    @pytest.mark.parametrize("text", ["exit 1", "exit 0", "echo not JSON", "sleep 600"])
    def test_one_that_does_not_answer_is_the_hosts_fault(self, program: Callable[[str], Path], text: str) -> None:
        with pytest.raises(EnvironmentFailed, match="does not answer") as caught:
            ask("torch", program(text), limit_s=60 if "sleep" not in text else 0.1)
        assert caught.value.cause is Cause.WORKER_LOST


class TestKeeping:
    def test_an_answer_is_kept_until_something_changes(self, tmp_path: Path) -> None:
        packages = tmp_path / "site-packages"
        packages.mkdir()
        asked = tmp_path / "asked"
        python = tmp_path / "python"
        answer = f'["3.11.1", {{}}, {{}}, ["{packages}"], []]'
        python.write_text(f"#!/bin/sh\necho once >> {asked}\necho '{answer}'\n")
        python.chmod(0o755)
        bases = Bases({"torch": python})

        assert bases.of("torch") is bases.of("torch")
        assert asked.read_text() == "once\n"

        (packages / "new-1.0.dist-info").mkdir()
        assert bases.of("torch").paths == (str(packages),)
        assert asked.read_text() == "once\nonce\n"

    def test_a_framework_that_the_host_does_not_have(self) -> None:
        with pytest.raises(EnvironmentFailed, match="no interpreter for tensorflow"):
            Bases({"torch": PYTHON}).of("tensorflow")
