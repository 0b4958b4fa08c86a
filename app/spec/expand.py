"""From a model to the layers that a backend builds."""

from collections import Counter
from collections.abc import Iterator

from app.spec.job import JobSpec
from app.spec.layers import Activation, ActivationLayer, Dense, DenseLayer, Dropout, DropoutLayer, Layer, LayerSpec
from app.spec.model import Linear, Mlp, Sequential


def layers_of(spec: JobSpec, output_units: int) -> list[Layer]:
    """Expand the model into single operations, with the output layer at the end.

    A dense layer's activation becomes a layer of its own (none for `linear`). Names are the type and its number from 1,
    `dense_1, activation_1, dropout_1, dense_2, …, output`; they are the keys of stored weights, so they never change.
    `output_units`: the number of classes, or 1 for regression.
    """
    counts: Counter[str] = Counter()

    def named(kind: str) -> str:
        counts[kind] += 1
        return f"{kind}_{counts[kind]}"

    expanded: list[Layer] = []
    for layer in _written(spec.model):
        if isinstance(layer, Dense):
            expanded.append(DenseLayer(name=named("dense"), units=layer.units))
            if layer.activation != "linear":
                expanded.append(ActivationLayer(name=named("activation"), function=layer.activation))
        elif isinstance(layer, Activation):
            expanded.append(ActivationLayer(name=named("activation"), function=layer.function))
        else:
            expanded.append(DropoutLayer(name=named("dropout"), rate=layer.rate))
    expanded.append(DenseLayer(name="output", units=output_units))
    return expanded


def _written(model: Linear | Mlp | Sequential) -> Iterator[LayerSpec]:
    """Yield the layers as a client would write them in a sequential model."""
    if isinstance(model, Sequential):
        yield from model.layers
    elif isinstance(model, Mlp):
        for units in model.hidden:
            yield Dense(type="dense", units=units, activation=model.activation)
            if model.dropout:
                yield Dropout(type="dropout", rate=model.dropout)
