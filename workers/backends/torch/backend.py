"""torch as a backend: devices, threads, errors."""

from collections.abc import Mapping, Sequence
from typing import Final

import torch

from app.errors import Cause
from workers.backends.base import Backend, Prepared, Program, Session
from workers.backends.devices import arithmetic, require
from workers.backends.initial import Weights
from workers.backends.torch.session import TorchSession
from workers.data.arrays import Arrays
from workers.data.split import PartName
from workers.protocol import Device

_MESSAGES: Final = (
    ("DefaultCPUAllocator: can't allocate memory", Cause.HOST_OUT_OF_MEMORY),
    ("CUDA out of memory", Cause.DEVICE_OUT_OF_MEMORY),
    ("CUBLAS_STATUS_ALLOC_FAILED", Cause.DEVICE_OUT_OF_MEMORY),
    ("uncorrectable ECC error", Cause.DEVICE_FAULT),
    ("GPU is lost", Cause.DEVICE_FAULT),
)
"""Texts of plain RuntimeErrors; only what names the hardware is a device's fault, since that quarantines it."""


class TorchBackend:
    """See `workers.backends.base.Backend`."""

    def __init__(self) -> None:
        self._device = torch.device("cpu")

    def prepare(self, devices: Sequence[Device], threads: int) -> Prepared:
        torch.set_num_threads(threads)
        kind = arithmetic(devices)
        names = tuple(device.name for device in devices)
        if kind == "cuda":
            count = torch.cuda.device_count()
            require(devices, [_uuid(index) for index in range(count)], "torch")
            names = tuple(torch.cuda.get_device_name(index) for index in range(count))
            self._device = torch.device("cuda", 0)
        return Prepared(
            framework="torch",
            version=str(torch.__version__),
            device_kind=kind,
            devices=names,
            simulated=any(device.kind == "simulated" for device in devices),
            threads=torch.get_num_threads(),
        )

    def open(self, program: Program, weights: Weights, parts: Mapping[PartName, Arrays]) -> Session:
        return TorchSession(program, weights, parts, self._device)

    def cause_of(self, error: BaseException) -> Cause | None:
        if isinstance(error, torch.OutOfMemoryError):
            return Cause.DEVICE_OUT_OF_MEMORY
        if isinstance(error, RuntimeError):
            return next((cause for text, cause in _MESSAGES if text in str(error)), None)
        return None


def _uuid(index: int) -> str | None:
    """Return the id as the lease writes it; None for a slice of a card, whose id torch does not tell."""
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"


def create() -> Backend:
    return TorchBackend()
