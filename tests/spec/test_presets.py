"""What each preset is made of, written out by hand, and the number of its parameters by closed forms."""

from typing import Any

import pytest

from app.spec import infer, layers_of, parse_job, weight_facts
from app.spec.layers import (
    ActivationLayer,
    BatchNormLayer,
    Conv2dLayer,
    DenseLayer,
    DropoutLayer,
    FlattenLayer,
    GlobalAvgPool2dLayer,
    Layer,
    MaxPool2dLayer,
    ReshapeLayer,
    ResidualLayer,
    Shape,
)
from tests.spec.bodies import body


def expanded(model: Any, units: int = 10, shape: Shape = (64,)) -> list[Layer]:
    return layers_of(parse_job(body(model=model)), units, shape)


def parameters(model: Any, shape: Shape = (64,)) -> int:
    return sum(layer.parameters for layer in infer(expanded(model, shape=shape), shape))


class TestMlp:
    def test_batch_norm_stands_before_the_activation_and_takes_the_bias(self) -> None:
        assert expanded({"type": "mlp", "hidden": [8], "batch_norm": True, "dropout": 0.1}) == [
            DenseLayer("dense_1", 8, use_bias=False),
            BatchNormLayer("batch_norm_1", 0.9, 1e-3),
            ActivationLayer("activation_1", "relu"),
            DropoutLayer("dropout_1", 0.1),
            DenseLayer("output", 10),
        ]

    def test_arrays_are_flattened_first(self) -> None:
        names = [layer.name for layer in expanded({"type": "mlp", "hidden": [8]}, shape=(4, 4))]
        assert names == ["flatten_1", "dense_1", "activation_1", "output"]
        assert expanded("linear", shape=(4, 4)) == [FlattenLayer("flatten_1"), DenseLayer("output", 10)]


class TestCnn:
    def test_it_is_blocks_of_convolutions_then_dense_layers(self) -> None:
        model = {"type": "cnn", "filters": [4, 6], "dense": [5], "dropout": 0.3, "input_shape": [8, 8, 1]}
        assert expanded(model) == [
            ReshapeLayer("reshape_1", (8, 8, 1)),
            Conv2dLayer("conv2d_1", 4, (3, 3), use_bias=False),
            BatchNormLayer("batch_norm_1"),
            ActivationLayer("activation_1", "relu"),
            MaxPool2dLayer("max_pool2d_1", (2, 2), (2, 2)),
            Conv2dLayer("conv2d_2", 6, (3, 3), use_bias=False),
            BatchNormLayer("batch_norm_2"),
            ActivationLayer("activation_2", "relu"),
            MaxPool2dLayer("max_pool2d_2", (2, 2), (2, 2)),
            FlattenLayer("flatten_1"),
            DenseLayer("dense_1", 5),
            ActivationLayer("activation_3", "relu"),
            DropoutLayer("dropout_1", 0.3),
            DenseLayer("output", 10),
        ]

    def test_without_batch_norm_and_pooling_the_convolutions_have_a_bias(self) -> None:
        model = {
            "type": "cnn",
            "filters": [4],
            "kernel_size": 5,
            "batch_norm": False,
            "pool": 1,
            "activation": "tanh",
            "dense": [],
            "dropout": 0.5,
            "input_shape": [8, 8, 1],
        }
        assert expanded(model)[1:] == [
            Conv2dLayer("conv2d_1", 4, (5, 5)),
            ActivationLayer("activation_1", "tanh"),
            FlattenLayer("flatten_1"),
            DropoutLayer("dropout_1", 0.5),
            DenseLayer("output", 10),
        ]

    def test_its_parameters(self) -> None:
        # 3 x 3 kernels without bias, gamma and beta, 2 x 2 x 32 values into 64 units, 64 into 10.
        expected = 9 * 1 * 16 + 2 * 16 + 9 * 16 * 32 + 2 * 32 + (2 * 2 * 32 + 1) * 64 + (64 + 1) * 10
        assert parameters({"type": "cnn", "input_shape": [8, 8, 1]}) == expected


RESNET: dict[str, Any] = {"type": "resnet", "filters": [4, 8], "blocks": 2, "input_shape": [8, 8, 1]}


class TestResnet:
    def test_each_stage_but_the_first_begins_with_a_block_that_halves_the_picture(self) -> None:
        layers = expanded({**RESNET, "dropout": 0.2})
        blocks = [layer for layer in layers if isinstance(layer, ResidualLayer)]
        assert [len(block.shortcut) for block in blocks] == [0, 0, 2, 0]
        assert blocks[2] == ResidualLayer(
            "residual_3",
            (
                Conv2dLayer("conv2d_6", 8, (3, 3), (2, 2), use_bias=False),
                BatchNormLayer("batch_norm_6"),
                ActivationLayer("activation_6", "relu"),
                Conv2dLayer("conv2d_7", 8, (3, 3), use_bias=False),
                BatchNormLayer("batch_norm_7"),
            ),
            (Conv2dLayer("conv2d_8", 8, (1, 1), (2, 2), use_bias=False), BatchNormLayer("batch_norm_8")),
        )
        assert layers[-3:] == [
            GlobalAvgPool2dLayer("global_avg_pool2d_1"),
            DropoutLayer("dropout_1", 0.2),
            DenseLayer("output", 10),
        ]

    def test_the_activation_follows_each_sum(self) -> None:
        layers = expanded(RESNET)
        after = [layers[place + 1] for place, layer in enumerate(layers) if isinstance(layer, ResidualLayer)]
        assert {layer.type for layer in after} == {"activation"}

    def test_its_parameters(self) -> None:
        stem = 9 * 1 * 4 + 2 * 4
        first = 2 * 2 * (9 * 4 * 4 + 2 * 4)
        halving = 9 * 4 * 8 + 2 * 8 + 9 * 8 * 8 + 2 * 8 + 4 * 8 + 2 * 8
        second = halving + 2 * (9 * 8 * 8 + 2 * 8)
        assert parameters(RESNET) == stem + first + second + (8 + 1) * 10

    @pytest.mark.parametrize("side", [5, 7, 8, 32])
    def test_it_fits_pictures_of_any_size(self, side: int) -> None:
        model = {**RESNET, "input_shape": [side, side + 1, 3]}
        shapes = {layer.name: layer.output_shape for layer in infer(expanded(model), (side * (side + 1) * 3,))}
        assert shapes["residual_3"] == [-(-side // 2), -(-(side + 1) // 2), 8]
        assert shapes["global_avg_pool2d_1"] == [8]


class TestWritten:
    @pytest.mark.parametrize("name", ["cnn", "resnet"])
    def test_weights_that_batch_norm_would_undo_do_not_exist(self, name: str) -> None:
        facts = weight_facts(expanded({"type": name, "input_shape": [8, 8, 1]}), (64,))
        assert not [weight for weight in facts if weight.startswith("conv2d") and weight.endswith("bias")]
