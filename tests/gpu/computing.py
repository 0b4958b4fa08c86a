"""What a framework computes on a card, in a process of its own: `python -m tests.gpu.computing FRAMEWORK NAME DEVICE`.

Through our backend, except where it is asked itself which device it used.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.spec.layers import ActivationLayer, Conv2dLayer, DenseLayer, FlattenLayer, Layer, LstmLayer
from app.spec.training import Adam, Precision
from workers import self_test_child
from workers.backends.base import Backend, Program, Session, Steps, load_backend
from workers.backends.initial import draw_weights
from workers.data.arrays import Arrays
from workers.data.metrics import no_sums
from workers.model_file.forward import forward
from workers.protocol import Device

ROWS = 64
MODELS: dict[str, tuple[tuple[Layer, ...], tuple[int, ...]]] = {
    "dense": ((DenseLayer("dense_1", 512), ActivationLayer("activation_1", "tanh"), DenseLayer("output", 4)), (512,)),
    "conv2d": (
        (
            Conv2dLayer("conv2d_1", 64, (3, 3)),
            ActivationLayer("activation_1", "tanh"),
            FlattenLayer("flatten_1"),
            DenseLayer("output", 4),
        ),
        (12, 12, 64),
    ),
    "lstm": ((LstmLayer("lstm_1", 128), DenseLayer("output", 4)), (16, 64)),
}


def where(framework: str, _backend: Backend, _device: Device) -> object:
    """The product of a row of ones with a column of ones, and where the framework says that it lies."""
    if framework == "torch":
        import torch  # noqa: PLC0415 - one framework in a process

        found = torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")
        return {"device": found.device.type, "product": float(found.sum()) / 64}
    import tensorflow as tf  # noqa: PLC0415

    with tf.device("/GPU:0"):
        product = tf.ones((64, 64)) @ tf.ones((64, 64))
    kind = {"GPU": "cuda"}.get(tf.DeviceSpec.from_string(product.device).device_type, "cpu")
    return {"device": kind, "product": float(tf.reduce_sum(product)) / 64}


def self_test(_framework: str, backend: Backend, device: Device) -> object:
    return self_test_child.check(backend, device, 4)


def versions(_framework: str, backend: Backend, _device: Device) -> object:
    return backend.versions()


def errors(precision: Precision) -> Callable[[str, Backend, Device], object]:
    """By kind of layer, how far outputs are from NumPy's in float64, of the largest one."""

    def measure(_framework: str, backend: Backend, _device: Device) -> object:
        return {name: _error(backend, name, precision) for name in MODELS}

    return measure


def losses(precision: Precision) -> Callable[[str, Backend, Device], object]:
    """The mean loss of the first and of the last of sixty steps."""

    def measure(_framework: str, backend: Backend, _device: Device) -> object:
        session, data = _opened(backend, "dense", precision)
        visited = np.tile(np.arange(ROWS, dtype=np.int64), (1, 1))
        means = []
        for step in range(60):
            sums = session.run(Steps(rows=visited, rates=np.full(1, 0.003), first=step), no_sums("classification"))
            means.append(float(sums[0]) / len(data))
        session.close()
        return [means[0], means[-1]]

    return measure


def _error(backend: Backend, model: str, precision: Precision) -> float:
    session, data = _opened(backend, model, precision)
    found = session.outputs("train", 0, ROWS)
    wanted = forward(MODELS[model][0], _double(session.weights()), data.x.astype(np.float64))
    session.close()
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def _double(weights: dict[str, NDArray[np.floating]]) -> dict[str, NDArray[np.floating]]:
    return {name: value.astype(np.float64) for name, value in weights.items()}


def _opened(backend: Backend, model: str, precision: Precision) -> tuple[Session, Arrays]:
    layers, shape = MODELS[model]
    random = np.random.default_rng(0)
    data = Arrays(random.normal(size=(ROWS, *shape)).astype(np.float32), random.integers(0, 4, ROWS).astype(np.int64))
    program = Program(
        layers=layers,
        input_shape=shape,
        loss="cross_entropy",
        optimizer=Adam(name="adam"),
        batch_size=ROWS,
        precision=precision,
    )
    return backend.open(program, draw_weights(layers, shape, 0), {"train": data}), data


FUNCTIONS: dict[str, Callable[[str, Backend, Device], object]] = {
    "where": where,
    "self test": self_test,
    "versions": versions,
    "errors float32": errors("float32"),
    "errors bfloat16": errors("bfloat16"),
    "errors float16": errors("float16"),
    "losses bfloat16": losses("bfloat16"),
    "losses float16": losses("float16"),
}


def main(framework: str, name: str, device: str) -> None:
    leased = Device.model_validate_json(device)
    backend = load_backend(framework)
    found: Any = None
    if name != "self test":
        backend.prepare([leased], 4)
    found = FUNCTIONS[name](framework, backend, leased)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
