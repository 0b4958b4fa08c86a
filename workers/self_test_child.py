"""The child of a self-test: trains a tiny convolutional model on one device, and checks its answers against NumPy.

`python -P -m workers.self_test_child` in a framework's own environment: it reads one JSON object {framework, device,
threads, parent, uid}, and leaves with 0 when all is well; else its last line says why.
"""

import json
import sys
import traceback
from typing import Any, Final

import numpy as np

from app.spec.layers import ActivationLayer, Conv2dLayer, DenseLayer, FlattenLayer, Layer
from app.spec.training import Adam
from workers.backends.base import Backend, Program, Session, Steps, load_backend
from workers.backends.initial import draw_weights
from workers.confinement import end_with
from workers.data.arrays import Arrays
from workers.data.metrics import no_sums
from workers.model_file.forward import forward
from workers.privileges import become
from workers.protocol import Device
from workers.trainer import exec_environment, verify_devices, verify_environment

SHAPE: Final = (8, 8, 3)
ROWS: Final = 16
STEPS: Final = 3
TOLERANCE: Final = 1e-3
"""Of the largest answer: float32 of different orders of adding agrees to 1e-5, another algorithm of cuDNN to 1e-4."""


def layers() -> list[Layer]:
    return [
        Conv2dLayer("conv2d_1", 8, (3, 3)),
        ActivationLayer("activation_1", "relu"),
        FlattenLayer("flatten_1"),
        DenseLayer("dense_1", 16),
        ActivationLayer("activation_2", "relu"),
        DenseLayer("output", 4),
    ]


def rows() -> Arrays:
    random = np.random.default_rng(0)
    return Arrays(
        x=random.normal(size=(ROWS, *SHAPE)).astype(np.float32), y=random.integers(0, 4, ROWS).astype(np.int64)
    )


def check(backend: Backend, device: Device, threads: int) -> str | None:
    """Why the backend does not compute rightly on the device, or None; what it raises is a reason too."""
    backend.prepare([device], threads)
    program = Program(
        layers=tuple(layers()),
        input_shape=SHAPE,
        loss="cross_entropy",
        optimizer=Adam(name="adam"),
        batch_size=ROWS,
    )
    data = rows()
    first = draw_weights(program.layers, SHAPE, 0)
    session = backend.open(program, first, {"train": data})
    try:
        return _fault(session, data, first)
    finally:
        session.close()


def _fault(session: Session, data: Arrays, first: dict[str, Any]) -> str | None:
    visited = np.tile(np.arange(ROWS, dtype=np.int64), (STEPS, 1))
    sums = session.run(Steps(rows=visited, rates=np.full(STEPS, 0.01), first=0), no_sums("classification"))
    weights = session.weights()
    if not np.isfinite(sums).all() or not all(np.isfinite(values).all() for values in weights.values()):
        return "A training of three steps gave numbers that are not finite."
    if any(np.array_equal(values, first[name]) for name, values in weights.items() if name.endswith("kernel")):
        return "A training of three steps did not change the weights."
    found, wanted = session.outputs("train", 0, ROWS), forward(layers(), weights, data.x)
    apart = float(np.abs(found - wanted).max() / max(1.0, float(np.abs(wanted).max())))
    # Not "more than": a NaN is not more than anything.
    return None if apart <= TOLERANCE else f"Its answers differ from NumPy's by {apart:.2g} of the largest."


def main() -> int:
    question = json.loads(sys.stdin.readline())
    if question["uid"] is not None:
        become(question["uid"])
    end_with(question["parent"])
    device = Device.model_validate(question["device"])
    verify_devices("cuda" if device.kind == "cuda" else "cpu", [device])
    verify_environment(exec_environment(), [device])
    try:
        fault = check(load_backend(question["framework"]), device, question["threads"])
    except Exception as error:  # noqa: BLE001 - whatever it was, the last line says it
        traceback.print_exc()
        fault = " ".join(f"{type(error).__name__}: {error}".split())
    sys.stderr.write(f"{fault or 'The framework computes as it should.'}\n")
    return 0 if fault is None else 1


if __name__ == "__main__":
    sys.exit(main())
