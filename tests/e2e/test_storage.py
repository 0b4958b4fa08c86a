"""Files in S3, and data that are read where they lie: the whole way of a job, over real processes."""

import csv
import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.storage import S3Storage
from app.storage.access import S3Place
from tests.e2e.specs import quick
from tests.e2e.stack import Json, Stack, running_stack
from tests.e2e.test_predict import accuracy, predict, rows_of
from tests.s3 import S3Server

URI = "root://scans/2025/iris.csv"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mount")
    (folder / "2025").mkdir()
    rows, targets = rows_of("iris")
    text = io.StringIO()
    csv.writer(text).writerows(
        [[*rows[0], "kind"], *[[*row.values(), target] for row, target in zip(rows, targets, strict=True)]]
    )
    (folder / "2025" / "iris.csv").write_text(text.getvalue())
    return folder


@pytest.fixture(scope="module")
def place(shared_s3: S3Server) -> S3Place:
    return shared_s3.new_bucket("trainshed")


@pytest.fixture(scope="module")
def far(shared_s3: S3Server, place: S3Place, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    settings = shared_s3.settings(place) | {"TRAINSHED_DATA_ROOTS": f"scans={root}:ro"}
    with running_stack(tmp_path_factory.mktemp("far") / "home", settings) as stack:
        yield stack


@pytest.fixture(scope="module")
def dataset(far: Stack) -> str:
    answer = far.client.post("/v1/datasets", json={"uri": URI})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


@pytest.fixture(scope="module")
def job(far: Stack, dataset: str) -> Json:
    hyperparameters = {"epochs": 3, "batch_size": 16, "learning_rate": 0.01, "checkpoint_every_epochs": 1}
    job = far.wait(far.submit(spec(dataset, hyperparameters=hyperparameters)))
    assert job["state"] == "succeeded", job["message"]
    return job


def spec(dataset: str, **changes: Any) -> Json:
    return quick(data={"source": dataset, "target": "kind"}, task="classification", **changes)


class TestFarStorage:
    def test_the_bucket_has_what_the_rows_name_and_no_data(
        self, shared_s3: S3Server, place: S3Place, job: Json
    ) -> None:
        keys = S3Storage(place, shared_s3.access).list()
        assert {key.split("/")[0] for key in keys} == {"artifacts", "checkpoints"}
        assert f"artifacts/{job['id']}/1/model.safetensors" in keys

    def test_files_are_downloaded_as_they_were_stored(self, far: Stack, job: Json) -> None:
        listing = far.client.get(f"/v1/jobs/{job['id']}/artifacts").json()["data"]
        for file in listing:
            answer = far.client.get(f"/v1/jobs/{job['id']}/artifacts/{file['name']}")
            assert hashlib.sha256(answer.content).hexdigest() == file["digest"]
        checkpoints = far.client.get(f"/v1/jobs/{job['id']}/checkpoints").json()["data"]
        answer = far.client.get(f"/v1/jobs/{job['id']}/checkpoints/{checkpoints[0]['step']}/content")
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            for stored in checkpoints[0]["files"]:
                assert hashlib.sha256(archive.read(stored["name"])).hexdigest() == stored["digest"]

    def test_the_model_is_fetched_for_predictions(self, far: Stack, job: Json) -> None:
        rows, targets = rows_of("iris")
        answer = predict(far, job["id"], rows)
        assert answer.status_code == 200, answer.text
        assert accuracy(answer.json()["labels"], targets) > 0.5


class TestInPlace:
    def test_the_same_rows_give_the_same_model_as_an_upload(
        self, far: Stack, root: Path, job: Json, dataset: str
    ) -> None:
        content = (root / "2025" / "iris.csv").read_bytes()
        upload = far.client.post("/v1/datasets", files={"file": ("iris.csv", content)}).json()
        assert upload["table"] == far.client.get(f"/v1/datasets/{dataset}").json()["table"]
        settings = job["effective_spec"]["hyperparameters"]
        other = far.wait(far.submit(spec(upload["id"], hyperparameters=settings)))
        assert other["metrics"]["last"]["loss"] == job["metrics"]["last"]["loss"]

    def test_a_file_that_changed_since_is_not_trained_on(self, far: Stack, root: Path) -> None:
        path = root / "changing.csv"
        content = (root / "2025" / "iris.csv").read_bytes()
        path.write_bytes(content)
        changing = far.client.post("/v1/datasets", json={"uri": "root://scans/changing.csv"}).json()["id"]
        path.write_bytes(content.replace(b"5.1", b"5.2", 1))
        job = far.wait(far.submit(spec(changing)))
        assert (job["state"], job["cause"]) == ("failed", "invalid_data")
        assert "'root://scans/changing.csv' is not the file that was registered" in job["message"]
        path.unlink()
        job = far.wait(far.submit(spec(changing)))
        assert (job["state"], job["cause"]) == ("failed", "invalid_data")
        assert "'root://scans/changing.csv' is not there" in job["message"]

    def test_the_record_says_what_was_read(self, far: Stack, root: Path, job: Json) -> None:
        record = far.client.get(f"/v1/jobs/{job['id']}/artifacts/environment.json").json()["dataset"]
        assert record["uri"] == URI
        assert record["sha256"] == hashlib.sha256((root / "2025" / "iris.csv").read_bytes()).hexdigest()

    def test_what_was_read_in_place_is_left_as_it_was(self, far: Stack, root: Path, job: Json) -> None:
        assert job["state"] == "succeeded"
        assert [path.name for path in (root / "2025").iterdir()] == ["iris.csv"]
        assert far.client.get("/v1/catalog").json()["data_roots"] == [{"name": "scans", "workers": 1}]
