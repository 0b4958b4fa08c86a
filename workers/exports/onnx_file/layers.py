"""Each of our layers as ONNX operators.

Everything is channels last here, as in our layers; the operators for pictures want channels first, so a transposition
stands on both sides of them (runtimes remove those that meet). All sizes but the batch are known, so padding is
written out and needs no `auto_pad`, which runtimes do not agree on with dilation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.spec.layers import (
    ActivationLayer,
    AvgPool2dLayer,
    BatchNormLayer,
    Conv1dLayer,
    Conv2dLayer,
    DenseLayer,
    EmbeddingLayer,
    FlattenLayer,
    Layer,
    LayerNormLayer,
    MaxPool2dLayer,
    ParallelLayer,
    ReshapeLayer,
    ResidualLayer,
    Shape,
)
from app.spec.shapes import output_shape
from workers.exports.onnx_file.activations import activation
from workers.exports.onnx_file.graph import Graph
from workers.exports.onnx_file.recurrent import recurrent
from workers.model_file.windows import Padding, same_padding

Weights = Mapping[str, NDArray[np.floating]]


@dataclass(frozen=True)
class Place:
    """Where a layer is put: the graph, all weights, what it takes, and that one's shape without the batch."""

    graph: Graph
    weights: Weights
    x: str
    shape: Shape

    def weight(self, layer: Layer, name: str) -> str:
        """Store a weight of the layer as it is."""
        key = f"{layer.name}.{name}"
        return self.graph.weight(key, self.weights[key])

    def array(self, layer: Layer, name: str) -> NDArray[np.floating]:
        """A weight of the layer, to be rearranged."""
        return self.weights[f"{layer.name}.{name}"]


def add_layers(layers: Sequence[Layer], place: Place) -> Place:
    """Put layers one after the other; gives the place behind them."""
    for layer in layers:
        y = _STEPS[layer.type](layer, place)
        place = Place(place.graph, place.weights, y, output_shape(layer, place.shape))
    return place


def _dense(layer: DenseLayer, place: Place) -> str:
    y = place.graph.node("MatMul", place.x, place.weight(layer, "kernel"))
    return place.graph.node("Add", y, place.weight(layer, "bias")) if layer.use_bias else y


def _activation(layer: ActivationLayer, place: Place) -> str:
    return activation(place.graph, layer.function, place.x)


def _batch_norm(layer: BatchNormLayer, place: Place) -> str:
    variance = place.array(layer, "moving_variance").astype(np.float64)
    factor = place.array(layer, "gamma") / np.sqrt(variance + layer.epsilon)
    centred = place.graph.node("Sub", place.x, place.weight(layer, "moving_mean"))
    scaled = place.graph.node("Mul", centred, place.graph.weight(f"{layer.name}.factor", factor))
    return place.graph.node("Add", scaled, place.weight(layer, "beta"))


def _layer_norm(layer: LayerNormLayer, place: Place) -> str:
    gamma, beta = place.weight(layer, "gamma"), place.weight(layer, "beta")
    return place.graph.node("LayerNormalization", place.x, gamma, beta, axis=-1, epsilon=layer.epsilon)


def _reshape(layer: FlattenLayer | ReshapeLayer, place: Place) -> str:
    return reshaped(place.graph, place.x, output_shape(layer, place.shape))


def reshaped(graph: Graph, x: str, shape: Sequence[int]) -> str:
    """Reshape the rows; the 0 keeps the batch as it is."""
    name = "shape_" + "_".join(map(str, shape))
    return graph.node("Reshape", x, graph.weight(name, np.array([0, *shape], np.int64)))


def _conv1d(layer: Conv1dLayer, place: Place) -> str:
    graph, kernel = place.graph, place.array(layer, "kernel").transpose(2, 1, 0)
    pads = _pads(place.shape[:1], (layer.kernel_size,), (layer.strides,), (layer.dilation,), layer.padding)
    sizes: dict[str, Any] = {
        "kernel_shape": [layer.kernel_size],
        "strides": [layer.strides],
        "dilations": [layer.dilation],
    }
    inputs = [graph.weight(f"{layer.name}.kernel", kernel), *([place.weight(layer, "bias")] if layer.use_bias else [])]
    first = graph.node("Transpose", place.x, perm=[0, 2, 1])
    return graph.node("Transpose", graph.node("Conv", first, *inputs, pads=pads, **sizes), perm=[0, 2, 1])


def _conv2d(layer: Conv2dLayer, place: Place) -> str:
    graph, kernel = place.graph, place.array(layer, "kernel").transpose(3, 2, 0, 1)
    pads = _pads(place.shape[:2], layer.kernel_size, layer.strides, layer.dilation, layer.padding)
    sizes: dict[str, Any] = {"kernel_shape": layer.kernel_size, "strides": layer.strides, "dilations": layer.dilation}
    inputs = [graph.weight(f"{layer.name}.kernel", kernel), *([place.weight(layer, "bias")] if layer.use_bias else [])]
    return _channels_first(place, "Conv", *inputs, pads=pads, **sizes)


def _pool(layer: MaxPool2dLayer | AvgPool2dLayer, place: Place) -> str:
    pads = _pads(place.shape[:2], layer.pool_size, layer.strides, (1, 1), layer.padding)
    sizes: dict[str, Any] = {"kernel_shape": layer.pool_size, "strides": layer.strides}
    if isinstance(layer, MaxPool2dLayer):
        return _channels_first(place, "MaxPool", pads=pads, **sizes)
    return _channels_first(place, "AveragePool", pads=pads, count_include_pad=0, **sizes)


def _channels_first(place: Place, operator: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401 - what ONNX takes
    first = place.graph.node("Transpose", place.x, perm=[0, 3, 1, 2])
    return place.graph.node("Transpose", place.graph.node(operator, first, *inputs, **attributes), perm=[0, 2, 3, 1])


def _pads(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int], padding: Padding
) -> list[int]:
    """All beginnings, then all ends, as ONNX lists them."""
    if padding == "valid":
        return [0] * (2 * len(sizes))
    borders = [same_padding(*window) for window in zip(sizes, kernel, strides, dilation, strict=True)]
    return [before for before, _ in borders] + [after for _, after in borders]


def _embedding(layer: EmbeddingLayer, place: Place) -> str:
    numbers = place.graph.node("Cast", place.x, to=7)  # TensorProto.INT64
    return place.graph.node("Gather", place.weight(layer, "embeddings"), numbers, axis=0)


def _residual(layer: ResidualLayer, place: Place) -> str:
    straight, around = add_layers(layer.layers, place), add_layers(layer.shortcut, place)
    return place.graph.node("Add", straight.x, around.x)


def _parallel(layer: ParallelLayer, place: Place) -> str:
    outputs = [add_layers(branch, place).x for branch in layer.branches]
    if layer.merge == "concat":
        return place.graph.node("Concat", *outputs, axis=-1)
    return place.graph.node("Sum", *outputs)


_STEPS: Final[Mapping[str, Callable[[Any, Place], str]]] = {
    "dense": _dense,
    "activation": _activation,
    "dropout": lambda _, place: place.x,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "flatten": _reshape,
    "reshape": _reshape,
    "conv1d": _conv1d,
    "conv2d": _conv2d,
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "global_avg_pool2d": lambda _, place: place.graph.node("ReduceMean", place.x, axes=[1, 2], keepdims=0),
    "embedding": _embedding,
    "lstm": lambda layer, place: recurrent(place.graph, layer, place.weights, place.x),
    "gru": lambda layer, place: recurrent(place.graph, layer, place.weights, place.x),
    "residual": _residual,
    "parallel": _parallel,
}
