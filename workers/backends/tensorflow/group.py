"""One device or several as one: where variables and data lie, which rows are whose, and sums over all.

Several devices are a `MirroredStrategy`: every device holds all weights and all rows and computes its share of each
batch; gradients and batch statistics are summed over devices, and each makes the same update. On the CPU the devices
are logical ones (see `backend.prepare`).
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from workers.backends.base import DeviceUnavailable
from workers.backends.tensorflow.framework import tf

Tensor = Any


@dataclass(frozen=True)
class Share:
    """Which rows of a batch of `rows` are this device's: `start` to `stop`, as `np.array_split` cuts.

    An empty share gets a row all the same, with `live` 0 instead of 1 to take it out of every sum: some of
    TensorFlow's kernels give wrong shapes for no rows, and the gradient of a max pool ends the process.
    """

    rows: Tensor
    start: Tensor
    stop: Tensor
    live: Tensor


class Group(Protocol):
    """The devices of a job."""

    world: int
    devices: tuple[str | None, ...]

    def scope(self) -> AbstractContextManager[Any]:
        """Inside, a variable that is made lies on every device."""
        ...

    def mirrored(self, value: Tensor) -> list[Tensor]:
        """Put a tensor onto every device, one copy each."""
        ...

    def each(self, copies: Sequence[Tensor]) -> Any:  # noqa: ANN401 - a PerReplica, or the tensor itself
        """Make one argument of `run` of what lies on the devices: each then sees its own."""
        ...

    def local(self, variable: Any) -> Sequence[Any]:  # noqa: ANN401 - TensorFlow has no types
        """Return the variables of the devices that a variable made in the scope consists of."""
        ...

    def run(self, step: Callable[..., Tensor], arguments: tuple[Any, ...]) -> Tensor:
        """Run a step on every device, inside a graph, and return the sum of what they give."""
        ...

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Inside of a step: sum over the devices. The gradient is the sum of the devices' gradients."""
        ...

    def share(self, rows: Tensor) -> Share:
        """Inside of a step: which of the batch's rows are this device's."""
        ...

    def close(self) -> None: ...


class Alone:
    """A single device: everything is what it is."""

    world: int = 1
    devices: tuple[str | None, ...] = (None,)

    def scope(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def mirrored(self, value: Tensor) -> list[Tensor]:
        return [value]

    def each(self, copies: Sequence[Tensor]) -> Any:  # noqa: ANN401 - see Group
        return copies[0]

    def local(self, variable: Any) -> Sequence[Any]:  # noqa: ANN401 - see Group
        return [variable]

    def run(self, step: Callable[..., Tensor], arguments: tuple[Any, ...]) -> Tensor:
        return step(*arguments)

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(tensors)

    def share(self, rows: Tensor) -> Share:
        return Share(rows, 0, rows, 1)

    def close(self) -> None:
        """Nothing to end."""


class Mirrored:
    """Several devices of one host."""

    def __init__(self, device_kind: str, world: int) -> None:
        kind = "GPU" if device_kind == "cuda" else "CPU"
        found = len(tf.config.list_logical_devices(kind))
        if found < world:
            raise DeviceUnavailable(
                f"The job holds {world} devices, and TensorFlow was started with {found} of kind {kind}. "
                "Nothing was trained."
            )
        self.world: int = world
        self.devices: tuple[str | None, ...] = tuple(f"/{kind}:{place}" for place in range(world))
        # On logical CPUs sums are made on the first, in a fixed order and without threads of their own.
        sums = tf.distribute.ReductionToOneDevice() if kind == "CPU" else None
        self._strategy = tf.distribute.MirroredStrategy(list(self.devices), cross_device_ops=sums)

    def scope(self) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = self._strategy.scope()
        return scope

    def mirrored(self, value: Tensor) -> list[Tensor]:
        copies = []
        for device in self.devices:
            with tf.device(device):
                copies.append(tf.identity(value))
        return copies

    def each(self, copies: Sequence[Tensor]) -> Any:  # noqa: ANN401 - see Group
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: copies[context.replica_id_in_sync_group]
        )

    def local(self, variable: Any) -> Sequence[Any]:  # noqa: ANN401 - see Group
        variables: Sequence[Any] = self._strategy.experimental_local_results(variable)
        return variables

    def run(self, step: Callable[..., Tensor], arguments: tuple[Any, ...]) -> Tensor:
        plain = tf.autograph.experimental.do_not_convert(step)
        return self._strategy.reduce("SUM", self._strategy.run(plain, args=arguments), axis=None)

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(tf.distribute.get_replica_context().all_reduce("SUM", list(tensors)))

    def share(self, rows: Tensor) -> Share:
        place = tf.distribute.get_replica_context().replica_id_in_sync_group
        each, more = rows // self.world, rows % self.world
        start = place * each + tf.minimum(place, more)
        count = each + tf.cast(place < more, tf.int32)
        start = tf.minimum(start, rows - 1)
        return Share(rows, start, start + tf.maximum(count, 1), tf.minimum(count, 1))

    def close(self) -> None:
        """Nothing to end: replicas are threads that live as long as a trace, and those of NCCL are daemons."""


def group_of(device_kind: str, world: int) -> Group:
    """Make the group of the first `world` devices.

    Raises:
        DeviceUnavailable: when TensorFlow was started with fewer.
    """
    return Alone() if world == 1 else Mirrored(device_kind, world)
