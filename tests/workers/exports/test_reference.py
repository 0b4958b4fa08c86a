"""What a loaded file is compared with, and how far it may be off."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from app.spec.layers import BatchNormLayer
from tests.workers.exports.models import MODELS, random_rows, write_model
from workers.exports.reference import TOLERANCE, Reference
from workers.exports.request import CannotExport
from workers.model_file import PROBE_NAME


def folder_of(tmp_path: Path, name: str = "dense", *, probe: bool = True, **changes: Any) -> Path:
    """A model's folder; `changes` are keys of its spec."""
    shape, layers = MODELS[name]
    folder = write_model(tmp_path, layers, shape, x=random_rows(name) if probe else None)
    described = json.loads((folder / "model.json").read_text())
    described["spec"] |= changes
    (folder / "model.json").write_text(json.dumps(described))
    return folder


def move_probe(folder: Path, by: float) -> None:
    probe = load_file(folder / PROBE_NAME)
    save_file({**probe, "outputs": probe["outputs"] + np.float32(by)}, folder / PROBE_NAME)


def set_weights(folder: Path, values: dict[str, float]) -> None:
    """Set weights of one value each, and make the description name the new file."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    for name in weights:
        weights[name] = np.full_like(weights[name], values[name]) if name in values else weights[name]
    save_file(weights, path)
    described = json.loads((folder / "model.json").read_text())
    described["weights"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "model.json").write_text(json.dumps(described))


class TestReference:
    def test_the_models_own_outputs_pass_and_others_do_not(self, tmp_path: Path) -> None:
        reference = Reference.of(folder_of(tmp_path))

        reference.check("a program", reference.exact)
        with pytest.raises(
            CannotExport, match=r"Loaded in a program, its outputs differ from the model's own by 1\.0e-04"
        ):
            reference.check("a program", reference.exact + 1e-4 * max(1.0, float(np.abs(reference.exact).max())))

    def test_outputs_that_are_no_numbers_do_not_pass(self, tmp_path: Path) -> None:
        reference = Reference.of(folder_of(tmp_path))

        with pytest.raises(CannotExport, match="by nan"):
            reference.check("a program", np.full_like(reference.exact, np.nan))

    def test_another_shape_does_not_pass(self, tmp_path: Path) -> None:
        reference = Reference.of(folder_of(tmp_path))

        with pytest.raises(CannotExport, match=r"it gives the shape \(5, 2\) instead of \(5, 3\)"):
            reference.check("a program", reference.exact[:, :2])

    def test_frameworks_outputs_count_too(self, tmp_path: Path) -> None:
        folder = folder_of(tmp_path)
        move_probe(folder, 1e-3)
        reference = Reference.of(folder)

        with pytest.raises(CannotExport, match="differ from the framework's by"):
            reference.check("a program", reference.exact)

    @pytest.mark.parametrize(
        ("changes", "error", "passes"),
        [
            ({"device_type": "cuda"}, 5e-4, True),
            ({"device_type": "cuda"}, 1e-1, False),
            ({"hyperparameters": {"precision": "float16"}}, 5e-3, True),
            ({"hyperparameters": {"precision": "float16"}}, 5e-1, False),
            ({"hyperparameters": {"precision": "bfloat16"}}, 5e-2, True),
            ({"hyperparameters": {"precision": "float32"}}, 1e-3, False),
        ],
    )
    def test_framework_that_rounds_more_may_be_further_away(
        self, tmp_path: Path, changes: dict[str, Any], error: float, *, passes: bool
    ) -> None:
        folder = folder_of(tmp_path, **changes)
        move_probe(folder, error)
        reference = Reference.of(folder)
        assert np.abs(reference.exact).max() < 3  # so that `error` is of the size that the limit is about

        if passes:
            reference.check("a program", reference.exact)
        else:
            with pytest.raises(CannotExport, match="the framework's"):
                reference.check("a program", reference.exact)

    @pytest.mark.parametrize("name", ["dense", "embedding", "lstm"])
    def test_model_without_a_probe_is_held_to_numpy_alone(self, tmp_path: Path, name: str) -> None:
        reference = Reference.of(folder_of(tmp_path, name, probe=False))

        assert reference.framework is None
        assert reference.x.shape == (8, *MODELS[name][0])
        assert len(np.unique(reference.exact)) > 8  # rows that differ, or nothing would be compared
        reference.check("a program", reference.exact)

    def test_model_that_loses_much_to_float32_gets_more_room(self, tmp_path: Path) -> None:
        """A mean of a hundred million before a subtraction: any float32 program loses as much as NumPy's float32."""
        layers = [BatchNormLayer("batch_norm_1"), BatchNormLayer("batch_norm_2")]
        folder = write_model(tmp_path, layers, (6,))
        plain = {"gamma": 1.0, "beta": 0.0, "moving_variance": 1 - 1e-3}  # with the epsilon, a deviation of 1
        means = {"batch_norm_1.moving_mean": -1e8, "batch_norm_2.moving_mean": 1e8}
        set_weights(folder, means | {f"batch_norm_1.{name}": value for name, value in plain.items()})

        reference = Reference.of(folder)

        assert reference.tolerance > 100 * TOLERANCE
        reference.check("a program", reference.exact * (1 + TOLERANCE))

    def test_probe_of_another_model_is_refused(self, tmp_path: Path) -> None:
        folder = folder_of(tmp_path)
        save_file({"x": np.zeros((2, 9)), "outputs": np.zeros((2, 3))}, folder / PROBE_NAME)

        with pytest.raises(CannotExport, match="rows that the model does not take"):
            Reference.of(folder)
