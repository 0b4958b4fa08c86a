"""Finding and calling the user's function: every mistake is told with the place and what there is instead."""

import sys
from pathlib import Path
from typing import Any

import pytest

from app.errors import Cause
from tests.workers.user_model.user_jobs import write_folder
from workers.user_model.entrypoint import PROTECTED, find, load_entrypoint, module_name
from workers.user_model.errors import UserCodeFailed, place_of


def called(folder: Path, text: str, entrypoint: str = "nets:build", **parameters: Any) -> object:
    write_folder(folder, {"nets.py": text})
    return load_entrypoint(str(folder), entrypoint, parameters, (4,), 3)


def problem(folder: Path, text: str, entrypoint: str = "nets:build", **parameters: Any) -> str:
    with pytest.raises(UserCodeFailed) as caught:
        called(folder, text, entrypoint, **parameters)
    assert caught.value.cause == Cause.USER_CODE
    return str(caught.value)


class TestCall:
    def test_gives_the_parameters_and_what_the_function_wants_of_ours(self, tmp_path: Path) -> None:
        text = "def build(width, *, input_shape, output_units):\n    return width, input_shape, output_units\n"

        assert called(tmp_path, text, width=7) == (7, (4,), 3)

    def test_a_function_that_wants_nothing_gets_nothing(self, tmp_path: Path) -> None:
        assert called(tmp_path, "def build():\n    return 'model'\n") == "model"

    def test_a_parameter_of_the_same_name_counts(self, tmp_path: Path) -> None:
        assert called(tmp_path, "def build(output_units):\n    return output_units\n", output_units=9) == 9

    def test_takes_a_class_and_a_name_inside_of_one(self, tmp_path: Path) -> None:
        text = "class Net:\n    @classmethod\n    def small(cls, units=1):\n        return cls, units\n"
        found = called(tmp_path, text, "nets:Net.small", units=2)

        assert isinstance(found, tuple)
        assert (found[0].__name__, found[1]) == ("Net", 2)

    def test_finds_packages_with_relative_imports_and_files_beside_them(self, tmp_path: Path) -> None:
        files = {
            "pack/__init__.py": "",
            "pack/deep/parts.py": "WIDTH = 5\n",
            "pack/deep/__init__.py": "",
            "pack/model.py": "from pathlib import Path\nfrom .deep.parts import WIDTH\nimport beside\n"
            "def build():\n    return WIDTH, beside.NAME, (Path(__file__).parent / 'size.txt').read_text()\n",
            "pack/size.txt": "12",
            "beside.py": "NAME = 'b'\n",
        }
        write_folder(tmp_path, files)

        assert load_entrypoint(str(tmp_path), "pack.model:build", {}, (4,), 3) == (5, "b", "12")

    def test_without_a_bundle_the_module_is_in_the_environment(self) -> None:
        assert load_entrypoint(None, "fractions:Fraction", {"numerator": 3}, (4,), 3) == 3

    def test_what_the_framework_knows_is_passed_on(self, tmp_path: Path) -> None:
        write_folder(tmp_path, {"nets.py": "def build():\n    raise BufferError('full')\n"})

        with pytest.raises(BufferError):
            load_entrypoint(
                str(tmp_path), "nets:build", {}, (4,), 3, lambda error: isinstance(error, BufferError) or None
            )

    def test_memory_is_not_the_users_code(self, tmp_path: Path) -> None:
        with pytest.raises(MemoryError):
            called(tmp_path, "def build():\n    raise MemoryError\n")


class TestSearch:
    def test_the_next_bundle_of_a_process_has_modules_of_its_own(self, tmp_path: Path) -> None:
        write_folder(tmp_path / "one", {"part.py": "X = 1\n"})
        write_folder(tmp_path / "two", {"part.py": "X = 2\n"})
        text = "import part\ndef build():\n    return part.X\n"

        assert [called(tmp_path / name, text) for name in ("one", "two", "one")] == [1, 2, 1]
        assert str(tmp_path / "two") not in sys.path

    def test_pythons_own_modules_cannot_be_replaced(self, tmp_path: Path) -> None:
        write_folder(tmp_path, {"colorsys.py": "MINE = True\n"})
        sys.modules.pop("colorsys", None)

        assert called(tmp_path, "import colorsys\ndef build():\n    return hasattr(colorsys, 'MINE')\n") is False

    def test_a_bundle_comes_before_installed_packages(self, tmp_path: Path) -> None:
        write_folder(tmp_path, {"wheel_of_mine.py": ""})
        called(tmp_path, "def build():\n    pass\n")

        place = sys.path.index(str(tmp_path))
        packages = [number for number, entry in enumerate(sys.path) if entry.endswith("site-packages")]
        assert packages
        assert place < min(packages)

    @pytest.mark.parametrize("name", sorted(PROTECTED))
    @pytest.mark.parametrize("form", ["{}.py", "{}/__init__.py", "{}/deeper/code.py"])
    def test_the_names_that_training_needs_are_refused(self, tmp_path: Path, name: str, form: str) -> None:
        write_folder(tmp_path, {form.format(name): ""})

        assert f"has '{name}' at its top" in problem(tmp_path, "def build():\n    pass\n")

    def test_a_folder_of_that_name_without_python_is_no_harm(self, tmp_path: Path) -> None:
        write_folder(tmp_path, {"app/pictures/cat.txt": "cat"})

        assert called(tmp_path, "def build():\n    return 1\n") == 1

    def test_an_entrypoint_cannot_have_the_name_of_one_of_pythons_own(self, tmp_path: Path) -> None:
        write_folder(tmp_path, {"random.py": "def build():\n    pass\n"})

        assert "one of Python's own" in problem(tmp_path, "", "random:build")


class TestMistakes:
    def test_a_module_that_is_not_there(self, tmp_path: Path) -> None:
        write_folder(tmp_path, {"pack/model.py": "", "pack/__init__.py": ""})

        assert problem(tmp_path, "", "pack.modle:build") == (
            "The bundle has no module 'pack.modle'. Did you mean 'pack.model'? It has: nets, pack, pack.model."
        )

    def test_a_package_that_is_not_there(self, tmp_path: Path) -> None:
        assert "has no module 'away.model'" in problem(tmp_path, "", "away.model:build")

    def test_a_module_that_is_not_in_the_environment(self) -> None:
        with pytest.raises(UserCodeFailed, match="no module 'no_such_module' in the worker's environment"):
            find(None, "no_such_module:build")

    def test_a_function_that_is_not_there(self, tmp_path: Path) -> None:
        text = "from os import getcwd\nclass Net: pass\ndef build_net(): pass\ndef _hidden(): pass\nSIZE = 3\n"

        assert problem(tmp_path, text, "nets:build_nets") == (
            "The module 'nets' has no 'build_nets'. Did you mean 'build_net'? "
            "Its functions and classes: Net, build_net."
        )

    def test_something_that_is_no_function(self, tmp_path: Path) -> None:
        assert "is not a function but of type builtins.int" in problem(tmp_path, "build = 3\n")

    def test_a_package_that_is_not_installed_is_named_with_the_way_to_add_it(self, tmp_path: Path) -> None:
        found = problem(tmp_path, "import no_such_package.deep\n")

        assert "needs 'no_such_package', which is not installed" in found
        assert "model.environment.requirements" in found

    def test_a_syntax_error(self, tmp_path: Path) -> None:
        found = problem(tmp_path, "def build(:\n")

        assert "'nets' cannot be imported" in found
        assert "nets.py" in found
        assert "line 1" in found

    def test_an_error_in_the_module_itself(self, tmp_path: Path) -> None:
        found = problem(tmp_path, "x = 1\ny = 1 / 0\n")

        assert found == (
            "The module 'nets' cannot be imported: ZeroDivisionError: division by zero (nets.py, line 2, in <module>)"
        )

    def test_a_module_that_ends_the_process(self, tmp_path: Path) -> None:
        assert "SystemExit: 3" in problem(tmp_path, "import sys\nsys.exit(3)\n")

    def test_what_is_no_exception_is_an_error_like_any_other(self, tmp_path: Path) -> None:
        leaving = "class Leave(BaseException):\n    pass\n\n\n"

        imported = problem(tmp_path, f"{leaving}raise Leave(7)\n")
        assert imported == "The module 'nets' cannot be imported: Leave: 7 (nets.py, line 5, in <module>)"
        built = problem(tmp_path / "second", f"{leaving}def build():\n    raise Leave(7)\n")
        assert built == "The model's function 'nets:build' failed: Leave: 7 (nets.py, line 6, in build)"

    def test_an_argument_that_the_function_does_not_have(self, tmp_path: Path) -> None:
        found = problem(tmp_path, "def build(width, depth=2):\n    pass\n", width=3, dept=1)

        assert "got an unexpected keyword argument 'dept'" in found
        assert "It takes (width, depth=2)." in found

    def test_an_argument_that_is_not_given(self, tmp_path: Path) -> None:
        assert "missing a required argument: 'width'" in problem(tmp_path, "def build(width):\n    pass\n")

    def test_an_error_of_the_function_is_told_with_its_line(self, tmp_path: Path) -> None:
        text = "def inner(n):\n    return [][n]\n\n\ndef build():\n    return inner(4)\n"

        with pytest.raises(UserCodeFailed) as caught:
            called(tmp_path, text)

        assert str(caught.value) == (
            "The model's function 'nets:build' failed: IndexError: list index out of range (nets.py, line 2, in inner)"
        )
        assert isinstance(caught.value.__cause__, IndexError)  # its traceback is the detail


class TestPlaces:
    @pytest.mark.parametrize(
        ("path", "name"),
        [("a.py", "a"), ("a/b.py", "a.b"), ("a/__init__.py", "a"), ("__init__.py", "__init__")],
    )
    def test_files_as_modules(self, path: str, name: str) -> None:
        assert module_name(Path(path)) == name

    def test_an_error_outside_of_the_bundle_has_no_place_in_it(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="invalid literal") as caught:
            int("x")

        assert place_of(caught.value, str(tmp_path)) is None
        assert place_of(caught.value, None) is None
