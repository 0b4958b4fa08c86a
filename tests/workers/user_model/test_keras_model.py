"""A user's Keras model: what is asked of it, and its weights by path."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workers.user_model.user_jobs import module
from workers.backends.tensorflow.user_model import KerasUserModel
from workers.user_model.errors import UserCodeFailed

HEAD = "import keras\nfrom keras import layers\n"
DENSE = "def build(output_units):\n    return keras.Sequential([layers.Dense(output_units)])\n"


def model(folder: Path, text: str, **changes: Any) -> KerasUserModel:
    return KerasUserModel(module(folder, "tensorflow", HEAD + text, **changes))


class TestWeights:
    def test_have_their_paths_as_names_moving_statistics_among_them(self, tmp_path: Path) -> None:
        text = (
            "def build():\n"
            "    return keras.Sequential([layers.Dense(4), layers.BatchNormalization(), layers.Dense(3)], name='net')\n"
        )

        facts = model(tmp_path, text).facts()

        assert {name: (fact.shape, fact.trained) for name, fact in facts.items()} == {
            "net/dense/kernel": ((6, 4), True),
            "net/dense/bias": ((4,), True),
            "net/batch_normalization/gamma": ((4,), True),
            "net/batch_normalization/beta": ((4,), True),
            "net/batch_normalization/moving_mean": ((4,), False),
            "net/batch_normalization/moving_variance": ((4,), False),
            "net/dense_1/kernel": ((4, 3), True),
            "net/dense_1/bias": ((3,), True),
        }

    def test_have_the_same_names_every_time_the_function_is_called(self, tmp_path: Path) -> None:
        first, second = model(tmp_path, DENSE), model(tmp_path, DENSE)

        assert list(first.facts()) == list(second.facts()) == ["sequential/dense/kernel", "sequential/dense/bias"]

    def test_fit_where_the_module_itself_made_layers_when_it_was_imported(self, tmp_path: Path) -> None:
        text = "FIRST = keras.layers.Dense(2)\n" + DENSE.replace("[layers", "[layers.Dense(2), layers")
        first = model(tmp_path, text)
        second = model(tmp_path, text)

        assert first.facts().keys() != second.facts().keys()
        second.load(first.weights())
        assert all(map(np.array_equal, first.weights().values(), second.weights().values()))

    def test_that_two_layers_call_alike_get_a_number(self, tmp_path: Path) -> None:
        text = (
            "class Net(keras.Model):\n    def __init__(self):\n        super().__init__(name='net')\n"
            "        self.a, self.b = layers.Dense(3, name='d'), layers.Dense(3, name='d')\n"
            "    def call(self, x):\n        return self.b(self.a(x))\ndef build():\n    return Net()\n"
        )

        assert list(model(tmp_path, text).facts()) == ["net/d/kernel", "net/d/bias", "net/d/kernel_1", "net/d/bias_1"]

    def test_those_that_the_user_froze_are_not_trained(self, tmp_path: Path) -> None:
        text = (
            "def build():\n    net = keras.Sequential([layers.Dense(4), layers.Dense(3)])\n"
            "    net.layers[0].trainable = False\n    return net\n"
        )

        assert [fact.trained for fact in model(tmp_path, text).facts().values()] == [False, False, True, True]

    def test_are_drawn_from_the_seed(self, tmp_path: Path) -> None:
        one, same, other = (model(tmp_path, DENSE, seed=seed).weights() for seed in (1, 1, 2))

        kernel = "sequential/dense/kernel"
        assert np.array_equal(one[kernel], same[kernel])
        assert not np.array_equal(one[kernel], other[kernel])

    def test_go_out_and_come_back(self, tmp_path: Path) -> None:
        one, other = model(tmp_path, DENSE, seed=1), model(tmp_path, DENSE, seed=2)
        rows = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)

        other.load(one.weights())

        # The definition of a dense layer, in NumPy.
        kernel, bias = one.weights().values()
        assert np.allclose(other.outputs(rows), rows @ kernel + bias, atol=1e-6)
        assert np.array_equal(one.outputs(rows), other.outputs(rows))

    def test_of_another_model_are_refused(self, tmp_path: Path) -> None:
        found = model(tmp_path, DENSE)
        weights = found.weights()

        with pytest.raises(UserCodeFailed, match="they differ in 'sequential/dense/bias'"):
            found.load({"sequential/dense/kernel": weights["sequential/dense/kernel"]})
        with pytest.raises(UserCodeFailed, match=r"'sequential/dense/bias' has shape \(2,\) in the file and \(3,\) in"):
            found.load(weights | {"sequential/dense/bias": np.zeros(2)})


class TestGenerators:
    def test_are_those_of_every_layer_that_draws(self, tmp_path: Path) -> None:
        drawing = "layers.Dropout(0.1), layers.GaussianNoise(0.1), layers.Dense(3)"

        assert len(model(tmp_path, f"def build():\n    return keras.Sequential([{drawing}])\n").generators) == 2

    def test_a_model_that_draws_nothing_has_none(self, tmp_path: Path) -> None:
        assert model(tmp_path, DENSE).generators == []


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            (
                "def build():\n    return 3\n",
                "returned builtins.int; with framework 'tensorflow' it must be a keras.Model",
            ),
            ("def build():\n    return layers.Dense(3)\n", "it must be a keras.Model"),
            ("def build():\n    return keras.Sequential([layers.Dense(4)])\n", r"gives the shape \[2, 4\] of float32"),
            ("def build():\n    return keras.Sequential([layers.Flatten()])\n", r"gives the shape \[2, 6\]"),
            (
                "def build():\n    x = keras.Input((6,))\n    return keras.Model(x, [layers.Dense(3)(x)] * 2)\n",
                "call gives list; it must give one tensor",
            ),
            (
                "def build():\n    return keras.Sequential([layers.Dense(3), layers.Lambda(lambda x: [][1])])\n",
                r"call failed for rows of shape \[6\]: IndexError.*\(nets.py, line 4, in <lambda>\)",
            ),
            (
                "def build():\n    return keras.Sequential([layers.Dense(3, trainable=False)])\n",
                "no weight that can be trained",
            ),
            (
                (
                    "class Leaving(layers.Dense):\n    def call(self, x):\n        raise KeyboardInterrupt\n"
                    "def build():\n    return keras.Sequential([Leaving(3)])\n"
                ),
                r"call failed for rows of shape \[6\]: KeyboardInterrupt \(nets.py, line 5, in call\)",
            ),
        ],
    )
    def test_with_what_is_wrong_and_what_is_right(self, tmp_path: Path, text: str, sentence: str) -> None:
        with pytest.raises(UserCodeFailed, match=sentence):
            model(tmp_path, text)

    def test_a_module_of_torch_names_its_framework(self, tmp_path: Path) -> None:
        pytest.importorskip("torch")

        with pytest.raises(UserCodeFailed, match=r"Set framework to 'torch'\."):
            model(tmp_path, "from torch import nn\ndef build():\n    return nn.Linear(6, 3)\n")
