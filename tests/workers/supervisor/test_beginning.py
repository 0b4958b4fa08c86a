"""What a second attempt starts from: the newest checkpoint that is whole; a bad one is passed over and said."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.checkpoints.repository import newest
from app.datasets.roots import DataRoots
from app.db import Database
from app.errors import Cause
from app.jobs.claims import Claim
from app.jobs.endings import Ending, end_attempt
from app.jobs.models import Job
from app.jobs.states import JobState
from app.storage import LocalStorage
from tests.rows import add_project
from tests.workers.eventually import eventually
from tests.workers.fake_launcher import FakeRun
from tests.workers.supervisor.bench import Bench, report
from tests.workers.supervisor.trained import announce
from workers.checkpoints import WEIGHTS_NAME, read, read_weights
from workers.supervisor import Supervisor


def first_attempt(bench: Bench, *steps: int, cause: Cause = Cause.WORKER_LOST) -> None:
    """An attempt that stores a checkpoint at each step, reports once beyond the last, and is lost."""
    supervisor, run = bench.run()
    for step in steps:
        run.says(report(step, loss=1 / step))
        announce(run, step)
        until_stored(bench, step)
    run.says(report(max(steps, default=0) + 5, loss=0.001))
    eventually(lambda: len(bench.journal("metric")) > 0)
    if cause is Cause.WORKER_LOST:
        run.vanish()
    else:
        run.end(code=1)
    bench.wait(supervisor)


def until_stored(bench: Bench, step: int) -> None:
    eventually(lambda: step in stored(bench))


def stored(bench: Bench) -> list[int]:
    with bench.scene.database.read() as session:
        return [facts.step for facts in newest(session, bench.scene.job_id)]


def spoil(bench: Bench, step: int, how: str) -> None:
    """Damage the stored checkpoint behind the database's back."""
    key = f"checkpoints/{bench.scene.job_id}/1/{step}/{WEIGHTS_NAME}"
    path = bench.storage.local_path(key)
    assert path is not None
    if how == "missing":
        path.unlink()
    elif how == "shorter":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)


def notices(bench: Bench) -> list[tuple[str, str]]:
    return [(str(entry["code"]), str(entry["message"])) for entry in bench.journal("notice")]


def finish(bench: Bench, supervisor: Supervisor, run: FakeRun) -> None:
    bench.succeed(run)
    bench.wait(supervisor)
    assert bench.state is JobState.SUCCEEDED


class TestResume:
    def test_the_trainer_gets_the_newest_checkpoint_whole(self, bench: Bench) -> None:
        first_attempt(bench, 10, 20)
        supervisor, run = bench.run()
        assignment = run.assignment
        assert assignment.resume is not None
        assert Path(assignment.resume).parent == Path(assignment.work_dir)
        found = read(Path(assignment.resume))
        assert (found.position.step, found.weights["output.kernel"][0, 0]) == (20, 20.0)
        assert assignment.initialize is None
        finish(bench, supervisor, run)

    def test_the_database_knows_the_step_and_shows_no_more_than_was_reached_there(self, bench: Bench) -> None:
        first_attempt(bench, 10, 20)
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        assert bench.attempt(2).resumed_from_step == 20
        job = bench.job()
        assert (job.last_metrics, job.best_metrics) == ({"loss": 0.05}, {"loss": 0.05})
        assert job.progress is not None
        assert job.progress["step"] == 20
        assert ("resumed", "Goes on from the checkpoint of step 20, epoch 2.") in notices(bench)
        finish(bench, supervisor, run)

    @pytest.mark.parametrize("how", ["missing", "shorter", "another bit"])
    def test_a_bad_one_falls_back_to_the_one_before(self, bench: Bench, how: str) -> None:
        first_attempt(bench, 10, 20)
        spoil(bench, 20, how)
        supervisor, run = bench.run()
        assert run.assignment.resume is not None
        assert read(Path(run.assignment.resume)).position.step == 10
        finish(bench, supervisor, run)
        assert bench.attempt(2).resumed_from_step == 10
        codes = [code for code, _ in notices(bench)]
        assert codes == ["checkpoint_unreadable", "resumed"]
        assert notices(bench)[0][1].startswith("The checkpoint of step 20 cannot be used: ")

    def test_with_none_left_it_starts_from_the_beginning_and_says_so(self, bench: Bench) -> None:
        first_attempt(bench, 10, 20)
        for step in (10, 20):
            spoil(bench, step, "shorter")
        supervisor, run = bench.run()
        assert run.assignment.resume is None
        finish(bench, supervisor, run)
        assert bench.attempt(2).resumed_from_step is None
        assert [code for code, _ in notices(bench)] == ["checkpoint_unreadable"] * 2 + ["started_anew"]

    def test_a_storage_that_does_not_answer_is_no_reason_to_start_anew(self, bench: Bench, tmp_path: Path) -> None:
        class Away(LocalStorage):
            def get(self, key: str, destination: Path) -> None:
                raise OSError(5, "Input/output error", f"{key} -> {destination}")

        first_attempt(bench, 10)
        bench.wait(bench.begin(storage=Away(tmp_path / "storage")))
        assert (bench.state, bench.attempt(2).cause) == (JobState.QUEUED, "worker_lost")
        assert bench.attempt(2).detail == "The data could not be fetched: Input/output error."
        assert stored(bench) == [10]

    def test_a_first_attempt_without_checkpoints_says_nothing(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        assert run.assignment.resume is None
        finish(bench, supervisor, run)
        assert notices(bench) == []

    def test_a_journal_that_cannot_be_read_now_does_not_keep_it_from_going_on(self, bench: Bench) -> None:
        first_attempt(bench, 10)
        claim = bench.claim()
        bench.database.down = True
        supervisor = bench.begin(claim)
        run = bench.launcher.next_run()
        bench.database.down = False
        assert run.assignment.resume is not None
        run.end(code=1)
        bench.wait(supervisor)

    def test_files_that_nobody_recorded_are_removed(self, bench: Bench, tmp_path: Path) -> None:
        first_attempt(bench, 10)
        (tmp_path / "orphan").write_bytes(b"half a checkpoint")
        bench.storage.put(f"checkpoints/{bench.scene.job_id}/1/15/weights.safetensors", tmp_path / "orphan")
        supervisor, run = bench.run()
        assert {key.split("/")[3] for key in bench.storage.list("checkpoints")} == {"10"}
        finish(bench, supervisor, run)

    def test_a_retry_goes_on_from_its_parent_s(self, bench: Bench) -> None:
        first_attempt(bench, 10, 20, cause=Cause.USER_CODE)
        parent = bench.scene.job_id
        bench.scene.job_id = bench.scene.add_job(parent_job_id=parent, parent_how="retry", parent_step=20)
        supervisor, run = bench.run()
        assert run.assignment.resume is not None
        assert read(Path(run.assignment.resume)).position.step == 20
        finish(bench, supervisor, run)
        assert bench.attempt(1).resumed_from_step == 20
        assert notices(bench) == [("resumed", f"Goes on from the checkpoint of step 20, epoch 2 of {parent}.")]


class TestInitialize:
    def claim(self, bench: Bench, source: str, checkpoint: str | int = "last") -> Claim:
        """A claim of a new job that starts from the weights of another's checkpoint."""
        spec = {**bench.job().effective_spec, "initialize_from": {"job": source, "checkpoint": checkpoint}}
        bench.scene.job_id = bench.scene.add_job(effective_spec=spec)
        return bench.claim()

    def trained(self, bench: Bench) -> str:
        supervisor, run = bench.run()
        announce(run, 10, reason="final")
        finish(bench, supervisor, run)
        return bench.scene.job_id

    def test_the_trainer_gets_the_other_job_s_checkpoint(self, bench: Bench) -> None:
        source = self.trained(bench)
        supervisor, run = bench.run(self.claim(bench, source))
        assignment = run.assignment
        assert assignment.resume is None
        assert assignment.initialize is not None
        assert read_weights(Path(assignment.initialize))["output.kernel"][0, 0] == 10.0
        finish(bench, supervisor, run)
        assert notices(bench) == [("initialized", f"Starts from the weights of {source}, checkpoint of step 10.")]
        assert bench.attempt(1).resumed_from_step is None

    def test_a_later_attempt_goes_on_from_its_own(self, bench: Bench) -> None:
        source = self.trained(bench)
        self.claim(bench, source)
        with bench.scene.database.write() as session:
            ending = Ending(succeeded=False, cause=Cause.DRAINED)
            end_attempt(session, bench.scene.job_id, 1, ending, bench.clock.now())
        supervisor, run = bench.run()
        announce(run, 5)
        until_stored(bench, 5)
        run.vanish()
        bench.wait(supervisor)
        supervisor, run = bench.run()
        assert run.assignment.resume is not None
        assert run.assignment.initialize is None
        finish(bench, supervisor, run)

    @pytest.mark.parametrize("checkpoint", [11, "best"])
    def test_one_that_is_gone_by_now_fails_the_job_and_names_it(self, bench: Bench, checkpoint: str | int) -> None:
        source = self.trained(bench)
        bench.wait(bench.begin(self.claim(bench, source, checkpoint)))
        assert (bench.job().state, bench.job().cause) == ("failed", "invalid_data")
        assert source in str(bench.job().cause_detail)

    def test_a_damaged_one_fails_the_job_too(self, bench: Bench) -> None:
        source = self.trained(bench)
        spoil(bench, 10, "shorter")
        bench.wait(bench.begin(self.claim(bench, source)))
        assert bench.job().cause == "invalid_data"

    def test_another_project_s_is_never_given(self, bench: Bench, database: Database) -> None:
        source = self.trained(bench)
        claim = self.claim(bench, source)
        assert claim.initialize is not None
        with database.write() as session:
            session.get_one(Job, source).project_id = add_project(session, "other").id
        with bench.scene.database.write() as session:
            ending = Ending(succeeded=False, cause=Cause.DRAINED)
            end_attempt(session, bench.scene.job_id, 1, ending, bench.clock.now())
        assert bench.claim().initialize is None


class TestData:
    @pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
    def test_the_file_keeps_its_ending_and_the_trainer_is_told_the_format(
        self, bench: Bench, tmp_path: Path, kind: str
    ) -> None:
        (tmp_path / "upload").write_bytes(b"content")
        bench.storage.put("datasets/ds_1", tmp_path / "upload")
        claim = replace(bench.claim(), dataset_key="datasets/ds_1", dataset_format=kind, builtin=None)
        supervisor, run = bench.run(claim)
        table = run.assignment.table
        assert (Path(str(table.path)).name, table.format) == (f"table.{kind}", kind)
        finish(bench, supervisor, run)

    def test_a_file_in_a_data_root_stays_and_the_trainer_is_told_where(self, bench: Bench, scans: DataRoots) -> None:
        supervisor, run = bench.run(in_place(bench), roots=scans)
        table = run.assignment.table
        folder, path = scans.folder_of(URI)
        assert (table.root, table.path, table.format) == (str(folder), path, "csv")
        assert (table.uri, table.digest, table.builtin) == (URI, "d" * 64, None)
        assert list(Path(run.assignment.work_dir).iterdir()) == []
        finish(bench, supervisor, run)

    def test_the_worker_does_not_look_at_it_since_a_mount_may_not_answer(self, bench: Bench, scans: DataRoots) -> None:
        folder, path = scans.folder_of(URI)
        (folder / path).unlink()
        supervisor, run = bench.run(in_place(bench), roots=scans)
        assert run.assignment.table.uri == URI
        finish(bench, supervisor, run)

    def test_a_root_that_this_host_does_not_have_costs_a_loss_and_another_host_may(self, bench: Bench) -> None:
        bench.wait(bench.begin(in_place(bench)))
        assert (bench.job().state, bench.job().losses) == ("queued", 1)
        assert "data root 'scans', which this host does not have" in str(bench.attempt().detail)


URI = "root://scans/sub/table.csv"


@pytest.fixture
def scans(tmp_path: Path) -> DataRoots:
    (tmp_path / "mount" / "sub").mkdir(parents=True)
    (tmp_path / "mount" / "sub" / "table.csv").write_text("a,b\n1,2\n")
    return DataRoots({"scans": tmp_path / "mount"})


def in_place(bench: Bench) -> Claim:
    facts = {"dataset_uri": URI, "dataset_digest": "d" * 64, "dataset_format": "csv", "dataset_key": ""}
    return replace(bench.claim(), builtin=None, **facts)  # type: ignore[arg-type] # all of them are text
