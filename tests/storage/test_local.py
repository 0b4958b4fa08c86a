"""What only files on disk can get wrong: links, crashes in the middle, and a folder that goes away."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.storage import LocalStorage, MissingObject, UnsupportedStorage, open_storage
from app.storage.keys import artifact_key, dataset_key, export_key, is_segment, segments_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def storage(root: Path) -> LocalStorage:
    return LocalStorage(root)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"weights")
    return path


class TestLinks:
    """C72: a link planted in the storage must lead nowhere."""

    @pytest.fixture
    def secret(self, tmp_path: Path) -> Path:
        folder = tmp_path / "outside"
        folder.mkdir()
        (folder / "secret").write_text("key")
        return folder / "secret"

    def test_a_linked_file_is_not_there(self, storage: LocalStorage, root: Path, secret: Path, tmp_path: Path) -> None:
        (root / "a").symlink_to(secret)
        with pytest.raises(MissingObject):
            storage.get("a", tmp_path / "fetched")
        with pytest.raises(MissingObject):
            storage.local_path("a")
        assert not storage.exists("a")
        assert storage.list() == []

    def test_a_linked_folder_is_not_there(
        self, storage: LocalStorage, root: Path, secret: Path, source: Path, tmp_path: Path
    ) -> None:
        (root / "a").symlink_to(secret.parent)
        with pytest.raises(MissingObject):
            storage.get("a/secret", tmp_path / "fetched")
        assert storage.list() == storage.list("a") == []
        storage.delete("a/secret")
        with pytest.raises(OSError, match="a"):
            storage.put("a/new", source)
        assert list(secret.parent.iterdir()) == [secret]

    def test_putting_replaces_a_link_and_not_its_target(
        self, storage: LocalStorage, root: Path, secret: Path, source: Path
    ) -> None:
        (root / "a").symlink_to(secret)
        storage.put("a", source)
        assert secret.read_text() == "key"
        assert (root / "a").read_bytes() == b"weights"
        assert not (root / "a").is_symlink()

    def test_the_root_itself_may_be_a_link(self, tmp_path: Path, source: Path) -> None:
        (tmp_path / "disk").mkdir()
        (tmp_path / "storage").symlink_to(tmp_path / "disk")
        LocalStorage(tmp_path / "storage").put("a", source)
        assert (tmp_path / "disk" / "a").read_bytes() == b"weights"

    def test_a_pipe_in_the_place_of_a_file_does_not_block(self, storage: LocalStorage, root: Path) -> None:
        os.mkfifo(root / "a")
        assert not storage.exists("a")
        assert storage.list() == []


class TestDurability:
    def test_the_order_of_calls_that_a_power_cut_needs(
        self, storage: LocalStorage, source: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # File to disk, then its name, then the folder: the order that ext4 and XFS ask for (fsync(2), "Notes").
        calls: list[str] = []
        real_fsync, real_rename = os.fsync, os.rename

        def fsync(descriptor: int) -> None:
            calls.append("fsync folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "fsync file")  # noqa: PTH112
            real_fsync(descriptor)

        def rename(old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
            calls.append("rename")
            real_rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "rename", rename)
        storage.put("a/b", source)
        assert calls == ["fsync folder", "fsync file", "rename", "fsync folder"]

    def test_a_full_disk_leaves_nothing(
        self, storage: LocalStorage, source: Path, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            storage.put("a", source)
        assert list(root.iterdir()) == []

    def test_a_full_disk_leaves_no_half_of_what_was_fetched(
        self, storage: LocalStorage, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage.put("a", source)

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(shutil, "copyfileobj", full)
        with pytest.raises(OSError, match="No space left"):
            storage.get("a", tmp_path / "fetched")
        assert not (tmp_path / "fetched").exists()

    def test_what_a_crash_left_half_written_is_not_listed(self, storage: LocalStorage, root: Path) -> None:
        (root / ".unfinished-0011").write_bytes(b"wei")
        assert storage.list() == []

    def test_a_storage_that_is_gone_is_no_missing_file(self, storage: LocalStorage, root: Path, source: Path) -> None:
        storage.put("a", source)
        shutil.rmtree(root)
        with pytest.raises(OSError, match="the folder of the storage is gone"):
            storage.exists("a")
        with pytest.raises(OSError, match="gone"):
            storage.list()
        with pytest.raises(OSError, match="gone"):
            storage.delete("a")


class TestEmptyFolders:
    """A job that trains for days drops a checkpoint every few seconds, and none of their folders may stay."""

    def test_the_last_file_takes_its_folders_along(self, storage: LocalStorage, root: Path, source: Path) -> None:
        for step in (10, 20):
            storage.put(f"checkpoints/job_a/1/{step}/weights", source)
        storage.delete("checkpoints/job_a/1/10/weights")
        assert [path.name for path in (root / "checkpoints/job_a/1").iterdir()] == ["20"]
        storage.delete("checkpoints/job_a/1/20/weights")
        assert list(root.iterdir()) == [root / "checkpoints"]
        assert list((root / "checkpoints").iterdir()) == []
        storage.put("checkpoints/job_a/1/30/weights", source)
        assert storage.list() == ["checkpoints/job_a/1/30/weights"]

    def test_a_file_finds_its_place_while_others_take_the_folder_away(
        self, storage: LocalStorage, source: Path
    ) -> None:
        def churn(name: str) -> None:
            for _ in range(100):
                storage.put(f"artifacts/job_a/1/{name}", source)
                storage.delete(f"artifacts/job_a/1/{name}")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(churn, "abcd"))
        assert storage.list() == []


class TestOpenStorage:
    def test_a_file_url(self, tmp_path: Path, source: Path) -> None:
        storage = open_storage(f"file://{tmp_path}/new folder/100%")
        storage.put("a", source)
        assert (tmp_path / "new folder" / "100%" / "a").read_bytes() == b"weights"
        assert (tmp_path / "new folder" / "100%").stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("url", ["", "ftp://bucket", "file://relative", "file:/x", "/plain/path", "file:///a\0b"])
    def test_anything_else_names_the_setting_and_an_example(self, url: str) -> None:
        with pytest.raises(UnsupportedStorage, match=r"TRAINSHED_STORAGE_URL .* for example file:///"):
            open_storage(url)

    def test_the_message_has_no_secret_of_the_url(self) -> None:
        with pytest.raises(UnsupportedStorage) as caught:
            open_storage("s3://user:secret@bucket")
        assert "secret" not in str(caught.value)


class TestKeyBuilders:
    def test_they_build_keys(self) -> None:
        job = "job_01k00000000000000000000000"
        assert dataset_key("ds_01k00000000000000000000000") == "datasets/ds_01k00000000000000000000000"
        assert segments_of(artifact_key(job, 3, "model.safetensors")) == ("artifacts", job, "3", "model.safetensors")
        assert len(artifact_key(job, 1000, "x" * 120)) <= 255
        task = "tsk_01k00000000000000000000000"
        assert segments_of(export_key(job, task, 2, "model.onnx")) == ("exports", job, task, "2", "model.onnx")
        assert len(export_key(job, task, 2, "x" * 120)) <= 255

    @pytest.mark.parametrize("text", ["a", "Z9", "model.safetensors", "a-b_c.d", "x" * 120, "trailing."])
    def test_a_segment(self, text: str) -> None:
        assert is_segment(text)

    @pytest.mark.parametrize("text", ["", ".", "..", ".a", "-a", "_a", "a..b", "a/b", "a\n", "٣", "é", "x" * 121])
    def test_no_segment(self, text: str) -> None:
        assert not is_segment(text)
