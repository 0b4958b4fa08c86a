"""The pool of trainers' users where something goes wrong on the way; what trainers do is in `users`."""

import os
from pathlib import Path

import pytest

from workers.trainer_user import TrainerUsers

NOBODYS = range(1_900_000_000, 1_900_000_001)
"""One uid, as which nothing runs."""


class TestTake:
    def test_folder_that_takes_no_note_uses_up_no_uid(self, tmp_path: Path) -> None:
        users = TrainerUsers(NOBODYS, tmp_path / "locks")
        (tmp_path / "locks").write_text("where the folder should be")
        for _ in range(2):
            with pytest.raises(OSError, match="locks"):
                users.take()
        (tmp_path / "locks").unlink()

        assert users.take() == NOBODYS[0]


class TestTakeBack:
    def test_work_folder_that_does_not_come_back_leaves_nothing_elsewhere(self, tmp_path: Path) -> None:
        shared = tmp_path / "shared"
        shared.mkdir()
        (shared / "left").write_text("by the trainer, as whose user this test runs")
        users = TrainerUsers(NOBODYS, tmp_path / "locks", [shared])
        with pytest.raises(FileNotFoundError):
            users.take_back(tmp_path / "gone", os.geteuid())

        assert list(shared.iterdir()) == []
