"""Layers as they are written: sugar, bounds, nesting, and where a problem is pointed at."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spec import parse_job
from app.spec.layer_specs import DEEPEST, MOST_LAYERS, LayerSpec
from app.spec.model import Sequential
from tests.spec.bodies import body, problem_at, problems_of


def layers(*written: Any) -> dict[str, Any]:
    return body(model={"type": "sequential", "layers": list(written)})


def first(written: Any) -> LayerSpec:
    model = parse_job(layers(written)).model
    assert isinstance(model, Sequential)
    return model.layers[0]


def nested(depth: int, inner: Any) -> Any:
    """Put a layer inside of residual layers."""
    for _ in range(depth):
        inner = {"type": "residual", "layers": [inner]}
    return inner


DENSE = {"type": "dense", "units": 2}

# The defaults that the documentation promises.
DEFAULTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "dense", "units": 3}, {"activation": "linear", "use_bias": True}),
    ({"type": "batch_norm"}, {"momentum": 0.9, "epsilon": 0.001}),
    ({"type": "layer_norm"}, {"epsilon": 0.001}),
    (
        {"type": "conv1d", "filters": 2, "kernel_size": 3},
        {"strides": 1, "padding": "same", "dilation": 1, "use_bias": True, "activation": "linear"},
    ),
    (
        {"type": "conv2d", "filters": 2, "kernel_size": 3},
        {"strides": 1, "padding": "same", "dilation": 1, "use_bias": True, "activation": "linear"},
    ),
    ({"type": "max_pool2d"}, {"pool_size": 2, "strides": None, "padding": "valid"}),
    ({"type": "avg_pool2d"}, {"pool_size": 2, "strides": None, "padding": "valid"}),
    ({"type": "lstm", "units": 4}, {"return_sequences": False}),
    ({"type": "gru", "units": 4}, {"return_sequences": False}),
    ({"type": "residual", "layers": [DENSE]}, {"shortcut": []}),
    ({"type": "parallel", "branches": [[DENSE]]}, {"merge": "concat"}),
]


class TestDefaults:
    @pytest.mark.parametrize(("written", "added"), DEFAULTS)
    def test_what_is_left_out_is_filled_in(self, written: dict[str, Any], added: dict[str, Any]) -> None:
        dumped = first(written).model_dump(mode="json")
        assert {key: dumped[key] for key in added} == added


class TestSides:
    @pytest.mark.parametrize("sides", [3, [3, 5]])
    def test_one_number_or_two_are_kept_as_written(self, sides: Any) -> None:
        layer = first({"type": "conv2d", "filters": 2, "kernel_size": sides})
        assert layer.model_dump()["kernel_size"] == sides

    @pytest.mark.parametrize("wrong", [0, [3], [3, 3, 3], "3", 2.5, True, {}])
    def test_anything_else_is_told_both(self, wrong: Any) -> None:
        where = "/model/layers/0/kernel_size"
        problem = problem_at(layers({"type": "conv2d", "filters": 2, "kernel_size": wrong}), where)
        assert problem.message.startswith("model.layers[0].kernel_size must be")
        assert "for example" in problem.message or "whole number" in problem.message

    def test_a_wrong_side_is_pointed_at(self) -> None:
        raw = layers({"type": "max_pool2d", "pool_size": [2, 0]})
        assert problem_at(raw, "/model/layers/0/pool_size/1").message.startswith("model.layers[0].pool_size[1] must be")


class TestStridesAndDilation:
    @pytest.mark.parametrize("kind", ["conv1d", "conv2d"])
    def test_not_both_above_one(self, kind: str) -> None:
        raw = layers({"type": kind, "filters": 2, "kernel_size": 3, "strides": 2, "dilation": 2})
        problem = problem_at(raw, "/model/layers/0")
        assert problem.message == (
            "model.layers[0] must have strides 1 or dilation 1: no framework computes both at once."
        )

    @pytest.mark.parametrize("ones", [1, [1, 1]])
    def test_a_pair_of_ones_is_one(self, ones: Any) -> None:
        first({"type": "conv2d", "filters": 2, "kernel_size": 3, "strides": ones, "dilation": 2})
        first({"type": "conv2d", "filters": 2, "kernel_size": 3, "strides": [2, 1], "dilation": ones})


class TestNesting:
    def test_an_unknown_key_is_found_at_any_depth(self) -> None:
        wrong = {"type": "parallel", "branches": [[], [{"type": "conv2d", "filter": 2, "kernel_size": 3}]]}
        raw = layers(DENSE, nested(2, wrong))
        where = "/model/layers/1/layers/0/layers/0/branches/1/0"
        assert problem_at(raw, f"{where}/filter").suggestion == "filters"
        assert problem_at(raw, f"{where}/filters").message.endswith(
            "is missing; it must be a whole number, at least 1 and at most 65536, for example 32."
        )

    def test_a_key_of_another_layer_says_whose_it_is(self) -> None:
        raw = layers({"type": "residual", "layers": [DENSE], "shortcut": [{**DENSE, "kernel_size": 3}]})
        problem = problem_at(raw, "/model/layers/0/shortcut/0/kernel_size")
        assert problem.message == (
            '"kernel_size" is a key of conv1d and conv2d, not of this kind of model.layers[0].shortcut[0].'
        )

    @pytest.mark.parametrize(
        ("wrong", "meant"),
        [
            ("batchnorm", "batch_norm"),
            ("BatchNormalization", "batch_norm"),
            ("maxpool2d", "max_pool2d"),
            ("MaxPooling2D", "max_pool2d"),
            ("LSTM", "lstm"),
            ("conv", "conv2d"),
            ("Conv2D", "conv2d"),
            ("fc", "dense"),
        ],
    )
    def test_a_type_of_another_tool_is_understood(self, wrong: str, meant: str) -> None:
        raw = layers({"type": "residual", "layers": [{"type": wrong}]})
        assert problem_at(raw, "/model/layers/0/layers/0/type").suggestion == meant

    def test_eight_deep_is_accepted_and_nine_is_not(self) -> None:
        parse_job(layers(nested(DEEPEST, DENSE)))
        problem = problem_at(layers(nested(DEEPEST + 1, DENSE)), "/model/layers")
        assert problem.message == "model.layers must nest residual and parallel layers at most 8 deep."

    def test_a_thousand_layers_are_accepted_and_more_are_not(self) -> None:
        row = {"type": "parallel", "branches": [[DENSE] * 255]}
        parse_job(layers(row, row, row, row))
        problem = problem_at(layers(row, row, row, row, DENSE), "/model/layers")
        assert problem.message == f"model.layers must have at most {MOST_LAYERS} layers in all."

    def test_a_body_of_a_hundred_thousand_levels_is_refused_at_once(self) -> None:
        assert "at most 8 deep" in problem_at(layers(nested(100_000, DENSE)), "/model/layers").message
        deep: Any = DENSE
        for _ in range(100_000):
            deep = [deep]
        for raw in (
            layers(deep),
            layers({"type": "residual", "layers": deep}),
            layers({"type": "parallel", "branches": deep}),
        ):
            assert all(problem.pointer.startswith("/model/layers") for problem in problems_of(raw))

    @given(
        st.recursive(
            st.sampled_from([DENSE, {"type": "flatten"}, {"type": "activation", "function": "leaky_relu"}]),
            lambda inner: st.one_of(
                st.fixed_dictionaries(
                    {
                        "type": st.just("residual"),
                        "layers": st.lists(inner, min_size=1, max_size=2),
                        "shortcut": st.lists(inner, max_size=2),
                    }
                ),
                st.fixed_dictionaries(
                    {
                        "type": st.just("parallel"),
                        "branches": st.lists(st.lists(inner, max_size=2), min_size=1, max_size=2),
                    }
                ),
            ),
            max_leaves=6,
        )
    )
    def test_what_is_read_is_written_the_same(self, written: Any) -> None:
        dumped = first(written).model_dump(mode="json")
        assert first(dumped).model_dump(mode="json") == dumped


class TestValues:
    @pytest.mark.parametrize(
        ("written", "key"),
        [
            ({"type": "reshape", "shape": [0, 3]}, "shape/0"),
            ({"type": "reshape", "shape": []}, "shape"),
            ({"type": "reshape", "shape": [-1, 3]}, "shape/0"),
            ({"type": "batch_norm", "momentum": 1.0}, "momentum"),
            ({"type": "batch_norm", "epsilon": 0}, "epsilon"),
            ({"type": "embedding", "input_dim": 0, "output_dim": 3}, "input_dim"),
            ({"type": "lstm", "units": 3, "return_sequences": 1}, "return_sequences"),
            ({"type": "parallel", "branches": []}, "branches"),
            ({"type": "parallel", "branches": [[]], "merge": "sum"}, "merge"),
            ({"type": "residual", "layers": []}, "layers"),
            ({"type": "conv1d", "filters": 3, "kernel_size": [3, 3]}, "kernel_size"),
            ({"type": "conv2d", "filters": 3, "kernel_size": 3, "padding": "SAME"}, "padding"),
        ],
    )
    def test_a_wrong_value_is_pointed_at(self, written: dict[str, Any], key: str) -> None:
        assert problem_at(layers(written), f"/model/layers/0/{key}").message.startswith("model.layers[0].")

    def test_the_list_of_branches_is_called_lists(self) -> None:
        problem = problem_at(layers({"type": "parallel", "branches": 3}), "/model/layers/0/branches")
        assert "must be a list of 1 to 64 lists" in problem.message
