"""From a checkpoint that a trainer announces to the row that says it is stored: in order, fenced, never in the way."""

import threading
from pathlib import Path

import pytest
from sqlalchemy import select

from app.checkpoints.models import Checkpoint as Row
from app.checkpoints.repository import newest
from app.errors import Cause
from app.fleet.models import Lease
from app.jobs import journal
from app.jobs.endings import Ending, end_attempt
from app.jobs.states import JobState
from app.jobs.stops import request_pause
from app.storage import LocalStorage
from tests.workers.eventually import eventually
from tests.workers.supervisor.bench import Bench, report
from tests.workers.supervisor.trained import announce, checkpoint, state
from workers.checkpoints import MANIFEST_NAME, read, write
from workers.protocol import Artifact, Done
from workers.stopping import StopReason


class GatedStorage(LocalStorage):
    """Takes a file only while the gate is open, as a slow disk does; `refuses` makes it fail instead."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()
        self.waiting = threading.Event()
        self.refuses = 0

    def put(self, key: str, source: Path) -> None:
        self.waiting.set()
        assert self.gate.wait(20)
        if self.refuses and key.startswith("checkpoints/"):
            self.refuses -= 1
            raise OSError(28, "No space left on device", str(source))
        super().put(key, source)


class FullStorage(LocalStorage):
    """Takes so many files, then no more."""

    def __init__(self, root: Path, *, room: int) -> None:
        super().__init__(root)
        self.room = room

    def put(self, key: str, source: Path) -> None:
        if not self.room:
            raise OSError(28, "No space left on device", str(source))
        super().put(key, source)
        self.room -= 1

    def delete(self, key: str) -> None:
        self.room += self.exists(key)
        super().delete(key)


@pytest.fixture
def gated(tmp_path: Path) -> GatedStorage:
    """Over the same folder as the bench's own storage."""
    return GatedStorage(tmp_path / "storage")


def steps(bench: Bench) -> list[int]:
    with bench.scene.database.read() as session:
        return [facts.step for facts in newest(session, bench.scene.job_id)]


def until_newest(bench: Bench, step: int) -> None:
    eventually(lambda: steps(bench)[:1] == [step])


def rows(bench: Bench) -> dict[int, Row]:
    with bench.scene.database.read() as session:
        return {row.step: row for row in session.scalars(select(Row))}


def stored(bench: Bench) -> list[str]:
    """The prefixes under which there are files."""
    return sorted({key.rpartition("/")[0] for key in bench.storage.list("checkpoints")})


def codes(bench: Bench) -> list[str]:
    return [str(entry["code"]) for entry in bench.journal("notice")]


def kinds(bench: Bench) -> list[str]:
    with bench.scene.database.read() as session:
        return [event.kind for event in journal.read(session, bench.scene.job_id, 0)]


def leases(bench: Bench) -> int:
    with bench.scene.database.read() as session:
        return session.query(Lease).count()


class TestStored:
    def test_the_files_are_those_that_were_written_and_the_folder_is_gone(self, bench: Bench, tmp_path: Path) -> None:
        supervisor, run = bench.run()
        folder = announce(run, 10, best=True)
        eventually(lambda: steps(bench) == [10])
        eventually(lambda: not folder.exists())

        row = rows(bench)[10]
        assert (row.attempt, row.epoch, row.best, row.reason) == (1, 1, True, "periodic")
        assert row.files[-1]["name"] == MANIFEST_NAME
        for file in row.files:
            (tmp_path / "copy").mkdir(exist_ok=True)
            bench.storage.get(f"{row.storage_prefix}/{file['name']}", tmp_path / "copy" / file["name"])
        found = read(tmp_path / "copy")
        assert found.position.step == 10
        assert (found.weights["output.kernel"] == state(10).weights["output.kernel"]).all()
        bench.succeed(run)
        bench.wait(supervisor)

    def test_it_is_told_in_the_journal(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        announce(run, 10)
        eventually(lambda: bool(bench.journal("checkpoint")))
        (entry,) = bench.journal("checkpoint")
        assert (entry["step"], entry["epoch"], entry["metrics"]) == (10, 1, {"loss": 0.1})
        assert entry["size_bytes"] == rows(bench)[10].size_bytes
        bench.succeed(run)
        bench.wait(supervisor)

    def test_what_was_reported_before_it_is_in_the_journal_before_it(self, bench: Bench) -> None:
        """Else a worker that is killed between the two leaves epochs that no attempt tells again."""
        supervisor, run = bench.run(report_interval_s=3600.0)
        run.says(report(1, loss=0.9))
        eventually(lambda: bool(bench.journal("metric")))
        run.says(report(10, loss=0.1))
        announce(run, 10)
        eventually(lambda: steps(bench) == [10])
        assert kinds(bench)[-2:] == ["metric", "checkpoint"]
        assert bench.journal("metric")[-1]["points"]["loss"]["step"] == [10]
        bench.succeed(run)
        bench.wait(supervisor)
        assert len(bench.journal("metric")) == 2, "and it is written once"

    def test_what_is_not_needed_any_more_leaves_the_storage_too(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        for step in (10, 20, 30, 40):
            announce(run, step)
            until_newest(bench, step)
        eventually(lambda: stored(bench) == [f"checkpoints/{bench.scene.job_id}/1/{step}" for step in (30, 40)])
        bench.succeed(run)
        bench.wait(supervisor)

    def test_the_last_one_is_stored_before_the_end_is_written(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        announce(run, 10, reason="final")
        bench.succeed(run)
        bench.wait(supervisor)
        kinds = [entry for entry in bench.journal() if "state" in entry or "size_bytes" in entry]
        assert kinds[-1]["state"] == "succeeded"
        assert kinds[-2]["reason"] == "final"
        assert steps(bench) == [10]

    def test_a_second_one_of_the_same_step_replaces_the_first_whole(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        announce(run, 10)
        eventually(lambda: steps(bench) == [10])
        announce(run, 10, "checkpoints/final", reason="final")
        bench.succeed(run)
        bench.wait(supervisor)
        assert rows(bench)[10].reason == "final"
        assert stored(bench) == [f"checkpoints/{bench.scene.job_id}/1/10.1"]

    def test_a_failed_job_keeps_what_it_stored(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        announce(run, 10)
        run.end(code=1)
        bench.wait(supervisor)
        assert (bench.state, steps(bench)) == (JobState.FAILED, [10])


class TestSlowStorage:
    def test_neither_reports_nor_the_trainer_wait_for_it(self, bench: Bench, gated: GatedStorage) -> None:
        supervisor, run = bench.run(storage=gated)
        announce(run, 10)
        assert gated.waiting.wait(20)
        run.prints(b"still training\n")
        eventually(lambda: bench.lines() == ["still training"])
        assert steps(bench) == []
        gated.gate.set()
        bench.succeed(run)
        bench.wait(supervisor)
        assert steps(bench) == [10]

    def test_only_the_newest_and_the_best_wait(self, bench: Bench, gated: GatedStorage) -> None:
        supervisor, run = bench.run(storage=gated)
        announce(run, 10)
        assert gated.waiting.wait(20)
        folders = [announce(run, step, best=step == 30) for step in (20, 30, 40, 50)]
        run.prints(b"all are announced\n")
        eventually(lambda: bool(bench.lines()))
        gated.gate.set()
        bench.succeed(run)
        bench.wait(supervisor)
        # 10 was on its way already; 20 and 40 were overtaken.
        assert [entry["step"] for entry in bench.journal("checkpoint")] == [10, 30, 50]
        assert [folder.exists() for folder in folders] == [False] * 4

    def test_devices_are_free_while_the_last_one_is_stored(self, bench: Bench, gated: GatedStorage) -> None:
        supervisor, run = bench.run(storage=gated)
        eventually(lambda: bench.state is JobState.RUNNING)
        with bench.database.write() as session:
            request_pause(session, bench.scene.project_id, bench.scene.job_id, bench.clock.now())
        supervisor.stop(StopReason.PAUSE)
        eventually(lambda: bool(run.heard))
        announce(run, 10, reason="stop")
        run.says(Done(metrics={}, stopped="stop"))
        run.end(code=0)
        eventually(lambda: leases(bench) == 0)
        assert (bench.state, bench.job().phase) == (JobState.RUNNING, "uploading")
        gated.gate.set()
        bench.wait(supervisor)
        assert (bench.state, steps(bench)) == (JobState.PAUSED, [10])


class TestHostileManifest:
    def test_one_of_any_size_is_not_read_into_the_workers_memory(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        folder = Path(run.request.assignment.work_dir) / "checkpoints/10"
        write(folder, state(10))
        with (folder / MANIFEST_NAME).open("a") as file:
            file.write(" " * 65_536)  # still JSON, and still a complete checkpoint
        run.says(checkpoint(10, "checkpoints/10"))
        bench.succeed(run)
        bench.wait(supervisor)
        assert (bench.state, steps(bench)) == (JobState.SUCCEEDED, [])
        assert "is larger than any list of a checkpoint's files" in bench.journal("notice")[0]["message"]


class TestFailingStorage:
    def test_it_is_tried_again_and_said_once(self, bench: Bench, gated: GatedStorage) -> None:
        gated.gate.set()
        gated.refuses = 2
        supervisor, run = bench.run(storage=gated)
        announce(run, 10)
        eventually(lambda: steps(bench) == [10])
        bench.succeed(run)
        bench.wait(supervisor)
        assert codes(bench) == ["checkpoint_not_stored"]
        assert "No space left on device. It is tried again." in bench.journal("notice")[0]["message"]

    def test_the_training_does_not_fail_for_it(self, bench: Bench, gated: GatedStorage) -> None:
        gated.gate.set()
        gated.refuses = 1000
        supervisor, run = bench.run(storage=gated)
        announce(run, 10)
        bench.succeed(run)
        bench.wait(supervisor)
        assert (bench.state, steps(bench)) == (JobState.SUCCEEDED, [])
        assert bench.journal("notice")[-1]["message"].endswith("No space left on device. It is given up.")

    def test_what_was_put_before_it_failed_is_removed_again(self, bench: Bench, tmp_path: Path) -> None:
        supervisor, run = bench.run(storage=FullStorage(tmp_path / "storage", room=2))
        announce(run, 10)
        run.end(code=1)
        bench.wait(supervisor)
        assert codes(bench)[-1] == "checkpoint_not_stored"
        assert bench.storage.list("checkpoints") == []

    def test_nor_is_a_part_of_the_model_left(self, bench: Bench, tmp_path: Path) -> None:
        supervisor, run = bench.run(storage=FullStorage(tmp_path / "storage", room=1))
        bench.leave_file(run, "model.json", b"{}")
        run.says(Artifact(name="model.json", path="model.json", media_type="application/json", kind="model"))
        bench.succeed(run)
        bench.wait(supervisor)
        assert (bench.state, bench.job().cause) == (JobState.FAILED, Cause.ARTIFACT_UNREADABLE)
        assert bench.storage.list() == []

    def test_a_pause_that_could_not_store_its_checkpoint_goes_on_from_the_one_before(
        self, bench: Bench, gated: GatedStorage
    ) -> None:
        gated.gate.set()
        supervisor, run = bench.run(storage=gated)
        announce(run, 10)
        eventually(lambda: steps(bench) == [10])
        with bench.database.write() as session:
            request_pause(session, bench.scene.project_id, bench.scene.job_id, bench.clock.now())
        gated.refuses = 1000
        announce(run, 20, reason="stop")
        run.says(Done(metrics={}, stopped="stop"))
        run.end(code=0)
        bench.wait(supervisor)
        assert (bench.state, steps(bench)) == (JobState.PAUSED, [10])

    @pytest.mark.parametrize("damage", ["truncated", "without manifest", "without folder", "outside", "a link"])
    def test_what_is_no_checkpoint_is_said_and_left_out(self, bench: Bench, tmp_path: Path, damage: str) -> None:
        supervisor, run = bench.run()
        work_dir = Path(run.request.assignment.work_dir)
        path = "made"
        if damage == "outside":
            write(tmp_path / "elsewhere", state(10))
            path = str(tmp_path / "elsewhere")
        elif damage == "a link":
            write(tmp_path / "elsewhere", state(10))
            (work_dir / path).symlink_to(tmp_path / "elsewhere")
        elif damage != "without folder":
            write(work_dir / path, state(10))
            file = work_dir / path / (MANIFEST_NAME if damage == "without manifest" else "weights.safetensors")
            file.unlink() if damage == "without manifest" else file.write_bytes(file.read_bytes()[:-1])
        run.says(checkpoint(10, path))
        bench.succeed(run)
        bench.wait(supervisor)
        assert (bench.state, steps(bench), stored(bench)) == (JobState.SUCCEEDED, [], [])
        assert codes(bench) == ["checkpoint_not_stored"]


class TestDatabaseAway:
    def test_a_checkpoint_waits_for_it(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        bench.database.down = True
        announce(run, 10)
        eventually(lambda: stored(bench) != [])
        eventually(lambda: bench.database.refused > 3)
        bench.database.down = False
        eventually(lambda: steps(bench) == [10])
        bench.succeed(run)
        bench.wait(supervisor)
        assert stored(bench) == [f"checkpoints/{bench.scene.job_id}/1/10"], "its files were stored once"

    def test_so_does_the_end(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        bench.database.down = True
        announce(run, 10, reason="final")
        bench.succeed(run)
        eventually(run.closed.is_set)
        eventually(lambda: bench.database.refused > 4)
        bench.database.down = False
        bench.wait(supervisor)
        assert (bench.state, steps(bench)) == (JobState.SUCCEEDED, [10])

    @pytest.mark.parametrize("answers", [1, 2])
    def test_a_lost_answer_writes_it_once_and_keeps_its_files(self, bench: Bench, answers: int) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        bench.database.lose_answers = answers
        announce(run, 10)
        eventually(lambda: bench.database.lose_answers == 0)
        bench.succeed(run)
        bench.wait(supervisor)
        assert [entry["step"] for entry in bench.journal("checkpoint")] == [10]
        assert stored(bench) == [f"checkpoints/{bench.scene.job_id}/1/10"]

    def test_an_abandoned_attempt_does_not_wait(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        bench.database.down = True
        announce(run, 10)
        run.end(code=0)
        eventually(run.closed.is_set)
        supervisor.abandon()
        bench.wait(supervisor)
        assert (bench.state, bench.attempt().ended_at) == (JobState.RUNNING, None)


class TestFenced:
    def test_a_replaced_attempt_stores_nothing_and_is_killed(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        with bench.scene.database.write() as session:
            ending = Ending(succeeded=False, cause=Cause.WORKER_LOST)
            end_attempt(session, bench.scene.job_id, 1, ending, bench.clock.now())
        bench.scene.place()
        announce(run, 10)
        bench.wait(supervisor)
        assert run.signals == [9]
        assert (steps(bench), stored(bench)) == ([], [])
        assert (bench.state, bench.job().attempt) == (JobState.STARTING, 2)
