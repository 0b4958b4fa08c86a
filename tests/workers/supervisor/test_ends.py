"""Every way in which an attempt ends by itself, from its trainer's last word to the job's state."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import func, select

from app.artifacts.repository import get_artifact, list_artifacts
from app.errors import Cause
from app.fleet.models import Device, Lease
from app.jobs.models import AttemptNode
from app.jobs.states import JobState
from app.storage import LocalStorage
from tests.workers.eventually import eventually
from tests.workers.fake_launcher import PID, FakeRun
from tests.workers.supervisor.bench import Bench, report, started
from workers.locks import close_all, take_all
from workers.protocol import Artifact, Done, Failed
from workers.supervisor import Supervisor


def leases(bench: Bench) -> int:
    with bench.database.read() as session:
        return session.execute(select(func.count()).select_from(Lease)).scalar_one()


def model(name: str, path: str | None = None) -> Artifact:
    return Artifact(name=name, path=path or name, media_type="application/octet-stream", kind="model")


class TestSuccess:
    def test_it_stores_the_model_and_the_last_metrics(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        run.says(report(1, loss=0.5))
        bench.succeed(run, content=b"weights")
        bench.wait(supervisor)

        assert bench.state is JobState.SUCCEEDED
        assert bench.job().last_metrics == {"loss": 0.25}
        with bench.database.read() as session:
            stored = get_artifact(session, bench.scene.job_id, "model.safetensors")
        assert (stored.size_bytes, stored.attempt, stored.kind) == (7, 1, "model")
        # `printf weights | sha256sum`
        assert stored.digest == "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c"
        assert bench.storage.exists(stored.storage_key)

    def test_process_and_facts_are_recorded(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        with bench.database.read() as session:
            node = session.get_one(AttemptNode, (bench.scene.job_id, 1, bench.scene.worker_id))
        assert (node.pid, node.pgid, node.process_started) == (PID, PID, "17")
        facts = bench.attempt().facts
        assert facts is not None
        assert facts["framework_version"] == "2.13.0"
        assert facts["environment"] == {"CUDA_VISIBLE_DEVICES": "host-a-0"}
        bench.succeed(run)
        bench.wait(supervisor)

    def test_nothing_is_left_on_the_host(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        bench.succeed(run)
        bench.wait(supervisor)

        assert run.closed.is_set()
        assert leases(bench) == 0
        assert list((bench.equipment.run_dir / "work").iterdir()) == []

    def test_what_was_said_before_the_end_is_all_in_the_journal(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        run.prints(b"epoch 1\nepoch 2\nlast words without a newline")
        run.says(report(1, loss=0.5), report(2, loss=0.375))
        bench.succeed(run)
        bench.wait(supervisor)

        assert bench.lines() == ["epoch 1", "epoch 2", "last words without a newline"]
        values = [value for entry in bench.journal("metric") for value in entry["points"]["loss"]["value"]]
        assert values == [0.5, 0.375]
        states = [entry["state"] for entry in bench.journal("state")]
        assert states == ["starting", "running", "succeeded"]

    def test_the_trainer_gets_its_devices_and_no_secret(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        request = run.request

        assert request.environment["CUDA_VISIBLE_DEVICES"] == "host-a-0"
        assert request.environment["PATH"] == "/usr/bin"
        assert "secret" not in request.environment.values()
        assert [device.kind for device in request.assignment.devices] == ["cuda"]
        assert run.assignment.table.builtin == "digits"
        assert Path(request.assignment.work_dir).stat().st_mode & 0o777 == 0o700
        bench.succeed(run)
        bench.wait(supervisor)

    def test_devices_are_held_for_as_long_as_the_process_lives_whatever_it_says(self, bench: Bench) -> None:
        # C21 of the collected failure cases: a framework gives memory back when its process ends, not before.
        supervisor, run = bench.run()
        bench.leave_file(run, "model.safetensors", b"weights")
        run.says(model("model.safetensors"), Done(metrics={}))
        run.prints(b"on its way out\n")
        eventually(lambda: (bench.lines(), bench.state) == (["on its way out"], JobState.RUNNING))
        assert leases(bench) == 1
        run.end(code=0)
        bench.wait(supervisor)
        assert (leases(bench), bench.state) == (0, JobState.SUCCEEDED)

    def test_devices_are_free_while_files_are_stored(self, bench: Bench, tmp_path: Path) -> None:
        seen: list[tuple[int, str | None]] = []

        class Looking(LocalStorage):
            def put(self, key: str, source: Path) -> None:
                seen.append((leases(bench), bench.job().phase))
                super().put(key, source)

        supervisor, run = bench.run(storage=Looking(tmp_path / "storage"))
        bench.succeed(run)
        bench.wait(supervisor)

        assert seen == [(0, "uploading")]
        assert bench.job().phase is None


class TestFailure:
    def test_a_trainers_own_cause_is_kept(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        run.says(Failed(cause=Cause.DIVERGED, message="The loss became NaN at step 7.", detail="Traceback:\n  line 1"))
        run.end(code=1)
        bench.wait(supervisor)

        job = bench.job()
        assert (job.state, job.cause) == ("failed", "diverged")
        assert job.cause_detail is not None
        assert job.cause_detail.endswith("The loss became NaN at step 7.")
        assert bench.lines() == ["Traceback:", "  line 1"]
        assert bench.attempt().exit_code == 1
        assert leases(bench) == 0

    @pytest.mark.parametrize(
        ("end", "cause"),
        [
            (lambda run: run.end(code=0), "incomplete"),
            (lambda run: run.end(code=1), "incomplete"),
            (lambda run: run.end(signal=signal.SIGKILL), "trainer_killed"),
            (lambda run: run.end(signal=signal.SIGSEGV), "trainer_killed"),
        ],
    )
    def test_an_end_without_a_word_has_a_cause(self, bench: Bench, end: Callable[[FakeRun], None], cause: str) -> None:
        supervisor, run = bench.run()
        run.prints(b"ImportError: no module named torch\n")
        end(run)
        bench.wait(supervisor)

        job = bench.job()
        assert (job.state, job.cause) == ("failed", cause)
        assert job.cause_detail is not None
        assert "ImportError" in job.cause_detail

    def test_signal_is_recorded(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        run.end(signal=signal.SIGKILL)
        bench.wait(supervisor)
        assert (bench.attempt().signal, bench.attempt().exit_code) == (9, None)

    def test_done_without_a_model_is_incomplete(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        run.says(Done(metrics={"loss": 0.1}))
        run.end(code=0)
        bench.wait(supervisor)
        assert (bench.job().state, bench.job().cause) == ("failed", "incomplete")

    def test_done_before_started_is_incomplete(self, bench: Bench) -> None:
        supervisor = bench.begin()
        run = bench.launcher.next_run()
        bench.succeed(run)
        bench.wait(supervisor)
        assert (bench.job().state, bench.job().cause) == ("failed", "incomplete")

    def test_a_dead_launcher_is_a_loss_and_the_job_runs_again(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        run.vanish()
        bench.wait(supervisor)

        job = bench.job()
        assert (job.state, job.losses, job.failures) == ("queued", 1, 0)
        assert bench.attempt().cause == "worker_lost"
        assert leases(bench) == 0

    def test_nul_in_an_error_does_not_keep_the_end_from_being_written(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        run.says(Failed(cause=Cause.USER_CODE, message="bad\x00byte"))
        run.end(code=1)
        bench.wait(supervisor)
        assert bench.attempt().detail == "bad\ufffdbyte"

    @pytest.mark.parametrize("cause", [Cause.DEVICE_FAULT, Cause.DEVICE_OUT_OF_MEMORY])
    def test_only_a_fault_of_the_device_takes_it_out_of_service(self, bench: Bench, cause: Cause) -> None:
        marked: list[tuple[list[str], str]] = []
        supervisor, run = bench.run(quarantine=lambda _session, devices, reason: marked.append((list(devices), reason)))
        run.says(Failed(cause=cause, message="CUDA error: uncorrectable ECC error"))
        run.end(code=1)
        bench.wait(supervisor)

        expected = [(["host-a-0"], "CUDA error: uncorrectable ECC error")] if cause is Cause.DEVICE_FAULT else []
        assert marked == expected
        assert bench.attempt().cause == cause.value


class TestLingering:
    def wait_for_the_kill(self, bench: Bench, supervisor: Supervisor, run: FakeRun) -> None:
        def is_killed() -> bool:
            bench.clock.advance(11)  # one more than the grace; again, until the last word has been read
            supervisor.extend(0)
            return run.signals == [signal.SIGKILL]

        eventually(is_killed)
        bench.wait(supervisor)

    def test_a_trainer_that_is_done_but_does_not_leave_is_killed_and_has_succeeded(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        bench.leave_file(run, "model.safetensors", b"x")
        run.says(model("model.safetensors"), Done(metrics={}))
        self.wait_for_the_kill(bench, supervisor, run)
        assert bench.state is JobState.SUCCEEDED

    def test_one_that_failed_keeps_its_cause(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        run.says(Failed(cause=Cause.INVALID_DATA, message="One class only."))
        self.wait_for_the_kill(bench, supervisor, run)
        assert bench.job().cause == "invalid_data"


class TestBeforeTheStart:
    def test_an_interpreter_that_cannot_be_started_is_a_loss(self, bench: Bench) -> None:
        bench.launcher.refuses = Path("/opt/gone/bin/python")
        supervisor = bench.begin()
        bench.wait(supervisor)

        assert bench.state is JobState.QUEUED
        assert bench.attempt().cause == "worker_lost"
        # The path is for the operator, in the worker's own log.
        assert bench.attempt().detail == "The worker's interpreter for torch could not be started."

    def test_a_framework_without_an_interpreter_is_a_loss(self, bench: Bench) -> None:
        bench.wait(bench.begin(interpreters={}))
        assert bench.attempt().cause == "worker_lost"
        assert bench.launcher.idle

    def test_an_expired_lease_starts_nothing(self, bench: Bench) -> None:
        bench.wait(bench.begin(until_ns=0))
        assert bench.attempt().cause == "worker_lost"
        assert "lease ran out" in str(bench.attempt().detail)
        assert bench.attempt().started_at is None

    def test_a_held_lock_is_device_unavailable(self, bench: Bench) -> None:
        bench.equipment.lock_dir.mkdir(parents=True)
        held, _ = take_all([str(bench.equipment.lock_dir / "dev-host-a-0.lock")])
        try:
            bench.wait(bench.begin())
        finally:
            close_all(held)

        assert bench.state is JobState.QUEUED
        assert bench.attempt().cause == "device_unavailable"
        assert "dev-host-a-0" in str(bench.attempt().detail)


class TestDoubtfulEnds:
    def test_survivors_that_hold_a_lock_quarantine_the_device(self, bench: Bench) -> None:
        marked: list[tuple[list[str], str]] = []
        supervisor, run = bench.run(quarantine=lambda _session, devices, reason: marked.append((list(devices), reason)))
        run.end(code=0, survivors=True)
        try:
            bench.wait(supervisor)
        finally:
            run.survivors_end()

        assert [devices for devices, _ in marked] == [["host-a-0"]]
        assert "could not be killed" in marked[0][1]
        assert (bench.state, bench.attempt().cause) == (JobState.QUEUED, "device_fault")

    def test_survivors_that_are_gone_a_moment_later_are_no_fault(self, bench: Bench) -> None:
        supervisor, run = bench.run(proof_s=20.0)
        bench.leave_file(run, "model.safetensors", b"x")
        run.says(model("model.safetensors"), Done(metrics={}))
        run.end(code=0, survivors=True)
        eventually(run.closed.is_set)
        assert leases(bench) == 1
        run.survivors_end()
        bench.wait(supervisor)
        assert bench.state is JobState.SUCCEEDED


class TestFiles:
    @pytest.mark.parametrize("name", ["../model.bin", "/etc/passwd", "", ".hidden", "a\x00b", "x" * 300])
    def test_a_bad_name_fails_the_job_and_stores_nothing(self, bench: Bench, name: str) -> None:
        supervisor, run = bench.run()
        bench.leave_file(run, "model.safetensors", b"weights")
        run.says(model("model.safetensors"), model(name, "model.safetensors"), Done(metrics={}))
        run.end(code=0)
        bench.wait(supervisor)

        assert (bench.job().state, bench.job().cause) == ("failed", "artifact_unreadable")
        assert bench.storage.list("artifacts") == []

    def test_a_link_out_of_the_work_directory_is_not_followed(self, bench: Bench, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_bytes(b"key")
        supervisor, run = bench.run()
        (Path(run.assignment.work_dir) / "model.bin").symlink_to(secret)
        run.says(model("model.bin"), Done(metrics={}))
        run.end(code=0)
        bench.wait(supervisor)

        assert bench.job().cause == "artifact_unreadable"
        assert bench.storage.list("artifacts") == []

    def test_a_link_to_a_folder_is_not_followed(self, bench: Bench, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "model.bin").write_bytes(b"key")
        supervisor, run = bench.run()
        (Path(run.assignment.work_dir) / "out").symlink_to(tmp_path / "elsewhere")
        run.says(model("model.bin", "out/model.bin"), Done(metrics={}))
        run.end(code=0)
        bench.wait(supervisor)
        assert bench.job().cause == "artifact_unreadable"

    @pytest.mark.parametrize("path", ["missing.bin", "..", "/etc/hostname", "../../elsewhere", "a\x00b"])
    def test_a_path_that_is_not_a_file_of_the_work_directory_is_refused(self, bench: Bench, path: str) -> None:
        supervisor, run = bench.run()
        run.says(model("model.bin", path), Done(metrics={}))
        run.end(code=0)
        bench.wait(supervisor)
        assert bench.job().cause == "artifact_unreadable"

    def test_a_full_storage_fails_the_job_with_its_reason(self, bench: Bench, tmp_path: Path) -> None:
        class Full(LocalStorage):
            def put(self, key: str, source: Path) -> None:
                raise OSError(28, "No space left on device", f"{source} -> {key}")

        supervisor, run = bench.run(storage=Full(tmp_path / "storage"))
        bench.succeed(run)
        bench.wait(supervisor)

        assert bench.job().cause == "artifact_unreadable"
        assert bench.attempt().detail == "No space left on device"

    def test_files_of_a_failed_attempt_are_not_listed(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        bench.leave_file(run, "model.safetensors", b"half")
        run.says(model("model.safetensors"))
        run.end(code=1)
        bench.wait(supervisor)

        with bench.database.read() as session:
            assert list_artifacts(session, bench.scene.job_id) == []
        assert bench.storage.list("artifacts") == []


class TestFacts:
    def test_a_simulated_card_is_told_to_the_trainer_as_simulated(self, bench: Bench) -> None:
        with bench.database.write() as session:
            session.get_one(Device, "host-a-0").simulated = True
        supervisor, run = bench.run()
        assert [device.kind for device in run.assignment.devices] == ["simulated"]
        run.says(started(simulated=True))
        bench.succeed(run)
        bench.wait(supervisor)

    def test_uploaded_data_is_fetched_into_the_work_directory(self, bench: Bench, tmp_path: Path) -> None:
        source = tmp_path / "upload.csv"
        source.write_text("a,b\n1,2\n")
        bench.storage.put("datasets/ds_1", source)
        claim = bench.claim()
        supervisor, run = bench.run(type(claim)(**{**vars(claim), "dataset_key": "datasets/ds_1", "builtin": None}))

        path = run.assignment.table.path
        assert path is not None
        assert Path(path).read_text() == "a,b\n1,2\n"
        assert Path(path).parent == Path(run.assignment.work_dir)
        bench.succeed(run)
        bench.wait(supervisor)

    def test_data_that_cannot_be_read_now_is_a_loss_and_names_no_path(self, bench: Bench, tmp_path: Path) -> None:
        class Broken(LocalStorage):
            def get(self, key: str, destination: Path) -> None:
                raise OSError(5, "Input/output error", f"{key} -> {destination}")

        claim = bench.claim()
        uploaded = type(claim)(**{**vars(claim), "dataset_key": "datasets/ds_1", "builtin": None})
        bench.wait(bench.begin(uploaded, storage=Broken(tmp_path / "storage")))
        assert bench.state is JobState.QUEUED
        assert bench.attempt().detail == "The data could not be fetched: Input/output error."

    def test_data_that_is_gone_is_the_jobs_failure(self, bench: Bench) -> None:
        claim = bench.claim()
        bench.wait(bench.begin(type(claim)(**{**vars(claim), "dataset_key": "datasets/ds_gone", "builtin": None})))
        assert (bench.job().state, bench.job().cause) == ("failed", "invalid_data")
