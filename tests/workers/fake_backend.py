"""A backend without a framework: it claims devices and recognises its own errors, and computes nothing.

For tests of the trainer around the training loop; the fake that trains belongs to the backends' conformance suite.
"""

from collections.abc import Mapping, Sequence

from app.errors import Cause
from workers.backends.base import Backend, DeviceUnavailable, Prepared, Program, Session
from workers.backends.initial import Weights
from workers.data.arrays import Arrays
from workers.data.split import PartName
from workers.protocol import Device


class FrameworkError(Exception):
    """What a framework raises when the device is full."""


class FakeBackend:
    """`sees`: the devices that its framework claims to see; None: the ones it is given."""

    def __init__(self, sees: Sequence[str] | None = None) -> None:
        self._sees = sees

    def prepare(self, devices: Sequence[Device], threads: int) -> Prepared:
        wanted = [device.id for device in devices]
        if self._sees is not None and list(self._sees) != wanted:
            raise DeviceUnavailable(f"The framework sees {list(self._sees)}, not {wanted}.")
        return Prepared(
            framework="fake",
            version="1.0",
            device_kind="cpu",
            devices=tuple(wanted),
            simulated=True,
            threads=threads,
        )

    def open(self, program: Program, weights: Weights, parts: Mapping[PartName, Arrays]) -> Session:
        raise NotImplementedError

    def cause_of(self, error: BaseException) -> Cause | None:
        return Cause.DEVICE_OUT_OF_MEMORY if isinstance(error, FrameworkError) else None

    def versions(self) -> dict[str, str]:
        return {"fake": "1.0"}


def create() -> Backend:
    return FakeBackend()
