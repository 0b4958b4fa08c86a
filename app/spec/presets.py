"""The presets, written out as the layers that a client would write in a sequential model."""

from collections.abc import Iterator

from app.spec.layer_specs import (
    Activation,
    BatchNorm,
    Conv2d,
    Dense,
    Dropout,
    Flatten,
    GlobalAvgPool2d,
    LayerSpec,
    MaxPool2d,
    Reshape,
    Residual,
)
from app.spec.layers import ActivationName
from app.spec.model import Cnn, Linear, Mlp, Model, Resnet, Sequential
from app.spec.python_model import PythonModel


def written_layers(model: Model, *, flat: bool) -> list[LayerSpec]:
    """Write a model as a list of layers, without the output layer; `flat`: rows have one axis.

    A model that the client's own code builds has none that are known before it runs.
    """
    match model:
        case PythonModel():
            return []
        case Sequential():
            return list(model.layers)
        case Cnn():
            return [*_picture(model), *_cnn(model)]
        case Resnet():
            return [*_picture(model), *_resnet(model)]
        case Linear() | Mlp():
            inner = _mlp(model) if isinstance(model, Mlp) else ()
            return [*([] if flat else [Flatten(type="flatten")]), *inner]


def _picture(model: Cnn | Resnet) -> list[LayerSpec]:
    """Begin with the picture's shape; nothing when it is not known yet."""
    return [] if model.input_shape is None else [Reshape(type="reshape", shape=model.input_shape)]


def _mlp(model: Mlp) -> Iterator[LayerSpec]:
    for units in model.hidden:
        if model.batch_norm:
            yield Dense(type="dense", units=units, use_bias=False)
            yield BatchNorm(type="batch_norm")
            yield from _activation(model.activation)
        else:
            yield Dense(type="dense", units=units, activation=model.activation)
        if model.dropout:
            yield Dropout(type="dropout", rate=model.dropout)


def _cnn(model: Cnn) -> Iterator[LayerSpec]:
    for filters in model.filters:
        yield Conv2d(type="conv2d", filters=filters, kernel_size=model.kernel_size, use_bias=not model.batch_norm)
        if model.batch_norm:
            yield BatchNorm(type="batch_norm")
        yield from _activation(model.activation)
        if model.pool > 1:
            yield MaxPool2d(type="max_pool2d", pool_size=model.pool)
    yield Flatten(type="flatten")
    drop = [Dropout(type="dropout", rate=model.dropout)] if model.dropout else []
    for units in model.dense:
        yield Dense(type="dense", units=units, activation=model.activation)
        yield from drop
    if not model.dense:
        yield from drop


def _resnet(model: Resnet) -> Iterator[LayerSpec]:
    yield from _conv(model.filters[0], 3, 1)
    yield from _activation(model.activation)
    before = model.filters[0]
    for stage, filters in enumerate(model.filters):
        for block in range(model.blocks):
            strides = 2 if stage and not block else 1
            straight = [
                *_conv(filters, 3, strides),
                *_activation(model.activation),
                *_conv(filters, 3, 1),
            ]
            around = _conv(filters, 1, strides) if strides > 1 or before != filters else []
            yield Residual(type="residual", layers=straight, shortcut=around)
            yield from _activation(model.activation)
            before = filters
    yield GlobalAvgPool2d(type="global_avg_pool2d")
    if model.dropout:
        yield Dropout(type="dropout", rate=model.dropout)


def _conv(filters: int, size: int, strides: int) -> list[LayerSpec]:
    conv = Conv2d(type="conv2d", filters=filters, kernel_size=size, strides=strides, use_bias=False)
    return [conv, BatchNorm(type="batch_norm")]


def _activation(function: ActivationName) -> list[LayerSpec]:
    return [] if function == "linear" else [Activation(type="activation", function=function)]
