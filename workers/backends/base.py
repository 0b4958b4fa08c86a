"""What a framework must do for Trainshed, and how one is loaded.

    backend = load_backend("torch")
    prepared = backend.prepare(devices, threads)      # before anything else; raises DeviceUnavailable
    session = backend.open(program, weights, parts)   # the data goes to the device, once
    sums = session.run(steps, sums)                   # many steps, no return to Python in between if possible
    sums = session.evaluate("validation", 0, 4096, sums)
    weights = session.weights()

Everything that decides a result stands outside of a backend, in NumPy and Python: initial weights, batch order,
learning rates, dropout keys. A backend multiplies matrices, differentiates and updates; two backends given the same
calls agree to rounding (tests/parity), and one backend given the same calls twice agrees to the bit.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from app.errors import Cause, TrainshedError
from app.spec.job import LossName
from app.spec.layers import Layer
from app.spec.training import Adam, Sgd
from workers.backends.initial import Weights
from workers.data.arrays import Arrays
from workers.data.metrics import Sums
from workers.data.split import PartName
from workers.protocol import Device

DType = Literal["float32", "float64"]
"""What a model computes in. Jobs use float32; float64 is for tests, where it tells another definition from rounding."""


class TrainingFailed(TrainshedError):
    """A training that cannot go on; `cause` says why, the message says it to the user."""

    code = "training_failed"
    default_cause: ClassVar[Cause] = Cause.INCOMPLETE

    def __init__(self, message: str, cause: Cause | None = None) -> None:
        super().__init__(message)
        self.cause = cause or self.default_cause


class DeviceUnavailable(TrainingFailed):
    """The framework does not see exactly the devices that were leased; training on something else is never right."""

    code = "device_unavailable"
    default_cause = Cause.DEVICE_UNAVAILABLE


class Diverged(TrainingFailed):
    """The loss, or a weight, is not a finite number any more."""

    code = "diverged"
    default_cause = Cause.DIVERGED


@dataclass(frozen=True)
class Prepared:
    """What a framework really runs on. `simulated`: the devices were leased, the arithmetic is the CPU's."""

    framework: str
    version: str
    device_kind: Literal["cuda", "cpu"]
    devices: tuple[str, ...]
    simulated: bool
    threads: int


@dataclass(frozen=True)
class Program:
    """What to compute: the model, the loss, the penalty and the update.

    The loss of a step is the sum over its rows divided by their number, plus `l1` times the sum of |w| and `l2` times
    the sum of w² over all kernels (no bias, no one half). `optimizer` means what `app.spec.training` says.
    `batch_size` is the largest batch there will be.
    """

    layers: tuple[Layer, ...]
    loss: LossName
    optimizer: Sgd | Adam
    batch_size: int
    l1: float = 0.0
    l2: float = 0.0
    seed: int = 0
    dtype: DType = "float32"


@dataclass(frozen=True)
class Steps:
    """A chunk of steps with equal batches: which training rows each visits, and how far it moves.

    `rows`: (steps, batch), int64. `rates`: the learning rate of each step, float64. `first`: how many steps the job
    has made before; it numbers the dropout masks and Adam's bias correction.
    """

    rows: NDArray[np.int64]
    rates: NDArray[np.float64]
    first: int

    def __len__(self) -> int:
        return len(self.rows)


class Session(Protocol):
    """A model with its optimizer and data on a device.

    `sums` go in and come back (see `workers.data.metrics`), added to in float64 in the order of the rows: so what is
    reported does not depend on where a job is cut into chunks. Both methods return when the device has finished.
    """

    def run(self, steps: Steps, sums: Sums) -> Sums:
        """Train; dropout is on, and the sums are those of the batches as the model met them.

        They are not finite when the loss is not, or when the optimizer can move nothing any more, one step later at
        the latest.
        """
        ...

    def evaluate(self, part: PartName, start: int, stop: int, sums: Sums) -> Sums:
        """Look at rows `start` to `stop` of a part, without dropout, without training."""
        ...

    def weights(self) -> Weights:
        """Copy the weights out, under the names and in the shapes they came in."""
        ...


class Backend(Protocol):
    """A framework. An instance serves one training."""

    def prepare(self, devices: Sequence[Device], threads: int) -> Prepared:
        """Claim the leased devices, fix the threads; to be called first, before the framework computes anything.

        Raises:
            DeviceUnavailable: when the framework sees other CUDA devices than the leased ones.
        """
        ...

    def open(self, program: Program, weights: Weights, parts: Mapping[PartName, Arrays]) -> Session:
        """Build the model with these weights and move the parts to the device."""
        ...

    def cause_of(self, error: BaseException) -> Cause | None:
        """Recognise the framework's own errors: out of memory, a broken device. None: something else."""
        ...


_MODULES: Final[Mapping[str, str]] = {
    "torch": "workers.backends.torch.backend",
    "tensorflow": "workers.backends.tensorflow.backend",
}


def load_backend(name: str) -> Backend:
    """Import the framework of that name and return a fresh backend; seconds, and only in a trainer's process.

    Raises:
        KeyError: an unknown name.
        ImportError: the framework is not installed here.
    """
    module = importlib.import_module(_MODULES[name])
    return cast("Backend", module.create())
