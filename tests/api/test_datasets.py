"""Tables over HTTP: uploaded as a form or as they are, checked, listed, shown and deleted."""

import hashlib
import os
from collections.abc import AsyncIterator, Callable
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from app.api.uploads import remove_abandoned
from app.api.views import BuiltinView, DatasetLine, DatasetView, ListView, PreviewView
from app.db import Database
from app.ids import is_id
from app.jobs.models import Job
from app.jobs.states import JobState
from app.settings import Settings
from tests.api.client import ONE_DATABASE, SPEC, Api, Tenant, problem
from tests.fakes import START

DATA = Path(__file__).parents[1] / "data"
CSV = b"f1,f2,label\n1,2.5,yes\n3,,no\n5,0.5,yes\n"
AS_CSV = {"Content-Type": "text/csv"}


def upload(api: Api, content: bytes = CSV, name: str = "toy.csv") -> dict[str, Any]:
    answer = api.post("/v1/datasets", files={"file": (name, content, "text/csv")})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


class TestUpload:
    def test_a_form_becomes_a_data_set(self, api: Api) -> None:
        answer = api.post("/v1/datasets", files={"file": ("toy.csv", CSV, "text/csv")})
        shown = answer.json()
        DatasetView.model_validate(shown)
        assert answer.status_code == 201
        assert answer.headers["location"] == f"/v1/datasets/{shown['id']}"
        assert is_id("ds", shown["id"])
        assert (shown["name"], shown["rows"], shown["size_bytes"]) == ("toy.csv", 3, len(CSV))
        assert shown["digest"] == hashlib.sha256(CSV).hexdigest()
        assert [column["name"] for column in shown["table"]["columns"]] == ["f1", "f2", "label"]
        assert shown["problems"][0]["column"] == "f2"
        assert api.get(answer.headers["location"]).json() == shown

    def test_the_body_itself_may_be_the_table(self, api: Api) -> None:
        shown = api.post("/v1/datasets?name=penguins", content=CSV, headers=AS_CSV).json()
        assert (shown["name"], shown["digest"]) == ("penguins", hashlib.sha256(CSV).hexdigest())

    @ONE_DATABASE
    def test_a_part_of_the_form_may_name_it(self, api: Api) -> None:
        shown = api.post("/v1/datasets", files={"file": ("toy.csv", CSV)}, data={"name": "penguins"}).json()
        assert shown["name"] == "penguins"

    @ONE_DATABASE
    @pytest.mark.parametrize(
        ("sent", "kept"), [("..\\..\\win.ini", "win.ini"), ("../../etc/passwd", "passwd"), ("ä ö.csv", "ä ö.csv")]
    )
    def test_a_name_is_for_people_and_leads_nowhere(self, api: Api, sent: str, kept: str) -> None:
        assert upload(api, name=sent)["name"] == kept

    @ONE_DATABASE
    def test_nothing_of_an_upload_stays_beside_the_storage(self, api: Api) -> None:
        upload(api)
        problem(api.post("/v1/datasets", content=b"a,a\n1,2\n", headers=AS_CSV), 422, "invalid_data")
        assert list(api.services.limits.upload_dir.iterdir()) == []

    @ONE_DATABASE
    def test_a_disk_that_takes_nothing_is_503(self, api: Api) -> None:
        folder = api.services.limits.upload_dir
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.write_text("a file is in the way, so every write fails as on a full disk")
        problem(api.post("/v1/datasets", content=CSV, headers=AS_CSV), 503, "storage_unavailable")

    def test_the_mark_before_the_first_name_is_no_part_of_it(self, api: Api) -> None:
        # The shared case: "CSV UTF-8" of a spreadsheet, with CRLF.
        shown = upload(api, (DATA / "bom_crlf.csv").read_bytes())
        assert [column["name"] for column in shown["table"]["columns"]] == ["label", "f1", "f2", "f3"]
        job = api.submit(data={"source": shown["id"], "target": "label"})
        assert job["effective_spec"]["data"]["features"] == ["f1", "f2", "f3"]

    @ONE_DATABASE
    def test_a_file_that_is_not_utf8_is_refused_with_the_place(self, api: Api) -> None:
        content = (DATA / "cp1252.csv").read_bytes()
        answer = api.post("/v1/datasets", files={"file": ("export.csv", content)})
        (shown,) = problem(answer, 422, "invalid_data")["errors"]
        first_bad = next(index for index, byte in enumerate(content) if byte > 127)
        assert str(first_bad) in shown["message"]
        assert shown["row"] == 1
        assert "UTF-8" in shown["suggestion"]

    @ONE_DATABASE
    @pytest.mark.parametrize(
        ("content", "row"),
        [
            (b"", None),
            (b"a,b\n", None),
            (b"a,b\n1,2\n3\n", 3),
            (b'a,b\n1,"2\n', None),
            (b"a,b\n1,\x00\n", 2),
            (b"a,a\n1,2\n", 1),
        ],
    )
    def test_what_is_wrong_with_a_table_is_named_with_its_row(self, api: Api, content: bytes, row: int | None) -> None:
        headers = AS_CSV if content else AS_CSV | {"Content-Length": "0"}
        problems = problem(api.post("/v1/datasets", content=content, headers=headers), 422, "invalid_data")["errors"]
        assert problems[0]["pointer"] == "/file"
        if row is not None:
            assert problems[0]["row"] == row

    @ONE_DATABASE
    @pytest.mark.parametrize("kind", ["form", "raw", "chunked"])
    def test_more_than_the_limit_is_413(self, api: Api, settings: Settings, kind: str) -> None:
        content = b"a,b\n" + b"1,2\n" * (settings.max_upload_bytes // 4)

        async def pieces() -> AsyncIterator[bytes]:
            for start in range(0, len(content), 10_000):
                yield content[start : start + 10_000]

        ways: dict[str, dict[str, Any]] = {
            "form": {"files": {"file": ("large.csv", content)}},
            "raw": {"content": content, "headers": AS_CSV},
            "chunked": {"content": pieces(), "headers": AS_CSV},
        }
        problem(api.post("/v1/datasets", **ways[kind]), 413, "body_too_large")
        assert list(api.services.limits.upload_dir.iterdir()) == []

    @ONE_DATABASE
    def test_exactly_the_limit_passes(self, api: Api, settings: Settings) -> None:
        content = b"a,b\n" + b"1,2\n" * (settings.max_upload_bytes // 4 - 1)
        assert len(content) == settings.max_upload_bytes
        assert upload(api, content)["size_bytes"] == len(content)

    @ONE_DATABASE
    def test_a_storage_that_cannot_take_it_is_503(self, api: Api) -> None:
        class Full:
            def put(self, key: str, source: Path) -> None:
                raise OSError(28, f"No space left on device: {key} {source}")

        api.services.storage = Full()  # type: ignore[assignment] # the one method that is called
        answer = api.post("/v1/datasets", content=CSV, headers=AS_CSV)
        problem(answer, 503, "storage_unavailable")
        assert "space" not in answer.text
        assert api.get("/v1/datasets").json()["data"] == []


def in_memory(write: Callable[[BytesIO], object]) -> bytes:
    stream = BytesIO()
    write(stream)
    return stream.getvalue()


FRAME = pl.DataFrame(
    {"f1": [1.0, 3.0, 5.0], "f2": [2.5, None, 0.5], "day": [date(2030, 1, 31)] * 3, "label": ["yes", "no", "yes"]}
)
PARQUET = in_memory(FRAME.write_parquet)
NPZ = in_memory(lambda stream: np.savez(stream, x=np.arange(24.0).reshape(6, 2, 2), y=np.arange(6) % 2))


class TestFormats:
    """What a file is is told by its content; names and content types are what clients happen to send."""

    @ONE_DATABASE
    @pytest.mark.parametrize("name", ["table.csv", "table.bin", ""])
    @pytest.mark.parametrize(
        ("content", "table_format", "columns"),
        [
            (CSV, "csv", ["f1", "f2", "label"]),
            (CSV.replace(b",", b"\t"), "tsv", ["f1", "f2", "label"]),
            (PARQUET, "parquet", ["f1", "f2", "day", "label"]),
            (NPZ, "npz", ["x", "y"]),
        ],
    )
    def test_each_becomes_a_data_set(
        self, api: Api, content: bytes, table_format: str, columns: list[str], name: str
    ) -> None:
        shown = upload(api, content, name)
        DatasetView.model_validate(shown)
        assert shown["format"] == table_format
        assert shown["name"] == (name or f"dataset.{table_format}")
        assert [column["name"] for column in shown["table"]["columns"]] == columns
        assert shown["digest"] == hashlib.sha256(content).hexdigest()

    @ONE_DATABASE
    @pytest.mark.parametrize(
        ("content", "kind"),
        [
            (CSV.replace(b",", b"\t"), "text/tab-separated-values"),
            (PARQUET, "application/vnd.apache.parquet"),
            (NPZ, "application/octet-stream"),
        ],
    )
    def test_the_body_itself_may_be_any_of_them(self, api: Api, content: bytes, kind: str) -> None:
        answer = api.post("/v1/datasets", content=content, headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["rows"]) == (201, 3 if content != NPZ else 6)

    @ONE_DATABASE
    def test_a_job_can_be_made_of_each(self, api: Api) -> None:
        for content, data in ((PARQUET, {"target": "label", "features": ["f1"]}), (NPZ, {})):
            dataset = upload(api, content)["id"]
            spec = api.submit(data={"source": dataset, **data})["effective_spec"]["data"]
            assert spec["target"] == ("y" if content == NPZ else "label")

    @ONE_DATABASE
    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (PARQUET[:-10], "The Parquet file cannot be read"),
            (NPZ[:-30], "ZIP archive that is damaged or cut off"),
            (in_memory(lambda stream: np.savez(stream, x=np.ones((4, 2)), y=np.ones(5))), "x (4, 2), y (5,)"),
            (
                in_memory(lambda stream: np.savez(stream, x=np.array([{}, {}], dtype=object), y=np.ones(2))),
                "Array 'x' holds Python objects (pickle), which are never loaded.",
            ),
            (b"\x80\x04\x95", "a Python pickle, which is never loaded"),
        ],
    )
    def test_what_cannot_be_used_is_422_with_the_reason(self, api: Api, content: bytes, words: str) -> None:
        answer = api.post("/v1/datasets", files={"file": ("x.npz", content)})
        (shown,) = problem(answer, 422, "invalid_data")["errors"]
        assert words in shown["message"]
        assert shown["suggestion"]
        assert api.services.storage.list() == []

    @ONE_DATABASE
    def test_previews_are_typed(self, api: Api) -> None:
        parquet, npz = upload(api, PARQUET)["id"], upload(api, NPZ)["id"]
        assert api.get(f"/v1/datasets/{parquet}/preview?rows=2").json()["rows"] == [
            [1.0, 2.5, "2030-01-31", "yes"],
            [3.0, None, "2030-01-31", "no"],
        ]
        assert api.get(f"/v1/datasets/{npz}/preview?rows=1").json()["rows"] == [[[[0.0, 1.0], [2.0, 3.0]], 0]]


class TestProblems:
    def test_are_shown_at_the_upload_and_ever_after(self, api: Api) -> None:
        content = b"id,f,label\n" + b"".join(
            b"%d,%s,%s\n" % (row, b"" if row == 5 else b"%d.5" % (row % 9), b"a" if row else b"rare")
            for row in range(30)
        )
        shown = upload(api, content)
        assert [(each["column"], each["code"], each["count"], each["row"]) for each in shown["problems"]] == [
            ("id", "all_different", 30, None),
            ("f", "missing", 1, 7),
            ("label", "rare_class", 1, None),
        ]
        assert all(each["message"] and each["suggestion"] for each in shown["problems"])
        assert api.get(f"/v1/datasets/{shown['id']}").json()["problems"] == shown["problems"]
        assert shown["table"]["problems"][1]["message"] == "Column 'f' has 1 empty cell of 30, the first in row 7."

    @ONE_DATABASE
    def test_of_whole_rows_have_no_column(self, api: Api) -> None:
        (shown,) = upload(api, b"a,b\n1.5,2.5\n3,4\n1.5,2.5\n")["problems"]
        assert (shown["column"], shown["code"], shown["row"]) == (None, "duplicate_rows", 4)


class TestAbandonedUploads:
    def test_those_of_a_day_ago_go_and_all_else_stays(self, tmp_path: Path) -> None:
        for name, age_s in (("upload-old", 86_401), ("upload-new", 86_399), ("other", 10**6)):
            (tmp_path / name).touch()
            os.utime(tmp_path / name, (0, START.timestamp() - age_s))
        remove_abandoned(tmp_path, START)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "upload-new"]

    def test_a_folder_that_was_never_used_is_fine(self, tmp_path: Path) -> None:
        remove_abandoned(tmp_path / "none", START)


class TestForm:
    """The multipart body by hand, since clients send only what is right."""

    BOUNDARY = "xyz"

    def send(self, api: Api, body: bytes, boundary: str | None = BOUNDARY) -> Any:
        content_type = "multipart/form-data" + (f"; boundary={boundary}" if boundary else "")
        return api.post("/v1/datasets", content=body, headers={"Content-Type": content_type})

    def part(self, disposition: str, content: bytes = CSV) -> bytes:
        return (
            f"--{self.BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode() + content + b"\r\n"
        )

    @property
    def end(self) -> bytes:
        return f"--{self.BOUNDARY}--\r\n".encode()

    @ONE_DATABASE
    def test_the_name_may_come_before_or_after_the_file(self, api: Api) -> None:
        name, file = self.part('name="name"', b"birds"), self.part('name="file"; filename="a.csv"')
        for body in (name + file, file + name):
            assert self.send(api, body + self.end).json()["name"] == "birds"

    @ONE_DATABASE
    def test_a_file_without_a_name_is_taken_too(self, api: Api) -> None:
        assert self.send(api, self.part('name="file"') + self.end).json()["name"] == "dataset.csv"

    @ONE_DATABASE
    def test_what_is_no_such_form_is_400_and_says_why(self, api: Api) -> None:
        file = self.part('name="file"; filename="a.csv"')
        broken: dict[str, tuple[bytes, str | None]] = {
            "boundary": (file + self.end, None),
            "no file": (self.part('name="name"', b"x") + self.end, self.BOUNDARY),
            "two files": (file + file + self.end, self.BOUNDARY),
            "cut off": (file, self.BOUNDARY),
            "'other'": (self.part('name="other"', b"x") + file + self.end, self.BOUNDARY),
            "too long": (self.part('name="name"', b"x" * 2000) + file + self.end, self.BOUNDARY),
            "broken": (b"nothing of the kind", self.BOUNDARY),
            "too many": (self.part('name="name"', b"") * 9 + file + self.end, self.BOUNDARY),
        }
        for word, (body, boundary) in broken.items():
            assert word in problem(self.send(api, body, boundary), 400, "malformed_upload")["detail"], word

    @ONE_DATABASE
    def test_a_boundary_that_cannot_be_is_400(self, api: Api) -> None:
        problem(self.send(api, b"x", "y" * 500), 400, "malformed_upload")


class TestRead:
    def test_lists_are_pages_of_the_newest_first(self, api: Api) -> None:
        made = [upload(api, name=f"{number}.csv")["id"] for number in range(3)]
        first = api.get("/v1/datasets?limit=2").json()
        ListView[DatasetLine].model_validate(first)
        second = api.get(f"/v1/datasets?limit=2&after={first['next_after']}").json()
        assert [row["id"] for page in (first, second) for row in page["data"]] == made[::-1]

    @ONE_DATABASE
    def test_a_built_in_one_is_found_by_its_name(self, api: Api) -> None:
        shown = BuiltinView.model_validate(api.get("/v1/datasets/iris").json())
        assert (shown.rows, shown.default_task) == (150, "classification")

    @ONE_DATABASE
    @pytest.mark.parametrize("identity", ["ds_01k0000000000000000000000a", "irises", "ds_1", "iris%0a"])
    def test_what_is_not_there_is_404(self, api: Api, identity: str) -> None:
        problem(api.get(f"/v1/datasets/{identity}"), 404, "not_found")

    def test_the_preview_is_the_first_rows_as_they_stand(self, api: Api) -> None:
        dataset = upload(api)["id"]
        shown = api.get(f"/v1/datasets/{dataset}/preview?rows=2").json()
        PreviewView.model_validate(shown)
        assert shown["columns"] == ["f1", "f2", "label"]
        assert shown["rows"] == [["1", "2.5", "yes"], ["3", None, "no"]]
        assert len(api.get(f"/v1/datasets/{dataset}/preview").json()["rows"]) == 3

    @ONE_DATABASE
    def test_the_preview_of_a_large_table_reads_its_beginning(self, api: Api) -> None:
        dataset = upload(api, b"a,b\n" + b"".join(b"%d,x\n" % n for n in range(20_000)))["id"]
        rows = api.get(f"/v1/datasets/{dataset}/preview?rows=100").json()["rows"]
        assert rows == [[str(number), "x"] for number in range(100)]

    @ONE_DATABASE
    def test_a_built_in_one_has_a_preview(self, api: Api) -> None:
        shown = api.get("/v1/datasets/iris/preview?rows=1").json()
        # The first flower of Fisher's table, as every textbook prints it.
        assert shown["rows"] == [[5.1, 3.5, 1.4, 0.2, 0]]


class TestDelete:
    def test_removes_row_and_file(self, api: Api) -> None:
        dataset = upload(api)["id"]
        assert api.delete(f"/v1/datasets/{dataset}").status_code == 204
        problem(api.get(f"/v1/datasets/{dataset}"), 404, "not_found")
        problem(api.delete(f"/v1/datasets/{dataset}"), 404, "not_found")
        assert api.services.storage.list() == []

    def test_is_refused_while_a_job_needs_it(self, api: Api, database: Database) -> None:
        dataset = upload(api, CSV * 1 + b"6,1,no\n7,2,yes\n8,3,no\n")["id"]
        spec = {"data": {"source": dataset, "target": "label", "features": ["f1"]}}
        job = api.submit(**spec)
        assert job["id"] in problem(api.delete(f"/v1/datasets/{dataset}"), 409, "conflict")["detail"]
        with database.write() as session:
            session.get_one(Job, job["id"]).state = JobState.SUCCEEDED.value
        assert api.delete(f"/v1/datasets/{dataset}").status_code == 204
        # The job stays, and a new one can no longer use what is gone.
        assert api.get(f"/v1/jobs/{job['id']}").json()["effective_spec"]["data"]["source"] == dataset
        problem(api.post("/v1/jobs", json=SPEC | spec), 422, "invalid_spec")

    @ONE_DATABASE
    def test_a_built_in_one_cannot_be_deleted(self, api: Api, tenant: Tenant) -> None:
        problem(api.with_key(tenant.admin).delete("/v1/datasets/iris"), 404, "not_found")
