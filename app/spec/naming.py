"""Layers as written become layers with names, and remember where they stood."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, TypeAlias

from app.spec.layer_specs import Conv1d, Conv2d, Dense, LayerSpec, Parallel, Residual
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
    Layer,
    LayerNormLayer,
    LstmLayer,
    MaxPool2dLayer,
    ParallelLayer,
    ReshapeLayer,
    ResidualLayer,
)

Parts: TypeAlias = tuple[str | int, ...]
"""The keys and indices on the way to a place in the spec."""

_SINGLE: Final[Mapping[str, type[Layer]]] = {
    "dense": DenseLayer,
    "activation": ActivationLayer,
    "dropout": DropoutLayer,
    "batch_norm": BatchNormLayer,
    "layer_norm": LayerNormLayer,
    "flatten": FlattenLayer,
    "reshape": ReshapeLayer,
    "conv1d": Conv1dLayer,
    "conv2d": Conv2dLayer,
    "max_pool2d": MaxPool2dLayer,
    "avg_pool2d": AvgPool2dLayer,
    "global_avg_pool2d": GlobalAvgPool2dLayer,
    "embedding": EmbeddingLayer,
    "lstm": LstmLayer,
    "gru": GruLayer,
}
_SIDES: Final = frozenset({"kernel_size", "strides", "dilation", "pool_size"})


class Namer:
    """Gives out names, `dense_1, dense_2, …`; `places` holds where each named layer was written."""

    def __init__(self) -> None:
        self.places: dict[str, Parts] = {}
        self._counts: Counter[str] = Counter()

    def named(self, written: Iterable[LayerSpec], place: Parts) -> list[Layer]:
        """Build the layers of a list that stands at `place`, in order, each container before what is inside."""
        built: list[Layer] = []
        for index, layer in enumerate(written):
            here = (*place, index)
            built.append(self._layer(layer, here))
            if isinstance(layer, Dense | Conv1d | Conv2d) and layer.activation != "linear":
                built.append(ActivationLayer(self._name("activation", here), layer.activation))
        return built

    def _name(self, kind: str, place: Parts) -> str:
        self._counts[kind] += 1
        name = f"{kind}_{self._counts[kind]}"
        self.places[name] = place
        return name

    def _layer(self, layer: LayerSpec, place: Parts) -> Layer:
        name = self._name(layer.type, place)
        if isinstance(layer, Residual):
            straight = self.named(layer.layers, (*place, "layers"))
            return ResidualLayer(name, tuple(straight), tuple(self.named(layer.shortcut, (*place, "shortcut"))))
        if isinstance(layer, Parallel):
            branches = [
                tuple(self.named(branch, (*place, "branches", number))) for number, branch in enumerate(layer.branches)
            ]
            return ParallelLayer(name, tuple(branches), layer.merge)
        return _single(name, layer)


def _single(name: str, layer: LayerSpec) -> Layer:
    """Build the layer of the same type; its fields have the same names as those a client writes."""
    kind = _SINGLE[layer.type]
    values: dict[str, Any] = {
        field.name: getattr(layer, field.name) for field in fields(kind) if field.name not in ("name", "type")
    }
    if layer.type in ("max_pool2d", "avg_pool2d") and values["strides"] is None:
        values["strides"] = values["pool_size"]
    if layer.type in ("conv2d", "max_pool2d", "avg_pool2d"):
        values |= {key: (value, value) for key, value in values.items() if key in _SIDES and isinstance(value, int)}
    values |= {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    return kind(name=name, **values)
