"""What a saved model's files hold, and that they are read back as they were written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from safetensors.numpy import load_file, save_file

from tests.workers.backends.fake import NumpyBackend
from tests.workers.exports.models import MODELS, random_rows, random_weights, with_output, write_model
from tests.workers.model_file.saved import ROOT, penguins, trained
from tests.workers.training_jobs import builtin_job, csv_job, effective
from workers.context import NullContext
from workers.loop import train
from workers.model_file import PROBE_NAME, UnreadableModel, encoder_of, predict, read, read_probe


class TestFiles:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return trained(builtin_job(tmp_path, "iris"))[0]

    def test_description_holds_what_is_needed_to_use_the_model(self, folder: Path) -> None:
        described = json.loads((folder / "model.json").read_text())

        spec = effective("iris")
        assert described["format"] == "trainshed-model/2"
        assert described["spec"] == spec.model_dump(mode="json")
        assert (described["framework"], described["task"], described["target"]) == ("torch", "classification", "target")
        assert described["features"] == spec.data.features
        assert described["classes"] == [0, 1, 2]
        assert described["target_scaling"] is None
        assert described["input_shape"] == [4]
        assert [layer["name"] for layer in described["layers"]] == ["dense_1", "activation_1", "output"]
        assert [column["name"] for column in described["encoder"]["inputs"]] == spec.data.features
        assert set(described["metrics"]) >= {"loss", "val_loss"}

    def test_weights_are_float32_under_the_layers_names(self, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")

        assert {name: value.shape for name, value in weights.items()} == {
            "dense_1.kernel": (4, 8),
            "dense_1.bias": (8,),
            "output.kernel": (8, 3),
            "output.bias": (3,),
        }
        assert {value.dtype for value in weights.values()} == {np.dtype(np.float32)}

    def test_regression_keeps_the_targets_scaling(self, tmp_path: Path) -> None:
        folder, _ = trained(builtin_job(tmp_path, "diabetes"))

        described = json.loads((folder / "model.json").read_text())

        assert described["classes"] is None
        # The training part's mean; all 442 targets have mean 152 and standard deviation 77.
        assert described["target_scaling"]["mean"][0] == pytest.approx(152, abs=10)
        assert described["target_scaling"]["scale"][0] == pytest.approx(77, abs=8)

    @pytest.mark.parametrize("name", MODELS)
    def test_every_layer_is_read_back_as_it_was(self, tmp_path: Path, name: str) -> None:
        shape, layers = MODELS[name]
        every = with_output(layers, 3)

        description, weights = read(write_model(tmp_path, layers, shape))

        assert description.layers == every
        assert description.input_shape == shape
        expected = random_weights(every, shape)
        assert list(weights) == sorted(expected)
        for key, value in weights.items():
            assert_array_equal(value, expected[key].astype(np.float32))

    def test_encoder_is_read_back_as_it_was(self, tmp_path: Path) -> None:
        data = {"target": "species", "missing": "impute"}
        folder, _ = trained(csv_job(tmp_path, penguins(), data, hyperparameters={"epochs": 1}))

        description, _ = read(folder)

        encoder = encoder_of(folder, description)
        assert encoder.to_json() == description.encoder
        assert encoder.width == description.input_shape[0] == 3 + 2 + 5  # islands, sexes, numbers


class TestProbe:
    def test_rows_and_outputs_are_read_back(self, tmp_path: Path) -> None:
        shape, layers = MODELS["lstm"]
        x = random_rows("lstm").astype(np.float32)

        probe = read_probe(write_model(tmp_path, layers, shape, x=x))

        assert probe is not None
        assert_array_equal(probe.x, x)
        assert probe.outputs.shape == (5, 3)

    def test_model_may_have_none(self, tmp_path: Path) -> None:
        assert read_probe(tmp_path) is None

    @pytest.mark.parametrize(
        "arrays",
        [
            {"x": np.zeros((2, 3))},
            {"x": np.zeros((2, 3)), "outputs": np.zeros((1, 3))},
            {"x": np.zeros((0, 3)), "outputs": np.zeros((0, 3))},
        ],
    )
    def test_anything_else_is_refused(self, tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
        save_file(arrays, tmp_path / PROBE_NAME)

        with pytest.raises(UnreadableModel, match="does not hold rows 'x' with an output each"):
            read_probe(tmp_path)


_TRAIN = """
import sys
from pathlib import Path
from tests.workers.backends.fake import NumpyBackend
from tests.workers.training_jobs import csv_job
from workers.context import NullContext
from workers.loop import train

folder = Path(sys.argv[1])
train(csv_job(folder, folder / "table.csv", {"target": "y"}), NumpyBackend(), NullContext())
"""


class TestScripts:
    def test_names_in_any_script_survive_whatever_the_locale(self, tmp_path: Path) -> None:
        text = "f1,f2,y\n" + "".join(f"{n},{n % 7},{'blå' if n % 2 else '赤'}\n" for n in range(60))
        (tmp_path / "table.csv").write_text(text, encoding="utf-8")
        plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}  # text files are ASCII by default
        command = [sys.executable, "-c", _TRAIN, str(tmp_path)]
        subprocess.run(command, check=True, timeout=60, cwd=ROOT, env={**os.environ, **plain})

        answer = predict(tmp_path / "model", np.zeros((1, 2)))

        assert answer.labels is not None
        assert answer.labels[0] in {"blå", "赤"}


class TestStandardisation:
    def test_saved_scaling_is_that_of_the_training_rows(self, tmp_path: Path) -> None:
        path = tmp_path / "table.csv"
        values = [1e6 if n in {7, 29, 44} else n * 0.5 for n in range(60)]
        path.write_text("f1,f2,y\n" + "".join(f"{value},{n % 7},{n % 2}\n" for n, value in enumerate(values)))
        folder, _ = trained(csv_job(tmp_path, path, {"target": "y"}))
        rows = load_file(folder / "split.safetensors")["train"] - 2

        scaled = json.loads((folder / "model.json").read_text())["encoder"]["inputs"][0]

        assert scaled["mean"][0] == pytest.approx(np.array(values)[rows].mean(), rel=1e-12)
        assert scaled["scale"][0] == pytest.approx(np.array(values)[rows].std(), rel=1e-12)

    def test_null_context_is_enough_to_train(self, tmp_path: Path) -> None:
        assert train(builtin_job(tmp_path, "iris"), NumpyBackend(), NullContext()).stopped is None
        assert (tmp_path / "model" / "model.json").is_file()
