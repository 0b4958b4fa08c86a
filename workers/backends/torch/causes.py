"""torch's own errors, told apart by type and text."""

from typing import Final

import torch

from app.errors import Cause

_MESSAGES: Final = (
    ("DefaultCPUAllocator: can't allocate memory", Cause.HOST_OUT_OF_MEMORY),
    ("CUDA out of memory", Cause.DEVICE_OUT_OF_MEMORY),
    ("CUBLAS_STATUS_ALLOC_FAILED", Cause.DEVICE_OUT_OF_MEMORY),
    ("uncorrectable ECC error", Cause.DEVICE_FAULT),
    ("GPU is lost", Cause.DEVICE_FAULT),
)
"""Texts of plain RuntimeErrors; only what names the hardware is a device's fault, since that quarantines it."""


class RankError(RuntimeError):
    """An error of another rank that `cause_of` recognised there; the text is that rank's traceback."""

    def __init__(self, text: str, cause: Cause) -> None:
        super().__init__(text)
        self.cause = cause


def cause_of(error: BaseException) -> Cause | None:
    """See `workers.backends.base.Backend`."""
    if isinstance(error, RankError):
        return error.cause
    if isinstance(error, torch.OutOfMemoryError):
        return Cause.DEVICE_OUT_OF_MEMORY
    if isinstance(error, RuntimeError):
        return next((cause for text, cause in _MESSAGES if text in str(error)), None)
    return Cause.HOST_OUT_OF_MEMORY if isinstance(error, MemoryError) else None
