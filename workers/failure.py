"""From an exception to the cause and the sentence that a user reads."""

import errno
import traceback
from collections.abc import Mapping
from typing import Final

from app.errors import Cause, TrainshedError
from workers.backends.base import Backend, TrainingFailed
from workers.protocol import Failed

MESSAGE_LIMIT: Final = 2_000
DETAIL_LIMIT: Final = 16_000

CODES: Final[Mapping[str, Cause]] = {
    "invalid_data": Cause.INVALID_DATA,
    "invalid_spec": Cause.INVALID_DATA,
    "artifact_unreadable": Cause.ARTIFACT_UNREADABLE,
    "storage_unavailable": Cause.WORKER_LOST,  # a disk of this host: another host, or a later attempt, may have it
}
"""Our own errors, by their code."""

ERRNOS: Final[Mapping[int, Cause]] = {
    errno.ENOMEM: Cause.HOST_OUT_OF_MEMORY,
    errno.ENOSPC: Cause.ARTIFACT_UNREADABLE,
    errno.EDQUOT: Cause.ARTIFACT_UNREADABLE,
}
"""Errors of the operating system."""

TYPES: Final[Mapping[type[BaseException], Cause]] = {
    MemoryError: Cause.HOST_OUT_OF_MEMORY,
    ImportError: Cause.DEVICE_UNAVAILABLE,  # the worker named an interpreter without the framework
}


def failure_of(error: BaseException, backend: Backend | None) -> Failed:
    """Say why a training ended; what no table knows is `user_code`. `backend` knows its framework's own errors.

    Our own errors say all in their sentence; only others, and what lies behind ours, need a traceback.
    """
    known = isinstance(error, TrainshedError)
    message = str(error) if known else "".join(traceback.format_exception_only(error)).strip()
    explained = known and error.__cause__ is None
    detail = "" if explained else "".join(traceback.format_exception(error))
    return Failed(
        cause=_cause_of(error, backend),
        message=_sendable(message)[:MESSAGE_LIMIT],
        detail=_sendable(detail)[-DETAIL_LIMIT:],
    )


def _sendable(text: str) -> str:
    """Replace halves of characters, which a message cannot carry: a file name that is not UTF-8 has them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _cause_of(error: BaseException, backend: Backend | None) -> Cause:
    if isinstance(error, TrainingFailed):
        return error.cause
    if isinstance(error, TrainshedError) and error.code in CODES:
        return CODES[error.code]
    if backend is not None and (cause := backend.cause_of(error)) is not None:
        return cause
    if isinstance(error, OSError) and (cause := ERRNOS.get(error.errno or 0)) is not None:
        return cause
    return next((cause for kind, cause in TYPES.items() if isinstance(error, kind)), Cause.USER_CODE)
