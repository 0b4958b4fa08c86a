"""What a task can be, and where it stands."""

from enum import StrEnum
from typing import Final


class TaskKind(StrEnum):
    PREDICT = "predict"
    EXPORT = "export"


class TaskState(StrEnum):
    """`expired`: nobody answered before its deadline."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EXPIRED = "expired"


OPEN: Final = (TaskState.QUEUED, TaskState.RUNNING)
OVER: Final = (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.EXPIRED)
