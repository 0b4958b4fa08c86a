"""Assignments for tests of the training loop, made the way the service makes them: parsed, resolved, on real tables."""

import shutil
from pathlib import Path
from typing import Any

from app.spec import EffectiveSpec, parse_job, resolve
from app.tables import builtin_schema, profile_csv
from workers.protocol import Assignment, Checkpoint, DataSource, Device, Point, Report

CPU = Device(id="cpu-0@host", kind="cpu", name="CPU")


def effective(data: str | dict[str, Any] = "iris", framework: str = "torch", **rest: object) -> EffectiveSpec:
    """Complete a spec over a built-in set; `rest` are further keys of the spec."""
    source = data if isinstance(data, str) else data["source"]
    spec = parse_job({"framework": framework, "model": {"type": "mlp", "hidden": [8]}, "data": data, **rest})
    return resolve(spec, builtin_schema(source), "cpu")


def builtin_job(
    work_dir: Path, data: str | dict[str, Any] = "iris", framework: str = "torch", **rest: object
) -> Assignment:
    spec = effective(data, framework, **rest)
    return _assignment(spec, DataSource(builtin=spec.data.source), work_dir)


def csv_job(work_dir: Path, path: Path, data: dict[str, Any], framework: str = "torch", **rest: object) -> Assignment:
    """Make a job over a CSV file; `data` has at least the target."""
    spec = parse_job(
        {
            "framework": framework,
            "model": {"type": "mlp", "hidden": [8]},
            "data": {"source": "ds_1", **data},
            **rest,
        }
    )
    return _assignment(resolve(spec, profile_csv(path), "cpu"), DataSource(path=str(path)), work_dir)


def _assignment(spec: EffectiveSpec, table: DataSource, work_dir: Path) -> Assignment:
    return Assignment(
        job_id="job_1", attempt=1, spec=spec, table=table, devices=[CPU], threads=1, work_dir=str(work_dir), seed=0
    )


def going_on(assignment: Assignment, listener: "Listener", work_dir: Path, step: int | None = None) -> Assignment:
    """The next attempt of a job, in a folder of its own, from the newest checkpoint or that of a step; none: anew."""
    work_dir.mkdir(parents=True, exist_ok=True)
    moved = assignment.model_copy(update={"work_dir": str(work_dir), "attempt": assignment.attempt + 1, "resume": None})
    wanted = [checkpoint for checkpoint in listener.checkpoints if step is None or checkpoint.step == step]
    if not wanted:
        return moved
    shutil.copytree(Path(assignment.work_dir) / wanted[-1].path, work_dir / "resume")
    return moved.model_copy(update={"resume": "resume"})


class Listener:
    """A context that remembers all it was told, and asks to stop at the `stop_at`-th safe point, for a reason."""

    def __init__(self, stop_at: int | None = None, reason: str = "pause") -> None:
        self.reports: list[Report] = []
        self.notices: dict[str, str] = {}
        self.artifacts: dict[str, tuple[Path, str, str]] = {}
        self.checkpoints: list[Checkpoint] = []
        self.safe_points = 0
        self._stop_at = stop_at
        self._reason = reason

    def report(self, report: Report) -> None:
        self.reports.append(report)

    def notice(self, code: str, message: str) -> None:
        self.notices[code] = message

    def artifact(self, name: str, path: Path, media_type: str, kind: str) -> None:
        self.artifacts[name] = (path, media_type, kind)

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        self.checkpoints.append(checkpoint)

    def stop_reason(self) -> str | None:
        self.safe_points += 1
        return self._reason if self._stop_at is not None and self.safe_points >= self._stop_at else None

    @property
    def points(self) -> list[Point]:
        return [point for report in self.reports for point in report.points]

    def series(self, name: str) -> list[float]:
        return [point.value for point in self.points if point.name == name]


class Ticking:
    """A clock that moves by the same amount each time it is looked at.

    With 0.3 s a look each step gets a chunk of its own, and so a safe point.
    """

    def __init__(self, seconds: float = 0.3) -> None:
        self._seconds = seconds
        self._now = 0.0

    def __call__(self) -> float:
        self._now += self._seconds
        return self._now
