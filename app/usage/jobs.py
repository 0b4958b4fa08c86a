"""What one job has used so far, all its attempts together."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from app.jobs.models import Attempt, AttemptNode
from app.usage.verdicts import WorkVerdict, sentence

Tries = Sequence[tuple[Attempt, list[AttemptNode]]]


def usage_of(tries: Tries, now: datetime) -> dict[str, Any]:
    """The `usage` of a job: device-seconds, joules, mean utilization, and the newest verdict that says something.

    The utilization is weighted by device-seconds. None where nothing was measured, as with CPU devices.
    """
    seconds = [device_s(attempt, sum(len(node.devices) for node in nodes), now) for attempt, nodes in tries]
    joules = [attempt.energy_j for attempt, _ in tries if attempt.energy_j is not None]
    judged = _newest_verdict([attempt for attempt, _ in tries])
    return {
        "device_s": sum(seconds),
        "energy_j": sum(joules) if joules else None,
        "utilization": _mean([(attempt.utilization, held) for (attempt, _), held in zip(tries, seconds, strict=True)]),
        "verdict": None if judged is None else judged[0],
        "message": None if judged is None else sentence(WorkVerdict(judged[0]), judged[1]),
    }


def device_s(attempt: Attempt, devices: int, now: datetime) -> float:
    """Devices times seconds of one attempt, from its claim to when they were freed, or until now."""
    if attempt.device_s is not None:
        return attempt.device_s
    if attempt.claimed_at is None or attempt.ended_at is not None:
        return 0.0
    return devices * max(0.0, (now - attempt.claimed_at).total_seconds())


def _newest_verdict(attempts: Sequence[Attempt]) -> tuple[str, float | None] | None:
    """A last attempt that was too short to be judged leaves standing what was found out before."""
    known = [(attempt.verdict, attempt.utilization) for attempt in reversed(attempts) if attempt.verdict]
    return next((found for found in known if found[0] != WorkVerdict.UNKNOWN), known[0] if known else None)


def _mean(pairs: Sequence[tuple[float | None, float]]) -> float | None:
    known = [(value, weight) for value, weight in pairs if value is not None and weight > 0]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None
