"""From the request to the answer over rings alone: nobody looks by itself here, so a missing ring would show."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.api.hub import Pace
from app.broker import CHANNEL_TASKS, Bell, Listener
from app.main import create_app
from app.predictions.files import EXPORT_FILES
from app.settings import Settings
from tests.api.answering import add_job_with_model
from tests.api.client import Api, new_tenant, running
from tests.predictions.asking import model_row
from tests.workers.eventually import eventually
from tests.workers.exports.models import MODELS, write_model
from tests.workers.tasks.bench import Bench, store
from workers.exports import run
from workers.exports.keras_file import names as keras_names
from workers.exports.onnx_file import names as onnx_names
from workers.exports.report import make as report
from workers.exports.report import table as report_table
from workers.exports.tensorboard_file import NAME as EVENTS_NAME
from workers.model_file import LoadedModel
from workers.predictions import ModelTasks
from workers.predictor_handle import Predictor

NEVER_S = 600.0
ROWS = [{"pixels": [0.5, -1.0, 0.0, 2.0, 1.5, -0.25]}, {"pixels": [0.0] * 6}]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    shape, layers = MODELS["dense"]
    return write_model(tmp_path / "model", layers, shape, x=np.zeros((4, *shape)))


@pytest.fixture
def api(bench: Bench, tmp_path: Path, redis_url: str) -> Iterator[Api]:
    """The API and a worker's tasks, joined by Redis and the database."""
    bell = Bell(redis_url)
    exports = replace(bench.tools.exports, exporter=run)
    tools = replace(bench.tools, bell=bell, exports=exports, make_predictor=Predictor, look_s=NEVER_S)
    tasks = ModelTasks(tools, 1)
    heard: list[None] = []
    listener = Listener(redis_url, [CHANNEL_TASKS], lambda _channel, kind: tasks.wake(kind), lambda: heard.append(None))
    settings = Settings(home=tmp_path / "home", broker_url=redis_url)
    app = create_app(settings, bench.asker.database, bench.storage, bell, pace=Pace(poll_s=NEVER_S))
    bell.start()
    listener.start()
    tasks.start(bench.asker.worker_id)
    try:
        eventually(lambda: bool(heard), "the worker listens")
        with running(app, new_tenant(bench.asker.database, "birds").user) as client:
            yield client
    finally:
        tasks.stop()
        listener.stop()
        bell.stop()


@pytest.fixture
def job_id(bench: Bench, model: Path) -> str:
    database = bench.asker.database
    tenant = new_tenant(database, "birds")
    job_id = add_job_with_model(database, tenant, model=False, framework="tensorflow")
    for path in sorted(model.iterdir()):
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        row = model_row(job_id, path.name, digest=digest, size_bytes=len(content))
        store(bench.storage, row.storage_key, content, bench.folder)
        with database.write() as session:
            session.add(row)
    return job_id


class TestWholeWay:
    def test_a_prediction_is_that_of_the_saved_model(self, api: Api, job_id: str, model: Path) -> None:
        answer = api.post(f"/v1/jobs/{job_id}/predict", json={"rows": ROWS})
        assert answer.status_code == 200, answer.text
        content = answer.json()
        found = LoadedModel.load(model).answer(ROWS)
        assert content["labels"] == found.labels
        assert found.probabilities is not None
        shares = [list(row.values()) for row in content["probabilities"]]
        np.testing.assert_allclose(shares, found.probabilities, rtol=0, atol=0)

    def test_rows_that_do_not_fit_are_named(self, api: Api, job_id: str) -> None:
        answer = api.post(f"/v1/jobs/{job_id}/predict", json={"rows": [ROWS[0], {"pixels": [1, 2]}]})
        assert answer.status_code == 422, answer.text
        assert [item["pointer"] for item in answer.json()["errors"]] == ["/rows/1/pixels"]

    def test_an_export_is_made_checked_and_stored(self, api: Api, job_id: str) -> None:
        answer = api.post(f"/v1/jobs/{job_id}/exports", json={"format": "onnx", "timeout_s": 60})
        assert answer.status_code == 201, answer.text
        assert [item["name"] for item in answer.json()["artifacts"]] == ["model.onnx"]


class TestNames:
    def test_exporters_make_the_files_by_which_the_api_knows_a_format(self) -> None:
        made = {
            "onnx": {onnx_names.NAME},
            "keras": {keras_names.NAME},
            "report": {report.NAME, report_table.NAME},
            "tensorboard": {EVENTS_NAME},
        }
        assert {form: set(names) for form, names in EXPORT_FILES.items()} == made
