"""What Keras' own layers give out and are made of: run as a program of its own, so that no test process loads Keras.

Reads a list of [type, values, input shape] as JSON, writes [output shape, {weight: shape}] for each.
"""

import json
import sys
from typing import Any

import keras

_MADE_OF = {
    "dense": keras.layers.Dense,
    "batch_norm": keras.layers.BatchNormalization,
    "layer_norm": keras.layers.LayerNormalization,
    "flatten": keras.layers.Flatten,
    "reshape": keras.layers.Reshape,
    "conv1d": keras.layers.Conv1D,
    "conv2d": keras.layers.Conv2D,
    "max_pool2d": keras.layers.MaxPooling2D,
    "avg_pool2d": keras.layers.AveragePooling2D,
    "global_avg_pool2d": keras.layers.GlobalAveragePooling2D,
    "embedding": keras.layers.Embedding,
    "lstm": keras.layers.LSTM,
    "gru": keras.layers.GRU,
}
_THEIR_NAMES = {"dilation": "dilation_rate", "shape": "target_shape"}


def facts(kind: str, values: dict[str, Any], shape: list[int]) -> list[Any]:
    layer = _MADE_OF[kind](**{_THEIR_NAMES.get(key, key): value for key, value in values.items()})
    given = layer.compute_output_shape((None, *shape))
    layer.build((None, *shape))
    weights = {weight.name: list(weight.shape) for weight in layer.weights if "seed" not in weight.name}
    return [list(given[1:]), weights]


if __name__ == "__main__":
    json.dump([facts(*case) for case in json.load(sys.stdin)], sys.stdout)
