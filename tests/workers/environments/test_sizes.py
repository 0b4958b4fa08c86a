"""How much of a disk a folder takes, against what `du` counts."""

import os
import subprocess
from pathlib import Path

from workers.environments.sizes import disk_bytes

KIB = 1024


def by_du(folder: Path) -> int:
    """What is in the folder, without the folder itself."""
    done = subprocess.run(["/usr/bin/du", "-s", "-B1", str(folder)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0]) - folder.lstat().st_blocks * 512


class TestDiskBytes:
    def test_it_is_what_du_counts(self, tmp_path: Path) -> None:
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "a" / "b" / "file").write_bytes(b"x" * 10_000)
        (tmp_path / "file").write_bytes(b"x")
        os.link(tmp_path / "file", tmp_path / "second name")
        (tmp_path / "link").symlink_to("/usr")
        assert disk_bytes(str(tmp_path)) == by_du(tmp_path) > 10_000

    def test_holes_take_nothing(self, tmp_path: Path) -> None:
        with (tmp_path / "sparse").open("wb") as file:
            file.truncate(1 << 40)
        assert disk_bytes(str(tmp_path)) < 64 * KIB

    def test_a_folder_that_is_not_there_takes_nothing(self, tmp_path: Path) -> None:
        assert disk_bytes(str(tmp_path / "nothing")) == 0
