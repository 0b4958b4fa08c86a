"""C55 of the collected failure cases, whole: several processes write at once and no error reaches any of them."""

import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from app.db import Database
from app.jobs import journal
from app.jobs.models import JobHead
from app.jobs.states import JobState
from tests.rows import add_job, add_project

PROCESSES = 4
BATCHES = 200


def start(url: str, job_id: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.jobs.contending", url, job_id, str(BATCHES)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2])


def follow(database: Database, job_id: str, events: list[journal.JournalEvent]) -> None:
    """Read on, as a listener does; what is seen at any moment has no gap."""
    with database.read() as session:
        events.extend(journal.read(session, job_id, len(events), 1000))
    assert [event.seq for event in events[-1000:]] == list(range(max(0, len(events) - 1000) + 1, len(events) + 1))


@pytest.mark.parametrize("jobs", [1, PROCESSES], ids=["one job", "a job each"])
def test_four_processes_write_while_one_reads(database: Database, database_url: str, jobs: int) -> None:
    with database.write() as session:
        project = add_project(session)
        made = [add_job(session, project, state=JobState.RUNNING, attempt=1).id for _ in range(jobs)]
    processes = [start(database_url, made[number % jobs]) for number in range(PROCESSES)]
    read: dict[str, list[journal.JournalEvent]] = {job_id: [] for job_id in made}
    while any(process.poll() is None for process in processes):
        for job_id, events in read.items():
            follow(database, job_id, events)
        time.sleep(0.02)
    assert [process.communicate()[1].decode() for process in processes] == [""] * PROCESSES
    assert [process.returncode for process in processes] == [0] * PROCESSES
    for job_id, events in read.items():
        follow(database, job_id, events)
        steps = sorted(orjson.loads(event.text)["points"]["loss"]["step"][0] for event in events)
        assert steps == sorted(list(range(BATCHES)) * (PROCESSES // jobs))
        with database.read() as session:
            assert session.get_one(JobHead, job_id).last_seq == len(events)
