"""Presets as layers, and the names that weights are stored under."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spec import layers_of, parse_job
from app.spec.expand import expand
from app.spec.layers import (
    ACTIVATIONS,
    ActivationLayer,
    AvgPool2dLayer,
    BatchNormLayer,
    Conv1dLayer,
    Conv2dLayer,
    DenseLayer,
    DropoutLayer,
    EmbeddingLayer,
    GruLayer,
    Layer,
    MaxPool2dLayer,
    ParallelLayer,
    ReshapeLayer,
    ResidualLayer,
)
from tests.spec.bodies import body


def names(model: Any, units: int = 3) -> list[str]:
    return [layer.name for layer in layers_of(parse_job(body(model=model)), units)]


class TestLinear:
    def test_it_is_the_output_layer_alone(self) -> None:
        assert layers_of(parse_job(body(model="linear")), 10) == [DenseLayer("output", 10)]


class TestMlp:
    def test_each_hidden_layer_is_followed_by_its_activation_and_dropout(self) -> None:
        model = {"type": "mlp", "hidden": [8, 4], "activation": "tanh", "dropout": 0.25}
        assert layers_of(parse_job(body(model=model)), 3) == [
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
        assert layers_of(parse_job(body(model=inside)), 2) == layers_of(parse_job(body(model=after)), 2)

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
        assert layers_of(parse_job(body(model=preset)), 2) == layers_of(parse_job(body(model=written)), 2)

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


class TestNested:
    LAYERS = (
        {
            "type": "residual",
            "layers": [{"type": "dense", "units": 4, "activation": "tanh"}, {"type": "dense", "units": 4}],
            "shortcut": [{"type": "dense", "units": 4}],
        },
        {"type": "parallel", "branches": [[], [{"type": "dense", "units": 2}]], "merge": "add"},
        {"type": "residual", "layers": [{"type": "dropout", "rate": 0.1}]},
    )

    def test_one_counter_per_type_runs_through_the_whole_model_depth_first(self) -> None:
        model = {"type": "sequential", "layers": list(self.LAYERS)}
        assert layers_of(parse_job(body(model=model)), 3) == [
            ResidualLayer(
                "residual_1",
                (DenseLayer("dense_1", 4), ActivationLayer("activation_1", "tanh"), DenseLayer("dense_2", 4)),
                (DenseLayer("dense_3", 4),),
            ),
            ParallelLayer("parallel_1", ((), (DenseLayer("dense_4", 2),)), "add"),
            ResidualLayer("residual_2", (DropoutLayer("dropout_1", 0.1),)),
            DenseLayer("output", 3),
        ]

    def test_each_name_remembers_where_it_was_written(self) -> None:
        model = {"type": "sequential", "layers": list(self.LAYERS)}
        _, places = expand(parse_job(body(model=model)), 3)
        assert places["dense_3"] == ("model", "layers", 0, "shortcut", 0)
        assert places["activation_1"] == places["dense_1"] == ("model", "layers", 0, "layers", 0)
        assert places["dense_4"] == ("model", "layers", 1, "branches", 1, 0)
        assert places["output"] == ("model",)

    def test_layers_of_a_preset_come_from_the_model(self) -> None:
        _, places = expand(parse_job(body(model={"type": "cnn", "input_shape": [8, 8, 1]})), 3)
        assert set(places.values()) == {("model",)}


class TestLayers:
    def test_pools_step_by_their_own_size_unless_told_otherwise(self) -> None:
        written = [
            {"type": "max_pool2d", "pool_size": [3, 2]},
            {"type": "avg_pool2d", "strides": 1, "padding": "same"},
        ]
        layers = layers_of(parse_job(body(model={"type": "sequential", "layers": written})), 1)
        assert layers[:2] == [
            MaxPool2dLayer("max_pool2d_1", (3, 2), (3, 2)),
            AvgPool2dLayer("avg_pool2d_1", (2, 2), (1, 1), "same"),
        ]

    @pytest.mark.parametrize(
        ("written", "layer"),
        [
            ({"type": "reshape", "shape": [2, 3]}, ReshapeLayer("reshape_1", (2, 3))),
            ({"type": "batch_norm", "momentum": 0.9}, BatchNormLayer("batch_norm_1", 0.9, 1e-3)),
            ({"type": "embedding", "input_dim": 9, "output_dim": 2}, EmbeddingLayer("embedding_1", 9, 2)),
            ({"type": "gru", "units": 3, "return_sequences": True}, GruLayer("gru_1", 3, return_sequences=True)),
            (
                {"type": "conv1d", "filters": 3, "kernel_size": 5, "dilation": 2, "padding": "valid"},
                Conv1dLayer("conv1d_1", 3, 5, 1, "valid", 2),
            ),
            (
                {"type": "conv2d", "filters": 3, "kernel_size": 5, "strides": [2, 1], "use_bias": False},
                Conv2dLayer("conv2d_1", 3, (5, 5), (2, 1), "same", (1, 1), use_bias=False),
            ),
        ],
    )
    def test_every_value_arrives(self, written: dict[str, Any], layer: Layer) -> None:
        model = {"type": "sequential", "layers": [written]}
        assert layers_of(parse_job(body(model=model)), 1)[0] == layer


class TestFlatOutput:
    @pytest.mark.parametrize(
        ("written", "rank", "flattened"),
        [
            ([{"type": "reshape", "shape": [2, 2]}], 1, True),
            ([{"type": "reshape", "shape": [4]}], 3, False),
            ([{"type": "lstm", "units": 2}], 2, False),
            ([{"type": "gru", "units": 2, "return_sequences": True}], 2, True),
            ([{"type": "embedding", "input_dim": 2, "output_dim": 2}], 1, True),
            ([{"type": "global_avg_pool2d"}], 3, False),
            ([{"type": "flatten"}], 3, False),
            ([{"type": "dense", "units": 2}], 2, True),
            ([{"type": "residual", "layers": [{"type": "flatten"}], "shortcut": [{"type": "flatten"}]}], 2, False),
            ([{"type": "parallel", "branches": [[{"type": "reshape", "shape": [1, 4]}]]}], 1, True),
        ],
    )
    def test_rows_are_flattened_for_the_output_when_they_are_not_flat(
        self, written: Any, rank: int, *, flattened: bool
    ) -> None:
        spec = parse_job(body(model={"type": "sequential", "layers": written}))
        names = [layer.name for layer in layers_of(spec, 3, (2,) * rank)]
        assert names[-1] == "output"
        assert ("flatten_output" in names) == flattened


class TestActivations:
    @pytest.mark.parametrize("name", ACTIVATIONS)
    def test_each_is_accepted_by_presets_and_layers(self, name: str) -> None:
        for model in (
            {"type": "mlp", "hidden": [2], "activation": name},
            {"type": "sequential", "layers": [{"type": "activation", "function": name}]},
        ):
            parse_job(body(model=model))
