"""The stored files of a job over HTTP: what they are, their bytes, and that no name leads anywhere else."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from fastapi import FastAPI

from app.api.views import ArtifactView, ListView
from app.artifacts.models import Artifact
from app.db import Database
from app.storage import Storage
from app.storage.keys import artifact_key
from tests.api.client import ONE_DATABASE, Api, problem
from tests.fakes import START

CONTENT = bytes(range(256)) * 40
DIGEST = hashlib.sha256(CONTENT).hexdigest()
# The shared list of names with which files outside were read elsewhere, as they stand.
HOSTILE = [
    "../../../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/secret",
    "/etc/passwd",
    "....//....//etc/passwd",
    "..\\..\\windows\\win.ini",
    "model.pt/../../other-job/model.pt",
    "model.pt%00.txt",
    "file:///etc/passwd",
    "./metrics.jsonl/../../../db.sqlite",
    "%252e%252e%252fetc%252fpasswd",
    "model.safetensors%2f..",
    "",
    ".",
    "..",
]


@pytest.fixture
def job_id(api: Api, database: Database, storage: Storage, tmp_path: Path) -> str:
    """A job with one stored file, `model.safetensors`."""
    job = api.submit()
    source = tmp_path / "source"
    source.write_bytes(CONTENT)
    key = artifact_key(job["id"], 1, "model.safetensors")
    storage.put(key, source)
    with database.write() as session:
        session.add(
            Artifact(
                job_id=job["id"],
                name="model.safetensors",
                attempt=1,
                kind="model",
                media_type="application/octet-stream",
                size_bytes=len(CONTENT),
                digest=DIGEST,
                storage_key=key,
                created_at=START,
            )
        )
    return str(job["id"])


@pytest.fixture
def path(job_id: str) -> str:
    return f"/v1/jobs/{job_id}/artifacts/model.safetensors"


class TestList:
    def test_names_the_files_and_not_where_they_lie(self, api: Api, job_id: str) -> None:
        answer = api.get(f"/v1/jobs/{job_id}/artifacts")
        (shown,) = ListView[ArtifactView].model_validate(answer.json()).data
        assert (shown.name, shown.size_bytes, shown.digest) == ("model.safetensors", len(CONTENT), DIGEST)
        assert "artifacts/" not in answer.text.replace("/artifacts", "")


class TestDownload:
    def test_is_the_bytes_as_an_attachment(self, api: Api, path: str) -> None:
        answer = api.get(path)
        assert (answer.status_code, answer.content) == (200, CONTENT)
        assert answer.headers["content-disposition"] == 'attachment; filename="model.safetensors"'
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["etag"] == f'"{DIGEST}"'
        assert answer.headers["accept-ranges"] == "bytes"
        assert answer.headers["content-length"] == str(len(CONTENT))

    def test_a_head_has_the_headers_alone(self, api: Api, path: str) -> None:
        answer = api.request("HEAD", path)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-length"] == str(len(CONTENT))

    @ONE_DATABASE
    @pytest.mark.parametrize(
        ("asked", "first", "last"),
        [
            ("bytes=0-0", 0, 0),
            ("bytes=100-199", 100, 199),
            ("bytes=10000-", 10_000, 10_239),
            ("bytes=-240", 10_000, 10_239),
            ("bytes=0-999999", 0, 10_239),
            ("bytes=-999999", 0, 10_239),
        ],
    )
    def test_one_range_is_part_of_it(self, api: Api, path: str, asked: str, first: int, last: int) -> None:
        answer = api.get(path, headers={"Range": asked})
        assert answer.status_code == 206
        assert answer.content == CONTENT[first : last + 1]
        assert answer.headers["content-range"] == f"bytes {first}-{last}/{len(CONTENT)}"

    @ONE_DATABASE
    @pytest.mark.parametrize("asked", ["bytes=10240-", "bytes=99999-100000", "bytes=-0"])
    def test_a_range_outside_is_416_with_the_size(self, api: Api, path: str, asked: str) -> None:
        answer = api.get(path, headers={"Range": asked})
        problem(answer, 416, "range_not_satisfiable")
        assert answer.headers["content-range"] == f"bytes */{len(CONTENT)}"

    # RFC 9110 §14.2: a server may ignore the header, and must when it cannot be read.
    @ONE_DATABASE
    @pytest.mark.parametrize(
        "asked", ["bytes=5-1", "bytes=", "bytes=-", "lines=1-2", "bytes=0-1,5-6", "x", "bytes=a-b"]
    )
    def test_what_is_no_single_range_gets_the_whole(self, api: Api, path: str, asked: str) -> None:
        answer = api.get(path, headers={"Range": asked})
        assert (answer.status_code, answer.content) == (200, CONTENT)

    @ONE_DATABASE
    def test_a_range_of_another_version_gets_the_whole(self, api: Api, path: str) -> None:
        same = api.get(path, headers={"Range": "bytes=0-9", "If-Range": f'"{DIGEST}"'})
        # Also when this one is shorter than what the client has of the other already.
        past = api.get(path, headers={"Range": f"bytes={len(CONTENT)}-", "If-Range": '"0000"'})
        assert (past.status_code, past.content) == (200, CONTENT)
        assert same.status_code == 206
        # Also when this one is shorter than what the client has of the other already.
        for asked in ("bytes=0-9", f"bytes={len(CONTENT)}-"):
            other = api.get(path, headers={"Range": asked, "If-Range": '"0000"'})
            assert (other.status_code, other.content) == (200, CONTENT)

    @ONE_DATABASE
    @pytest.mark.parametrize("named", [f'"{DIGEST}"', f'W/"{DIGEST}"', f'"other", "{DIGEST}"', "*"])
    def test_what_the_client_has_already_is_not_sent(self, api: Api, path: str, named: str) -> None:
        answer = api.get(path, headers={"If-None-Match": named})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", f'"{DIGEST}"')

    @ONE_DATABASE
    def test_what_it_does_not_have_is(self, api: Api, path: str) -> None:
        assert api.get(path, headers={"If-None-Match": '"other"'}).status_code == 200

    @ONE_DATABASE
    def test_a_file_that_the_storage_lost_is_404(self, api: Api, path: str, job_id: str, storage: Storage) -> None:
        storage.delete(artifact_key(job_id, 1, "model.safetensors"))
        problem(api.get(path), 404, "not_found")


@ONE_DATABASE
class TestHostileName:
    @pytest.mark.parametrize("name", HOSTILE)
    def test_is_404_with_the_same_words_as_a_name_that_no_file_has(self, api: Api, job_id: str, name: str) -> None:
        missing = problem(api.get(f"/v1/jobs/{job_id}/artifacts/missing.bin"), 404, "not_found")
        answer = self.sent_raw(api.app, api.key or "", f"/v1/jobs/{job_id}/artifacts/{name}")
        assert problem(answer, 404, "not_found") | {"request_id": ""} == missing | {"request_id": ""}

    def test_a_link_in_the_storage_is_not_followed(self, api: Api, job_id: str, path: str, tmp_path: Path) -> None:
        stored = tmp_path / "storage" / artifact_key(job_id, 1, "model.safetensors")
        stored.unlink()
        stored.symlink_to("/etc/passwd")
        answer = api.get(path)
        problem(answer, 404, "not_found")
        assert "root:" not in answer.text

    def sent_raw(self, app: FastAPI, key: str, path: str) -> httpx.Response:
        """The answer to a path that no client has tidied up: as uvicorn hands it over, decoded once."""

        async def raw(scope: Any, receive: Any, send: Any) -> None:
            await app(scope | {"path": unquote(path), "raw_path": path.encode()}, receive, send)

        async def send() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(raw), base_url="http://127.0.0.1") as client:
                return await client.get("/", headers={"Authorization": f"Bearer {key}"})

        return asyncio.run(send())
