"""Shapes and weights of layers, against Keras' own layers, and what is said when a layer does not fit."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spec import LayerShape, ShapeProblem, infer, layers_of, parse_job, weight_facts, weight_shapes
from app.spec.geometry import picture_of
from app.spec.layers import (
    AvgPool2dLayer,
    Conv1dLayer,
    DenseLayer,
    FlattenLayer,
    Layer,
    LstmLayer,
    MaxPool2dLayer,
    ParallelLayer,
    ReshapeLayer,
    ResidualLayer,
    Shape,
    walk,
)
from app.spec.shapes import output_shape
from tests.spec.bodies import body

Case = tuple[str, dict[str, Any], Shape]


def cases() -> list[Case]:
    found: list[Case] = [
        ("dense", {"units": 4}, (3,)),
        ("dense", {"units": 4, "use_bias": False}, (5, 2, 3)),
        ("batch_norm", {}, (4, 4, 3)),
        ("batch_norm", {}, (7,)),
        ("layer_norm", {}, (5, 3)),
        ("flatten", {}, (4, 3, 2)),
        ("reshape", {"shape": [2, 6]}, (12,)),
        ("global_avg_pool2d", {}, (5, 6, 3)),
        ("embedding", {"input_dim": 9, "output_dim": 4}, (5,)),
        ("embedding", {"input_dim": 9, "output_dim": 4}, (5, 6)),
    ]
    for kind, whole in product(("lstm", "gru"), (False, True)):
        found.append((kind, {"units": 5, "return_sequences": whole}, (7, 3)))
    for size, kernel, strides, padding in product((8, 9), (1, 3, 4), (1, 2, 3), ("same", "valid")):
        values = {"filters": 5, "kernel_size": kernel, "strides": strides, "padding": padding}
        found.append(("conv1d", values, (size, 2)))
        found.append(("conv2d", {**values, "kernel_size": [kernel, 2], "strides": [strides, 1]}, (size, 6, 2)))
        pool = {"pool_size": [kernel, 2], "strides": [strides, 2], "padding": padding}
        found += [("max_pool2d", pool, (size, 6, 2)), ("avg_pool2d", pool, (size, 6, 2))]
    for padding in ("same", "valid"):
        found.append(("conv1d", {"filters": 5, "kernel_size": 3, "dilation": 2, "padding": padding}, (9, 2)))
        sides = {"filters": 5, "kernel_size": 3, "dilation": [2, 3], "padding": padding, "use_bias": False}
        found.append(("conv2d", sides, (9, 11, 2)))
    return found


CASES = cases()


def built(kind: str, values: dict[str, Any]) -> Layer:
    model = {"type": "sequential", "layers": [{"type": kind, **values}]}
    return layers_of(parse_job(body(model=model)), 1)[0]


@pytest.fixture(scope="module")
def reference() -> list[Any]:
    """Keras' answers, from a process of its own."""
    program = Path(__file__).with_name("keras_reference.py")
    done = subprocess.run(
        [sys.executable, str(program)], input=json.dumps(CASES), capture_output=True, text=True, check=True, timeout=120
    )
    found: list[Any] = json.loads(done.stdout)
    return found


class TestAgainstKeras:
    def test_each_layer_gives_out_the_shape_that_keras_says(self, reference: list[Any]) -> None:
        for (kind, values, shape), (expected, _) in zip(CASES, reference, strict=True):
            assert list(output_shape(built(kind, values), shape)) == expected, (kind, values, shape)

    def test_each_layer_has_the_weights_that_keras_has(self, reference: list[Any]) -> None:
        for (kind, values, shape), (_, expected) in zip(CASES, reference, strict=True):
            layer = built(kind, values)
            found = {name.split(".")[1]: list(size) for name, size in weight_shapes([layer], shape).items()}
            assert found == expected, (kind, values, shape)

    def test_every_layer_with_a_shape_or_weights_of_its_own_is_there(self) -> None:
        kinds = {layer.__dataclass_fields__["type"].default for layer in get_args(Layer)}
        plain = {"activation", "dropout", "residual", "parallel"}  # elementwise, or made of the others
        assert {kind for kind, _, _ in CASES} == kinds - plain


class TestContainers:
    def test_a_residual_layer_gives_what_its_layers_give(self) -> None:
        layer = ResidualLayer("residual_1", (DenseLayer("dense_1", 4),), (DenseLayer("dense_2", 4),))
        assert output_shape(layer, (3,)) == (4,)

    def test_branches_are_joined_on_the_last_axis(self) -> None:
        branches = ((DenseLayer("dense_1", 4),), (), (DenseLayer("dense_2", 1),))
        assert output_shape(ParallelLayer("parallel_1", branches), (5, 3)) == (5, 4 + 3 + 1)

    def test_branches_that_are_summed_keep_their_shape(self) -> None:
        layer = ParallelLayer("parallel_1", ((DenseLayer("dense_1", 3),), ()), merge="add")
        assert output_shape(layer, (5, 3)) == (5, 3)

    def test_the_walk_is_depth_first_with_the_container_first(self) -> None:
        inner = ResidualLayer("residual_2", (DenseLayer("dense_2", 3),))
        outer = ResidualLayer("residual_1", (DenseLayer("dense_1", 3), inner), (DenseLayer("dense_3", 3),))
        names = [layer.name for layer in walk([outer, DenseLayer("output", 1)])]
        assert names == ["residual_1", "dense_1", "residual_2", "dense_2", "dense_3", "output"]


class TestInfer:
    def test_nested_layers_are_listed_with_the_layer_they_are_part_of(self) -> None:
        layers: list[Layer] = [
            ResidualLayer("residual_1", (DenseLayer("dense_1", 3, use_bias=False),)),
            DenseLayer("output", 2),
        ]
        assert infer(layers, (3,)) == [
            LayerShape(name="residual_1", type="residual", output_shape=[3], parameters=0),
            LayerShape(name="dense_1", type="dense", output_shape=[3], parameters=9, inside="residual_1"),
            LayerShape(name="output", type="dense", output_shape=[2], parameters=8),
        ]

    def test_moving_statistics_are_weights_that_are_not_trained(self) -> None:
        layers = [built("batch_norm", {})]
        assert infer(layers, (4, 3))[0].parameters == 2 * 3
        trained = {name: facts.trained for name, facts in weight_facts(layers, (4, 3)).items()}
        assert trained == {
            "batch_norm_1.gamma": True,
            "batch_norm_1.beta": True,
            "batch_norm_1.moving_mean": False,
            "batch_norm_1.moving_variance": False,
        }


class TestProblems:
    @pytest.mark.parametrize(
        ("layer", "shape", "sentence"),
        [
            (
                ReshapeLayer("reshape_1", (8, 8, 3)),
                (64,),
                "makes shape [8, 8, 3], which has 192 values, but gets [64], which has 64.",
            ),
            (
                MaxPool2dLayer("max_pool2d_1"),
                (8, 8),
                (
                    "needs a picture of shape [height, width, channels], but gets [8, 8]; put a reshape "
                    'before it, for example {"type": "reshape", "shape": [8, 8, 1]}.'
                ),
            ),
            (
                LstmLayer("lstm_1", 4),
                (30,),
                (
                    "needs a sequence of shape [steps, features], but gets [30]; put a reshape before it, for "
                    'example {"type": "reshape", "shape": [30, 1]}.'
                ),
            ),
            (
                LstmLayer("lstm_1", 4),
                (8, 8, 2),
                (
                    "needs a sequence of shape [steps, features], but gets [8, 8, 2]; put a reshape before it, "
                    'for example {"type": "reshape", "shape": [8, 16]}.'
                ),
            ),
            (
                Conv1dLayer("conv1d_1", 4, 3, padding="valid", dilation=4),
                (8, 2),
                (
                    "looks at windows of [9], but gets the smaller shape [8, 2]; use a smaller window, fewer "
                    'layers that shrink, or padding "same".'
                ),
            ),
            (
                AvgPool2dLayer("avg_pool2d_1", (3, 3)),
                (8, 2, 5),
                (
                    "looks at windows of [3, 3], but gets the smaller shape [8, 2, 5]; use a smaller "
                    'window, fewer layers that shrink, or padding "same".'
                ),
            ),
            (
                ResidualLayer("residual_1", (DenseLayer("dense_1", 4),)),
                (3,),
                (
                    "adds its layers, which give [4], to its shortcut, which gives [3]; give it a shortcut "
                    "from [3] to [4]."
                ),
            ),
            (
                ResidualLayer("residual_1", (DenseLayer("dense_1", 4),), (DenseLayer("dense_2", 5),)),
                (3,),
                (
                    "adds its layers, which give [4], to its shortcut, which gives [5]; make its last layer "
                    "give the same shape as the layers."
                ),
            ),
            (
                ParallelLayer("parallel_1", ((), (FlattenLayer("flatten_1"),))),
                (3, 2),
                (
                    "merges by concat: its branches must give shapes that are equal but for the last axis, "
                    "but they give [3, 2], [6]."
                ),
            ),
            (
                ParallelLayer("parallel_1", ((), (DenseLayer("dense_1", 4),)), merge="add"),
                (3,),
                "merges by add: its branches must give shapes that are equal, but they give [3], [4].",
            ),
        ],
    )
    def test_the_sentence_names_the_layer_and_both_shapes(self, layer: Layer, shape: Shape, sentence: str) -> None:
        with pytest.raises(ShapeProblem) as caught:
            output_shape(layer, shape)
        assert caught.value.sentence == str(caught.value) == f"Layer {layer.name} {sentence}"
        assert caught.value.layer == layer.name
        assert caught.value.code == "shape_problem"

    def test_the_layer_inside_is_named(self) -> None:
        with pytest.raises(ShapeProblem) as caught:
            infer([ResidualLayer("residual_1", (LstmLayer("lstm_1", 4),))], (3,))
        assert caught.value.layer == "lstm_1"

    def test_the_suggested_reshape_helps(self) -> None:
        for layer, shape in ((LstmLayer("lstm_1", 4), (6, 2, 2)), (MaxPool2dLayer("max_pool2d_1"), (24,))):
            with pytest.raises(ShapeProblem) as caught:
                output_shape(layer, shape)
            better = json.loads(caught.value.suggestion or "")["shape"]
            reshape = ReshapeLayer("reshape_1", tuple(better))
            assert output_shape(layer, output_shape(reshape, shape))


class TestPictureOf:
    @given(st.integers(1, 5000))
    def test_it_has_as_many_values_and_is_as_square_as_can_be(self, count: int) -> None:
        height, width, channels = picture_of(count)
        assert height * width == count
        assert channels == 1
        assert not [side for side in range(height + 1, width) if count % side == 0 and side * side <= count]
