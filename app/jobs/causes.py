"""What each cause means: its budget, whether the device is to blame, and a sentence for the user."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.errors import Cause


class Budget(StrEnum):
    """Which counter of `retry` an attempt with this cause spends."""

    FAILURES = "failures"
    LOSSES = "losses"
    NONE = "none"


@dataclass(frozen=True)
class CauseFacts:
    budget: Budget
    sentence: str


CAUSES: Final[dict[Cause, CauseFacts]] = {
    Cause.INVALID_DATA: CauseFacts(Budget.FAILURES, "The data could not be used as the spec asks."),
    Cause.USER_CODE: CauseFacts(Budget.FAILURES, "The training code or the script failed."),
    Cause.ENVIRONMENT_FAILED: CauseFacts(
        Budget.FAILURES,
        "What the job's code needs could not be had here: its packages, or a place shut off the network.",
    ),
    Cause.DIVERGED: CauseFacts(Budget.FAILURES, "The loss became NaN or infinite; try a smaller learning rate."),
    Cause.TIMED_OUT: CauseFacts(Budget.FAILURES, "The job ran longer than its timeout_s."),
    Cause.IDLE: CauseFacts(
        Budget.FAILURES, "The job's cards did nothing for its stop_when_idle_s, so it was stopped to free them."
    ),
    Cause.INCOMPLETE: CauseFacts(Budget.FAILURES, "It ended without what shows that it was finished."),
    Cause.ARTIFACT_UNREADABLE: CauseFacts(Budget.FAILURES, "A file that the trainer wrote could not be stored."),
    Cause.SHARED_MEMORY: CauseFacts(Budget.FAILURES, "Shared memory ran out; give the host a larger /dev/shm."),
    Cause.DEVICE_OUT_OF_MEMORY: CauseFacts(
        Budget.FAILURES, "The device ran out of memory; try a smaller batch_size or model."
    ),
    Cause.HOST_OUT_OF_MEMORY: CauseFacts(Budget.FAILURES, "The host ran out of memory."),
    Cause.TRAINER_KILLED: CauseFacts(Budget.FAILURES, "The training process was killed from outside."),
    Cause.WORKER_LOST: CauseFacts(Budget.LOSSES, "The worker that ran the job disappeared."),
    Cause.DEVICE_UNAVAILABLE: CauseFacts(
        Budget.LOSSES, "The device was not there, or the framework did not see it; a job never falls back to the CPU."
    ),
    Cause.DEVICE_FAULT: CauseFacts(Budget.LOSSES, "The device reported a fault."),
    Cause.NOT_CLAIMED: CauseFacts(Budget.NONE, "The worker did not take the job in time; it went back to its place."),
    Cause.DRAINED: CauseFacts(Budget.NONE, "The worker was drained; the job went back to its place."),
    Cause.PREEMPTED: CauseFacts(Budget.NONE, "A job of a higher class took the devices."),
}
