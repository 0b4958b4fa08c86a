"""The root of every error that Trainshed raises, and the closed table of causes.

TrainshedError
 +- InvalidSpec            app.spec
 +- InvalidTable           app.tables
 +- NotFound
 +- Conflict
 +- Unavailable
"""

from enum import StrEnum
from typing import ClassVar


class TrainshedError(Exception):
    """An error with a stable `code` (listed in docs/errors.md) and a sentence for the user."""

    code: ClassVar[str] = "internal"


class NotFound(TrainshedError):
    """What was asked for does not exist, or belongs to another project."""

    code = "not_found"

    def __init__(self, kind: str, identity: str) -> None:
        super().__init__(f"There is no {kind} '{identity}' in this project.")
        self.kind = kind
        self.identity = identity


class Conflict(TrainshedError):
    """The request is well formed, but the resource's state does not allow it."""

    code = "conflict"


class Unavailable(TrainshedError):
    """Something the request needs is down for now; trying again is right."""

    code = "unavailable"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Cause(StrEnum):
    """Why an attempt ended without success; budgets and sentences are in app.jobs.causes."""

    INVALID_DATA = "invalid_data"
    USER_CODE = "user_code"
    ENVIRONMENT_FAILED = "environment_failed"
    DIVERGED = "diverged"
    TIMED_OUT = "timed_out"
    IDLE = "idle"
    INCOMPLETE = "incomplete"
    ARTIFACT_UNREADABLE = "artifact_unreadable"
    SHARED_MEMORY = "shared_memory"
    DEVICE_OUT_OF_MEMORY = "device_out_of_memory"
    HOST_OUT_OF_MEMORY = "host_out_of_memory"
    TRAINER_KILLED = "trainer_killed"
    WORKER_LOST = "worker_lost"
    DEVICE_UNAVAILABLE = "device_unavailable"
    DEVICE_FAULT = "device_fault"
    NOT_CLAIMED = "not_claimed"
    DRAINED = "drained"
    PREEMPTED = "preempted"
