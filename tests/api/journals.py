"""Writing into a job's journal as a worker would, for tests of those who read it."""

from typing import Any

from app.db import Database
from app.ids import new_id
from app.jobs import journal
from app.jobs.journal import Entry
from app.jobs.models import Job, JobHead
from app.jobs.states import JobState
from tests.fakes import START


class Writer:
    """One running job. Each call is one transaction, and one ring of the bell if there is one."""

    def __init__(self, database: Database, project_id: str) -> None:
        self.database = database
        self.job_id = new_id("job")
        with database.write() as session:
            session.add(
                Job(
                    id=self.job_id,
                    project_id=project_id,
                    owner="ada",
                    key_id="key_x",
                    framework="torch",
                    state=JobState.RUNNING.value,
                    attempt=1,
                    spec="{}",
                    effective_spec={},
                    device_count=1,
                    device_type="cpu",
                    timeout_s=60.0,
                    created_at=START,
                    queued_at=START,
                )
            )
            session.flush()
            session.add(JobHead(job_id=self.job_id, last_seq=0, attempt=1, closed=False))

    def write(self, *entries: Entry, close: bool = False) -> int:
        with self.database.write() as session:
            last = journal.append(session, self.job_id, 1, list(entries), START, close=close)
        assert last is not None
        return last

    def metrics(self, count: int, first: int = 1) -> int:
        """So many reports of one point each."""
        return self.write(*[metric(step) for step in range(first, first + count)])

    def lines(self, *lines: str) -> int:
        return self.write(Entry("log", {"lines": list(lines), "stream": "output"}))

    def finish(self, state: JobState = JobState.SUCCEEDED) -> int:
        with self.database.write() as session:
            session.get_one(Job, self.job_id).state = state.value
        return self.write(Entry("state", {"state": state.value}), close=True)


def metric(step: int, name: str = "loss", value: float | str = 0.5, epoch: int = 1) -> Entry:
    points: dict[str, Any] = {name: {"step": [step], "epoch": [epoch], "value": [value]}}
    return Entry("metric", {"points": points})
