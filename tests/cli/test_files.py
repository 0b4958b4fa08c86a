"""The commands that move files."""

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Trainshed
from tests.cli.fake_server import AT, JOB, FakeServer, breaks, listing, problem

DATASET: dict[str, Any] = {
    "id": "ds_01k0000000000000000000000a",
    "object": "dataset",
    "name": "penguins.csv",
    "format": "csv",
    "state": "ready",
    "rows": 344,
    "size_bytes": 15000,
    "digest": "0" * 64,
    "table": {
        "columns": [
            {
                "name": "species",
                "kind": "text",
                "missing": 0,
                "distinct": 9,
                "labels": list("abcdefghi"),
                "minimum": None,
                "maximum": None,
            },
            {"name": "mass", "kind": "number", "missing": 2, "distinct": 94, "minimum": 2700.0, "maximum": 6300.5},
        ]
    },
    "problems": [],
    "created_by": "ada",
    "created_at": AT,
}
CONTENT = b"weights" * 1000
FILES = f"GET /v1/jobs/{JOB}/artifacts"


def artifact(name: str = "model.safetensors", content: bytes = CONTENT) -> dict[str, Any]:
    return {
        "object": "artifact",
        "name": name,
        "job_id": JOB,
        "attempt": 1,
        "kind": "model",
        "media_type": "application/octet-stream",
        "size_bytes": len(content),
        "digest": hashlib.sha256(content).hexdigest(),
        "created_at": AT,
    }


@pytest.fixture
def model(server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job with one file, and an empty working directory to fetch it into."""
    server.on(FILES, listing(artifact()))
    server.on(f"{FILES}/model.safetensors", httpx.Response(200, content=CONTENT))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


class TestDatasets:
    def test_upload_sends_the_file_as_it_is_under_its_name(
        self, server: FakeServer, trainshed: Trainshed, tmp_path: Path
    ) -> None:
        file = tmp_path / "penguins.csv"
        file.write_bytes(b"\xef\xbb\xbfspecies,mass\r\na,1\r\n")
        server.on("POST /v1/datasets", DATASET)
        ran = trainshed("datasets", "upload", str(file))
        assert ran.code == 0
        request = server.requests[0]
        assert request.content == file.read_bytes()
        assert (request.headers["Content-Type"], request.url.params["name"]) == ("text/csv", "penguins.csv")
        assert ran.out.startswith(f"{DATASET['id']} penguins.csv\n")

    def test_columns_are_shown_with_a_few_labels(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(f"GET /v1/datasets/{DATASET['id']}", DATASET)
        out = trainshed("datasets", "show", DATASET["id"]).out
        assert "a, b, c, d, e, f, …" in out
        assert "6300" in out

    def test_a_built_in_set_has_no_owner_but_a_description(self, server: FakeServer, trainshed: Trainshed) -> None:
        members = ("object", "name", "format", "rows", "table")
        builtin = {"id": "digits", "description": "Small pictures", **{name: DATASET[name] for name in members}}
        server.on("GET /v1/datasets/digits", builtin)
        out = trainshed("datasets", "show", "digits").out
        assert "Small pictures" in out
        assert "created_by" not in out

    def test_another_name_may_be_given(self, server: FakeServer, trainshed: Trainshed, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("a\n1\n")
        server.on("POST /v1/datasets", DATASET)
        trainshed("datasets", "upload", str(tmp_path / "a.csv"), "--name", "birds")
        assert server.requests[0].url.params["name"] == "birds"

    def test_a_bad_table_is_explained_by_row_and_column(
        self, server: FakeServer, trainshed: Trainshed, tmp_path: Path
    ) -> None:
        (tmp_path / "a.csv").write_text("a\n1\n")
        errors = [{"row": 3, "column": "mass", "message": "has 5 cells", "suggestion": "quote it"}]
        server.on("POST /v1/datasets", problem(422, "invalid_data", "bad", errors=errors))
        ran = trainshed("datasets", "upload", str(tmp_path / "a.csv"))
        assert ran.code == 2
        assert ran.err.splitlines()[1:] == ["  row 3, column mass: has 5 cells", "      try: quote it"]

    def test_an_address_in_a_data_root_is_registered_and_nothing_is_read_here(
        self, server: FakeServer, trainshed: Trainshed
    ) -> None:
        server.on("POST /v1/datasets", DATASET | {"uri": "root://scans/a.csv"})
        assert trainshed("datasets", "upload", "root://scans/a.csv").code == 0
        assert trainshed("datasets", "upload", "root://scans/a.csv", "--name", "birds", "--json").json["id"]
        sent = [json.loads(request.content) for request in server.requests]
        assert sent == [{"uri": "root://scans/a.csv"}, {"uri": "root://scans/a.csv", "name": "birds"}]
        assert server.requests[0].headers["Content-Type"] == "application/json"

    def test_a_file_that_is_not_there_is_said_here(self, server: FakeServer, trainshed: Trainshed) -> None:
        ran = trainshed("datasets", "upload", "missing.csv")
        assert (ran.code, server.requests) == (2, [])
        assert "missing.csv is not a file" in ran.err

    def test_ls(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/datasets", listing(DATASET))
        assert DATASET["id"] in trainshed("datasets", "ls").out
        assert trainshed("datasets", "ls", "--json").json["data"] == [DATASET]

    @pytest.mark.parametrize("name", ["..", "a/b", "a%2fb", "x?y", ""])
    def test_what_is_no_id_never_reaches_the_server(self, server: FakeServer, trainshed: Trainshed, name: str) -> None:
        assert trainshed("datasets", "show", name).code == 2
        assert server.requests == []


class TestArtifacts:
    def test_a_list(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(FILES, listing(artifact()))
        out = trainshed("artifacts", JOB).out
        assert "model.safetensors" in out
        assert f"{hashlib.sha256(CONTENT).hexdigest()[:12]}…" in out
        assert trainshed("artifacts", JOB, "--json").json == listing(artifact())

    def test_none_is_said(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(FILES, listing())
        assert trainshed("artifacts", JOB).out == "This job has left no files.\n"

    def test_download_writes_the_file_here(self, model: Path, trainshed: Trainshed) -> None:
        ran = trainshed("artifacts", JOB, "--download", "model.safetensors")
        assert ran.out == "model.safetensors (7000 bytes)\n"
        assert [(path.name, path.read_bytes()) for path in model.iterdir()] == [("model.safetensors", CONTENT)]

    @pytest.mark.parametrize(("output", "written"), [("m.bin", "m.bin"), (".", "model.safetensors")])
    def test_or_where_it_is_wanted(self, model: Path, trainshed: Trainshed, output: str, written: str) -> None:
        ran = trainshed("artifacts", JOB, "--download", "model.safetensors", "-o", output, "--json")
        assert ran.json["path"] == written
        assert (model / written).read_bytes() == CONTENT

    def test_what_exists_is_never_overwritten(self, model: Path, trainshed: Trainshed) -> None:
        (model / "model.safetensors").write_text("mine")
        assert trainshed("artifacts", JOB, "--download", "model.safetensors").code == 2
        assert (model / "model.safetensors").read_text() == "mine"

    def test_a_damaged_file_is_not_kept(self, server: FakeServer, model: Path, trainshed: Trainshed) -> None:
        server.on(f"{FILES}/model.safetensors", httpx.Response(200, content=CONTENT[:-1]))
        ran = trainshed("artifacts", JOB, "--download", "model.safetensors")
        assert ran.code == 2
        assert "arrived damaged" in ran.err
        assert list(model.iterdir()) == []

    def test_a_lost_connection_leaves_nothing(self, server: FakeServer, model: Path, trainshed: Trainshed) -> None:
        server.on(f"{FILES}/model.safetensors", breaks)
        assert trainshed("artifacts", JOB, "--download", "model.safetensors").code == 3
        assert list(model.iterdir()) == []

    def test_an_unknown_name_lists_the_known_ones(self, model: Path, trainshed: Trainshed) -> None:
        del model
        ran = trainshed("artifacts", JOB, "--download", "weights.h5")
        assert ran.code == 2
        assert "It has: model.safetensors." in ran.err

    def test_a_folder_that_cannot_be_written_is_named(self, model: Path, trainshed: Trainshed) -> None:
        del model
        ran = trainshed("artifacts", JOB, "--download", "model.safetensors", "-o", "no/where")
        assert ran.code == 2
        assert "no/where cannot be written: No such file or directory" in ran.err
