"""Presets as layers, and the names that weights are stored under."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spec import layers_of, parse_spec
from app.spec.layers import ACTIVATIONS, ActivationLayer, DenseLayer, DropoutLayer
from tests.spec.bodies import body


def names(model: Any, units: int = 3) -> list[str]:
    return [layer.name for layer in layers_of(parse_spec(body(model=model)), units)]


class TestLinear:
    def test_it_is_the_output_layer_alone(self) -> None:
        assert layers_of(parse_spec(body(model="linear")), 10) == [DenseLayer("output", 10)]


class TestMlp:
    def test_each_hidden_layer_is_followed_by_its_activation_and_dropout(self) -> None:
        model = {"type": "mlp", "hidden": [8, 4], "activation": "tanh", "dropout": 0.25}
        assert layers_of(parse_spec(body(model=model)), 3) == [
            DenseLayer("dense_1", 8),
            ActivationLayer("activation_1", "tanh"),
            DropoutLayer("dropout_1", 0.25),
            DenseLayer("dense_2", 4),
            ActivationLayer("activation_2", "tanh"),
            DropoutLayer("dropout_2", 0.25),
            DenseLayer("output", 3),
        ]

    def test_no_dropout_means_no_dropout_layer(self) -> None:
        assert names({"type": "mlp", "hidden": [8]}) == ["dense_1", "activation_1", "output"]

    def test_a_linear_activation_is_no_layer(self) -> None:
        assert names({"type": "mlp", "hidden": [8, 8], "activation": "linear"}) == ["dense_1", "dense_2", "output"]


class TestSequential:
    def test_an_activation_inside_dense_equals_one_written_after_it(self) -> None:
        inside = {"type": "sequential", "layers": [{"type": "dense", "units": 4, "activation": "relu"}]}
        after = {
            "type": "sequential",
            "layers": [{"type": "dense", "units": 4}, {"type": "activation", "function": "relu"}],
        }
        assert layers_of(parse_spec(body(model=inside)), 2) == layers_of(parse_spec(body(model=after)), 2)

    def test_a_preset_equals_its_layers_written_out(self) -> None:
        preset = {"type": "mlp", "hidden": [8, 4], "activation": "gelu", "dropout": 0.1}
        written = {
            "type": "sequential",
            "layers": [
                {"type": "dense", "units": 8, "activation": "gelu"},
                {"type": "dropout", "rate": 0.1},
                {"type": "dense", "units": 4, "activation": "gelu"},
                {"type": "dropout", "rate": 0.1},
            ],
        }
        assert layers_of(parse_spec(body(model=preset)), 2) == layers_of(parse_spec(body(model=written)), 2)

    def test_a_layer_that_is_written_stays_even_when_it_does_nothing(self) -> None:
        layers = [{"type": "activation", "function": "linear"}, {"type": "dropout", "rate": 0}]
        assert names({"type": "sequential", "layers": layers}) == ["activation_1", "dropout_1", "output"]

    @given(st.lists(st.sampled_from(["dense", "activation", "dropout"]), min_size=1, max_size=12))
    def test_names_count_each_type_from_one_and_are_unique(self, kinds: list[str]) -> None:
        values: dict[str, dict[str, Any]] = {
            "dense": {"units": 2},
            "activation": {"function": "relu"},
            "dropout": {"rate": 0.5},
        }
        found = names({"type": "sequential", "layers": [{"type": kind, **values[kind]} for kind in kinds]})
        assert found[-1] == "output"
        assert found[:-1] == [f"{kind}_{kinds[: index + 1].count(kind)}" for index, kind in enumerate(kinds)]


class TestActivations:
    @pytest.mark.parametrize("name", ACTIVATIONS)
    def test_each_is_accepted_by_presets_and_layers(self, name: str) -> None:
        for model in (
            {"type": "mlp", "hidden": [2], "activation": name},
            {"type": "sequential", "layers": [{"type": "activation", "function": name}]},
        ):
            parse_spec(body(model=model))
