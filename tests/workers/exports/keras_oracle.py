"""Run in a process of its own, with TensorFlow: what Keras' own layers compute for saved models, in float64.

`python keras_oracle.py FOLDER`: writes `keras.safetensors` into every model's folder below FOLDER, and makes and checks
`model.keras` there, as an export does.
"""

import sys
from pathlib import Path

import keras
import numpy as np
from safetensors.numpy import save_file

from workers.exports.keras_file import check, make
from workers.exports.keras_file.layers import add_layers
from workers.exports.request import Request
from workers.model_file import Probe, read, read_probe


def main(folder: Path) -> None:
    for model in sorted(path.parent for path in folder.glob("*/model.json")):
        probe = read_probe(model)
        if probe is None:
            raise FileNotFoundError(model)
        save_file({"outputs": in_float64(model, probe)}, model / "keras.safetensors")
        keras.config.set_floatx("float32")
        request = Request(model, model)
        make.make(request)
        check.check(request)


def in_float64(folder: Path, probe: Probe) -> np.ndarray:
    keras.config.set_floatx("float64")
    description, weights = read(folder)
    x = keras.Input(description.input_shape)
    model = keras.Model(x, add_layers(description.layers, weights, x))
    return np.asarray(model(probe.x.astype(np.float64), training=False))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
