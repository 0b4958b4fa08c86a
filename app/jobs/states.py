"""The states of a job and what may follow what (design: the table of job states)."""

from enum import StrEnum
from typing import Final


class JobState(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in FINAL

    @property
    def is_active(self) -> bool:
        """An attempt exists and may hold devices."""
        return self in ACTIVE


FINAL: Final = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
ACTIVE: Final = frozenset({JobState.STARTING, JobState.RUNNING})

TRANSITIONS: Final[dict[JobState, frozenset[JobState]]] = {
    JobState.QUEUED: frozenset({JobState.STARTING, JobState.PAUSED, JobState.FAILED, JobState.CANCELLED}),
    JobState.STARTING: frozenset(
        {JobState.RUNNING, JobState.PAUSED, JobState.FAILED, JobState.CANCELLED, JobState.QUEUED}
    ),
    JobState.RUNNING: frozenset(
        {JobState.PAUSED, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.QUEUED}
    ),
    JobState.PAUSED: frozenset({JobState.FAILED, JobState.CANCELLED, JobState.QUEUED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}


def sources_of(target: JobState) -> frozenset[JobState]:
    """The states from which `target` may be entered."""
    return frozenset(source for source, targets in TRANSITIONS.items() if target in targets)


class StopRequest(StrEnum):
    """Asked beside the state; a stronger one replaces a weaker one, never the other way round."""

    DRAIN = "drain"
    PREEMPT = "preempt"
    PAUSE = "pause"
    CANCEL = "cancel"

    @property
    def strength(self) -> int:
        return _STRENGTH[self]


_STRENGTH: Final = {StopRequest.DRAIN: 0, StopRequest.PREEMPT: 1, StopRequest.PAUSE: 2, StopRequest.CANCEL: 3}
