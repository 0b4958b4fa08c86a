"""A worker's task threads over a real database and storage, with a predictor and an exporter that are the test."""

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.artifacts.models import Artifact
from app.predictions.models import ModelTask
from app.predictions.states import TaskKind
from app.predictions.tasks import Taken, export_request
from app.storage import LocalStorage
from tests.predictions.asking import INSTANCE, Asker, model_row
from tests.workers.eventually import eventually
from tests.workers.outage import BreakableDatabase
from workers.export_tasks import Exports
from workers.exports import ExportedFile, Limits
from workers.model_store import ModelStore
from workers.predictions import ModelTasks
from workers.predictor_handle import PredictorGone
from workers.task_taker import Tools

ANSWER: dict[str, Any] = {
    "task": "classification",
    "framework": "torch",
    "labels": ["setosa"],
    "probabilities": [{"setosa": 0.75, "virginica": 0.25}],
    "warnings": [],
}


@dataclass
class FakePredictor:
    """Answers with `answer`, or raises it; keeps what it was asked. While `gate` is shut it does not answer."""

    answer: Mapping[str, Any] | Exception = field(default_factory=lambda: ANSWER)
    asked: list[tuple[Path, Mapping[str, Any], float]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def predict(self, model_dir: Path, request: Mapping[str, Any], timeout_s: float = 30.0) -> dict[str, Any]:
        self.asked.append((model_dir, request, timeout_s))
        self.gate.wait()
        if self.stopped.is_set():
            raise PredictorGone("The predictor was stopped.")
        if isinstance(self.answer, Exception):
            raise self.answer
        return dict(self.answer)

    def stop(self) -> None:
        self.stopped.set()
        self.gate.set()


@dataclass
class FakeExporter:
    """Makes one file whose content is `content`, or raises `error`; keeps how it was called."""

    content: bytes = b"onnx"
    error: Exception | None = None
    meanwhile: Callable[[], object] = bool
    calls: list[dict[str, Any]] = field(default_factory=list)

    def __call__(
        self,
        format: str,  # noqa: A002 - the shape of the real one
        model: Path,
        output: Path,
        *,
        interpreter: Path | None = None,
        series: Mapping[str, Mapping[str, Any]] | None = None,
        evaluation: Path | None = None,
        limits: Limits | None = None,
    ) -> list[ExportedFile]:
        names = sorted(path.name for path in model.iterdir())
        self.calls.append(
            {
                "format": format,
                "model": names,
                "interpreter": interpreter,
                "series": series,
                "evaluation": None if evaluation is None else evaluation.read_bytes(),
                "limits": limits,
            }
        )
        if self.error is not None:
            raise self.error
        path = output / f"model.{format}"
        path.write_bytes(self.content)
        self.meanwhile()
        return [ExportedFile(path.name, path, "application/octet-stream", "model")]


@dataclass
class Ears:
    rung: list[tuple[str, str]] = field(default_factory=list)

    def ring(self, channel: str, message: str = "") -> None:
        self.rung.append((channel, message))


@dataclass
class Bench:
    """`tasks` is started by the test; `wait` gives a task once it is over."""

    asker: Asker
    database: BreakableDatabase
    storage: LocalStorage
    folder: Path
    predictor: FakePredictor
    exporter: FakeExporter
    ears: Ears
    tools: Tools
    tasks: ModelTasks

    def start(self) -> None:
        self.tasks.start(self.asker.worker_id)

    def ask(self, kind: TaskKind = TaskKind.PREDICT, request: str = '{"rows": [{"a": 1}]}') -> str:
        task_id = self.asker.ask(kind, request)
        self.tasks.wake(kind.value)
        return task_id

    def export(self, form: str = "onnx") -> str:
        return self.ask(TaskKind.EXPORT, export_request(form))

    def wait(self, task_id: str, *states: str) -> ModelTask:
        wanted = states or ("succeeded", "failed")
        eventually(lambda: self.asker.task(task_id).state in wanted, f"the task is {' or '.join(wanted)}")
        return self.asker.task(task_id)

    def files(self) -> list[Artifact]:
        with self.asker.database.read() as session:
            return list(session.query(Artifact).filter_by(job_id=self.asker.job_id).order_by(Artifact.name))

    def spoil(self, name: str = "model.safetensors") -> None:
        """Put other bytes where a file of the model is stored."""
        key = next(file.storage_key for file in self.files() if file.name == name)
        self.storage.delete(key)
        store(self.storage, key, b"other bytes", self.folder)


def store(storage: LocalStorage, key: str, content: bytes, folder: Path) -> None:
    source = folder / "source"
    source.write_bytes(content)
    storage.put(key, source)


def add_file(asker: Asker, storage: LocalStorage, name: str, content: bytes, folder: Path) -> None:
    """A stored file of the job, with its row."""
    digest = hashlib.sha256(content).hexdigest()
    with asker.database.write() as session:
        old = session.get(Artifact, (asker.job_id, name))
        if old is not None:
            session.delete(old)
            session.flush()
        row = model_row(asker.job_id, name, digest=digest, size_bytes=len(content))
        session.add(row)
        key = row.storage_key
    store(storage, key, content, folder)


def make_bench(asker: Asker, database: BreakableDatabase, folder: Path, *, slots: int = 1) -> Bench:
    storage = LocalStorage(folder / "storage")
    add_file(asker, storage, "model.json", b"{}", folder)
    add_file(asker, storage, "model.safetensors", b"weights", folder)
    predictor, exporter, ears = FakePredictor(), FakeExporter(), Ears()
    models = ModelStore(storage, folder / "models")
    exports = Exports(database, storage, models, {"torch": Path("/opt/torch/bin/python")}, folder / "exports", exporter)
    tools = Tools(database, ears, models, exports, lambda: predictor, INSTANCE, look_s=0.02)
    return Bench(asker, database, storage, folder, predictor, exporter, ears, tools, ModelTasks(tools, slots))


Make = Callable[..., Bench]


def taken_of(bench: Bench, kind: TaskKind = TaskKind.PREDICT) -> Taken:
    taken = bench.asker.take(kind)
    assert taken is not None
    return taken
