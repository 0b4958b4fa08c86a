"""Which Python trains with which framework."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.settings import InvalidSettings
from workers.interpreters import Interpreter, find_interpreters, own_interpreter

ASKS = """
import sys
from workers.interpreters import find_interpreters
found = find_interpreters({})
assert found, "this environment has no framework"
print(sorted({"torch", "tensorflow", "keras"} & set(sys.modules)), sorted(found), found["torch"].path)
"""


class TestConfigured:
    def test_paths_are_taken_as_they_are(self, tmp_path: Path) -> None:
        python = tmp_path / "bin" / "python"
        python.parent.mkdir()
        python.symlink_to(sys.executable)
        assert find_interpreters({"torch": python}) == {"torch": Interpreter(python, None)}

    def test_only_what_is_configured_is_offered(self) -> None:
        assert list(find_interpreters({"torch": Path(sys.executable)})) == ["torch"]

    @pytest.mark.parametrize("name", ["missing", "folder", "text"])
    def test_what_is_no_program_is_refused_with_an_example(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "text").touch(mode=0o644)
        with pytest.raises(InvalidSettings, match=rf"{tmp_path / name}.*TRAINSHED_INTERPRETERS="):
            find_interpreters({"torch": tmp_path / name})

    def test_an_unknown_framework_is_refused_with_the_known_ones(self) -> None:
        with pytest.raises(InvalidSettings, match=r"'jax'.*torch, tensorflow"):
            find_interpreters({"jax": Path(sys.executable)})


class TestOwn:
    def test_each_installed_framework_is_offered_by_this_interpreter_without_importing_it(self) -> None:
        done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, check=True)
        assert done.stdout.split("]")[0] == "["
        assert done.stdout.strip().endswith(sys.executable)

    def test_the_version_is_what_the_package_says_of_itself(self) -> None:
        spec = importlib.util.find_spec("torch")
        assert spec is not None
        assert spec.origin is not None
        text = (Path(spec.origin).parent / "version.py").read_text()
        version = find_interpreters({})["torch"].version
        # The package's own file may add the build (2.13.0+cu130), which its metadata leave out.
        assert re.search(rf"^__version__ = '{re.escape(str(version))}(\+\w+)?'$", text, re.MULTILINE)

    def test_every_worker_has_a_python_for_scripts(self) -> None:
        own = own_interpreter()

        assert own.path == Path(sys.executable)
        assert own.version == ".".join(str(number) for number in sys.version_info[:3])
