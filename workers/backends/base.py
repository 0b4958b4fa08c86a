"""What a framework must do for Trainshed, and how one is loaded.

    backend = load_backend("torch")
    prepared = backend.prepare(devices, threads)      # before anything else; raises DeviceUnavailable
    session = backend.open(program, weights, parts)   # the data goes to the device, once
    sums = session.run(steps, sums)                   # many steps, no return to Python in between if possible
    logits = session.outputs("validation", 0, 4096)
    weights, state = session.weights(), session.state()
    session.restore(weights, state)                   # and it goes on as if nothing had happened
    session.close()

Everything that decides a result stands outside of a backend, in NumPy and Python: initial weights, batch order,
learning rates, dropout keys, metrics, early stopping. A backend multiplies matrices, differentiates and updates; two
backends given the same calls agree to rounding (tests/parity), and one backend given the same calls twice agrees to the
bit.
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
from app.spec.training import Optimizer, Precision
from app.spec.weights import WeightFacts
from workers.backends.initial import Weights
from workers.data.arrays import Arrays
from workers.data.metrics import Sums
from workers.data.split import PartName
from workers.protocol import Device
from workers.user_model.module import UserModule

SessionState = dict[str, NDArray[np.generic]]
"""What a session knows besides its weights, by name."""

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

    The loss of a step is the sum over its rows, each times the weight of its class if there are `class_weights`,
    divided by the number of rows, plus `l1` times the sum of |w| and `l2` times the sum of w² over all kernels (every
    weight whose name ends in `kernel`; no one half). The gradients of that are first cut to [-clip_value, clip_value]
    one by one, then scaled to a global L2 norm of at most `clip_norm`; then comes the optimizer, as
    `app.spec.training` defines it, with `weight_decay` on the same kernels.

    `input_shape` is the shape of one row. `batch_size` is the largest batch there will be. `dtype` is what weights,
    optimizer, normalisation, losses and the output layer compute in; `precision` what products of the layers inside
    do. `world` is how many devices share each batch; the result is that of one device, to rounding.

    `module`: a model that a user's function builds; `layers` is empty then. Its kernels are its trained weights with
    two axes or more, its first weights are its own, its logits are brought to `dtype`, and it draws what it draws from
    generators that are seeded anew for every step.
    """

    layers: tuple[Layer, ...]
    input_shape: tuple[int, ...]
    loss: LossName
    optimizer: Optimizer
    batch_size: int
    l1: float = 0.0
    l2: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float | None = None
    clip_value: float | None = None
    class_weights: tuple[float, ...] | None = None
    seed: int = 0
    dtype: DType = "float32"
    precision: Precision = "float32"
    world: int = 1
    module: UserModule | None = None


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
    """A model with its optimizer and data on one or several devices.

    `sums` go in and come back (see `workers.data.metrics`), added to in float64 in the order of the rows: so what is
    reported does not depend on where a job is cut into chunks. Every method returns when the device has finished.
    """

    def run(self, steps: Steps, sums: Sums) -> Sums:
        """Train; dropout is on, and the sums are those of the batches as the model met them, losses with class weights.

        They are not finite when the loss is not, or when the optimizer can move nothing any more, one step later at
        the latest.
        """
        ...

    def outputs(self, part: PartName, start: int, stop: int) -> NDArray[np.floating]:
        """The logits of rows `start` to `stop` of a part, (rows, units), each row once, in order.

        No dropout, batch norm by its moving statistics, and nothing is changed by it.
        """
        ...

    def facts(self) -> dict[str, WeightFacts]:
        """Return every weight by name: its shape, and whether it is trained."""
        ...

    def weights(self) -> Weights:
        """Copy all weights out, under the names and in the shapes they came in; moving statistics are among them."""
        ...

    def state(self) -> SessionState:
        """Copy out what `run` depends on besides weights and arguments, as `restore` takes it.

        Slots of the optimizer as `<weight>.<slot>`, in the weight's shape; `loss_scale.scale` and
        `loss_scale.good_steps` in half precision. Empty for an optimizer without memory.
        """
        ...

    def restore(self, weights: Weights, state: SessionState | None) -> None:
        """Take weights and state as they were copied out, bit for bit; without a state, the weights alone."""
        ...

    def close(self) -> None:
        """Give devices and processes back. Harmless when called twice; nothing else may be called after it."""
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
        """Build the model with these weights and move the parts to the device.

        A program with a `module` gets no weights: it has its own.

        Raises:
            UserCodeFailed: the module cannot be built, or does not take the rows.
        """
        ...

    def cause_of(self, error: BaseException) -> Cause | None:
        """Recognise the framework's own errors: out of memory, a broken device. None: something else."""
        ...

    def versions(self) -> dict[str, str]:
        """Name the libraries that compute, for the record: the framework, `cuda`, `cudnn`, `nccl` where they are."""
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
