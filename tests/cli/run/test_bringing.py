"""What a job left, in a folder here."""

import hashlib
import io
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.edge import Edge
from app.cli.errors import UsageProblem
from app.cli.options import Session
from app.cli.run.bringing import bring, choose_folder, folder_for
from tests.cli.fake_server import AT, JOB, FakeServer, listing

FILES = f"GET /v1/jobs/{JOB}/artifacts"
JOB_ROW: dict[str, Any] = {"id": JOB, "name": "mine"}


def archive(compression: int, comment: bytes, *names: str) -> bytes:
    """With those settings a job's host packs a folder: stored, the time in nanoseconds as each member's comment."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as made:
        for name in names:
            info = zipfile.ZipInfo(name, (2026, 1, 31, 12, 0, 0))
            info.comment = comment
            info.compress_type = compression
            made.writestr(info, f"{name}\n")
    return out.getvalue()


def ours(*names: str) -> bytes:
    return archive(zipfile.ZIP_STORED, b"1700000000000000000", *names)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


def brought(server: FakeServer, folder: Path, **contents: bytes) -> list[str]:
    items = []
    for keyword, content in contents.items():
        name = keyword.replace("__", ".")
        digest = hashlib.sha256(content).hexdigest()
        items.append(
            {
                "name": name,
                "kind": "output",
                "size_bytes": len(content),
                "digest": digest,
                "attempt": 1,
                "created_at": AT,
            }
        )
        server.on(f"{FILES}/{name}", httpx.Response(200, content=content))
    server.on(FILES, listing(*items))
    with server.client() as client:
        return bring(Session(client, Edge(environ={}), as_json=False), JOB_ROW, folder)


class TestBring:
    def test_files_come_as_they_are(self, server: FakeServer, folder: Path) -> None:
        assert brought(server, folder, model__pt=b"weights", a__json=b"{}") == ["a.json", "model.pt"]
        assert (folder / "model.pt").read_bytes() == b"weights"

    def test_folders_are_folders_again(self, server: FakeServer, folder: Path) -> None:
        assert brought(server, folder, model__zip=ours("config.json", "deep/weights.bin")) == ["model"]
        assert (folder / "model" / "deep" / "weights.bin").read_text() == "deep/weights.bin\n"
        assert not (folder / "model.zip").exists()

    @pytest.mark.parametrize(
        "content",
        [
            archive(zipfile.ZIP_DEFLATED, b"1700000000000000000", "a"),
            archive(zipfile.ZIP_STORED, b"", "a"),
            archive(zipfile.ZIP_STORED, b""),
            b"no archive",
        ],
        ids=["compressed", "without times", "empty", "no archive"],
    )
    def test_an_archive_that_the_script_made_stays_one(self, server: FakeServer, folder: Path, content: bytes) -> None:
        assert brought(server, folder, mine__zip=content) == ["mine.zip"]
        assert (folder / "mine.zip").read_bytes() == content

    def test_one_that_would_write_elsewhere_stays_one(self, server: FakeServer, folder: Path, tmp_path: Path) -> None:
        assert brought(server, folder, bad__zip=ours("good", "../evil")) == ["bad.zip"]
        assert not (tmp_path / "evil").exists()
        assert not (folder / "bad").exists()

    def test_a_folder_and_a_file_of_one_name_both_come(self, server: FakeServer, folder: Path) -> None:
        assert brought(server, folder, model=b"file", model__zip=ours("a")) == ["model", "model.zip"]
        assert (folder / "model").read_bytes() == b"file"

    def test_neither_git_nor_the_next_run_takes_them_for_code(self, server: FakeServer, folder: Path) -> None:
        brought(server, folder, model__pt=b"weights")
        assert (folder / ".gitignore").read_text() == "*\n"

    def test_without_files_there_is_no_folder(self, server: FakeServer, folder: Path) -> None:
        assert brought(server, folder) == []
        assert not folder.exists()

    def test_a_folder_that_cannot_be_made_is_named(self, server: FakeServer, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageProblem, match="cannot be written"):
            brought(server, tmp_path / "file" / "out", model__pt=b"weights")


class TestFolder:
    @pytest.mark.parametrize(
        ("name", "folder"),
        [
            ("mine", "mine-output"),
            ("a/../b c", "a-..-b-c-output"),
            ("..", f"{JOB}-output"),
            (None, f"{JOB}-output"),
            ("été", "été-output"),
        ],
    )
    def test_it_is_called_after_the_job(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None, folder: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert folder_for({"id": JOB, "name": name}) == Path(folder)

    def test_a_name_that_is_taken_gives_way_to_the_id(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("mine-output").mkdir()
        assert folder_for(JOB_ROW) == Path(f"{JOB}-output")

    def test_one_that_was_asked_for_must_be_empty(self, tmp_path: Path) -> None:
        assert choose_folder(tmp_path) == tmp_path
        assert choose_folder(tmp_path / "new") == tmp_path / "new"
        assert choose_folder(None) is None
        (tmp_path / "file").write_text("")
        for taken in (tmp_path, tmp_path / "file"):
            with pytest.raises(UsageProblem, match="not empty"):
                choose_folder(taken)
