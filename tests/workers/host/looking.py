"""Short ways for tests of what a host sees around it."""

from dataclasses import replace

import orjson
from sqlalchemy import text

from app.fleet.condition import Remark
from app.fleet.devices import UNHEALTHY, DeviceFacts
from app.jobs import journal
from app.jobs.models import Attempt
from app.jobs.states import JobState
from tests.workers.eventually import eventually
from tests.workers.fake_launcher import FakeRun
from tests.workers.host.bench import HostBench
from workers.host import Host
from workers.protocol import Done

CAUSE_OF_ECC = "CUDA error: uncorrectable ECC error encountered"
FULL = Remark("disk_full", "The disk of the run folder is full.")


def sick(device: DeviceFacts, reason: str = "Xid 79") -> DeviceFacts:
    return replace(device, health=UNHEALTHY, reason=reason)


def look(bench: HostBench, host: Host, times: int = 1) -> None:
    """What the threads of a running host do: look, and report with the next beat."""
    for _ in range(times):
        bench.ground.surroundings.look()
    host.attend()


def notices(bench: HostBench, code: str) -> list[str]:
    with bench.database.read() as session:
        events = journal.read(session, bench.scene.job_id, 0, kind="notice")
    found = [orjson.loads(event.text) for event in events]
    return [notice["message"] for notice in found if notice["code"] == code]


def set_revision(bench: HostBench, revision: str) -> None:
    with bench.database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def cause(bench: HostBench, attempt: int = 1) -> tuple[str | None, str | None]:
    with bench.database.read() as session:
        row = session.get_one(Attempt, (bench.scene.job_id, attempt))
    return row.cause, row.detail


def running(bench: HostBench, host: Host) -> FakeRun:
    run = bench.place_and_run(host)
    eventually(lambda: bench.scene.state() is JobState.RUNNING)
    return run


def obey(run: FakeRun) -> None:
    """Play a trainer that leaves at its safe point when it is told to."""
    eventually(lambda: bool(run.heard), "the order to stop")
    run.says(Done(metrics={}, stopped="stop"))
    run.end(code=0)
