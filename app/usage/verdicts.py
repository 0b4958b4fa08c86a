"""What bounded a training, told from how busy its cards were; a plain sentence for each verdict."""

from enum import StrEnum
from typing import Final

IDLE_BELOW: Final = 0.05
"""A card that is busy for a smaller share of the time than this does nothing that anybody waits for."""
BUSY_FROM: Final = 0.70
ENOUGH_S: Final = 30.0
"""Seconds of looking before anything is said: the first epoch of many trainings is not like the rest."""


class WorkVerdict(StrEnum):
    """What bounded an attempt."""

    IDLE = "idle"
    INPUT_BOUND = "input_bound"
    COMPUTE_BOUND = "compute_bound"
    UNKNOWN = "unknown"


def judge(utilization: float | None, measured_s: float) -> WorkVerdict:
    """Judge by the mean utilization of all cards, 0 to 1; None: none of them can tell.

    NVML calls a card busy while any kernel runs on it (nvmlUtilization_t), so a high value does not say that the card
    is used well; a low one does say that it waited, and a trainer's card waits for nothing but its host.
    """
    if utilization is None or measured_s < ENOUGH_S:
        return WorkVerdict.UNKNOWN
    if utilization < IDLE_BELOW:
        return WorkVerdict.IDLE
    return WorkVerdict.COMPUTE_BOUND if utilization >= BUSY_FROM else WorkVerdict.INPUT_BOUND


def sentence(verdict: WorkVerdict, utilization: float | None) -> str:
    """The verdict in words, with what to do about it."""
    busy = "" if utilization is None else f"Its cards were busy {utilization * 100:.0f} % of the time"
    match verdict:
        case WorkVerdict.IDLE:
            return f"{busy}: hardly any of the work was done there. Check that the job needs a card at all."
        case WorkVerdict.INPUT_BOUND:
            return (
                f"{busy} and waited for the host in between, which prepares each batch. "
                "A larger batch_size, or a larger model for the same data, uses them better."
            )
        case WorkVerdict.COMPUTE_BOUND:
            return f"{busy}: what they compute decides the pace. Faster cards, more of them, or bfloat16 would help."
        case WorkVerdict.UNKNOWN:
            return "Its cards were not measured for long enough to say what bounded it."
