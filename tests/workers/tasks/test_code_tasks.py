"""Tasks for which the code of a python model runs: from the queue to the answer, and never in the way of others."""

import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from app.artifacts.models import Artifact
from app.clock import SystemClock
from app.jobs.models import Job
from app.predictions.models import ModelTask
from app.predictions.states import TaskKind
from app.predictions.tasks import export_request
from tests.api.client import ONE_DATABASE
from tests.predictions.asking import model_row
from tests.workers.eventually import eventually
from tests.workers.tasks.bench import Bench, store
from tests.workers.training_jobs import effective
from tests.workers.user_code.models import ROWS, Saved, write_python_model
from workers.exports import run
from workers.launch import ColdLauncher
from workers.predictions import ModelTasks
from workers.user_launch import UserLaunch

pytestmark = ONE_DATABASE

REQUEST = orjson.dumps({"rows": ROWS}).decode()
HANGING = "def build():\n    open('up', 'w').close()\n    while True: pass\n"


@pytest.fixture
def launch(tmp_path: Path) -> UserLaunch:
    interpreters = {"torch": Path(sys.executable)}
    return UserLaunch(ColdLauncher(), interpreters, tmp_path / "run", SystemClock(), dict(os.environ))


@pytest.fixture
def able(bench: Bench, launch: UserLaunch) -> Iterator[Bench]:
    """A bench that runs the code of torch models too, and really exports."""
    exports = replace(bench.tools.exports, exporter=run)
    bench.tools = replace(bench.tools, exports=exports, user_launch=launch)
    bench.tasks = ModelTasks(bench.tools, 1)
    yield bench
    bench.tasks.stop()


def give_model(bench: Bench, saved: Saved, framework: str = "torch") -> None:
    """Make the bench's job one with this python model."""
    description = orjson.loads((saved.folder / "model.json").read_bytes())
    with bench.database.write() as session:
        session.query(Artifact).delete()
        job = session.get_one(Job, bench.asker.job_id)
        job.framework, job.effective_spec = framework, description["spec"]
    for path in sorted(saved.folder.iterdir()):
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        row = model_row(bench.asker.job_id, path.name, digest=digest, size_bytes=len(content))
        store(bench.storage, row.storage_key, content, bench.folder)
        with bench.database.write() as session:
            session.add(row)


def ask(
    bench: Bench, kind: TaskKind = TaskKind.PREDICT, request: str = REQUEST, framework: str | None = "torch"
) -> str:
    task_id = bench.asker.ask(kind, request, framework=framework)
    bench.tasks.wake()
    return task_id


def error(task: ModelTask) -> tuple[str, str]:
    assert task.error is not None, task.state
    return task.error["code"], task.error["message"]


class TestPredict:
    def test_rows_are_answered_by_the_users_code(self, able: Bench, tmp_path: Path) -> None:
        saved = write_python_model(tmp_path / "model")
        give_model(able, saved)
        able.start()
        task = able.wait(ask(able))
        assert task.result is not None, task.error
        assert orjson.loads(task.result)["labels"] == saved.labels(ROWS)
        assert able.predictor.asked == []

    def test_code_that_fails_ends_it_at_once(self, able: Bench, tmp_path: Path) -> None:
        give_model(able, write_python_model(tmp_path / "model", {"net.py": "def build(): raise ValueError('seven')"}))
        able.start()
        task = able.wait(ask(able))
        code, message = error(task)
        assert (task.claim, code) == (1, "model_failed")
        assert "ValueError: seven" in message

    def test_a_worker_without_the_framework_leaves_it_to_others(self, able: Bench) -> None:
        able.start()
        other = ask(able, framework="tensorflow")
        assert able.wait(ask(able, request='{"rows": [{"a": 1}]}', framework=None)).state == "succeeded"
        assert able.asker.task(other).state == "queued"

    def test_code_that_hangs_keeps_no_model_of_ours_waiting(
        self, able: Bench, tmp_path: Path, launch: UserLaunch
    ) -> None:
        give_model(able, write_python_model(tmp_path / "model", {"net.py": HANGING}))
        able.start()
        hanging = ask(able)
        eventually(lambda: bool(list((launch.run_dir / "work").glob("*/up"))), "the code runs")
        assert able.wait(ask(able, framework=None)).state == "succeeded"
        assert able.asker.task(hanging).state == "running"

        able.tasks.stop()

        task = able.asker.task(hanging)
        assert (task.state, task.claim) == ("queued", 1), "another worker may try"
        assert list((launch.run_dir / "work").iterdir()) == []


class TestExport:
    def test_a_file_is_made_by_the_users_code_checked_and_stored(self, able: Bench, tmp_path: Path) -> None:
        give_model(able, write_python_model(tmp_path / "model"))
        able.start()
        task = able.wait(ask(able, TaskKind.EXPORT, export_request("onnx")))
        assert task.state == "succeeded", task.error
        made = next(file for file in able.files() if file.name == "model.onnx")
        assert able.storage.exists(made.storage_key)

    def test_code_that_fails_ends_it_with_its_reason(self, able: Bench, tmp_path: Path) -> None:
        give_model(able, write_python_model(tmp_path / "model", {"net.py": "import nowhere_to_be_found"}))
        able.start()
        code, message = error(able.wait(ask(able, TaskKind.EXPORT, export_request("onnx"))))
        assert code == "export_failed"
        assert "nowhere_to_be_found" in message

    def test_what_was_measured_takes_no_code(self, able: Bench, tmp_path: Path) -> None:
        give_model(able, write_python_model(tmp_path / "model", {"net.py": "raise RuntimeError"}))
        able.start()
        task = able.wait(ask(able, TaskKind.EXPORT, export_request("tensorboard"), framework=None))
        assert task.state == "succeeded", task.error

    def test_a_job_that_has_no_code_any_more(self, able: Bench) -> None:
        able.start()
        with able.database.write() as session:
            assert session.get_one(Job, able.asker.job_id).effective_spec == {}
            session.get_one(Job, able.asker.job_id).effective_spec = _layers()
        assert error(able.wait(ask(able)))[0] == "model_unreadable"


def _layers() -> dict[str, object]:
    """The spec of a model of ours: no task for code can be of it."""
    return effective().model_dump(mode="json")
