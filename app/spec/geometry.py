"""The shape that every layer gives out, and why a layer cannot take what it gets."""

import math
from collections.abc import Iterable, Iterator, Sequence

from app.errors import TrainshedError
from app.spec.layers import (
    AvgPool2dLayer,
    Conv1dLayer,
    Conv2dLayer,
    DenseLayer,
    EmbeddingLayer,
    FlattenLayer,
    GlobalAvgPool2dLayer,
    GruLayer,
    Layer,
    LstmLayer,
    MaxPool2dLayer,
    Padding,
    ParallelLayer,
    ReshapeLayer,
    ResidualLayer,
    Shape,
    sequences_in,
)


class ShapeProblem(TrainshedError):
    """A layer cannot take the shape it gets; `layer` is its name, `sentence` the reason, with both shapes.

    `reason` is the sentence without advice. `suggestion`: JSON of a layer that would help before it, if there is one.
    """

    code = "shape_problem"

    def __init__(self, layer: str, reason: str, advice: str | None = None, suggestion: str | None = None) -> None:
        self.sentence = f"{reason}; {advice}." if advice else f"{reason}."
        super().__init__(self.sentence)
        self.layer = layer
        self.reason = reason
        self.suggestion = suggestion


def output_shape(layer: Layer, shape: Shape) -> Shape:  # noqa: C901, PLR0911 - one case per kind of layer
    """Return what the layer gives out for rows of `shape`, without the batch.

    Raises ShapeProblem, which names the layer (or the layer inside of it) and both shapes.
    """
    match layer:
        case DenseLayer():
            return (*shape[:-1], layer.units)
        case FlattenLayer():
            return (math.prod(shape),)
        case ReshapeLayer():
            return _reshaped(layer, shape)
        case Conv1dLayer() | Conv2dLayer():
            return _convolved(layer, shape)
        case MaxPool2dLayer() | AvgPool2dLayer():
            return _pooled(layer, shape)
        case GlobalAvgPool2dLayer():
            return (_picture(layer, shape)[-1],)
        case EmbeddingLayer():
            return (*shape, layer.output_dim)
        case LstmLayer() | GruLayer():
            steps, _ = _sequence(layer, shape)
            return (steps, layer.units) if layer.return_sequences else (layer.units,)
        case ResidualLayer():
            return _residual(layer, shape)
        case ParallelLayer():
            return _parallel(layer, shape)
        case _:
            return shape


def trace(layers: Iterable[Layer], shape: Shape) -> Iterator[tuple[Layer, Shape, Shape]]:
    """Yield each layer with the shapes that it takes and gives, depth first, a container before what is inside.

    Raises ShapeProblem at the first layer that does not fit.
    """
    for layer in layers:
        given = output_shape(layer, shape)
        yield layer, shape, given
        for inner in sequences_in(layer):
            yield from trace(inner, shape)
        shape = given


def _after(layers: Sequence[Layer], shape: Shape) -> Shape:
    for layer in layers:
        shape = output_shape(layer, shape)
    return shape


def _reshaped(layer: ReshapeLayer, shape: Shape) -> Shape:
    wanted, there = math.prod(layer.shape), math.prod(shape)
    if wanted != there:
        reason = (
            f"Layer {layer.name} makes shape {written(layer.shape)}, which has {wanted:,} values, "
            f"but gets {written(shape)}, which has {there:,}"
        )
        raise ShapeProblem(layer.name, reason)
    return layer.shape


def _picture(layer: Layer, shape: Shape) -> tuple[int, int, int]:
    if len(shape) == 3:  # noqa: PLR2004 - height, width, channels
        return (shape[0], shape[1], shape[2])
    better = (*shape, 1) if len(shape) == 2 else picture_of(math.prod(shape))  # noqa: PLR2004
    raise _needs(layer, "a picture of shape [height, width, channels]", shape, better)


def _sequence(layer: Layer, shape: Shape) -> tuple[int, int]:
    if len(shape) == 2:  # noqa: PLR2004 - steps, features
        return (shape[0], shape[1])
    better = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (shape[0], 1)
    raise _needs(layer, "a sequence of shape [steps, features]", shape, better)


def _needs(layer: Layer, what: str, shape: Shape, better: Shape) -> ShapeProblem:
    reshape = f'{{"type": "reshape", "shape": {written(better)}}}'
    reason = f"Layer {layer.name} needs {what}, but gets {written(shape)}"
    return ShapeProblem(layer.name, reason, f"put a reshape before it, for example {reshape}", reshape)


def _convolved(layer: Conv1dLayer | Conv2dLayer, shape: Shape) -> Shape:
    if isinstance(layer, Conv1dLayer):
        steps, _ = _sequence(layer, shape)
        windows = [(steps, layer.kernel_size, layer.strides, layer.dilation)]
    else:
        height, width, _ = _picture(layer, shape)
        windows = list(zip((height, width), layer.kernel_size, layer.strides, layer.dilation, strict=True))
    sizes = [_steps(layer.padding, *window) for window in windows]
    if min(sizes) < 1:
        raise _too_small(layer, shape, [(size - 1) * dilation + 1 for _, size, _, dilation in windows])
    return (*sizes, layer.filters)


def _pooled(layer: MaxPool2dLayer | AvgPool2dLayer, shape: Shape) -> Shape:
    height, width, channels = _picture(layer, shape)
    windows = list(zip((height, width), layer.pool_size, layer.strides, strict=True))
    sizes = [_steps(layer.padding, *window, 1) for window in windows]
    if min(sizes) < 1:
        raise _too_small(layer, shape, layer.pool_size)
    return (*sizes, channels)


def _steps(padding: Padding, size: int, window: int, stride: int, dilation: int) -> int:
    """Return how many places the window takes, at most 0 when it is larger than what it looks at."""
    if padding == "same":
        return -(-size // stride)
    return (size - (window - 1) * dilation - 1) // stride + 1


def _too_small(layer: Layer, shape: Shape, window: Iterable[int]) -> ShapeProblem:
    reason = f"Layer {layer.name} looks at windows of {written(window)}, but gets the smaller shape {written(shape)}"
    return ShapeProblem(layer.name, reason, 'use a smaller window, fewer layers that shrink, or padding "same"')


def _residual(layer: ResidualLayer, shape: Shape) -> Shape:
    straight, around = _after(layer.layers, shape), _after(layer.shortcut, shape)
    if straight == around:
        return straight
    advice = (
        "make its last layer give the same shape as the layers"
        if layer.shortcut
        else f"give it a shortcut from {written(shape)} to {written(straight)}"
    )
    ways = f"its layers, which give {written(straight)}, to its shortcut, which gives {written(around)}"
    raise ShapeProblem(layer.name, f"Layer {layer.name} adds {ways}", advice)


def _parallel(layer: ParallelLayer, shape: Shape) -> Shape:
    shapes = [_after(branch, shape) for branch in layer.branches]
    axes = slice(None, -1) if layer.merge == "concat" else slice(None)
    if len({(len(each), each[axes]) for each in shapes}) > 1:
        what = "equal but for the last axis" if layer.merge == "concat" else "equal"
        listed = ", ".join(written(each) for each in shapes)
        reason = f"Layer {layer.name} merges by {layer.merge}: its branches must give shapes that are {what}"
        raise ShapeProblem(layer.name, f"{reason}, but they give {listed}")
    return (*shapes[0][:-1], sum(each[-1] for each in shapes)) if layer.merge == "concat" else shapes[0]


def picture_of(count: int) -> Shape:
    """Return the most nearly square picture of one channel with that many values."""
    height = next(side for side in range(math.isqrt(count), 0, -1) if count % side == 0)
    return (height, count // height, 1)


def written(shape: Iterable[int]) -> str:
    """Write a shape as a client does: `[8, 8, 1]`."""
    return f"[{', '.join(str(size) for size in shape)}]"
