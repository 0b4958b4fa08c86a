"""A worker's store in a process of its own, to be killed: `DATABASE_URL STORAGE WORK_DIR JOB_ID`; see test_kills."""

import sys
import time
from pathlib import Path

from app.broker import Bell
from app.checkpoints.repository import newest
from app.db import Database
from app.storage import LocalStorage
from tests.workers.supervisor.trained import checkpoint, state
from workers.checkpoint_store import CheckpointStore, Shelf
from workers.checkpoints import write
from workers.orders import Orders

STEPS = (10, 20, 30)


def main() -> None:
    url, storage, work_dir, job_id = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    database = Database(url, synchronous="normal")
    shelf = Shelf(database, Bell(None), LocalStorage(storage), (job_id, 1), work_dir, keep_periodic=False)
    store = CheckpointStore(shelf, Orders(1 << 62), say=lambda *_: None, on_fenced=lambda: None)
    for step in STEPS:
        write(work_dir / str(step), state(step))
        store.offer(checkpoint(step, str(step)))
        while step not in _steps(database, job_id):
            time.sleep(0.005)
    store.finish()


def _steps(database: Database, job_id: str) -> list[int]:
    with database.read() as session:
        return [facts.step for facts in newest(session, job_id)]


if __name__ == "__main__":
    main()
