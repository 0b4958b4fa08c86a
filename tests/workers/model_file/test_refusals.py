"""Files that are no model of ours are refused with the reason when they are read, not by a wrong answer later."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from app.spec import Layer
from app.spec.layers import ActivationLayer, BatchNormLayer, Conv2dLayer, DropoutLayer, FlattenLayer, ParallelLayer
from tests.workers.exports.models import write_model
from workers.model_file import UnreadableModel, predict_rows, read

Change = Callable[[dict[str, Any]], object]

LAYERS: list[Layer] = [
    ParallelLayer("parallel_1", ((Conv2dLayer("conv2d_1", 2, (2, 2)),), (BatchNormLayer("batch_norm_1"),))),
    ActivationLayer("activation_1", "relu"),
    FlattenLayer("flatten_1"),
    DropoutLayer("dropout_1", 0.5),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "m", LAYERS, (3, 3, 1))


def change(folder: Path, how: Change) -> None:
    path = folder / "model.json"
    described = json.loads(path.read_text())
    how(described)
    path.write_text(json.dumps(described))


def sign(folder: Path) -> None:
    """Make the description name whatever weights lie there."""
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    change(folder, lambda described: described["weights"].update(sha256=digest))


def nested(depth: int) -> dict[str, Any]:
    layer: dict[str, Any] = {"type": "dropout", "name": "d", "rate": 0.5}
    for level in range(depth):
        layer = {"type": "residual", "name": f"r_{level}", "layers": [layer], "shortcut": []}
    return layer


def doubled(times: int) -> list[dict[str, Any]]:
    """Layers without weights that double the last axis each."""
    return [{"type": "parallel", "name": f"p_{n}", "branches": [[], []], "merge": "concat"} for n in range(times)]


class TestDescription:
    @pytest.mark.parametrize("text", ["", "{}", "[1]", "\x00", '{"format": 2}', "[" * 100_000])
    def test_anything_but_a_description_is_refused(self, folder: Path, text: str) -> None:
        (folder / "model.json").write_text(text)

        with pytest.raises(UnreadableModel, match=r"'model\.json' is no description of a model") as caught:
            predict_rows(folder, [{}])
        assert caught.value.code == "artifact_unreadable"

    def test_another_format_is_refused_by_its_name(self, folder: Path) -> None:
        change(folder, lambda described: described.update(format="trainshed-model/9"))

        with pytest.raises(UnreadableModel, match=r"format: Input should be 'trainshed-model/2'"):
            read(folder)

    @pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
    def test_missing_file_is_refused(self, folder: Path, name: str) -> None:
        (folder / name).unlink()

        with pytest.raises(UnreadableModel, match=f"The model in 'm' cannot be used: No such file .*'{name}'"):
            read(folder)

    @pytest.mark.parametrize(
        ("how", "reason"),
        [
            (lambda d: d["layers"][2].update(type="lambda"), "found using 'type' does not match any of the expected"),
            (lambda d: d["layers"][2].pop("type"), "Unable to extract tag"),
            (lambda d: d["layers"][1].update(function="__import__('os')"), "activation.function"),
            (lambda d: d["layers"][3].update(rate="0.5"), "dropout.rate"),
            (lambda d: d.update(input_shape=[3, 3, True]), "input_shape"),
            (lambda d: d.update(layers=[nested(300)]), "model.json"),
            (lambda d: d["weights"].update(file="/etc/passwd"), r"weights\.file: Input should be 'model\.safetensors'"),
            (lambda d: d.update(metrics={"loss": "low"}), "metrics"),
            (lambda d: d.update(task="segmentation"), "task"),
        ],
    )
    def test_field_of_another_kind_is_named(self, folder: Path, how: Change, reason: str) -> None:
        change(folder, how)

        with pytest.raises(UnreadableModel, match=reason):
            read(folder)


class TestContradictions:
    @pytest.mark.parametrize(
        ("how", "reason"),
        [
            (lambda d: d["layers"].pop(), "last layer must have 3 outputs"),
            (lambda d: d.update(layers=[]), "last layer must have 3 outputs"),
            (lambda d: d["layers"].append({"type": "flatten", "name": "f"}), "last layer must have 3 outputs"),
            (lambda d: d["classes"].pop(), "last layer must have 2 outputs"),
            (lambda d: d.update(classes=None, task="regression"), "last layer must have 1 outputs"),
            (lambda d: d.update(classes=["a", "b", "a"]), "a class is in its list twice"),
            (lambda d: d.update(task="regression"), "its task is regression, and it has some classes"),
            (lambda d: d.update(target_scaling={"mean": [0.0], "scale": [0.0]}), "one scale above 0"),
            (lambda d: d.update(target_scaling={"mean": [], "scale": []}), "must have one mean"),
            (lambda d: d["layers"][0].update(name="flatten_1"), "two layers are called 'flatten_1'"),
            (lambda d: d["layers"][0].update(branches=[]), "layer 'parallel_1' has no branches"),
            (lambda d: d["layers"][0]["branches"][0][0].update(strides=[0, 1]), "strides 0, which must be at least 1"),
            (lambda d: d["layers"][0]["branches"][0][0].update(filters=-4), "filters -4, which must be at least 1"),
            (lambda d: d["layers"][0]["branches"][0][0].update(kernel_size=[3, 2]), r"'conv2d_1\.kernel' of shape"),
            (lambda d: d["layers"][0]["branches"][0][0].update(use_bias=False), r"'conv2d_1\.bias' of shape None"),
            (lambda d: d["layers"][0]["branches"][1][0].update(epsilon=-1.0), "epsilon -1, which is out of range"),
            (lambda d: d["layers"][3].update(rate=1.5), "rate 1.5, which is out of range"),
            (
                lambda d: d["layers"].insert(2, {"type": "lstm", "name": "l", "units": 2}),
                "do not fit together: Layer l",
            ),
            (lambda d: d["layers"].insert(0, nested(9)), "nested more than 8 deep"),
            (lambda d: d.update(layers=doubled(5000)), "it has 5000 layers, of at most 4096"),
            (lambda d: d["layers"].__setitem__(slice(0, 0), doubled(200)), "values of one row, of at most"),
        ],
    )
    def test_description_that_does_not_fit_is_refused(self, folder: Path, how: Change, reason: str) -> None:
        change(folder, how)

        with pytest.raises(UnreadableModel, match=reason):
            read(folder)

    @pytest.mark.parametrize(
        ("how", "reason"),
        [
            (lambda d: d.update(features=["other"]), "it must scale 1 features, other"),
            (lambda d: d.update(encoder={}), "its encoder cannot be read"),
            (lambda d: d["encoder"].update(format=99), "its encoder cannot be read"),
            (lambda d: d["encoder"]["inputs"][0].update(encoding="pickle"), "its encoder cannot be read"),
            (lambda d: d["encoder"]["inputs"][0].update(mean=["high"] * 9), "its encoder cannot be read"),
            (lambda d: d["encoder"]["inputs"][0].update(mean=[0.0]), "'pixels' is not scaled by 9 numbers"),
            (lambda d: d["encoder"]["inputs"][0].update(fill=[0.0]), "'pixels' is not scaled by 9 numbers"),
            (lambda d: d["encoder"]["inputs"][0].update(scale=[0.0] * 9), "a scale that is not above 0"),
            (lambda d: d["encoder"]["inputs"][0].update(shape=[9, 1, 1]), "encoder makes .9, 1, 1., and its layers"),
            (lambda d: d["encoder"]["inputs"][0].update(shape=["3", 3, 1]), r"'pixels' has the shape \('3', 3, 1\)"),
            (
                lambda d: d["encoder"].update(inputs=[{"name": "pixels", "encoding": "boolean", "fill": "yes"}]),
                "something else than true or false",
            ),
            (lambda d: d.update(input_shape=[0, 3, 1]), r"input shape \[0, 3, 1\] holds nothing"),
            (
                lambda d: d["encoder"].update(
                    inputs=[{"name": "pixels", "encoding": "one_hot", "categories": ["a"], "seen": [], "fill": None}]
                ),
                "does not say of each category whether it was seen",
            ),
        ],
    )
    def test_encoder_that_does_not_fit_is_refused(self, folder: Path, how: Change, reason: str) -> None:
        change(folder, how)

        with pytest.raises(UnreadableModel, match=reason):
            read(folder)


class TestWeights:
    def test_weights_of_another_training_are_refused(self, folder: Path) -> None:
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")

        with pytest.raises(UnreadableModel, match=r"is not the file that 'model\.json' belongs to"):
            read(folder)

    def test_weights_that_are_no_safetensors_are_refused(self, folder: Path, tmp_path: Path) -> None:
        """Case C74: a pickle, whatever it is called, is data that nobody unpickles; its program makes a folder."""
        marker = b"cos\nmkdir\n(S'C74_MARKER_SHOULD_NOT_EXIST'\ntR."
        (folder / "model.safetensors").write_bytes(marker)
        sign(folder)

        with pytest.raises(UnreadableModel, match=r"'model\.safetensors' is no file of weights") as caught:
            read(folder)
        assert "MARKER" not in str(caught.value)
        assert not Path("C74_MARKER_SHOULD_NOT_EXIST").exists()
        assert not (tmp_path / "C74_MARKER_SHOULD_NOT_EXIST").exists()

    @pytest.mark.parametrize(
        ("value", "reason"),
        [(np.nan, "not a finite number"), (np.inf, "not a finite number")],
    )
    def test_weight_that_is_not_finite_is_refused(self, folder: Path, value: float, reason: str) -> None:
        weights = load_file(folder / "model.safetensors")
        weights["output.bias"][1] = value
        save_file(weights, folder / "model.safetensors")
        sign(folder)

        with pytest.raises(UnreadableModel, match=f"weight 'output.bias' holds a value that is {reason}"):
            read(folder)

    def test_weights_of_whole_numbers_are_refused(self, folder: Path) -> None:
        weights: dict[str, Any] = load_file(folder / "model.safetensors")
        save_file({name: value.astype(np.int32) for name, value in weights.items()}, folder / "model.safetensors")
        sign(folder)

        with pytest.raises(UnreadableModel, match="is of type int32, and not of float32"):
            read(folder)

    def test_weight_that_no_layer_has_is_refused(self, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        save_file({**weights, "hidden.kernel": np.zeros((2, 2), np.float32)}, folder / "model.safetensors")
        sign(folder)

        with pytest.raises(UnreadableModel, match=r"'hidden\.kernel' of shape None, and there is \(2, 2\)"):
            read(folder)

    def test_folder_in_place_of_a_file_is_refused(self, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        shutil.copytree(folder, folder / "model.safetensors")

        with pytest.raises(UnreadableModel, match="Is a directory"):
            read(folder)
