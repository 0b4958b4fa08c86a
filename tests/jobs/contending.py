"""One of several processes that write into the same database: `DATABASE_URL JOB_ID BATCHES`; run by test_contention."""

import sys

from app.db import Database
from app.jobs.attempts import record, set_phase
from app.jobs.journal import Entry
from tests.fakes import START


def main() -> None:
    url, job_id, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
    database = Database(url, synchronous="normal")
    for step in range(batches):
        points = {"loss": {"step": [step], "epoch": [0], "value": [1.0 / (step + 1)]}}
        with database.write() as session:
            progress = {"step": step}
            kept = record(session, job_id, 1, [Entry("metric", {"points": points})], progress, {"loss": 1.0}, START)
        with database.write() as session:
            changed = set_phase(session, job_id, 1, None if step % 2 else "uploading")
        if not (kept and changed):
            sys.exit(f"batch {step} was refused")
    database.dispose()


if __name__ == "__main__":
    main()
