"""A user's torch module: what is asked of it, and its weights by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.workers.user_model.user_jobs import module
from workers.backends.torch.user_model import TorchUserModel
from workers.user_model.errors import UserCodeFailed

HEAD = "import torch\nfrom torch import nn\n"


def model(folder: Path, text: str, **changes: Any) -> TorchUserModel:
    return TorchUserModel(module(folder, "torch", HEAD + text, **changes))


def problem(folder: Path, text: str, **changes: Any) -> str:
    with pytest.raises(UserCodeFailed) as caught:
        model(folder, text, **changes)
    return str(caught.value)


LINEAR = "def build(output_units, input_shape):\n    return nn.Linear(*input_shape, output_units)\n"


def forward(body: str) -> str:
    """A module with one layer, `self.lin`, and this forward."""
    return f"""
class Net(nn.Module):
    def __init__(self, width, units):
        super().__init__()
        self.lin = nn.Linear(width, units)

    def forward(self, x):
        {body}


def build(input_shape, output_units):
    return Net(*input_shape, output_units)
"""


class TestWeights:
    def test_have_the_names_of_the_state_dict_buffers_among_them(self, tmp_path: Path) -> None:
        text = (
            "def build():\n    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3, bias=False))\n"
        )

        facts = model(tmp_path, text).facts()

        assert {name: (fact.shape, fact.trained) for name, fact in facts.items()} == {
            "0.weight": ((4, 6), True),
            "0.bias": ((4,), True),
            "1.weight": ((4,), True),
            "1.bias": ((4,), True),
            "1.running_mean": ((4,), False),
            "1.running_var": ((4,), False),
            "1.num_batches_tracked": ((), False),
            "2.weight": ((3, 4), True),
        }

    def test_those_that_the_user_froze_are_not_trained(self, tmp_path: Path) -> None:
        text = LINEAR.replace("return nn", "lin = nn") + "    lin.bias.requires_grad_(False)\n    return lin\n"

        assert {name: fact.trained for name, fact in model(tmp_path, text).facts().items()} == {
            "weight": True,
            "bias": False,
        }

    def test_one_that_two_layers_share_is_trained_once(self, tmp_path: Path) -> None:
        text = (
            "def build():\n    a, b = nn.Linear(6, 6), nn.Linear(6, 6)\n    b.weight = a.weight\n"
            "    return nn.Sequential(a, b, nn.Linear(6, 3))\n"
        )

        found = model(tmp_path, text)

        assert "1.weight" not in found.trained
        assert "1.weight" in found.weights()

    def test_of_a_lazy_layer_come_with_its_first_rows(self, tmp_path: Path) -> None:
        text = "def build(output_units):\n    return nn.LazyLinear(output_units)\n"

        assert model(tmp_path, text).facts()["weight"].shape == (3, 6)

    def test_are_drawn_from_the_seed(self, tmp_path: Path) -> None:
        text = (
            "import random\nimport numpy as np\ndef build():\n    lin = nn.Linear(6, 3)\n    with torch.no_grad():\n"
            "        lin.bias += random.random() + np.random.rand()\n    return lin\n"
        )

        one, same, other = (model(tmp_path, text, seed=seed).weights() for seed in (1, 1, 2))

        assert all(np.array_equal(one[name], same[name]) for name in one)
        assert not any(np.array_equal(one[name], other[name]) for name in one)

    def test_are_float32_whatever_the_module_was_made_in(self, tmp_path: Path) -> None:
        text = "def build():\n    return nn.Sequential(nn.Linear(6, 3).double(), nn.BatchNorm1d(3)).half()\n"

        found = model(tmp_path, text).weights()

        assert {str(value.dtype) for value in found.values()} == {"float32", "int64"}

    def test_go_out_and_come_back(self, tmp_path: Path) -> None:
        one, other = model(tmp_path, LINEAR, seed=1), model(tmp_path, LINEAR, seed=2)
        rows = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)

        other.load(one.weights())

        # The definition of a linear layer, in NumPy.
        weights = one.weights()
        assert np.allclose(other.outputs(rows), rows @ weights["weight"].T + weights["bias"], atol=1e-6)
        assert np.array_equal(one.outputs(rows), other.outputs(rows))

    def test_of_another_model_are_refused_by_name(self, tmp_path: Path) -> None:
        found = model(tmp_path, LINEAR)
        weights = found.weights()

        with pytest.raises(UserCodeFailed, match="'bias' has shape None in the file"):
            found.load({"weight": weights["weight"]})
        with pytest.raises(UserCodeFailed, match=r"'weight' has shape \(6, 3\) in the file and \(3, 6\) in the model"):
            found.load(weights | {"weight": weights["weight"].T})

    def test_a_buffer_that_the_module_replaces_is_the_new_one(self, tmp_path: Path) -> None:
        text = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        if self.training:
            self.calls = self.calls + 1
        return self.lin(x)


def build():
    return Net()
"""
        found = model(tmp_path, text)
        found.forward(torch.zeros(2, 6), train=True)
        found.forward(torch.zeros(2, 6), train=False)

        assert found.weights()["calls"].tolist() == [1.0]


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            (
                "def build():\n    return {}\n",
                "returned builtins.dict; with framework 'torch' it must be a torch.nn.Mod",
            ),
            ("def build():\n    return nn.Linear\n", "Return an instance, not the class."),
            (
                "def build():\n    return nn.Flatten()\n",
                r"gives the shape \[2, 6\] of float32; it must give a tensor of",
            ),
            ("def build():\n    return nn.Linear(5, 3)\n", r"forward failed for rows of shape \[6\]: RuntimeError"),
            (forward("return (self.lin(x), x)"), "forward gives tuple; it must give a tensor"),
            (forward("return self.lin(x).argmax(1)"), r"gives the shape \[2\] of int64"),
            (forward("return self.lin(x).long()"), r"gives the shape \[2, 3\] of int64"),
            (
                forward("raise ValueError(x.shape)"),
                r"ValueError: torch.Size\(\[2, 6\]\) \(nets.py, line 10, in forward\)",
            ),
            (forward("raise SystemExit(1)"), "forward ended the process: SystemExit: 1"),
            (forward("raise KeyboardInterrupt"), r"forward ended the process: KeyboardInterrupt \(nets.py, line 10"),
            ("def build():\n    return nn.Linear(6, 3).requires_grad_(False)\n", "no weight that can be trained"),
            ("def build():\n    return nn.Linear(6, 3, dtype=torch.complex64)\n", "weight 'weight' is complex"),
            (
                "class Net(nn.Linear):\n    def get_extra_state(self): return 3\ndef build():\n    return Net(6, 3)\n",
                "keeps '_extra_state' in its state_dict, which is no tensor",
            ),
        ],
    )
    def test_with_what_is_wrong_and_what_is_right(self, tmp_path: Path, text: str, sentence: str) -> None:
        with pytest.raises(UserCodeFailed, match=sentence):
            model(tmp_path, text).facts()

    def test_values_without_a_unit_of_their_own_are_told_how_to_get_one(self, tmp_path: Path) -> None:
        found = problem(tmp_path, forward("return self.lin(x)[:, 0]"), output_units=1)

        assert "gives the shape [2] of float32" in found
        assert found.endswith("End it with .unsqueeze(1).")

    def test_a_model_of_keras_names_its_framework(self, tmp_path: Path) -> None:
        pytest.importorskip("keras")
        text = "import keras\ndef build():\n    return keras.Sequential([keras.layers.Dense(3)])\n"

        assert "Set framework to 'tensorflow'." in problem(tmp_path, text)
