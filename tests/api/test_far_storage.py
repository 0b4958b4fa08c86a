"""The same answers when the files lie in S3: downloads in whole and in ranges, archives, previews, initial weights.

Most tests are those of the modules for files on this host; in this module they find another storage.
"""

import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import httpx
import polars as pl
import pytest

from app.db import Database
from app.storage import S3Storage, Storage
from tests.api import test_artifacts, test_checkpoints, test_datasets
from tests.api.client import Api, problem
from tests.api.stored import leave_checkpoint
from tests.s3 import S3Server
from tests.s3_faults import FaultyS3, faulty_s3, refusal

job_id, path = test_artifacts.job_id, test_artifacts.path


@pytest.fixture
def database_url(sqlite_template: Path, tmp_path: Path) -> str:
    """One database: what is tested is the storage."""
    shutil.copyfile(sqlite_template, tmp_path / "trainshed.db")
    return f"sqlite:///{tmp_path / 'trainshed.db'}"


@pytest.fixture
def faulty(shared_s3: S3Server) -> Iterator[FaultyS3]:
    with faulty_s3(shared_s3.url) as server:
        yield server


@pytest.fixture
def storage(shared_s3: S3Server, faulty: FaultyS3) -> Storage:
    access = S3Server(faulty.url, 0).access
    return S3Storage(shared_s3.new_bucket(), access, retry={"max_retries": 0})


class TestDownload(test_artifacts.TestDownload):
    def test_a_storage_that_refuses_is_503(self, api: Api, path: str, faulty: FaultyS3) -> None:
        faulty.faults.append(refusal(403, "AccessDenied"))
        problem(api.get(path), 503, "storage_unavailable")

    def test_what_the_client_has_already_is_not_asked_for(self, api: Api, path: str, faulty: FaultyS3) -> None:
        seen = len(faulty.seen)
        named = f'"{test_artifacts.DIGEST}"'
        assert api.get(path, headers={"If-None-Match": named}).status_code == 304
        assert len(faulty.seen) == seen


class TestCheckpoints(test_checkpoints.TestDownload):
    def test_a_storage_that_fails_is_503(  # type: ignore[override] # fails in another way
        self, api: Api, database: Database, storage: Storage, tmp_path: Path, faulty: FaultyS3
    ) -> None:
        job = api.submit()["id"]
        leave_checkpoint(database, storage, tmp_path, job, 10)
        faulty.faults += [refusal(500, "InternalError")]
        problem(api.get(f"/v1/jobs/{job}/checkpoints/10/content"), 503, "storage_unavailable")


class TestInitializeFrom(test_checkpoints.TestInitializeFrom):
    """As it stands."""


class TestDatasets:
    def test_an_upload_is_stored_there_and_previewed(self, api: Api, storage: Storage) -> None:
        parquet = BytesIO()
        pl.DataFrame({"a": [1, 2], "b": [3, 5]}).write_parquet(parquet)
        for content, first in ((test_datasets.CSV, ["1", "2.5", "yes"]), (parquet.getvalue(), [1, 3])):
            dataset = test_datasets.upload(api, content)["id"]
            assert storage.exists(f"datasets/{dataset}")
            assert api.get(f"/v1/datasets/{dataset}/preview?rows=1").json()["rows"] == [first]
        assert list(api.services.limits.upload_dir.iterdir()) == []

    def test_a_file_that_is_gone_is_404_and_a_storage_that_fails_503(
        self, api: Api, storage: Storage, faulty: FaultyS3
    ) -> None:
        dataset = test_datasets.upload(api)["id"]
        faulty.faults.append(refusal(403, "AccessDenied"))
        problem(api.get(f"/v1/datasets/{dataset}/preview"), 503, "storage_unavailable")
        storage.delete(f"datasets/{dataset}")
        problem(api.get(f"/v1/datasets/{dataset}/preview"), 404, "not_found")

    def test_an_upload_that_cannot_be_stored_is_503_and_leaves_no_row(self, api: Api, faulty: FaultyS3) -> None:
        faulty.faults.append(refusal(403, "AccessDenied"))
        problem(api.post("/v1/datasets", files={"file": ("a.csv", test_datasets.CSV)}), 503, "storage_unavailable")
        assert api.get("/v1/datasets").json()["data"] == []

    def test_deleting_one_deletes_its_file(self, api: Api, storage: Storage) -> None:
        dataset = test_datasets.upload(api)["id"]
        assert api.delete(f"/v1/datasets/{dataset}").status_code == 204
        assert storage.list() == []


class TestBrokenOff:
    def test_a_download_that_breaks_off_is_shorter_than_it_said(
        self, api: Api, path: str, url: str, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The file is deleted after the head was asked for: on this host it would still be read to its end.
        opened = S3Storage.open

        def open_and_delete(self: S3Storage, key: str) -> BinaryIO:
            file = opened(self, key)
            storage.delete(key)
            return file

        monkeypatch.setattr(S3Storage, "open", open_and_delete)
        with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
            httpx.get(f"{url}{path}", headers={"Authorization": f"Bearer {api.key}"})
        monkeypatch.undo()
        problem(api.get(path), 404, "not_found")
