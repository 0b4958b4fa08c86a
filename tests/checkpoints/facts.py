"""Checkpoints for tests: facts about files that need not exist."""

from typing import Any

from app.checkpoints.repository import CheckpointFacts, StoredFile
from app.storage.keys import checkpoint_prefix


def facts(job_id: str, step: int, *, attempt: int = 1, again: int = 0, **changes: Any) -> CheckpointFacts:
    values: dict[str, Any] = {
        "job_id": job_id,
        "step": step,
        "attempt": attempt,
        "epoch": step // 10,
        "reason": "periodic",
        "best": False,
        "metrics": {"loss": 1.0 / (step + 1)},
        "files": (StoredFile("weights.safetensors", 100, "a" * 64), StoredFile("manifest.json", 10, "b" * 64)),
        "storage_prefix": checkpoint_prefix(job_id, attempt, step, again),
    }
    return CheckpointFacts(**(values | changes))
