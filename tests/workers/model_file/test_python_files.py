"""Models of a user's own code on disk, format 3: written, read back with every doubt, and never executed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.workers.user_model.user_jobs import python_job, write_bundle
from workers.context import NullContext
from workers.data.encoding import InvalidRows
from workers.model_file import (
    CODE_NAME,
    PYTHON_FORMAT,
    PythonTrained,
    UnreadableModel,
    decided,
    is_python,
    read,
    read_python,
    save_python,
)
from workers.preparation import read_dataset

WEIGHTS: dict[str, np.ndarray[Any, Any]] = {
    "lin.weight": np.ones((3, 4), np.float32),
    "norm.num_batches_tracked": np.array(7, np.int64),
}
Change = Callable[[dict[str, Any]], None]


def saved(folder: Path, **changes: Any) -> Path:
    """Save a model of iris whose weights nobody trained, and return its folder."""
    # Executed, this code would be seen.
    job = python_job(folder / "job", "torch", text="raise SystemExit('executed')\n")
    data = read_dataset(job, NullContext())
    values: dict[str, Any] = {
        "weights": WEIGHTS,
        "entrypoint": "nets:mlp",
        "parameters": {"hidden": 8, "deep": {"list": [1, None]}},
        "archive": folder / "job" / "bundle.zip",
        "versions": {"python": "3.11.0", "torch": "2.13.0"},
        "encoder": data.encoder,
        "classes": data.vocabulary.labels if data.vocabulary else None,
        "target": data.target,
        "spec": job.spec,
        "metrics": {"val_loss": 0.5},
        **changes,
    }
    save_python(folder, PythonTrained(**values))
    return folder


def altered(folder: Path, change: Change) -> Path:
    content = json.loads((folder / "model.json").read_text())
    change(content)
    (folder / "model.json").write_text(json.dumps(content))
    return folder


class TestSaved:
    def test_is_read_back_as_it_was(self, tmp_path: Path) -> None:
        description, weights = read_python(saved(tmp_path))

        assert description.format == PYTHON_FORMAT
        assert description.python.entrypoint == "nets:mlp"
        assert description.python.parameters == {"hidden": 8, "deep": {"list": [1, None]}}
        assert description.python.versions == {"python": "3.11.0", "torch": "2.13.0"}
        assert (description.outputs, description.input_shape, description.layers) == (3, (4,), None)
        assert weights.keys() == WEIGHTS.keys()
        assert all(np.array_equal(weights[name], value) for name, value in WEIGHTS.items())

    def test_has_the_code_byte_for_byte(self, tmp_path: Path) -> None:
        folder = saved(tmp_path)

        assert (folder / CODE_NAME).read_bytes() == (tmp_path / "job" / "bundle.zip").read_bytes()

    def test_without_a_bundle_has_no_code(self, tmp_path: Path) -> None:
        description, _ = read_python(saved(tmp_path, archive=None))

        assert description.python.code is None
        assert not (tmp_path / CODE_NAME).exists()

    def test_is_told_from_one_of_layers(self, tmp_path: Path) -> None:
        folder = saved(tmp_path)

        assert is_python(folder)
        with pytest.raises(UnreadableModel, match="of the user's own code"):
            read(folder)

    def test_of_layers_is_no_model_of_code(self, tmp_path: Path) -> None:
        folder = altered(saved(tmp_path), lambda content: content.update(format="trainshed-model/2"))

        assert not is_python(folder)
        with pytest.raises(UnreadableModel, match="made of layers"):
            read_python(folder)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "code is another": (
        lambda folder: write_bundle(folder / CODE_NAME, {"nets.py": "x = 1\n"}),
        "'code.zip' is not the file",
    ),
    "code is missing": (lambda folder: (folder / CODE_NAME).unlink(), "No such file or directory: 'code.zip'"),
    "weights are others": (
        lambda folder: save_file({"lin.weight": np.zeros(3, np.float32)}, folder / "model.safetensors"),
        "'model.safetensors' is not the file",
    ),
    "description is cut": (lambda folder: (folder / "model.json").write_text("{"), "no description of a model"),
}

CONTRADICTIONS: dict[str, tuple[Change, str]] = {
    "another framework": (lambda content: content.update(framework="tensorflow"), "its code is for torch"),
    "other features": (lambda content: content.update(features=["a"]), "must scale 1 features"),
    "another shape": (lambda content: content.update(input_shape=[7]), r"its encoder makes \[4\]"),
    "classes of a regression": (lambda content: content.update(task="regression"), "it has some classes"),
    "a class twice": (lambda content: content.update(classes=[1, 1]), "in its list twice"),
    "layers": (lambda content: content.update(layers=[]), r"\(layers: Input should be null\)"),
    "no parameters": (lambda content: content["python"].update(parameters=[]), "python.parameters"),
    "code from elsewhere": (
        lambda content: content["python"]["code"].update(file="../x.zip"),
        "python.code.file",
    ),
}


class TestDoubts:
    @pytest.mark.parametrize("name", list(DAMAGES))
    def test_damage_is_found(self, tmp_path: Path, name: str) -> None:
        damage, sentence = DAMAGES[name]
        folder = saved(tmp_path)
        damage(folder)

        with pytest.raises(UnreadableModel, match=sentence):
            read_python(folder)

    @pytest.mark.parametrize("name", list(CONTRADICTIONS))
    def test_a_contradiction_is_found(self, tmp_path: Path, name: str) -> None:
        change, sentence = CONTRADICTIONS[name]

        with pytest.raises(UnreadableModel, match=sentence):
            read_python(altered(saved(tmp_path), change))

    @pytest.mark.parametrize(
        ("value", "sentence"),
        [
            (np.array([1.0, np.inf], np.float32), "'w' holds a value that is not a finite number"),
            (np.array([1j], np.complex64), "'w' is of type complex64"),
        ],
    )
    def test_weights_are_numbers(self, tmp_path: Path, value: np.ndarray[Any, Any], sentence: str) -> None:
        with pytest.raises(UnreadableModel, match=sentence):
            read_python(saved(tmp_path, weights={"w": value}))


class TestDecided:
    def test_logits_become_labels_with_probabilities(self, tmp_path: Path) -> None:
        description, _ = read_python(saved(tmp_path))

        # Softmax of (log 1, log 2, log 5) is (1/8, 2/8, 5/8).
        found = decided(description, np.log([[1.0, 2.0, 5.0]]), np.array([1]))

        assert found.labels == [2]
        assert found.probabilities is not None
        assert found.probabilities[0].tolist() == pytest.approx([0.125, 0.25, 0.625])

    def test_a_logit_that_is_no_number_names_its_row(self, tmp_path: Path) -> None:
        description, _ = read_python(saved(tmp_path))

        with pytest.raises(InvalidRows, match="Row 12: the model's answer is not a finite number"):
            decided(description, np.array([[0.0, 0.0, 1.0], [0.0, np.nan, 0.0]]), np.array([11, 12]))
