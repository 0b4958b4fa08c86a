"""What a spec of code says about files, held against the names in a bundle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spec.files import check_script, has_module, missing_file, missing_requirements, nearest_file

NAMES = frozenset({"train.py", "src/evaluate.py", "nets/__init__.py", "nets/small.py", "requirements.txt", "fast.so"})


class TestCheckScript:
    @pytest.mark.parametrize(
        "command",
        [
            ["python", "train.py", "--lr", "0.1"],
            ["python3", "./train.py"],
            ["python", "-u", "-W", "error", "-Xfrozen_modules=off", "src/evaluate.py"],
            ["python", "-m", "missing.module"],
            ["python", "-c", "missing.py"],
            ["python", "-"],
            ["python"],
            ["python", "-u"],
            ["python", "/opt/elsewhere.py"],
            ["python", "folder"],
            ["torchrun", "missing.py"],
            ["nets/../run.sh", "missing.py"],
            ["./src/evaluate.py", "missing.py"],
            ["/opt/run.sh"],
            ["run.sh"],
        ],
    )
    def test_nothing_is_said_of_files_that_are_there_or_may_be_elsewhere(self, command: list[str]) -> None:
        assert check_script(command, NAMES) == []

    @pytest.mark.parametrize(
        ("command", "pointer", "nearest"),
        [
            (["python", "trian.py"], "/script/command/1", "train.py"),
            (["python", "-u", "evaluate.py"], "/script/command/2", "src/evaluate.py"),
            (["python3", "-W", "error", "code/train.py"], "/script/command/3", "train.py"),
            (["python", "quite_different.py"], "/script/command/1", None),
            (["./evaluate.py"], "/script/command/0", "src/evaluate.py"),
            (["bin/run", "x"], "/script/command/0", None),
        ],
    )
    def test_a_file_that_is_not_there_is_told_with_the_one_that_was_meant(
        self, command: list[str], pointer: str, nearest: str | None
    ) -> None:
        (problem,) = check_script(command, NAMES)
        assert (problem.pointer, problem.suggestion) == (pointer, nearest)
        assert problem.message.startswith("There is no file '")

    @pytest.mark.parametrize(("name", "meant"), [("train.py", '["python", "train.py"]'), ("fast.so", '["./fast.so"]')])
    def test_a_file_is_no_program_of_the_path(self, name: str, meant: str) -> None:
        (problem,) = check_script([name, "--lr", "1"], NAMES)
        assert (problem.pointer, problem.suggestion) == ("/script/command", meant)

    @pytest.mark.parametrize("command", [["python", "train.py"], ["python", "-u", "./train.py"], ["./run.sh"]])
    def test_without_a_bundle_there_is_no_file(self, command: list[str]) -> None:
        (problem,) = check_script(command, None)
        assert problem.pointer == "/script/bundle"

    @pytest.mark.parametrize("command", [["python", "-m", "x"], ["python", "/opt/x.py"], ["train.py"], ["/bin/true"]])
    def test_but_perhaps_a_program(self, command: list[str]) -> None:
        assert check_script(command, None) == []


class TestMissingRequirements:
    @pytest.mark.parametrize(
        ("wanted", "names", "meant"),
        [
            ("rich==14.1.0", NAMES, '["rich==14.1.0"]'),
            ("rich", NAMES, '["rich"]'),
            ("rich", None, '["rich"]'),
            ("requirements.txt", None, '["rich==14.1.0"]'),
            ("requirement.txt", NAMES, "requirements.txt"),
            ("lists/requirements.txt", NAMES, "requirements.txt"),
            ("lists/gpu.txt", frozenset({"train.py"}), None),
        ],
    )
    def test_a_list_is_suggested_for_what_is_no_file(
        self, wanted: str, names: frozenset[str] | None, meant: str | None
    ) -> None:
        assert missing_requirements("/x", wanted, names).suggestion == meant


class TestNearestFile:
    def test_the_shallowest_of_the_same_name_is_meant(self) -> None:
        assert nearest_file("x/train.py", {"a/b/train.py", "a/train.py", "trains.py"}) == "a/train.py"

    def test_only_files_of_the_same_kind_are_alike(self) -> None:
        assert nearest_file("requirement.txt", NAMES) == "requirements.txt"
        assert nearest_file("requirement.py", {"requirements.txt"}) is None

    def test_without_one_the_first_files_are_named(self) -> None:
        problem = missing_file("/x", "a", {f"file{number}" for number in range(9)})
        assert problem.message == (
            "There is no file 'a' in the bundle; it has file0, file1, file2, file3, file4 and 4 more."
        )

    @given(st.text(max_size=20), st.frozensets(st.text(max_size=10), max_size=5))
    def test_it_is_always_a_file_of_the_bundle(self, name: str, names: frozenset[str]) -> None:
        assert nearest_file(name, names) in {None, *names}


class TestHasModule:
    @pytest.mark.parametrize("module", ["train", "nets", "nets.small", "fast", "quick"])
    def test_files_packages_and_compiled_modules(self, module: str) -> None:
        assert has_module(module, NAMES | {"quick.cpython-312-x86_64-linux-gnu.so"})

    @pytest.mark.parametrize("module", ["evaluate", "src", "nets.large", "requirements", "tra"])
    def test_others_are_not_there(self, module: str) -> None:
        assert not has_module(module, NAMES)
