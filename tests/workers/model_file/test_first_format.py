"""Models that the first version saved: read for ever, with the same answers."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from safetensors.numpy import save_file

from workers.model_file import UnreadableModel, predict, predict_rows, read

KERNEL = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)
BIAS = np.array([0.25, -1.0], np.float32)


def first_version(folder: Path, **changes: object) -> Path:
    """A model of two numbers and two classes, as the first version wrote it, key for key."""
    weights = folder / "model.safetensors"
    save_file({"output.kernel": KERNEL, "output.bias": BIAS}, weights)
    described = {
        "format": "trainshed-model/1",
        "framework": "torch",
        "task": "classification",
        "features": ["height", "width"],
        "target": "kind",
        "layers": [
            {"name": "dropout_1", "rate": 0.5, "type": "dropout"},
            {"name": "output", "units": 2, "type": "dense"},
        ],
        "inputs": {"mean": [10.0, -1.0], "scale": [2.0, 0.5]},
        "classes": ["oak", "pine"],
        "target_scaling": None,
        "seed": 7,
        "metrics": {"loss": 0.5},
        "spec": {"framework": "torch"},
        "weights": {"file": "model.safetensors", "sha256": hashlib.sha256(weights.read_bytes()).hexdigest()},
        **changes,
    }
    (folder / "model.json").write_text(json.dumps(described))
    return folder


class TestFirstFormat:
    def test_answers_are_those_of_its_formula(self, tmp_path: Path) -> None:
        row = np.array([13.0, 0.5])
        logits = (row - [10.0, -1.0]) / [2.0, 0.5] @ KERNEL + BIAS
        odds = np.exp(logits - logits.max())

        answer = predict(first_version(tmp_path), row[None])

        assert answer.labels == [["oak", "pine"][int(logits.argmax())]]
        assert answer.probabilities is not None
        assert_allclose(answer.probabilities[0], odds / odds.sum(), rtol=1e-6)

    def test_rows_by_name_are_answered_too_and_may_bring_the_target(self, tmp_path: Path) -> None:
        folder = first_version(tmp_path)

        answer = predict_rows(folder, [{"width": 0.5, "height": 13, "kind": "oak"}])

        assert answer.labels == predict(folder, np.array([[13.0, 0.5]])).labels

    def test_values_of_a_regression_come_in_their_unit(self, tmp_path: Path) -> None:
        save_file({"output.kernel": KERNEL[:, :1].copy(), "output.bias": BIAS[:1]}, tmp_path / "model.safetensors")
        digest = hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()
        changes = {
            "task": "regression",
            "classes": None,
            "target_scaling": {"mean": [100.0], "scale": [20.0]},
            "layers": [{"name": "output", "units": 1, "type": "dense"}],
        }
        described = json.loads((first_version(tmp_path, **changes) / "model.json").read_text())
        save_file({"output.kernel": KERNEL[:, :1].copy(), "output.bias": BIAS[:1]}, tmp_path / "model.safetensors")
        described["weights"]["sha256"] = digest
        (tmp_path / "model.json").write_text(json.dumps(described))

        answer = predict(tmp_path, np.array([[12.0, -1.0]]))

        assert answer.values is not None
        assert answer.values[0] == pytest.approx(100 + 20 * (1.0 * 1.0 + 0.25))

    def test_description_is_brought_into_todays_form(self, tmp_path: Path) -> None:
        description, _ = read(first_version(tmp_path))

        assert description.format == "trainshed-model/2"
        assert description.input_shape == (2,)
        assert (description.features, description.classes, description.seed) == (
            ["height", "width"],
            ["oak", "pine"],
            7,
        )

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"inputs": {"mean": [0.0], "scale": [1.0]}}, "must scale 2 features"),
            ({"inputs": {"mean": [0.0, 0.0], "scale": [1.0, 0.0]}}, "'width' has a scale that is not above 0"),
            ({"features": ["a"]}, r"'output\.kernel' of shape \(1, 2\), and there is \(2, 2\)"),
            ({"classes": [0, 1, 2]}, "last layer must have 3 outputs"),
            ({"encoder": {}, "inputs": None}, r"inputs: Input should be"),
        ],
    )
    def test_contradictions_are_refused(self, tmp_path: Path, changes: dict[str, object], reason: str) -> None:
        with pytest.raises(UnreadableModel, match=reason):
            read(first_version(tmp_path, **changes))
