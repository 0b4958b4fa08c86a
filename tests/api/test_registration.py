"""Tables that stay where they are: registered over HTTP, checked, shown, refused when they are not what they were."""

import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from app.api.catalog_views import CatalogView
from app.api.turns import Turns
from app.api.views import DatasetView
from app.db import Database
from app.fleet.models import Worker
from app.settings import Settings
from app.tables import profile
from tests.api.answering import add_online_worker
from tests.api.client import ONE_DATABASE, SPEC, Api, problem

CSV = b"f1,f2,label\n1,2.5,yes\n3,,no\n5,0.5,yes\n"
URI = "root://scans/2025/toy.csv"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "mount"
    (folder / "2025").mkdir(parents=True)
    (folder / "2025" / "toy.csv").write_bytes(CSV)
    os.utime(folder / "2025" / "toy.csv", (1_700_000_000, 1_700_000_000))
    return folder


@pytest.fixture
def settings(tmp_path: Path, root: Path) -> Settings:
    roots = f"scans={root}:ro, other={tmp_path}/missing"
    return Settings.model_validate(
        {"home": tmp_path / "home", "max_upload_bytes": 200_000, "max_body_bytes": 20_000, "data_roots": roots}
    )


def registered(api: Api, uri: str = URI, **more: Any) -> dict[str, Any]:
    answer = api.post("/v1/datasets", json={"uri": uri, **more})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


class TestRegister:
    def test_it_is_a_data_set_like_any_other(self, api: Api) -> None:
        answer = api.post("/v1/datasets", json={"uri": URI})
        shown = answer.json()
        DatasetView.model_validate(shown)
        assert (answer.status_code, answer.headers["location"]) == (201, f"/v1/datasets/{shown['id']}")
        assert (shown["name"], shown["format"], shown["rows"], shown["size_bytes"]) == ("toy.csv", "csv", 3, len(CSV))
        assert shown["digest"] == hashlib.sha256(CSV).hexdigest()
        assert (shown["uri"], shown["modified_at"]) == (URI, "2023-11-14T22:13:20.000000Z")
        assert shown["problems"][0]["column"] == "f2"
        assert api.get(answer.headers["location"]).json() == shown
        assert api.get("/v1/datasets").json()["data"][0]["uri"] == URI

    def test_nothing_is_copied(self, api: Api, tmp_path: Path) -> None:
        registered(api)
        assert api.services.storage.list() == []
        assert list((tmp_path / "home").rglob("*.csv")) == []

    @ONE_DATABASE
    def test_it_may_be_named(self, api: Api) -> None:
        assert registered(api, name="birds")["name"] == "birds"
        assert api.post("/v1/datasets?name=whales", json={"uri": URI}).json()["name"] == "whales"

    @ONE_DATABASE
    @pytest.mark.parametrize("kind", ["parquet", "npz", "tsv"])
    def test_every_format(self, api: Api, root: Path, kind: str) -> None:
        path = root / "table"
        if kind == "npz":
            np.savez(path, x=np.arange(6.0).reshape(3, 2), y=np.array([0, 1, 0]))
            path = path.with_suffix(".npz")
        elif kind == "parquet":
            pl.DataFrame({"a": [1, 2, 3], "b": [4, 5, 7]}).write_parquet(path)
        else:
            path.write_text("a\tb\n1\t2\n3\t4\n5\t6\n")
        shown = registered(api, f"root://scans/{path.name}")
        assert (shown["format"], shown["rows"]) == (kind, 3)
        assert len(api.get(f"/v1/datasets/{shown['id']}/preview").json()["rows"]) == 3

    def test_a_repeat_with_the_same_key_gets_it_again(self, api: Api) -> None:
        sent: dict[str, Any] = {"json": {"uri": URI}, "headers": {"Idempotency-Key": "once"}}
        first, again = api.post("/v1/datasets", **sent), api.post("/v1/datasets", **sent)
        assert first.json() == again.json()
        assert again.headers["idempotency-replayed"] == "true"
        other = api.post("/v1/datasets", json={"uri": "root://scans/b.csv"}, headers=sent["headers"])
        problem(other, 422, "idempotency_mismatch")

    def test_deleting_it_leaves_the_file(self, api: Api, root: Path) -> None:
        dataset = registered(api)["id"]
        assert api.delete(f"/v1/datasets/{dataset}").status_code == 204
        assert (root / "2025" / "toy.csv").read_bytes() == CSV

    @ONE_DATABASE
    def test_a_file_larger_than_an_upload_may_be_is_taken(self, api: Api, root: Path) -> None:
        rows = 60_000
        (root / "large.csv").write_text("a,b\n" + "1,2\n" * rows)
        assert registered(api, "root://scans/large.csv")["rows"] == rows


@ONE_DATABASE
class TestRefusals:
    @pytest.mark.parametrize(
        ("uri", "says"),
        [
            ("root://scans/missing.csv", "is not there"),
            ("root://scans/2025", "is not a regular file"),
            ("root://whales/a.csv", "it has other, scans"),
            ("root://scans/../home/trainshed.db", "has a part that is empty, '.' or '..'"),
            ("file:///etc/passwd", "does not name a data root"),
            ("http://169.254.169.254/latest/meta-data", "does not name a data root"),
            ("root://scans/link", "leads out of its data root"),
        ],
    )
    def test_what_names_no_file_in_a_root(self, api: Api, root: Path, tmp_path: Path, uri: str, says: str) -> None:
        (tmp_path / "secret.csv").write_bytes(CSV)
        (root / "link").symlink_to(tmp_path / "secret.csv")
        found = problem(api.post("/v1/datasets", json={"uri": uri}), 422, "invalid_data")
        assert says in found["detail"]
        assert found["errors"][0]["pointer"] == "/uri"
        assert str(tmp_path) not in found["detail"]

    def test_a_link_out_does_not_tell_what_the_host_has(self, api: Api, root: Path, tmp_path: Path) -> None:
        (root / "out").symlink_to(tmp_path)
        (tmp_path / "secret.csv").write_bytes(CSV)
        for name in ("secret.csv", "missing.csv"):
            found = problem(api.post("/v1/datasets", json={"uri": f"root://scans/out/{name}"}), 422, "invalid_data")
            assert found["detail"].startswith(f"'root://scans/out/{name}' leads out of its data root")

    def test_a_root_that_is_gone_or_empty_is_no_missing_file(self, api: Api, tmp_path: Path) -> None:
        for says in ("its folder is gone (No such file or directory)", "is empty; perhaps nothing is mounted there"):
            found = problem(api.post("/v1/datasets", json={"uri": "root://other/a.csv"}), 503, "storage_unavailable")
            assert says in found["detail"]
            assert str(tmp_path) not in found["detail"]
            (tmp_path / "missing").mkdir(exist_ok=True)
        problem(api.post("/v1/datasets", json={"uri": "root://scans/a.csv"}), 422, "invalid_data")

    @pytest.mark.parametrize(
        ("time_ns", "day"), [(10**21, "9999-12-31"), (-(10**21), "1000-01-01"), (-(10**19) * 5, "1000-01-01")]
    )
    def test_a_time_that_no_calendar_has_is_cut_off(
        self, api: Api, monkeypatch: pytest.MonkeyPatch, time_ns: int, day: str
    ) -> None:
        # Years that a file system may keep, and the one of this host perhaps does not.
        real = os.fstat

        def fstat(descriptor: int) -> Any:
            found = real(descriptor)
            return os.stat_result(tuple(found), {"st_mtime_ns": time_ns})

        monkeypatch.setattr("app.tables.in_place.os.fstat", fstat)
        dataset = registered(api)
        assert dataset["modified_at"].startswith(day)
        assert api.get(f"/v1/datasets/{dataset['id']}/preview").status_code == 200

    def test_a_file_that_is_no_table_is_told_by_row(self, api: Api, root: Path) -> None:
        (root / "2025" / "toy.csv").write_bytes(b"a,b\n1,2\n1,2,3\n")
        found = problem(api.post("/v1/datasets", json={"uri": URI}), 422, "invalid_data")
        assert (found["errors"][0]["pointer"], found["errors"][0]["row"]) == ("/uri", 3)

    @pytest.mark.parametrize("body", [{}, {"uri": 1}, {"uri": URI, "path": "/etc/passwd"}, {"uri": "x" * 2000}, []])
    def test_another_body(self, api: Api, body: object) -> None:
        problem(api.post("/v1/datasets", json=body), 422, "invalid_request")

    def test_a_body_that_is_no_json_and_one_that_is_too_large(self, api: Api) -> None:
        headers = {"Content-Type": "application/json; charset=utf-8"}
        problem(api.post("/v1/datasets", content=b"{", headers=headers), 400, "malformed_json")
        problem(api.post("/v1/datasets", content=b" " * 30_000, headers=headers), 413, "body_too_large")

    def test_a_file_that_is_written_to_meanwhile(self, api: Api, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def profile_and_write(path: Path, kind: str, **_: object) -> Any:
            (root / "2025" / "toy.csv").write_bytes(CSV + b"7,8,no\n")
            return profile(path, kind)

        monkeypatch.setattr("app.api.registration.profile_apart", profile_and_write)
        found = problem(api.post("/v1/datasets", json={"uri": URI}), 422, "invalid_data")
        assert "was changed while it was read" in found["detail"]

    def test_a_root_whose_disk_fails_is_503(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(*_: object, **__: object) -> None:
            raise OSError(116, "Stale file handle")

        monkeypatch.setattr("app.tables.in_place._descend", fails)
        problem(api.post("/v1/datasets", json={"uri": URI}), 503, "storage_unavailable")


@ONE_DATABASE
class TestSilentRoot:
    """A mount that does not answer: whoever asks it waits, and nobody else."""

    def test_uploads_and_other_roots_go_on(self, api: Api, root: Path, tmp_path: Path) -> None:
        (tmp_path / "missing").mkdir()
        (tmp_path / "missing" / "a.csv").write_bytes(CSV)
        api.services.turns = Turns(patience_s=0.05)
        dataset = registered(api)["id"]
        answers, silent = threading.Event(), AtTheMount(root)
        with silent.until(answers), ThreadPoolExecutor(4) as users:
            waiting = [users.submit(registered, api) for _ in range(2)]
            looking = [users.submit(api.get, f"/v1/datasets/{dataset}/preview") for _ in range(2)]
            assert all(silent.seen.acquire(timeout=20) for _ in range(4))
            for answer in (api.post("/v1/datasets", json={"uri": URI}), api.get(f"/v1/datasets/{dataset}/preview")):
                assert "it does not answer" in problem(answer, 503, "storage_unavailable")["detail"]
            assert api.post("/v1/datasets", files={"file": ("a.csv", CSV)}).status_code == 201
            registered(api, "root://other/a.csv")
            answers.set()
            assert [len(result.result(20)["digest"]) for result in waiting] == [64, 64]
            assert [result.result(20).status_code for result in looking] == [200, 200]
        registered(api)


class AtTheMount:
    """Looks at a folder wait until it answers; `seen` counts those that came."""

    def __init__(self, folder: Path) -> None:
        self.seen = threading.Semaphore(0)
        self._folder = folder

    @contextmanager
    def until(self, answers: threading.Event) -> Iterator[None]:
        real = Path.resolve

        def resolve(path: Path, *, strict: bool = False) -> Path:
            if path == self._folder:
                self.seen.release()
                answers.wait(60)
            return real(path, strict=strict)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "resolve", resolve)
            try:
                yield
            finally:
                answers.set()


class TestPreview:
    def test_rows_as_they_stand(self, api: Api) -> None:
        shown = api.get(f"/v1/datasets/{registered(api)['id']}/preview?rows=1").json()
        assert (shown["columns"], shown["rows"]) == (["f1", "f2", "label"], [["1", "2.5", "yes"]])

    @ONE_DATABASE
    @pytest.mark.parametrize("fate", ["changed", "gone"])
    def test_a_file_that_is_not_what_was_registered_is_409(self, api: Api, root: Path, fate: str) -> None:
        dataset, path = registered(api)["id"], root / "2025" / "toy.csv"
        path.unlink() if fate == "gone" else path.write_bytes(CSV.replace(b"5,", b"6,"))
        found = problem(api.get(f"/v1/datasets/{dataset}/preview"), 409, "conflict")
        assert ("is not there" if fate == "gone" else "register it again") in found["detail"]


class TestJobs:
    def test_one_waits_for_a_worker_that_reads_the_root(self, api: Api, database: Database) -> None:
        add_online_worker(database)
        data = {"source": registered(api)["id"], "target": "label", "missing": "drop"}
        job = api.submit(data=data, device_type="cpu")
        waiting = api.get(f"/v1/jobs/{job['id']}").json()["waiting"]
        assert waiting["code"] == "root_unavailable"
        assert "'scans' (host-a: it does not have it)" in waiting["message"]
        would = api.post("/v1/jobs/validate", json=SPEC | {"data": data}).json()
        assert would["now"]["code"] == "root_unavailable"

    @ONE_DATABASE
    def test_an_address_as_source_is_refused_with_what_to_do(self, api: Api) -> None:
        spec = SPEC | {"data": {"source": URI, "target": "label"}}
        (found,) = problem(api.post("/v1/jobs", json=spec), 422, "invalid_spec")["errors"]
        assert (found["pointer"], found["suggestion"]) == ("/data/source", None)
        assert "POST /v1/datasets" in found["message"]
        dataset = registered(api)["id"]
        (found,) = problem(api.post("/v1/jobs", json=spec), 422, "invalid_spec")["errors"]
        assert found["suggestion"] == f'"{dataset}"'


class TestCatalog:
    def test_roots_are_named_with_the_workers_that_read_them(self, api: Api, database: Database) -> None:
        worker_id = add_online_worker(database)
        with database.write() as session:
            worker = session.get_one(Worker, worker_id)
            worker.condition = {"roots": {"scans": {"ok": True}, "other": {"ok": False, "problem": "gone"}}}
        found = CatalogView.model_validate(api.get("/v1/catalog").json()).data_roots
        assert [(root.name, root.workers) for root in found] == [("other", 0), ("scans", 1)]
