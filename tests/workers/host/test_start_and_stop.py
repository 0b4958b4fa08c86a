"""A worker that starts after another one, and one that leaves."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from app.fleet.devices import quarantine
from app.jobs import endings
from app.jobs.models import Attempt
from app.jobs.states import JobState
from app.settings import InvalidSettings
from tests.workers.eventually import eventually
from tests.workers.host.bench import HostBench
from tests.workers.supervisor.bench import started
from workers import settle
from workers.host_lock import HostLock, WorkerRunning
from workers.locks import close_all, take_all
from workers.processes import read_stat
from workers.protocol import Done

HOLDS_A_LOCK = (
    "import fcntl,sys,time; f=open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); time.sleep(600)"
)


def attempt_of(bench: HostBench, number: int = 1) -> Attempt:
    with bench.database.read() as session:
        return session.get_one(Attempt, (bench.scene.job_id, number))


class TestRegistration:
    def test_it_says_what_the_host_has(self, bench: HostBench) -> None:
        host = bench.make(devices=1)
        host.attend()

        worker = bench.worker()
        assert host.worker_id == bench.scene.worker_id
        assert (worker.instance, worker.boot_id, worker.state) == ("start-1", "boot-1", "online")
        assert worker.frameworks["torch"]["interpreter"] == "/opt/torch/bin/python"
        assert (bench.device(0).health, bench.device(1).health) == ("ok", "gone")

    def test_work_directories_of_earlier_starts_are_removed(self, bench: HostBench) -> None:
        left = bench.equipment.run_dir / "work" / "job_x-1"
        left.mkdir(parents=True)
        (left / "table.csv").write_text("a\n")
        bench.make().attend()
        assert bench.work_dirs() == []


class TestRestart:
    def crash(self, bench: HostBench) -> None:
        """A worker claims the job, then it and all that it started are gone without a word."""
        host = bench.make("start-0")
        run = bench.place_and_run(host)
        eventually(lambda: bench.scene.state() is JobState.RUNNING)
        bench.database.down = True
        run.vanish()
        eventually(run.closed.is_set)
        for supervisor in list(host._attempts.values()):
            supervisor.abandon()
            supervisor.join(20)
        bench.database.down = False

    def test_its_open_attempts_are_lost_at_once_and_run_again(self, bench: HostBench) -> None:
        self.crash(bench)
        bench.make("start-1").attend()

        job = bench.scene.job()
        assert (job.state, job.losses) == ("queued", 1)
        assert attempt_of(bench).cause == "worker_lost"
        assert [placed.job_id for placed in bench.scene.place()] == [job.id]

    def test_an_attempt_whose_lock_is_held_stays_open_until_it_is_free(self, bench: HostBench) -> None:
        self.crash(bench)
        lock = bench.equipment.lock_dir / f"job-{bench.scene.job_id}.lock"
        held, _ = take_all([str(lock)])  # by this very process, which the sweep spares
        host = bench.make("start-1")
        try:
            host.attend()
            assert bench.scene.state() is JobState.RUNNING
        finally:
            close_all(held)
        host.attend()
        assert bench.scene.state() is JobState.QUEUED

    def test_a_process_that_outlived_its_worker_is_killed(self, bench: HostBench) -> None:
        self.crash(bench)
        lock = bench.equipment.lock_dir / f"job-{bench.scene.job_id}.lock"
        with subprocess.Popen([sys.executable, "-c", HOLDS_A_LOCK, str(lock)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            os.kill(process.pid, signal.SIGSTOP)  # frozen ones too
            bench.make("start-1").attend()
            assert process.wait(20) == -signal.SIGKILL
        assert bench.scene.state() is JobState.QUEUED

    def test_lock_files_of_jobs_that_are_over_are_removed_and_those_that_are_held_are_not(
        self, bench: HostBench
    ) -> None:
        locks = bench.equipment.lock_dir
        locks.mkdir(parents=True)
        for name in ("job-old.lock", "job-held.lock", "dev-host-a-0.lock"):
            (locks / name).touch()
        held, _ = take_all([str(locks / "job-held.lock")])
        try:
            bench.make().attend()
        finally:
            close_all(held)
        assert sorted(path.name for path in locks.iterdir()) == ["dev-host-a-0.lock", "job-held.lock"]

    def test_one_that_cannot_be_ended_holds_up_neither_the_host_nor_the_others(
        self, bench: HostBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.crash(bench)
        real = endings.end_attempt
        broken = [bench.scene.job_id]

        def end_attempt(session: Session, job_id: str, *rest: Any) -> JobState | None:
            if job_id in broken:
                raise RuntimeError("this one cannot be ended")
            return real(session, job_id, *rest)

        monkeypatch.setattr(settle, "end_attempt", end_attempt)
        host = bench.make()
        host.attend()
        assert host.worker_id == bench.scene.worker_id
        assert attempt_of(bench).ended_at is None
        broken.clear()
        host.attend()
        assert attempt_of(bench).cause == "worker_lost"

    def test_a_placement_that_nobody_claimed_is_simply_claimed(self, bench: HostBench) -> None:
        bench.make("start-0").attend()
        bench.scene.place()
        bench.make("start-1").attend()
        assert bench.launcher.next_run().assignment.attempt == 1


class TestStop:
    def test_it_drains_every_run_and_goes_offline(self, bench: HostBench) -> None:
        host = bench.make(stop_grace_s=20.0)
        host.start()
        bench.scene.add_job()
        assert host.registered.wait(20)
        bench.scene.place()
        host.wake()
        runs = [bench.launcher.next_run(), bench.launcher.next_run()]
        for run in runs:
            run.says(started())
        eventually(lambda: is_up(bench))
        stopping = threading.Thread(target=host.stop)
        stopping.start()
        for run in runs:
            eventually(lambda run=run: bool(run.heard))  # type: ignore[misc] # one run at a time
            assert run.heard[0].reason == "drain"
            run.says(Done(metrics={}, stopped="stop"))
            run.end(code=0)
        stopping.join(20)

        assert not stopping.is_alive()
        job = bench.scene.job()
        assert (job.state, job.failures, job.losses) == ("queued", 0, 0)
        assert attempt_of(bench).cause == "drained"
        assert bench.worker().state == "offline"

    def test_nothing_new_is_placed_on_it_while_it_drains(self, bench: HostBench) -> None:
        host = bench.make(devices=2)
        run = bench.place_and_run(host)
        eventually(lambda: bench.scene.state() is JobState.RUNNING)
        stopping = threading.Thread(target=host.stop)
        stopping.start()
        eventually(lambda: bool(run.heard))
        waiting = bench.scene.add_job()
        assert bench.scene.place() == [], "the second device is free, and its host is leaving"
        run.says(Done(metrics={}, stopped="stop"))
        run.end(code=0)
        stopping.join(20)
        assert bench.scene.state(waiting) is JobState.QUEUED

    def test_beats_go_on_while_it_drains(self, bench: HostBench) -> None:
        host = bench.make(stop_grace_s=20.0)
        host.start()
        assert host.registered.wait(20)
        bench.scene.place()
        host.wake()
        run = bench.launcher.next_run()
        run.says(started())
        eventually(lambda: is_up(bench))
        stopping = threading.Thread(target=host.stop)
        stopping.start()
        eventually(lambda: bool(run.heard))
        bench.clock.advance(5)
        host.wake()
        until = bench.clock.boot_ns() + 50_000_000_000
        eventually(lambda: until in run.until)
        run.end(code=0)
        stopping.join(20)
        assert not stopping.is_alive()

    def test_a_run_that_cannot_write_its_end_is_left_to_the_next_start(
        self, bench: HostBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("workers.host.LAST_WORDS_S", 0.1)
        host = bench.make("start-0")
        run = bench.place_and_run(host)
        eventually(lambda: is_up(bench))
        bench.database.down = True
        run.end(code=1)
        host.stop()
        bench.database.down = False

        assert bench.scene.state() is JobState.RUNNING
        bench.make("start-1").attend()
        assert bench.scene.state() is JobState.QUEUED

    def test_it_is_harmless_before_a_start_and_twice(self, bench: HostBench) -> None:
        host = bench.make()
        host.stop()
        host.stop()


def is_up(bench: HostBench) -> bool:
    return bench.scene.state() is JobState.RUNNING


class TestQuarantine:
    def test_a_device_that_a_process_still_holds_is_not_given_out(self, bench: HostBench) -> None:
        host = bench.make()
        run = bench.place_and_run(host)
        eventually(lambda: is_up(bench))
        run.end(code=0, survivors=True)
        try:
            eventually(lambda: bench.scene.state() is JobState.QUEUED)
        finally:
            run.survivors_end()

        assert bench.view(0).health == "quarantined"
        assert "could not be killed" in str(bench.view(0).reason)
        bench.scene.place()
        host.attend()
        again = bench.launcher.next_run()
        assert [device.id for device in again.request.assignment.devices] == ["host-a-1"]

    def test_a_restart_does_not_lift_it(self, bench: HostBench) -> None:
        bench.make("start-0").attend()
        with bench.database.write() as session:
            quarantine(session, ["host-a-0"], "Xid 79", bench.clock.now())
        bench.clock.advance(5)
        bench.make("start-1").attend()
        assert (bench.view(0).health, bench.view(0).reason) == ("quarantined", "Xid 79")
        assert bench.view(1).health == "ok"


class TestHostLock:
    def test_a_second_worker_is_refused_and_told_who_is_there(self, tmp_path: Path) -> None:
        run_dir = tmp_path / "run"
        lock = HostLock(run_dir)
        lock.acquire()
        lock.release()
        with subprocess.Popen(
            [sys.executable, "-c", HOLDS_A_LOCK, str(run_dir / "worker.lock")], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                with pytest.raises(WorkerRunning, match=rf"process {process.pid}.*TRAINSHED_RUN_DIR"):
                    lock.acquire()
                assert read_stat(process.pid) is not None
            finally:
                process.kill()
        lock.acquire()
        lock.release()

    def test_a_directory_that_cannot_be_used_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(InvalidSettings, match=rf"TRAINSHED_RUN_DIR.*{tmp_path}/file/run.*user {os.geteuid()}"):
            HostLock(tmp_path / "file" / "run").acquire()

    def test_the_run_directory_is_for_its_owner_alone(self, tmp_path: Path) -> None:
        lock = HostLock(tmp_path / "deep" / "run")
        lock.acquire()
        lock.release()
        assert (tmp_path / "deep" / "run").stat().st_mode & 0o077 == 0
