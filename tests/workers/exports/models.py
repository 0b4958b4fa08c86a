"""Saved models for tests of what is made from them: any layers, weights drawn at random, no training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from safetensors.numpy import save_file

from app.spec import Layer
from app.spec.layers import (
    ActivationLayer,
    AvgPool2dLayer,
    BatchNormLayer,
    Conv1dLayer,
    Conv2dLayer,
    DenseLayer,
    DropoutLayer,
    EmbeddingLayer,
    FlattenLayer,
    GlobalAvgPool2dLayer,
    GruLayer,
    LayerNormLayer,
    LstmLayer,
    MaxPool2dLayer,
    ParallelLayer,
    ReshapeLayer,
    ResidualLayer,
    Shape,
)
from app.spec.weights import weight_shapes
from tests.workers.training_jobs import effective
from workers.backends.initial import Weights
from workers.data.encoding import Encoder
from workers.data.fitted import NumberInput
from workers.data.standardise import Scaling
from workers.model_file import PROBE_NAME, TrainedModel, forward, save

PICTURE: Final = (8, 7, 3)
SEQUENCE: Final = (9, 5)
TABLE: Final = (6,)
WORDS: Final = (7,)
VOCABULARY: Final = 11

MODELS: Final[dict[str, tuple[Shape, Sequence[Layer]]]] = {
    "dense": (
        TABLE,
        [DenseLayer("dense_1", 5), ActivationLayer("activation_1", "relu"), DropoutLayer("dropout_1", 0.5)],
    ),
    "dense without bias, on a sequence": (
        SEQUENCE,
        [DenseLayer("dense_1", 4, use_bias=False), FlattenLayer("flatten_1")],
    ),
    **{
        f"activation {name}": (TABLE, [DenseLayer("dense_1", 8), ActivationLayer("activation_1", name)])
        for name in (
            "linear",
            "relu",
            "leaky_relu",
            "tanh",
            "sigmoid",
            "elu",
            "selu",
            "gelu",
            "silu",
            "softplus",
            "softsign",
        )
    },
    "batch_norm": (PICTURE, [BatchNormLayer("batch_norm_1", epsilon=0.01), FlattenLayer("flatten_1")]),
    "layer_norm": (SEQUENCE, [LayerNormLayer("layer_norm_1", epsilon=0.01), FlattenLayer("flatten_1")]),
    "reshape": (TABLE, [ReshapeLayer("reshape_1", (3, 2)), DenseLayer("dense_1", 4), FlattenLayer("flatten_1")]),
    "conv1d same": (SEQUENCE, [Conv1dLayer("conv1d_1", 4, 4, strides=3), FlattenLayer("flatten_1")]),
    "conv1d valid, dilated": (
        SEQUENCE,
        [Conv1dLayer("conv1d_1", 4, 3, padding="valid", dilation=2, use_bias=False), FlattenLayer("flatten_1")],
    ),
    "conv2d same": (PICTURE, [Conv2dLayer("conv2d_1", 4, (3, 2), (2, 2)), FlattenLayer("flatten_1")]),
    "conv2d dilated": (PICTURE, [Conv2dLayer("conv2d_1", 4, (3, 2), dilation=(1, 2)), FlattenLayer("flatten_1")]),
    "conv2d valid": (
        PICTURE,
        [Conv2dLayer("conv2d_1", 4, (3, 3), (1, 2), padding="valid", use_bias=False), FlattenLayer("flatten_1")],
    ),
    "max_pool2d": (PICTURE, [MaxPool2dLayer("max_pool2d_1", (3, 2), (2, 2), "same"), FlattenLayer("flatten_1")]),
    "max_pool2d valid": (PICTURE, [MaxPool2dLayer("max_pool2d_1"), FlattenLayer("flatten_1")]),
    "avg_pool2d": (PICTURE, [AvgPool2dLayer("avg_pool2d_1", (3, 2), (2, 2), "same"), FlattenLayer("flatten_1")]),
    "avg_pool2d valid": (PICTURE, [AvgPool2dLayer("avg_pool2d_1"), FlattenLayer("flatten_1")]),
    "global_avg_pool2d": (PICTURE, [GlobalAvgPool2dLayer("global_avg_pool2d_1")]),
    "embedding": (WORDS, [EmbeddingLayer("embedding_1", VOCABULARY, 3), FlattenLayer("flatten_1")]),
    "lstm": (SEQUENCE, [LstmLayer("lstm_1", 6)]),
    "lstm, every step": (SEQUENCE, [LstmLayer("lstm_1", 4, return_sequences=True), LstmLayer("lstm_2", 3)]),
    "gru": (SEQUENCE, [GruLayer("gru_1", 6)]),
    "gru, every step": (SEQUENCE, [GruLayer("gru_1", 4, return_sequences=True), FlattenLayer("flatten_1")]),
    "residual": (
        PICTURE,
        [
            ResidualLayer("residual_1", (Conv2dLayer("conv2d_1", 3, (3, 3)), BatchNormLayer("batch_norm_1"))),
            ResidualLayer(
                "residual_2",
                (Conv2dLayer("conv2d_2", 4, (3, 3), (2, 2)), ActivationLayer("activation_1", "relu")),
                (Conv2dLayer("conv2d_3", 4, (1, 1), (2, 2), use_bias=False),),
            ),
            GlobalAvgPool2dLayer("global_avg_pool2d_1"),
        ],
    ),
    "parallel": (
        SEQUENCE,
        [
            ParallelLayer("parallel_1", ((Conv1dLayer("conv1d_1", 3, 3),), (), (DenseLayer("dense_1", 2),))),
            ParallelLayer("parallel_2", ((LstmLayer("lstm_1", 4),), (GruLayer("gru_1", 4),)), "add"),
        ],
    ),
    "nested": (
        TABLE,
        [
            ResidualLayer(
                "residual_1",
                (ParallelLayer("parallel_1", ((DenseLayer("dense_1", 2),), (ResidualLayer("residual_2", ()),))),),
                (DenseLayer("dense_2", 8),),
            )
        ],
    ),
}
"""Every layer, in the forms in which formats differ; the output layer is added by `write_model`."""


def with_output(layers: Sequence[Layer], units: int) -> list[Layer]:
    return [*layers, DenseLayer("output", units)]


def random_weights(layers: Sequence[Layer], input_shape: Shape, seed: int = 0) -> Weights:
    """Weights of which none is 0 or 1, so that none can be left out; variances are above 0."""
    random = np.random.default_rng(seed)
    return {
        name: random.uniform(0.5, 2, shape) if name.endswith("variance") else random.normal(0, 0.4, shape)
        for name, shape in weight_shapes(layers, input_shape).items()
    }


def random_rows(name: str, rows: int = 5) -> Any:
    """Encoded rows for one of `MODELS`."""
    shape = (rows, *MODELS[name][0])
    random = np.random.default_rng(1)
    return (
        random.integers(0, VOCABULARY, shape).astype(float) if MODELS[name][0] == WORDS else random.normal(size=shape)
    )


def write_model(
    folder: Path,
    layers: Sequence[Layer],
    input_shape: Shape,
    *,
    x: Any = None,
    task: Literal["classification", "regression"] = "classification",
    framework: str = "tensorflow",
) -> Path:
    """Save a model of these layers and an output layer, and with `x` a probe of those rows."""
    folder.mkdir(parents=True, exist_ok=True)
    every = with_output(layers, 3 if task == "classification" else 1)
    weights = {name: value.astype(np.float32) for name, value in random_weights(every, input_shape).items()}
    width = int(np.prod(input_shape))
    spec = effective("iris" if task == "classification" else "diabetes", framework)
    column = NumberInput("pixels", Scaling.identity(width), shape=input_shape)
    features = spec.data.model_copy(update={"features": ["pixels"]})
    model = TrainedModel(
        weights=weights,
        layers=every,
        encoder=Encoder((column,)),
        classes=["a", "b", "c"] if task == "classification" else None,
        target=None if task == "classification" else Scaling(np.array([150.0]), np.array([70.0])),
        spec=spec.model_copy(update={"data": features}),
        metrics={"loss": 0.5},
    )
    save(folder, model)
    if x is not None:
        rows = np.asarray(x, np.float32)
        save_file({"x": rows, "outputs": np.array(forward(every, weights, rows), order="C")}, folder / PROBE_NAME)
    return folder
