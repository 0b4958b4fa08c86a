"""Which framework a command needs, by its imports."""

from pathlib import Path

import pytest

from app.cli.errors import UsageProblem
from app.cli.run.frameworks import guess_framework, script_of


def files(folder: Path, **texts: str) -> dict[str, Path]:
    """Python files by name; `__` is a slash."""
    found = {}
    for keyword, text in texts.items():
        name = keyword.replace("__", "/") + ".py"
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        found[name] = path
    return found


def guess(command: str, found: dict[str, Path], **variables: str) -> str:
    return guess_framework(command.split(), found, variables).framework


class TestScript:
    @pytest.mark.parametrize(
        ("command", "script"),
        [
            ("python train.py", "train.py"),
            ("python3 ./train.py --lr 1", "train.py"),
            ("/usr/bin/python -u train.py", "train.py"),
            ("python -m pkg.train", "pkg/train.py"),
            ("python -m pkg", "pkg/__main__.py"),
            ("python -m", None),
            ("python -m elsewhere", None),
            ("python other.py", None),
            ("python", None),
            ("bash train.py", None),
        ],
    )
    def test_it_is_what_python_runs(self, command: str, script: str | None) -> None:
        names = ("train.py", "pkg/train.py", "pkg/__init__.py", "pkg/__main__.py")
        assert script_of(command.split(), {name: Path(name) for name in names}) == script


class TestGuess:
    @pytest.mark.parametrize(
        ("text", "framework"),
        [
            ("import torch", "torch"),
            ("from torch.nn import Linear", "torch"),
            ("import lightning as L", "torch"),
            ("from transformers import Trainer", "torch"),
            ("def f():\n    import tensorflow as tf", "tensorflow"),
            ("import keras", "tensorflow"),
            ("import sklearn", "python"),
            ("import torchless, mytorch", "python"),
            ("# import torch", "python"),
        ],
    )
    def test_an_import_tells(self, tmp_path: Path, text: str, framework: str) -> None:
        assert guess("python train.py", files(tmp_path, train=text)) == framework

    def test_it_says_why(self, tmp_path: Path) -> None:
        found = files(tmp_path, train="import net", net="import torch.nn")
        assert guess_framework(["python", "train.py"], found, {}).why == "torch, since net.py imports torch"

    def test_only_what_the_script_reaches_counts(self, tmp_path: Path) -> None:
        found = files(tmp_path, train="import a", a="from pkg import b", pkg__b="import torch", old="import tensorflow")
        assert guess("python train.py", found) == "torch"

    def test_relative_imports_are_followed(self, tmp_path: Path) -> None:
        texts = {"pkg____init__": "", "pkg__train": "from .sub.net import x", "pkg__sub__net": "from .. import deep"}
        found = files(tmp_path, **texts, pkg__deep="import tensorflow")
        assert guess("python -m pkg.train", found) == "tensorflow"

    def test_modules_beside_a_script_in_a_folder_are_found(self, tmp_path: Path) -> None:
        assert (
            guess("python src/train.py", files(tmp_path, src__train="import net", src__net="import torch")) == "torch"
        )

    def test_modules_that_import_each_other_come_to_an_end(self, tmp_path: Path) -> None:
        assert guess("python a.py", files(tmp_path, a="import b", b="import a")) == "python"

    def test_without_a_script_every_file_counts(self, tmp_path: Path) -> None:
        assert guess("bash start.sh", files(tmp_path, a="", b="import torch")) == "torch"

    def test_both_are_asked_about(self, tmp_path: Path) -> None:
        found = files(tmp_path, train="import torch\nimport tensorflow")
        with pytest.raises(
            UsageProblem, match=r"train\.py imports torch and train\.py imports tensorflow.*--framework"
        ):
            guess("python train.py", found)

    @pytest.mark.parametrize(
        ("backend", "framework"), [("torch", "torch"), ("tensorflow", "tensorflow"), ("jax", "python")]
    )
    def test_keras_computes_with_what_its_variable_says(self, tmp_path: Path, backend: str, framework: str) -> None:
        assert guess("python train.py", files(tmp_path, train="import keras"), KERAS_BACKEND=backend) == framework

    def test_a_file_that_is_no_python_is_passed_over(self, tmp_path: Path) -> None:
        found = files(tmp_path, train="import broken, net", broken="def (", net="import torch")
        found["net.py"].write_bytes(b"\xff\xfe\x00")
        assert guess("python train.py", found) == "python"
