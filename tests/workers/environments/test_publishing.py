"""What was installed becomes everybody's to read and nobody's to write."""

import os
import stat
from pathlib import Path

import pytest

from workers.environments.publishing import publish


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "environment"
    (root / "lib" / "deep").mkdir(parents=True, mode=0o700)
    (root / "lib" / "module.py").write_text("x = 1\n")
    (root / "lib" / "module.py").chmod(0o600)
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o4770)
    (root / "python").symlink_to("/usr/bin/python3")
    return root


class TestModes:
    def test_files_can_be_read_and_programs_be_run_and_no_bit_gives_another_user(self, root: Path) -> None:
        publish(root)
        assert mode(root / "lib" / "module.py") == 0o444
        assert mode(root / "run") == 0o555
        assert (mode(root / "lib"), mode(root / "lib" / "deep")) == (0o555, 0o555)

    def test_the_folder_itself_stays_its_owners(self, root: Path) -> None:
        publish(root)
        assert mode(root) == 0o755

    def test_closed_folders_are_opened(self, root: Path) -> None:
        (root / "lib" / "deep" / "file").write_text("")
        (root / "lib" / "deep").chmod(0)
        publish(root)
        assert mode(root / "lib" / "deep" / "file") == 0o444


class TestWhatElseThereIs:
    def test_links_stay_and_are_not_followed(self, root: Path, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir(mode=0o700)
        (outside / "file").write_text("")
        (outside / "file").chmod(0o600)
        (root / "folder").symlink_to(outside)
        (root / "file").symlink_to(outside / "file")
        publish(root)
        assert (root / "folder").readlink() == outside
        assert (mode(outside), mode(outside / "file")) == (0o700, 0o600)

    def test_files_with_another_name_elsewhere_go(self, root: Path, tmp_path: Path) -> None:
        (tmp_path / "outside").write_text("somebody else's")
        (tmp_path / "outside").chmod(0o600)
        os.link(tmp_path / "outside", root / "lib" / "inside")
        publish(root)
        assert not (root / "lib" / "inside").exists()
        assert mode(tmp_path / "outside") == 0o600

    def test_pipes_go(self, root: Path) -> None:
        os.mkfifo(root / "lib" / "pipe")
        publish(root)
        assert not (root / "lib" / "pipe").exists()

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of another user")
    def test_files_of_a_stranger_go_and_those_of_the_trainers_user_are_taken(self, root: Path) -> None:
        for name, uid in (("theirs", 1_000_001), ("ours", 1_000_002)):
            (root / name).write_text("")
            os.chown(root / name, uid, uid)
        publish(root, 1_000_002)
        assert not (root / "theirs").exists()
        assert (root / "ours").stat().st_uid == os.geteuid()
