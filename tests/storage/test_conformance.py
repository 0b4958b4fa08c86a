"""What every storage must do; an implementation joins by a line in STORAGES."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.errors import TrainshedError
from app.storage import LocalStorage, MissingObject, S3Storage, Storage
from app.storage.keys import InvalidKey
from app.storage.s3 import Replaced
from tests.s3 import S3Server

Need = pytest.FixtureRequest


def _s3(request: Need) -> Storage:
    """Small pieces, so that a file of some megabytes is sent and read in several."""
    server: S3Server = request.getfixturevalue("shared_s3")
    return S3Storage(server.new_bucket("some/folder"), server.access, piece_bytes=5 * 1024**2)


def _local(request: Need) -> Storage:
    folder: Path = request.getfixturevalue("tmp_path")
    return LocalStorage(folder / "storage")


STORAGES: dict[str, Callable[[Need], Storage]] = {"local": _local, "s3": _s3}

BAD_KEYS = [
    "",
    "/",
    "..",
    "a/..",
    "a/../b",
    "../a",
    "/etc/passwd",
    "a//b",
    "a/",
    ".hidden",
    "a/.hidden",
    "a\\b",
    "a b",
    "a\0b",
    "a\n",
    "ä",
    "a..b",
    "%2e%2e/a",
    "a;b",
    "x" * 121,
    "/".join("abcdefghi"),
    "/".join(["x" * 60] * 5),
]


@pytest.fixture(params=STORAGES)
def storage(request: Need) -> Storage:
    return STORAGES[request.param](request)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"weights")
    return path


def read(storage: Storage, key: str, tmp_path: Path) -> bytes:
    destination = tmp_path / "fetched"
    storage.get(key, destination)
    data = destination.read_bytes()
    destination.unlink()
    return data


class TestPutAndGet:
    def test_what_was_put_comes_back(self, storage: Storage, source: Path, tmp_path: Path) -> None:
        storage.put("artifacts/job_1/1/model.safetensors", source)
        assert read(storage, "artifacts/job_1/1/model.safetensors", tmp_path) == b"weights"

    def test_an_empty_and_a_large_file(self, storage: Storage, source: Path, tmp_path: Path) -> None:
        for data in (b"", os.urandom(11_000_001)):
            source.write_bytes(data)
            storage.put("a", source)
            assert read(storage, "a", tmp_path) == data

    def test_it_is_a_copy(self, storage: Storage, source: Path, tmp_path: Path) -> None:
        storage.put("a", source)
        source.write_bytes(b"other")
        assert read(storage, "a", tmp_path) == b"weights"

    def test_again_replaces(self, storage: Storage, source: Path, tmp_path: Path) -> None:
        storage.put("a", source)
        source.write_bytes(b"other")
        storage.put("a", source)
        assert read(storage, "a", tmp_path) == b"other"

    def test_a_source_that_is_missing_a_folder_or_a_link_stores_nothing(
        self, storage: Storage, source: Path, tmp_path: Path
    ) -> None:
        link = tmp_path / "link"
        link.symlink_to(source)
        for wrong in (tmp_path / "missing", tmp_path, link):
            with pytest.raises(OSError, match=wrong.name):
                storage.put("a", wrong)
        assert storage.list() == []

    def test_a_pipe_as_source_does_not_block(self, storage: Storage, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="not a regular file"):
            storage.put("a", tmp_path / "pipe")

    def test_getting_what_is_not_there(self, storage: Storage, source: Path, tmp_path: Path) -> None:
        storage.put("a/b", source)
        for key in ("b", "a", "a/b/c", "a/c"):
            with pytest.raises(MissingObject) as caught:
                storage.get(key, tmp_path / "fetched")
            assert caught.value.key == key
        assert not (tmp_path / "fetched").exists()

    def test_missing_is_both_ours_and_the_systems_error(self, storage: Storage, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError) as caught:
            storage.get("a", tmp_path / "fetched")
        assert isinstance(caught.value, TrainshedError)
        assert str(caught.value) == "The storage has no file 'a'."

    def test_a_destination_is_never_overwritten_or_followed(
        self, storage: Storage, source: Path, tmp_path: Path
    ) -> None:
        storage.put("a", source)
        victim = tmp_path / "victim"
        victim.write_bytes(b"precious")
        (tmp_path / "link").symlink_to(victim)
        for destination in (victim, tmp_path / "link"):
            with pytest.raises(FileExistsError):
                storage.get("a", destination)
        assert victim.read_bytes() == b"precious"


class TestExistsListDelete:
    def test_exists(self, storage: Storage, source: Path) -> None:
        assert not storage.exists("a/b")
        storage.put("a/b", source)
        assert storage.exists("a/b")
        assert not storage.exists("a")

    def test_list_is_sorted_and_narrowed_by_whole_segments(self, storage: Storage, source: Path) -> None:
        keys = ["artifacts/job_1/1/a", "artifacts/job_1/2/a", "artifacts/job_10/1/a", "datasets/ds_1"]
        for key in reversed(keys):
            storage.put(key, source)
        assert storage.list() == keys
        assert storage.list("artifacts/job_1") == keys[:2]
        assert storage.list("artifacts/job_1/") == keys[:2]
        assert storage.list("nothing") == []
        assert storage.list("datasets/ds_1") == []

    def test_delete_takes_one_file_and_again_is_no_error(self, storage: Storage, source: Path) -> None:
        storage.put("a/b", source)
        storage.put("a/c", source)
        for _ in range(2):
            storage.delete("a/b")
            assert storage.list() == ["a/c"]
        storage.delete("never/there")

    def test_local_path_reads_the_same_bytes_or_is_none(self, storage: Storage, source: Path) -> None:
        storage.put("a/b", source)
        path = storage.local_path("a/b")
        assert path is None or path.read_bytes() == b"weights"
        with pytest.raises(MissingObject):
            storage.local_path("a/c")

    def test_a_file_that_was_opened_reads_and_seeks(self, storage: Storage, source: Path) -> None:
        data = os.urandom(11_000_001)
        source.write_bytes(data)
        storage.put("a/b", source)
        with storage.open("a/b") as file:
            assert file.read(10) == data[:10]
            assert file.seek(-10, os.SEEK_END) == len(data) - 10
            assert file.read(100) == data[-10:]
            assert file.read(100) == b""
            file.seek(5_242_870)  # over the border of two pieces
            assert file.read(20) == data[5_242_870:5_242_890]
            file.seek(0)
            assert file.read() == data

    def test_an_empty_file_opens_and_a_missing_one_does_not(self, storage: Storage, source: Path) -> None:
        source.write_bytes(b"")
        storage.put("a/b", source)
        with storage.open("a/b") as file:
            assert file.read(1) == b""
        for key in ("a", "a/c", "a/b/c"):
            with pytest.raises(MissingObject):
                storage.open(key)


class TestKeys:
    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_no_operation_takes_what_is_no_key(self, storage: Storage, source: Path, tmp_path: Path, key: str) -> None:
        operations: list[Callable[[], object]] = [
            lambda: storage.put(key, source),
            lambda: storage.get(key, tmp_path / "fetched"),
            lambda: storage.exists(key),
            lambda: storage.delete(key),
            lambda: storage.local_path(key),
            lambda: storage.open(key),
        ]
        for operation in operations:
            with pytest.raises(InvalidKey):
                operation()


class TestConcurrency:
    def test_a_reader_sees_a_whole_file_or_none(self, storage: Storage, tmp_path: Path) -> None:
        # Two writers replace one key in turn; each version is one repeated byte, so a mixture would show.
        done = threading.Event()
        failures: list[str] = []

        def write(letter: bytes) -> None:
            path = tmp_path / f"source-{letter.decode()}"
            path.write_bytes(letter * 200_000)
            for _ in range(15):
                storage.put("contended/key", path)

        def watch() -> None:
            turn = 0
            while not done.is_set():
                turn += 1
                destination = tmp_path / f"seen-{turn}"
                try:
                    storage.get("contended/key", destination)
                except (MissingObject, Replaced):  # from afar it is read in pieces, and tells when another one came
                    continue
                data = destination.read_bytes()
                if len(data) != 200_000 or len(set(data)) != 1:
                    failures.append(f"{len(data)} bytes, {set(data)}")
                destination.unlink()

        watcher = threading.Thread(target=watch)
        writers = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b")]
        watcher.start()
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        done.set()
        watcher.join()
        assert failures == []
        assert storage.list() == ["contended/key"]
