"""A package from the index that pip knows here, with both frameworks imported beside it: in `make full` alone."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

from tests.workers.environments.journal import PYTHON, Journal, environments

pytestmark = pytest.mark.full

VERSIONS = """
import {name}, importlib.util, rich
print({name}.__version__, importlib.util.find_spec("rich").origin)
"""


@pytest.mark.parametrize("name", ["torch", "tensorflow"])
def test_a_package_of_the_index_lies_over_the_framework(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed here")
    there = environments(tmp_path / "environments", index="", interpreters={name: PYTHON})
    journal = Journal()
    python = journal.obtain(there, "rich==14.1.0", framework=name)
    assert journal.codes[-1] == "environment_ready"

    def told(interpreter: Path, code: str) -> list[str]:
        command = [str(interpreter), "-P", "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout.split()

    (version,) = told(PYTHON, f"import {name}; print({name}.__version__)")
    seen, origin = told(python, VERSIONS.format(name=name))
    assert seen == version
    assert Path(origin).is_relative_to(python.parent.parent)
