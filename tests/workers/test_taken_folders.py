"""Checkpoints between their announcement and the storage: out of the trainer's reach, and gone afterwards."""

from pathlib import Path

import pytest

from tests.workers.supervisor.trained import checkpoint, state
from workers.checkpoints import UnreadableCheckpoint, verify, write
from workers.protocol import Checkpoint
from workers.taken_folders import TakenFolders


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    path = tmp_path / "job_1-1"
    path.mkdir()
    return path


def announced(work_dir: Path, step: int) -> Checkpoint:
    found = checkpoint(step, f"checkpoints/{step}")
    write(work_dir / found.path, state(step))
    return found


class TestTaken:
    def test_folder_is_whole_and_out_of_the_work_folder(self, work_dir: Path) -> None:
        found, folders = announced(work_dir, 10), TakenFolders(work_dir)
        folder = folders.folder_of(found)

        assert verify(folder).step == 10
        assert work_dir not in folder.parents
        assert not (work_dir / found.path).exists()

    def test_asked_again_it_is_the_same_one(self, work_dir: Path) -> None:
        found, folders = announced(work_dir, 10), TakenFolders(work_dir)
        first = folders.folder_of(found)

        assert folders.folder_of(found) == first

    def test_another_one_of_the_same_name_is_another_one(self, work_dir: Path) -> None:
        folders = TakenFolders(work_dir)
        first = folders.folder_of(announced(work_dir, 10))
        second = folders.folder_of(announced(work_dir, 10))

        assert first != second
        assert verify(second).step == 10

    def test_removed_is_gone_taken_or_not(self, work_dir: Path) -> None:
        one, two, folders = announced(work_dir, 10), announced(work_dir, 20), TakenFolders(work_dir)
        folder = folders.folder_of(one)
        for found in (one, two, two):
            folders.remove(found)

        assert not folder.exists()
        assert list((work_dir / "checkpoints").iterdir()) == []

    def test_nothing_is_left_when_it_is_closed(self, work_dir: Path) -> None:
        folders = TakenFolders(work_dir)
        folders.folder_of(announced(work_dir, 10))
        folders.close()
        folders.close()

        assert list(work_dir.parent.iterdir()) == [work_dir]


class TestRefused:
    def test_trap_is_no_checkpoint_and_leaves_nothing(self, work_dir: Path) -> None:
        found, folders = announced(work_dir, 10), TakenFolders(work_dir)
        (work_dir / found.path / "more").symlink_to("/etc/passwd")
        with pytest.raises(UnreadableCheckpoint, match="something else than files"):
            folders.folder_of(found)
        folders.close()

        assert list(work_dir.parent.iterdir()) == [work_dir]

    def test_folder_that_is_not_there_is_none(self, work_dir: Path) -> None:
        with pytest.raises(UnreadableCheckpoint, match="not a folder inside the work directory"):
            TakenFolders(work_dir).folder_of(checkpoint(10, "checkpoints/10"))
