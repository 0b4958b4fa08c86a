"""Our layers as Keras' own: the same numbers in float64, and a file that loads in safe mode without any of our code."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from safetensors.numpy import load_file

from tests.workers.exports.models import MODELS
from workers.model_file import forward, read, read_probe


class TestLayers:
    @pytest.mark.parametrize("name", MODELS)
    def test_every_layer_is_that_of_keras_in_float64(self, every_model: dict[str, Path], name: str) -> None:
        folder = every_model[name]
        description, weights = read(folder)
        probe = read_probe(folder)
        assert probe is not None
        precise = {key: value.astype(np.float64) for key, value in weights.items()}

        found = forward(description.layers, precise, probe.x.astype(np.float64))

        # Keras holds the slope and the root of 2 of these two in float32; their formulas are tested with the backends.
        tolerance = 1e-6 if name in {"activation leaky_relu", "activation gelu"} else 1e-12
        assert_allclose(found, load_file(folder / "keras.safetensors")["outputs"], rtol=tolerance, atol=tolerance)


class TestFile:
    @pytest.mark.parametrize("name", MODELS)
    def test_every_layer_is_one_of_kerass_own(self, every_model: dict[str, Path], name: str) -> None:
        """The fixture has loaded each file in safe mode, and compared its outputs, in the process that wrote it."""
        with zipfile.ZipFile(every_model[name] / "model.keras") as archive:
            config = json.loads(archive.read("config.json"))

        layers = config["config"]["layers"]
        assert {layer["module"] for layer in layers} == {"keras.layers"}
        assert not {layer["class_name"] for layer in layers} & {"Lambda", "TFSMLayer"}
        assert {layer["registered_name"] for layer in layers} == {None}

    def test_layers_keep_their_names(self, every_model: dict[str, Path]) -> None:
        with zipfile.ZipFile(every_model["residual"] / "model.keras") as archive:
            config = json.loads(archive.read("config.json"))

        names = {layer["config"]["name"] for layer in config["config"]["layers"]}
        assert names == {
            "x",
            *("conv2d_1", "batch_norm_1", "residual_1"),
            *("conv2d_2", "activation_1", "conv2d_3", "residual_2"),
            *("global_avg_pool2d_1", "output"),
        }
