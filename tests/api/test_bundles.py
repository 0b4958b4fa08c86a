"""Bundles over HTTP: uploaded as a form or as they are, told by their bytes, kept while they are needed."""

import hashlib
import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from app.api.bundle_views import BundleDetail, BundleView
from app.api.views import ListView
from app.broker import Bell
from app.db import Database
from app.ids import is_id, new_id
from app.jobs.models import Job, JobInput
from app.jobs.states import JobState
from app.main import create_app
from app.settings import Settings
from app.storage import Storage
from tests.api.client import ONE_DATABASE, Api, Tenant, problem, running
from tests.api.conftest import QUICK
from tests.archives.making import FOLDER, LINK, Entry, archive, plain
from tests.fakes import FakeClock

AS_ZIP = {"Content-Type": "application/zip"}
CODE = archive(Entry("train.py", b"print(1)\n"), Entry("lib/", b"", external=FOLDER), Entry("lib/a.py", b"a = 1\n"))
WHEEL = archive(Entry("tool/__init__.py", b""), Entry("tool-1.0.dist-info/WHEEL", b"Wheel-Version: 1.0\n"))


@pytest.fixture
def coder(api: Api, tenant: Tenant) -> Api:
    """A user whose key has the permission."""
    return api.with_key(tenant.coder)


def upload(coder: Api, content: bytes = CODE, **options: Any) -> dict[str, Any]:
    answer = coder.post("/v1/bundles", content=content, headers=AS_ZIP, **options)
    assert answer.status_code in {200, 201}, answer.text
    return dict(answer.json())


class TestUpload:
    def test_the_body_itself_becomes_a_bundle(self, coder: Api) -> None:
        answer = coder.post("/v1/bundles?name=digits.zip", content=CODE, headers=AS_ZIP)
        shown = answer.json()
        BundleView.model_validate(shown)
        assert answer.status_code == 201
        assert answer.headers["location"] == f"/v1/bundles/{shown['id']}"
        assert is_id("bun", shown["id"])
        assert (shown["name"], shown["format"], shown["files"]) == ("digits.zip", "zip", 2)
        assert (shown["digest"], shown["size_bytes"]) == (hashlib.sha256(CODE).hexdigest(), len(CODE))
        assert (shown["unpacked_bytes"], shown["created_by"]) == (15, "coder-of-birds")

    @ONE_DATABASE
    @pytest.mark.parametrize("options", [{}, {"data": {"name": "mine.zip"}}, {"params": {"name": "mine.zip"}}])
    def test_so_does_a_part_of_a_form(self, coder: Api, options: dict[str, Any]) -> None:
        answer = coder.post("/v1/bundles", files={"file": ("code.zip", CODE, "application/zip")}, **options)
        assert answer.status_code == 201
        assert answer.json()["name"] == ("mine.zip" if options else "code.zip")

    @ONE_DATABASE
    @pytest.mark.parametrize("name", ["tool-1.0-py3-none-any.whl", "tool.zip"])
    def test_a_wheel_is_told_by_its_content(self, coder: Api, name: str) -> None:
        answer = coder.post("/v1/bundles", files={"file": (name, WHEEL)})
        assert answer.json()["format"] == "wheel"

    @ONE_DATABASE
    def test_one_that_is_only_called_a_wheel_is_refused(self, coder: Api) -> None:
        problem(coder.post("/v1/bundles", files={"file": ("tool.whl", CODE)}), 422, "invalid_bundle")

    @ONE_DATABASE
    @pytest.mark.parametrize("kind", ["application/json", "text/csv", "application/x-tar"])
    def test_another_content_type_is_415(self, coder: Api, kind: str) -> None:
        problem(coder.post("/v1/bundles", content=CODE, headers={"Content-Type": kind}), 415, "unsupported_media_type")

    @ONE_DATABASE
    def test_an_upload_to_another_route_keeps_its_own_rules(self, coder: Api) -> None:
        problem(coder.post("/v1/datasets", content=CODE, headers=AS_ZIP), 415, "unsupported_media_type")


class TestHostile:
    """Whatever is wrong with an archive is said before anything of it is stored."""

    @ONE_DATABASE
    @pytest.mark.parametrize(
        ("entry", "named"),
        [
            (Entry("../../C76_MARKER_SHOULD_NOT_EXIST"), "../../C76_MARKER_SHOULD_NOT_EXIST"),
            (Entry("/etc/cron.d/x"), "/etc/cron.d/x"),
            (Entry("x", b"/etc/shadow", external=LINK), "x"),
            (Entry("TRAIN.py"), "TRAIN.py"),
            (Entry("train.py"), "train.py"),
            (Entry("train.py/x"), "train.py/x"),
            (Entry("a\0b"), "a\0b"),
            (Entry("x", flags=1), "x"),
            (Entry("x", method=12), "x"),
        ],
    )
    def test_an_entry_that_is_not_safe_is_named(self, coder: Api, entry: Entry, named: str) -> None:
        """C76."""
        content = archive(Entry("train.py"), entry)
        document = problem(coder.post("/v1/bundles", content=content, headers=AS_ZIP), 422, "unsafe_archive")
        assert document["entry"] == named
        assert left(coder) == []

    @ONE_DATABASE
    @pytest.mark.parametrize("content", [b"PK", b"print(1)\n", CODE[:-9], CODE + b"x", b"\x1f\x8b\x08" + bytes(50)])
    def test_what_is_no_archive_is_refused(self, coder: Api, content: bytes) -> None:
        problem(coder.post("/v1/bundles", content=content, headers=AS_ZIP), 422, "not_an_archive")
        assert left(coder) == []

    @ONE_DATABASE
    def test_a_checksum_that_is_wrong_is_found_now_and_not_by_a_worker(self, coder: Api) -> None:
        content = archive(Entry("train.py", crc=1))
        problem(coder.post("/v1/bundles", content=content, headers=AS_ZIP), 422, "not_an_archive")

    @ONE_DATABASE
    def test_one_without_a_file_is_no_bundle(self, coder: Api) -> None:
        content = archive(Entry("folder/", b"", external=FOLDER))
        problem(coder.post("/v1/bundles", content=content, headers=AS_ZIP), 422, "invalid_bundle")


def left(coder: Api) -> list[str]:
    """What an upload left: in its folder, in the storage, in the list."""
    files = [path.name for path in coder.services.limits.upload_dir.iterdir()]
    return files + coder.services.storage.list() + [row["id"] for row in coder.get("/v1/bundles").json()["data"]]


@ONE_DATABASE
class TestLimits:
    @pytest.fixture
    def narrow(self, tmp_path: Path, database: Database, storage: Storage, clock: FakeClock) -> FastAPI:
        settings = Settings(
            home=tmp_path / "home",
            max_bundle_bytes=100_000,
            max_bundle_unpacked_bytes=10_000_000,
            max_bundle_files=100,
        )
        return create_app(settings, database, storage, Bell(None), clock=clock, pace=QUICK)

    def test_bytes_after_unpacking_and_files_are_bounded(self, narrow: FastAPI, tenant: Tenant, tmp_path: Path) -> None:
        """C77: 45 MB in 44 kB with a limit of 10 MB, and 400 files with a limit of 100."""
        bomb = plain(tmp_path / "bomb.zip", {"zeros.bin": bytes(45_000_000)}).read_bytes()
        many = plain(tmp_path / "many.zip", {f"f{number:04}.txt": b"x" for number in range(400)}).read_bytes()
        with running(narrow, tenant.coder) as coder:
            for content, limit in ((bomb, 10_000_000), (many, 100)):
                document = problem(coder.post("/v1/bundles", content=content, headers=AS_ZIP), 413, "archive_too_large")
                assert document["limit"] == limit
            assert left(coder) == []
            # The whole of it is only ever the upload itself, so far below 12 MB.
            assert len(bomb) + len(many) < 200_000

    @pytest.mark.parametrize("kind", ["form", "raw", "chunked"])
    def test_more_bytes_than_allowed_are_413(self, narrow: FastAPI, tenant: Tenant, kind: str) -> None:
        content = archive(Entry("noise.bin", bytes(100_001)))

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(content), 10_000):
                yield content[start : start + 10_000]

        ways: dict[str, dict[str, Any]] = {
            "form": {"files": {"file": ("large.zip", content)}},
            "raw": {"content": content, "headers": AS_ZIP},
            "chunked": {"content": pieces(), "headers": AS_ZIP},
        }
        with running(narrow, tenant.coder) as coder:
            problem(coder.post("/v1/bundles", **ways[kind]), 413, "body_too_large")
            assert left(coder) == []

    def test_an_announced_length_is_refused_unread(self, narrow: FastAPI, tenant: Tenant) -> None:
        asked: list[int] = []

        async def pieces() -> AsyncIterator[bytes]:
            asked.append(1)
            yield b"x"

        headers = AS_ZIP | {"Content-Length": "170001"}
        with running(narrow, tenant.coder) as coder:
            problem(coder.post("/v1/bundles", content=pieces(), headers=headers), 413, "body_too_large")
        assert asked == []

    def test_a_storage_that_cannot_take_it_is_503(self, coder: Api) -> None:
        class Full:
            def put(self, key: str, source: Path) -> None:
                raise OSError(28, f"No space left on device: {key} {source}")

        coder.services.storage = Full()  # type: ignore[assignment] # the one method that is called
        answer = coder.post("/v1/bundles", content=CODE, headers=AS_ZIP)
        problem(answer, 503, "storage_unavailable")
        assert "space" not in answer.text
        assert coder.get("/v1/bundles").json()["data"] == []


class TestSameBytes:
    def test_are_the_same_bundle(self, coder: Api) -> None:
        first = coder.post("/v1/bundles?name=a.zip", content=CODE, headers=AS_ZIP)
        again = coder.post("/v1/bundles?name=b.zip", content=CODE, headers=AS_ZIP)
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == first.json()
        assert again.headers["location"] == first.headers["location"]
        assert len(coder.services.storage.list("bundles")) == 1

    def test_at_the_same_time_too(self, coder: Api) -> None:
        answers = coder.together([("POST", "/v1/bundles", {"content": CODE, "headers": AS_ZIP})] * 5)
        assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 200, 201]
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert len(coder.services.storage.list("bundles")) == 1

    def test_a_client_can_ask_before_it_sends(self, coder: Api) -> None:
        digest = hashlib.sha256(CODE).hexdigest()
        assert coder.get(f"/v1/bundles?digest={digest}").json()["data"] == []
        made = upload(coder)
        upload(coder, WHEEL)
        assert coder.get(f"/v1/bundles?digest={digest}").json()["data"] == [made]

    @ONE_DATABASE
    @pytest.mark.parametrize("digest", ["", "0" * 63, "0" * 65, "G" * 64, hashlib.sha256(CODE).hexdigest().upper()])
    def test_what_is_no_digest_is_refused(self, coder: Api, digest: str) -> None:
        problem(coder.get("/v1/bundles", params={"digest": digest}), 422, "invalid_request")


class TestIdempotency:
    def send(self, coder: Api, key: str = "k", content: bytes = CODE, name: str = "a.zip") -> Any:
        headers = AS_ZIP | {"Idempotency-Key": key}
        return coder.post(f"/v1/bundles?name={name}", content=content, headers=headers)

    def test_a_repeat_gets_the_first_answer(self, coder: Api) -> None:
        first, again = self.send(coder), self.send(coder)
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.json() == first.json()
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"

    def test_also_when_that_said_that_the_bytes_were_there(self, coder: Api, clock: FakeClock) -> None:
        upload(coder)
        clock.advance(1)
        first, again = self.send(coder), self.send(coder)
        assert (first.status_code, again.status_code) == (200, 200)
        assert again.headers["idempotency-replayed"] == "true"

    def test_all_at_once_get_one_answer(self, coder: Api) -> None:
        request = ("POST", "/v1/bundles", {"content": CODE, "headers": AS_ZIP | {"Idempotency-Key": "k"}})
        answers = coder.together([request] * 5)
        assert {answer.status_code for answer in answers} <= {200, 201}
        assert len({answer.json()["id"] for answer in answers}) == 1

    @ONE_DATABASE
    def test_other_bytes_or_another_name_are_refused(self, coder: Api) -> None:
        self.send(coder)
        problem(self.send(coder, content=WHEEL), 422, "idempotency_mismatch")
        problem(self.send(coder, name="b.zip"), 422, "idempotency_mismatch")

    @ONE_DATABASE
    def test_a_bundle_that_is_deleted_since_is_said_to_be(self, coder: Api) -> None:
        made = self.send(coder).json()
        assert coder.delete(f"/v1/bundles/{made['id']}").status_code == 204
        problem(self.send(coder), 409, "conflict")
        assert self.send(coder, key="l").status_code == 201


class TestRead:
    def test_one_with_its_files_by_name(self, coder: Api, tenant: Tenant) -> None:
        made = upload(coder)
        shown = coder.with_key(tenant.viewer).get(f"/v1/bundles/{made['id']}").json()
        BundleDetail.model_validate(shown)
        assert shown == made | {
            "file_list": [{"name": "lib/a.py", "size_bytes": 6}, {"name": "train.py", "size_bytes": 9}],
            "file_list_complete": True,
        }

    def test_its_bytes_are_those_that_were_sent(self, coder: Api, tenant: Tenant) -> None:
        made = upload(coder, params={"name": "digits.zip"})
        answer = coder.with_key(tenant.viewer).get(f"/v1/bundles/{made['id']}/content")
        assert (answer.status_code, answer.content) == (200, CODE)
        assert answer.headers["content-type"] == "application/zip"
        assert answer.headers["content-disposition"] == 'attachment; filename="digits.zip"'
        assert answer.headers["etag"] == f'"{made["digest"]}"'
        assert zipfile.ZipFile(io.BytesIO(answer.content)).testzip() is None

    @ONE_DATABASE
    def test_a_range_and_a_copy_that_is_fresh(self, coder: Api) -> None:
        made = upload(coder)
        address = f"/v1/bundles/{made['id']}/content"
        part = coder.get(address, headers={"Range": "bytes=0-1"})
        assert (part.status_code, part.content) == (206, b"PK")
        fresh = coder.get(address, headers={"If-None-Match": f'"{made["digest"]}"'})
        assert (fresh.status_code, fresh.content) == (304, b"")
        problem(coder.get(address, headers={"Range": "bytes=999999-"}), 416, "range_not_satisfiable")

    @ONE_DATABASE
    @pytest.mark.parametrize(("content", "ending"), [(CODE, ".zip"), (WHEEL, ".whl")])
    def test_a_name_that_no_header_takes_is_replaced(self, coder: Api, content: bytes, ending: str) -> None:
        made = upload(coder, content, params={"name": 'ä"\r\n.whl' if ending == ".whl" else 'ä"b.zip'})
        answer = coder.get(f"/v1/bundles/{made['id']}/content")
        assert answer.headers["content-disposition"] == f'attachment; filename="{made["id"]}{ending}"'

    @ONE_DATABASE
    @pytest.mark.parametrize("path", ["", "/content"])
    def test_one_whose_file_is_gone_is_404(self, coder: Api, storage: Storage, path: str) -> None:
        made = upload(coder)
        storage.delete(f"bundles/{made['id']}")
        problem(coder.get(f"/v1/bundles/{made['id']}{path}"), 404, "not_found")

    def test_pages(self, coder: Api) -> None:
        made = [upload(coder, archive(Entry("a.py", b"%d" % number))) for number in range(3)]
        first = coder.get("/v1/bundles?limit=2")
        page = ListView[BundleView].model_validate(first.json())
        assert [bundle.id for bundle in page.data] == [made[2]["id"], made[1]["id"]]
        assert first.headers["link"].endswith('rel="next"')
        rest = coder.get(f"/v1/bundles?limit=2&after={page.next_after}").json()
        assert (rest["data"], rest["has_more"]) == ([made[0]], False)


class TestDelete:
    def test_one_that_nobody_needs_goes_with_its_file(self, coder: Api, storage: Storage) -> None:
        made = upload(coder)
        answer = coder.delete(f"/v1/bundles/{made['id']}")
        assert (answer.status_code, answer.content) == (204, b"")
        assert storage.list() == []
        problem(coder.get(f"/v1/bundles/{made['id']}"), 404, "not_found")
        problem(coder.delete(f"/v1/bundles/{made['id']}"), 404, "not_found")

    @pytest.mark.parametrize("state", list(JobState))
    @ONE_DATABASE
    def test_a_job_keeps_it_until_it_is_over(self, coder: Api, database: Database, state: JobState) -> None:
        made, job = upload(coder), coder.submit()["id"]
        with database.write() as session:
            session.add(JobInput(job_id=job, resource_id=made["id"]))
            session.get_one(Job, job).state = state.value
        answer = coder.delete(f"/v1/bundles/{made['id']}")
        if state.is_final:
            assert answer.status_code == 204
        else:
            assert problem(answer, 409, "bundle_in_use")["jobs"] == [job]
            assert coder.get(f"/v1/bundles/{made['id']}").status_code == 200


@ONE_DATABASE
class TestAnotherProject:
    def test_neither_sees_nor_deletes_it_nor_learns_that_it_is_there(self, coder: Api, other: Tenant) -> None:
        made = upload(coder)
        they = coder.with_key(other.coder)
        assert they.get("/v1/bundles").json()["data"] == []
        assert they.get(f"/v1/bundles?digest={made['digest']}").json()["data"] == []
        for bundle_id in (made["id"], new_id("bun")):
            for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
                document = problem(they.request(method, f"/v1/bundles/{bundle_id}{path}"), 404, "not_found")
                assert document["detail"] == f"There is no bundle '{bundle_id}' in this project."
        theirs = they.post("/v1/bundles", content=CODE, headers=AS_ZIP)
        assert theirs.status_code == 201
        assert theirs.json()["id"] != made["id"]
        assert coder.get(f"/v1/bundles/{made['id']}").status_code == 200
