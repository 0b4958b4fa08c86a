"""Files that a spec asks for, made after the training: what they are made from, and what a failure makes of the job."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from app.artifacts.repository import list_artifacts
from app.fleet.models import Lease
from app.jobs.claims import Claim
from app.jobs.states import JobState
from app.jobs.stops import request_cancel
from tests.workers.eventually import eventually
from tests.workers.fake_launcher import FakeRun
from tests.workers.supervisor.bench import Bench, report
from tests.workers.supervisor.trained import announce
from workers.exports import ExportedFile, ExportFailed
from workers.protocol import Artifact, Done
from workers.stopping import StopReason
from workers.supervisor import Supervisor


@dataclass
class Exporter:
    """Stands for `workers.exports.run`: writes one small file per format, and remembers what it was given."""

    bench: Bench
    fails: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, format: str, model: Path, output: Path, **rest: Any) -> list[ExportedFile]:  # noqa: A002
        with self.bench.scene.database.read() as session:
            held = session.query(Lease).count()
        seen = {"phase": self.bench.job().phase, "leases": held}
        self.calls.append({"format": format, "model": model, "output": output, **rest, **seen})
        if format == self.fails:
            raise ExportFailed(format, "the model has a layer that the format does not know.")
        path = output / f"made.{format}"
        path.write_text(format)
        return [ExportedFile(f"made.{format}", path, "application/octet-stream", "report")]


def asking_for(bench: Bench, *formats: str) -> Claim:
    claim = bench.claim()
    return replace(claim, spec=claim.spec.model_copy(update={"exports": list(formats)}))


def train(bench: Bench, run: FakeRun) -> None:
    """Play a trainer that reports twice and leaves a model in a folder of its own, with an evaluation."""
    run.says(report(1, loss=0.5), report(2, loss=0.25))
    (Path(run.request.assignment.work_dir) / "model").mkdir()
    for name in ("model.json", "evaluation.json"):
        bench.leave_file(run, f"model/{name}", b"{}")
        kind = "model" if name == "model.json" else "report"
        run.says(Artifact(name=name, path=f"model/{name}", media_type="application/json", kind=kind))
    run.says(Done(metrics={"loss": 0.25}))
    run.end(code=0)


def names(bench: Bench) -> list[str]:
    with bench.scene.database.read() as session:
        return [artifact.name for artifact in list_artifacts(session, bench.scene.job_id)]


class TestMade:
    def test_each_format_becomes_an_artifact(self, bench: Bench) -> None:
        exporter = Exporter(bench)
        supervisor, run = bench.run(asking_for(bench, "report", "onnx"), export=exporter)
        train(bench, run)
        bench.wait(supervisor)
        assert bench.state is JobState.SUCCEEDED
        assert names(bench) == ["evaluation.json", "made.onnx", "made.report", "model.json"]
        assert bench.job().phase is None

    def test_it_gets_the_model_the_evaluation_and_every_point(self, bench: Bench) -> None:
        exporter = Exporter(bench)
        supervisor, run = bench.run(asking_for(bench, "report"), export=exporter, report_interval_s=60.0)
        work_dir = Path(run.request.assignment.work_dir)
        train(bench, run)
        bench.wait(supervisor)
        (call,) = exporter.calls
        assert (call["model"], call["evaluation"]) == (work_dir / "model", work_dir / "model" / "evaluation.json")
        series: Mapping[str, Mapping[str, Any]] = call["series"]
        assert series["loss"]["value"] == [0.5, 0.25]
        assert series["loss"]["step"] == [1, 2]

    def test_devices_are_free_by_then_and_the_phase_says_what_it_does(self, bench: Bench) -> None:
        exporter = Exporter(bench)
        supervisor, run = bench.run(asking_for(bench, "report"), export=exporter)
        train(bench, run)
        bench.wait(supervisor)
        assert [(call["phase"], call["leases"]) for call in exporter.calls] == [("exporting", 0)]

    def test_keras_is_made_by_tensorflow_s_own_interpreter(self, bench: Bench) -> None:
        exporter = Exporter(bench)
        python = Path("/opt/tensorflow/bin/python")
        interpreters = {**bench.equipment.interpreters, "tensorflow": python}
        claim = asking_for(bench, "keras", "report")
        supervisor, run = bench.run(claim, export=exporter, interpreters=interpreters)
        train(bench, run)
        bench.wait(supervisor)
        assert [call["interpreter"] for call in exporter.calls] == [python, None]

    def test_none_asked_for_makes_none(self, bench: Bench) -> None:
        exporter = Exporter(bench)
        supervisor, run = bench.run(asking_for(bench), export=exporter)
        train(bench, run)
        bench.wait(supervisor)
        assert (bench.state, exporter.calls) == (JobState.SUCCEEDED, [])

    def test_they_wait_for_a_database_that_is_away_since_it_has_the_curves(self, bench: Bench) -> None:
        exporter = Exporter(bench)
        supervisor, run = bench.run(asking_for(bench, "report"), export=exporter)
        eventually(lambda: bench.state is JobState.RUNNING)
        bench.database.down = True
        train(bench, run)
        eventually(run.closed.is_set)
        eventually(lambda: bench.database.refused > 3)
        assert exporter.calls == []
        bench.database.down = False
        bench.wait(supervisor)
        assert exporter.calls[0]["series"]["loss"]["value"] == [0.5, 0.25]
        assert bench.state is JobState.SUCCEEDED


class TestNotMade:
    def test_a_failure_is_the_job_s_with_its_reason_and_nothing_is_left(self, bench: Bench) -> None:
        exporter = Exporter(bench, fails="onnx")
        supervisor, run = bench.run(asking_for(bench, "report", "onnx", "tensorboard"), export=exporter)
        announce(run, 10, reason="final")
        train(bench, run)
        bench.wait(supervisor)
        job = bench.job()
        assert (job.state, job.cause) == ("failed", "artifact_unreadable")
        assert "The export 'onnx' failed: the model has a layer" in str(job.cause_detail)
        assert [call["format"] for call in exporter.calls] == ["report", "onnx"]
        assert (names(bench), bench.storage.list("artifacts")) == ([], [])
        assert bench.journal("checkpoint"), "a retry needs no training again"

    def test_a_job_that_is_cancelled_meanwhile_gets_no_more(self, bench: Bench) -> None:
        supervisors: list[Supervisor] = []

        class Cancelling(Exporter):
            def __call__(self, *arguments: Any, **rest: Any) -> list[ExportedFile]:
                with bench.database.write() as session:
                    request_cancel(session, bench.scene.project_id, bench.scene.job_id, bench.clock.now())
                supervisors[0].stop(StopReason.CANCEL)
                return super().__call__(*arguments, **rest)

        exporter = Cancelling(bench)
        supervisor, run = bench.run(asking_for(bench, "report", "onnx"), export=exporter)
        supervisors.append(supervisor)
        train(bench, run)
        bench.wait(supervisor)
        assert [call["format"] for call in exporter.calls] == ["report"]
        assert (bench.state, names(bench), bench.storage.list("artifacts")) == (JobState.CANCELLED, [], [])


class TestPlanted:
    """A trainer runs code of others: what it announces must not lead the worker to files that it may not read."""

    def planted(self, run: FakeRun, *lines: tuple[str, str]) -> None:
        """Announce (name, path) pairs besides a whole model, before it or in its place."""
        for name, path in lines:
            kind = "model" if name == "model.json" else "report"
            run.says(Artifact(name=name, path=path, media_type="application/json", kind=kind))

    def test_the_last_of_a_name_is_the_one_that_is_read(self, bench: Bench, tmp_path: Path) -> None:
        exporter = Exporter(bench)
        supervisor, run = bench.run(asking_for(bench, "onnx"), export=exporter)
        (tmp_path / "model.json").write_text("{}")
        self.planted(run, ("model.json", "../../other/model.json"), ("evaluation.json", "/etc/passwd"))
        work_dir = Path(run.request.assignment.work_dir)
        train(bench, run)
        bench.wait(supervisor)
        (call,) = exporter.calls
        assert (call["model"], call["evaluation"]) == (work_dir / "model", work_dir / "model" / "evaluation.json")

    @pytest.mark.parametrize("path", ["../../other/model.json", "/etc/hostname", "linked/model.json"])
    def test_a_model_elsewhere_is_not_read(self, bench: Bench, tmp_path: Path, path: str) -> None:
        exporter = Exporter(bench)
        supervisor, run = bench.run(asking_for(bench, "onnx"), export=exporter)
        (tmp_path / "model.json").write_text("{}")
        (Path(run.request.assignment.work_dir) / "linked").symlink_to(tmp_path)
        self.planted(run, ("model.json", path))
        run.says(Done(metrics={}))
        run.end(code=0)
        bench.wait(supervisor)
        assert exporter.calls == []
        assert (bench.state, bench.job().cause) == (JobState.FAILED, "artifact_unreadable")

    def test_a_link_beside_the_model_is_not_followed(self, bench: Bench, tmp_path: Path) -> None:
        exporter = Exporter(bench)
        supervisor, run = bench.run(asking_for(bench, "onnx"), export=exporter)
        (tmp_path / "secret").write_text("secret")
        (Path(run.request.assignment.work_dir) / "model").mkdir()
        (Path(run.request.assignment.work_dir) / "model" / "model.safetensors").symlink_to(tmp_path / "secret")
        bench.leave_file(run, "model/model.json", b"{}")
        self.planted(run, ("model.json", "model/model.json"))
        run.says(Done(metrics={}))
        run.end(code=0)
        bench.wait(supervisor)
        assert exporter.calls == []
        assert bench.job().cause == "artifact_unreadable"
