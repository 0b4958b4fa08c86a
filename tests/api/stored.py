"""Checkpoints of jobs for tests of the API: rows and files, as a worker leaves them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from app.checkpoints.repository import CheckpointFacts, StoredFile, add
from app.db import Database
from app.jobs.models import Job
from app.jobs.states import JobState
from app.storage import Storage
from app.storage.keys import checkpoint_prefix
from tests.fakes import START
from workers.checkpoints import MANIFEST_NAME, Position, State, write
from workers.uploads import digest_of

# Of the specs in tests/api/client.py: iris has four columns and three classes, and one hidden layer of 8.
IRIS: Mapping[str, tuple[int, ...]] = {
    "dense_1.kernel": (4, 8),
    "dense_1.bias": (8,),
    "output.kernel": (8, 3),
    "output.bias": (3,),
}


def set_state(database: Database, job_id: str, state: JobState, **values: Any) -> None:
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.state = state.value
        for name, value in values.items():
            setattr(job, name, value)


def leave_checkpoint(
    database: Database,
    storage: Storage,
    folder: Path,
    job_id: str,
    step: int,
    *,
    shapes: Mapping[str, tuple[int, ...]] = IRIS,
    **changes: Any,
) -> CheckpointFacts:
    """Store a real checkpoint of these weights."""
    made = folder / f"{job_id}-{step}"
    weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    position = Position(step=step, epoch=step // 10, metrics={}, framework="torch", threads=1, spec_digest="0" * 64)
    manifest = write(made, State(weights=weights, optimizer={}, best=None, position=position))
    names = [*(file.name for file in manifest.files), MANIFEST_NAME]
    prefix = checkpoint_prefix(job_id, 1, step)
    for name in names:
        storage.put(f"{prefix}/{name}", made / name)
    values: dict[str, Any] = {
        "job_id": job_id,
        "step": step,
        "attempt": 1,
        "epoch": step // 10,
        "reason": "periodic",
        "best": False,
        "metrics": {"val_loss": 1.0},
        "files": tuple(StoredFile(name, (made / name).stat().st_size, digest_of(made / name)) for name in names),
        "storage_prefix": prefix,
    }
    facts = CheckpointFacts(**(values | changes))
    with database.write() as session:
        add(session, facts, START, keep_periodic=True)
    return facts
