"""A script that is not among what is sent."""

from pathlib import Path

import pytest

from app.cli.errors import UsageProblem
from app.cli.run.missing import require_script

FILES = {"train.py": Path("train.py"), "src/evaluate.py": Path("src/evaluate.py")}


class TestRequireScript:
    @pytest.mark.parametrize(
        "command",
        [
            "python train.py",
            "python3 ./train.py",
            "python -m x",
            "python /opt/x.py",
            "bash a.py",
            "python",
            "python -c 1",
        ],
    )
    def test_what_may_be_there_passes(self, tmp_path: Path, command: str) -> None:
        require_script(command.split(), FILES, tmp_path)

    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            ("trian.py", "did you mean train.py"),
            ("evaluate.py", "did you mean src/evaluate.py"),
            ("other_name.py", "see --dry-run"),
            ("../train.py", "is outside of"),
        ],
    )
    def test_what_is_not_is_named_with_what_is_near(self, tmp_path: Path, name: str, sentence: str) -> None:
        with pytest.raises(UsageProblem, match=sentence):
            require_script(["python", name], FILES, tmp_path)

    def test_an_ignored_one_is_said_to_be_ignored(self, tmp_path: Path) -> None:
        (tmp_path / "old.py").write_text("")
        with pytest.raises(UsageProblem, match="an ignore file leaves it out"):
            require_script(["python", "old.py"], FILES, tmp_path)
