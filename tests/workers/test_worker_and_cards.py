"""A real worker process beside a driver with faults: each is shown, and nothing starts where it must not."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.db import Database
from app.fleet.repository import DeviceView, HostView, fleet
from app.migrations_runner import upgrade
from tests.workers.eventually import eventually
from tests.workers.inventory import nvml_file
from tests.workers.worker_process import settings, worker_process
from workers.host import BLIND, CANNOT_START

pytestmark = pytest.mark.e2e

# NVML lists by PCI address, CUDA by speed; this driver does neither, so nothing can rely on an order.
FAST: dict[str, Any] = {"uuid": "GPU-fast", "pci": "00000000:81:00.0", "name": "NVIDIA H200", "memory": 141 << 30}
SLOW: dict[str, Any] = {"uuid": "GPU-slow", "pci": "00000000:02:00.0", "name": "NVIDIA T4", "memory": 16 << 30}
SLICES: list[dict[str, Any]] = [
    {"uuid": f"MIG-{n}", "pci": "", "name": "NVIDIA A100 MIG 2g.20gb", "memory": 20 << 30} for n in (1, 2)
]
SLICED: dict[str, Any] = {"uuid": "GPU-sliced", "pci": "00000000:41:00.0", "name": "NVIDIA A100", "mig": SLICES}
QUICK = {
    "TRAINSHED_DEVICES": "cuda",
    "TRAINSHED_CPU_SLOTS": "0",
    "TRAINSHED_SELF_TEST": "off",
    "TRAINSHED_INVENTORY_S": "0.1",
    "TRAINSHED_HEARTBEAT_S": "0.1",
    "TRAINSHED_TELEMETRY_S": "0",
    "TRAINSHED_BLIND_EXIT_S": "1",
}


@pytest.fixture
def database(tmp_path: Path, sqlite_template: Path) -> Iterator[Database]:
    """Its clock is the machine's, as the worker's own process sees it."""
    path = tmp_path / "worker.db"
    shutil.copyfile(sqlite_template, path)
    database = Database(f"sqlite:///{path}", synchronous="normal")
    yield database
    database.dispose()


def the_host(database: Database) -> HostView | None:
    with database.read() as session:
        return next(iter(fleet(session, database.now(session), 60)), None)


def device(database: Database, identity: str) -> DeviceView | None:
    host = the_host(database)
    found = [] if host is None else [one for one in host.devices if one.id == identity]
    return found[0] if found else None


def health(database: Database, identity: str) -> str | None:
    found = device(database, identity)
    return None if found is None else found.health


class TestFaultsOfCards:
    def test_each_is_shown_as_it_comes_and_goes(self, tmp_path: Path, database: Database) -> None:
        """One worker, one fault after the other, since each start of a worker takes seconds."""
        state = tmp_path / "nvml.json"
        nvml_file.write(state, FAST, SLICED, SLOW)
        variables = settings(tmp_path, database.url, f"unix://{tmp_path}/no.sock", **QUICK) | nvml_file.environment(
            state
        )
        with worker_process(tmp_path, variables, nvml_file.PROGRAM) as worker:
            eventually(lambda: the_host(database) is not None, "the registration")
            host = the_host(database)
            assert host is not None
            # By PCI address, and the sliced card as its slices, never whole.
            assert [one.id for one in host.devices] == ["GPU-slow", "MIG-1", "MIG-2", "GPU-fast"]
            assert [one.memory_bytes for one in host.devices] == [16 << 30, 20 << 30, 20 << 30, 141 << 30]
            assert host.condition["driver"] == {"version": "580.65.06", "cuda": "13.0"}

            with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
                used = {**FAST, "compute": [{"pid": stranger.pid, "memory": 9 << 30}]}
                nvml_file.write(state, used, SLICED, SLOW)
                eventually(lambda: health(database, "GPU-fast") == "in_use_elsewhere", "the stranger")
                shown = device(database, "GPU-fast")
                assert shown is not None
                (process,) = shown.processes
                assert (process["pid"], process["memory_bytes"]) == (stranger.pid, 9 << 30)
                assert process["name"] == Path(f"/proc/{stranger.pid}/comm").read_text().strip()
                assert process["user"], "a user or a number"
                stranger.kill()
            nvml_file.write(state, {**FAST, "ecc_errors": 3}, SLICED, SLOW)
            eventually(lambda: health(database, "GPU-fast") == "unhealthy", "the memory errors")
            sick = device(database, "GPU-fast")
            assert sick is not None
            assert "3 uncorrectable memory errors" in str(sick.reason)

            nvml_file.write(state, {**FAST, "lost": True}, SLICED, SLOW)
            eventually(lambda: health(database, "GPU-fast") == "gone", "the lost card")
            assert health(database, "GPU-slow") == "ok"

            nvml_file.write(state, FAST, {**SLICED, "mig": None}, SLOW)
            eventually(lambda: health(database, "GPU-sliced") == "ok", "the card that is whole again")
            assert {health(database, name) for name in ("MIG-1", "MIG-2")} == {"gone"}
            assert health(database, "GPU-fast") == "ok"

            nvml_file.write(state, driver="Unknown Error")
            eventually(lambda: bool((host := the_host(database)) and host.blocked), "the silent driver")
            assert health(database, "GPU-fast") == "ok", "that the driver is silent says nothing of the card"
            # A container that has lost its cards gets them back by a restart alone.
            assert worker.process.wait(30) == BLIND
        assert "Traceback" not in worker.log


class TestSchema:
    """C69: the worker starts before somebody has migrated the database."""

    def test_it_waits_says_so_once_and_registers_when_it_is_there(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path / 'late.db'}"
        environment = settings(tmp_path, url, f"unix://{tmp_path}/no.sock", TRAINSHED_HEARTBEAT_S="0.2")
        database = Database(url)
        with worker_process(tmp_path, environment) as worker:
            eventually(lambda: "schema_not_ready" in worker.log, "that it waits")
            upgrade(url)
            eventually(lambda: the_host(database) is not None, "the registration")
            assert worker.stop(signal.SIGTERM) == 0
        database.dispose()
        assert worker.log.count("schema_not_ready") == 1
        assert "Traceback" not in worker.log

    def test_a_schema_that_is_newer_than_the_code_ends_it_with_the_reason(
        self, tmp_path: Path, database: Database
    ) -> None:
        with database.write() as session:
            session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        environment = settings(tmp_path, database.url, f"unix://{tmp_path}/no.sock")
        with worker_process(tmp_path, environment) as worker:
            assert worker.process.wait(30) == CANNOT_START
        assert "newer than this version of Trainshed" in worker.log
