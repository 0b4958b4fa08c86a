"""One beat: renew, pass the deadline on, deliver stops, claim; and what it does when the database says otherwise."""

import signal
import threading
from pathlib import Path

import pytest

from app.db import DatabaseDown
from app.fleet import registry
from app.fleet.models import Lease
from app.fleet.registry import WorkerFacts
from app.jobs.models import Attempt
from app.jobs.states import JobState
from app.jobs.stops import request_cancel
from app.scheduling.reconcile import reconcile
from app.storage import LocalStorage
from tests.jobs.placing import TIMES
from tests.workers.eventually import eventually
from tests.workers.host.bench import SURVIVES_NS, HostBench
from tests.workers.supervisor.bench import started
from workers.protocol import Artifact, Done


def is_running(bench: HostBench) -> bool:
    return bench.scene.state() is JobState.RUNNING


class TestClaim:
    def test_a_placement_is_started_with_the_deadline_of_its_claim(self, bench: HostBench) -> None:
        host = bench.make()
        run = bench.place_and_run(host)

        assert run.request.assignment.job_id == bench.scene.job_id
        assert run.request.until_boot_ns == bench.clock.boot_ns() + SURVIVES_NS
        eventually(lambda: is_running(bench))

    def test_it_is_started_once_however_often_the_host_is_woken(self, bench: HostBench) -> None:
        host = bench.make()
        bench.place_and_run(host)
        for _ in range(3):
            host.attend()
        assert bench.launcher.idle

    def test_a_host_that_leaves_takes_nothing_new(self, bench: HostBench) -> None:
        host = bench.make()
        host.attend()
        bench.scene.place()
        host.stop_claiming()
        host.attend()

        assert bench.launcher.idle
        assert bench.scene.state() is JobState.STARTING

    def test_a_placement_that_cannot_be_claimed_keeps_no_other_waiting(self, bench: HostBench) -> None:
        host = bench.make()
        good = bench.scene.add_job()
        with bench.database.write() as session:
            session.get_one(type(bench.scene.job()), bench.scene.job_id).effective_spec = {"framework": "torch"}
        run = bench.place_and_run(host)
        assert run.request.assignment.job_id == good

    def test_a_claim_whose_answer_was_lost_goes_back_to_its_place(self, bench: HostBench) -> None:
        host = bench.make()
        host.attend()
        bench.scene.place()
        bench.database.keep_answers, bench.database.lose_answers = 1, 1
        with pytest.raises(DatabaseDown):
            host.attend()
        host.attend()

        assert bench.launcher.idle
        job = bench.scene.job()
        assert (job.state, job.failures, job.losses) == ("queued", 0, 0)
        with bench.database.read() as session:
            assert session.get_one(Attempt, (job.id, 1)).cause == "not_claimed"


class TestRenewal:
    def test_a_beat_moves_the_lease_and_then_the_deadline(self, bench: HostBench) -> None:
        host = bench.make()
        run = bench.place_and_run(host)
        bench.clock.advance(20)
        host.attend()

        eventually(lambda: run.until[-1:] == [bench.clock.boot_ns() + SURVIVES_NS])
        with bench.database.read() as session:
            lease = session.get_one(Lease, "host-a-0")
        assert (lease.expires_at - bench.clock.now()).total_seconds() == 60

    def test_the_deadline_counts_from_before_the_question(self, bench: HostBench) -> None:
        host = bench.make()
        run = bench.place_and_run(host)
        before = bench.clock.boot_ns()
        bench.database.during_write = lambda: bench.clock.advance(3)
        host.attend()
        bench.database.during_write = bool

        eventually(lambda: run.until[-1:] == [before + SURVIVES_NS])

    def test_when_the_database_does_not_answer_nothing_is_said(self, bench: HostBench) -> None:
        host = bench.make()
        run = bench.place_and_run(host)
        eventually(lambda: is_running(bench))
        before = list(run.until)
        bench.database.down = True
        bench.clock.advance(30)
        with pytest.raises(DatabaseDown):
            host.attend()

        assert (run.until, run.signals, run.heard) == (before, [], [])

    def test_a_run_that_stores_its_files_is_not_fenced_for_having_no_lease(
        self, bench: HostBench, tmp_path: Path
    ) -> None:
        storing, go_on = threading.Event(), threading.Event()

        class Slow(LocalStorage):
            def put(self, key: str, source: Path) -> None:
                storing.set()
                go_on.wait(20)
                super().put(key, source)

        host = bench.make(storage=Slow(tmp_path / "storage"))
        run = bench.place_and_run(host)
        (Path(run.request.assignment.work_dir) / "model").write_bytes(b"x")
        run.says(Artifact(name="model", path="model", media_type="a/b", kind="model"), Done(metrics={}))
        run.end(code=0)
        assert storing.wait(20)
        host.attend()
        go_on.set()
        eventually(lambda: bench.scene.state() is JobState.SUCCEEDED)


class TestStops:
    def test_a_cancel_reaches_the_run_with_the_next_beat(self, bench: HostBench) -> None:
        host = bench.make()
        run = bench.place_and_run(host)
        eventually(lambda: is_running(bench))
        with bench.database.write() as session:
            request_cancel(session, bench.scene.project_id, bench.scene.job_id, bench.clock.now())
        host.attend()
        eventually(lambda: bool(run.heard))
        run.says(Done(metrics={}, stopped="stop"))
        run.end(code=0)

        eventually(lambda: bench.scene.state() is JobState.CANCELLED)

    def test_a_run_whose_lease_was_taken_is_killed(self, bench: HostBench) -> None:
        host = bench.make()
        run = bench.place_and_run(host)
        eventually(lambda: is_running(bench))
        bench.clock.advance(61)
        assert [settled.job_id for settled in reconcile(bench.database, TIMES)] == [bench.scene.job_id]
        host.attend()

        eventually(lambda: run.signals == [signal.SIGKILL])
        eventually(run.closed.is_set)
        assert bench.scene.job().losses == 1

    def test_a_run_whose_lease_ended_is_killed_although_nobody_took_it_yet(self, bench: HostBench) -> None:
        host = bench.make()
        run = bench.place_and_run(host)
        eventually(lambda: is_running(bench))
        bench.clock.advance(61)
        host.attend()

        eventually(lambda: run.signals == [signal.SIGKILL])
        eventually(lambda: bench.scene.state() is JobState.QUEUED)

    @pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
    def test_a_database_whose_clock_was_set_costs_no_run(self, bench: HostBench, jump_s: float) -> None:
        """Every lease has ended by that clock; by the boot clock of the host, which judges here, none has."""
        host = bench.make()
        run = bench.place_and_run(host)
        eventually(lambda: is_running(bench))
        bench.clock.set_wall(jump_s)
        host.attend()
        with bench.database.read() as session:
            lease = session.get_one(Lease, "host-a-0")
        assert (lease.expires_at - bench.clock.now()).total_seconds() == 60
        assert (run.signals, run.heard) == ([], [])
        assert bench.scene.state() is JobState.RUNNING

    def test_another_instance_of_the_host_ends_all_runs_and_the_worker(self, bench: HostBench) -> None:
        host = bench.make()
        run = bench.place_and_run(host)
        eventually(lambda: is_running(bench))
        with bench.database.write() as session:
            other = WorkerFacts("host-a", "box", "start-2", "boot-1", "1", {})
            registry.register(session, other, [], bench.clock.now())
        bench.scene.add_job()
        host.attend()

        eventually(lambda: run.signals == [signal.SIGKILL])
        assert bench.deposed == ["start-1"]
        assert bench.launcher.idle


class TestThread:
    def test_a_wake_beats_at_once(self, bench: HostBench) -> None:
        host = bench.make()  # whose own rhythm is once an hour
        host.start()
        assert host.registered.wait(20)
        bench.scene.place()
        host.wake()
        run = bench.launcher.next_run()
        run.says(started())
        eventually(lambda: is_running(bench))

    def test_it_outlives_every_error(self, bench: HostBench) -> None:
        host = bench.make()
        bench.database.down = True
        host.start()
        eventually(lambda: bench.database.refused > 0)
        assert not host.registered.is_set()

        def explode() -> None:
            raise RuntimeError("not an error of the database")

        bench.database.during_write = explode
        bench.database.down = False
        host.wake()
        bench.database.during_write = bool
        host.wake()
        assert host.registered.wait(20)
