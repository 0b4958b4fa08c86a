"""A checkpoint on the wire; where its bytes lie stays inside."""

from typing import Any

from app.checkpoints.models import Checkpoint
from app.checkpoints.repository import Marks
from app.clock import to_rfc3339


def checkpoint_json(checkpoint: Checkpoint, marks: Marks) -> dict[str, Any]:
    """The checkpoint object; `marks` tells which of the job's is the best and which the newest."""
    return {
        "object": "checkpoint",
        "job_id": checkpoint.job_id,
        "step": checkpoint.step,
        "epoch": checkpoint.epoch,
        "attempt": checkpoint.attempt,
        "reason": checkpoint.reason,
        "best": checkpoint.step == marks.best,
        "last": checkpoint.step == marks.last,
        "final": checkpoint.reason == "final",
        "metrics": checkpoint.metrics,
        "size_bytes": checkpoint.size_bytes,
        "files": [dict(file) for file in checkpoint.files],
        "created_at": to_rfc3339(checkpoint.created_at),
    }
