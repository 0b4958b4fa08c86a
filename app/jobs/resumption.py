"""What a job shows when it goes on from a checkpoint: the values of the training up to that step, and no others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.checkpoints.repository import CheckpointFacts
from app.jobs.metrics import Series, series
from app.jobs.models import Job

_ALL_POINTS: Final = 1 << 62


@dataclass(frozen=True)
class Resumption:
    """The step that an attempt goes on from (None: it starts anew), and what the job shows until its first report."""

    step: int | None
    progress: Mapping[str, Any] | None = None
    last_metrics: Mapping[str, Any] | None = None
    best_metrics: Mapping[str, Any] | None = None


def resumption_at(session: Session, checkpoint: CheckpointFacts) -> Resumption:
    """The state of the checkpoint's job at its step, worked out from the job's journal."""
    last, best = snapshots(series(session, checkpoint.job_id, None, _ALL_POINTS), checkpoint.step)
    reached = session.execute(select(Job.progress).where(Job.id == checkpoint.job_id)).scalar()
    return Resumption(
        step=checkpoint.step,
        progress=_rewound(reached, checkpoint) if reached else None,
        last_metrics=last or dict(checkpoint.metrics) or None,
        best_metrics=best or None,
    )


def without_journal(checkpoint: CheckpointFacts) -> Resumption:
    """The same when the journal cannot be read now."""
    return Resumption(step=checkpoint.step, last_metrics=dict(checkpoint.metrics) or None)


def is_better(metrics: Mapping[str, Any], best: Mapping[str, Any] | None) -> bool:
    """Whether these metrics have the lower validation loss (without a validation part: the lower loss)."""
    name = "val_loss" if "val_loss" in metrics else "loss"
    value = metrics.get(name)
    if not isinstance(value, int | float):
        return False
    previous = best.get(name) if best else None
    return not isinstance(previous, int | float) or value < previous


def snapshots(found: Mapping[str, Series], step: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The newest and the best values of all series, as they were at `step`."""
    at: dict[int, dict[str, Any]] = {}
    for name, points in found.items():
        for point_step, value in zip(points.step, points.value, strict=True):
            if point_step <= step:
                at.setdefault(point_step, {})[name] = value
    latest: dict[str, Any] = {}
    best: dict[str, Any] = {}
    for point_step in sorted(at):
        latest.update(at[point_step])
        if is_better(latest, best):
            best = dict(latest)
    return latest, best


def _rewound(progress: Mapping[str, Any], checkpoint: CheckpointFacts) -> dict[str, Any]:
    steps = progress.get("steps")
    fraction = checkpoint.step / steps if isinstance(steps, int) and steps else 0.0
    return {
        **progress,
        "epoch": checkpoint.epoch,
        "step": checkpoint.step,
        "fraction": fraction,
        "eta_s": None,
        "samples_per_s": None,
    }
