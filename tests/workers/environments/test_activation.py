"""A process of the base that takes on the packages of an environment, as a trainer does."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.workers.environments.journal import PYTHON, Journal, environments
from tests.workers.environments.wheels import wheel
from workers.environments.activation import activate, packages_of

CODE = """
import json, sys
before = list(sys.path)
import workers.launcher
from workers.environments.activation import activate
activate(sys.argv[1])
import numpy, tiny, workers.trainer_user, colorsys
said = {"before": before, "after": sys.path, "numpy": numpy.VERSION, "tiny": tiny.__file__, "marked": sys.marked}
said |= {"ours": workers.trainer_user.__file__, "colorsys": colorsys.__file__, "version": sys.version_info[:2]}
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("activation")
    house = folder / "wheels"
    marks = {"mark.pth": "import sys; sys.marked = True\n"}
    shadows = {"colorsys.py": "", "workers/__init__.py": "", "workers/trainer_user.py": ""}
    wheel(house, "tiny", files=marks | shadows)
    wheel(house, "numpy", "0.1")
    return Journal().obtain(environments(folder / "e", house), "tiny\nnumpy==0.1")


@pytest.fixture(scope="module")
def said(interpreter: Path) -> dict[str, Any]:
    command = [str(PYTHON), "-P", "-c", CODE, str(interpreter)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class TestActivating:
    def test_its_packages_come_before_those_of_the_base(self, said: dict[str, Any]) -> None:
        assert said["numpy"] == "0.1"

    def test_the_standard_library_comes_before_them(self, said: dict[str, Any], interpreter: Path) -> None:
        assert not said["colorsys"].startswith(str(interpreter.parent.parent))

    def test_our_packages_cannot_be_replaced_once_they_are_imported(
        self, said: dict[str, Any], interpreter: Path
    ) -> None:
        assert not said["ours"].startswith(str(interpreter.parent.parent))

    def test_all_that_could_be_found_before_still_can_and_no_place_is_there_twice(self, said: dict[str, Any]) -> None:
        added = [path for path in said["after"] if path not in said["before"]]
        assert len(added) == 1
        assert [path for path in said["after"] if path not in added] == said["before"]

    def test_what_its_packages_do_at_a_start_is_done(self, said: dict[str, Any]) -> None:
        assert said["marked"] is True

    def test_the_packages_are_where_the_interpreter_has_them(self, said: dict[str, Any], interpreter: Path) -> None:
        folder = Path(packages_of(str(interpreter)))
        assert Path(said["tiny"]).parent == folder
        assert folder.name == "site-packages"

    def test_what_is_no_environment_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            activate(str(tmp_path / "bin" / "python"))
