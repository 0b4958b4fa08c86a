"""Work folders of the worker's own user: taken back, moved away, removed. With other users: tests/workers/users."""

import os
import socket
import stat
from pathlib import Path

import pytest

from workers.ownership import ForeignFolder, hand_over, remove_of, remove_tree, take_back, take_folder

ME = os.geteuid()


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    (path / "checkpoints" / "5-1").mkdir(parents=True)
    (path / "checkpoints" / "5-1" / "state.json").write_text("{}")
    return path


@pytest.fixture
def taken(tmp_path: Path) -> Path:
    path = tmp_path / "taken"
    path.mkdir(mode=0o700)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def deep(folder: Path, levels: int) -> None:
    """A tree whose deepest path is longer than any system call takes."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d" * 200, dir_fd=descriptor)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)


class TestHandOver:
    def test_all_of_it_is_for_the_user_and_for_our_group(self, work_dir: Path) -> None:
        hand_over(work_dir, ME)

        assert [mode(path) for path in (work_dir, work_dir / "checkpoints")] == [0o2770, 0o2770]
        assert mode(work_dir / "checkpoints" / "5-1" / "state.json") == 0o660

    def test_file_with_a_name_elsewhere_is_not_given_away(self, work_dir: Path, tmp_path: Path) -> None:
        (tmp_path / "ours").write_text("ours")
        (tmp_path / "ours").chmod(0o600)
        (work_dir / "same").hardlink_to(tmp_path / "ours")
        hand_over(work_dir, ME)

        assert not (work_dir / "same").exists()
        assert mode(tmp_path / "ours") == 0o600


class TestTakeBack:
    def test_closed_folders_and_files_are_opened(self, work_dir: Path) -> None:
        for path in (work_dir / "checkpoints" / "5-1" / "state.json", work_dir / "checkpoints" / "5-1"):
            path.chmod(0)
        take_back(work_dir, ME)

        assert (work_dir / "checkpoints" / "5-1" / "state.json").read_text() == "{}"
        assert mode(work_dir) == 0o700

    def test_links_pipes_and_sockets_are_gone_and_what_they_point_to_is_not(
        self, work_dir: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "secret").write_text("secret")
        (work_dir / "link").symlink_to(tmp_path / "secret")
        (work_dir / "folder").symlink_to(tmp_path)
        os.mkfifo(work_dir / "pipe")
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(str(work_dir / "socket"))
        take_back(work_dir, ME)

        assert [path.name for path in work_dir.iterdir()] == ["checkpoints"]
        assert (tmp_path / "secret").read_text() == "secret"

    def test_link_in_the_place_of_the_folder_is_not_followed(self, tmp_path: Path, work_dir: Path) -> None:
        link = tmp_path / "link"
        link.symlink_to(work_dir)
        with pytest.raises(OSError, match=r"link|folder"):
            take_back(link, ME)


class TestRemove:
    def test_deeper_than_a_path_can_be_is_no_matter(self, work_dir: Path) -> None:
        deep(work_dir, 1_200)  # Python's own removal goes down by recursion, and so fails at 1,000
        remove_tree(work_dir)

        assert not work_dir.exists()

    def test_what_is_not_there_is_no_error(self, tmp_path: Path) -> None:
        remove_tree(tmp_path / "missing")
        remove_of(ME + 1, tmp_path / "missing")

        assert list(tmp_path.iterdir()) == []

    def test_only_what_belongs_to_the_user_goes(self, work_dir: Path) -> None:
        remove_of(ME + 1, work_dir)
        assert [path.name for path in work_dir.iterdir()] == ["checkpoints"]
        remove_of(ME, work_dir)
        assert list(work_dir.iterdir()) == []


class TestTakeFolder:
    def test_its_files_are_at_the_new_place_and_the_old_one_is_free(self, work_dir: Path, taken: Path) -> None:
        take_folder(work_dir, "checkpoints/5-1", taken / "0")

        assert (taken / "0" / "state.json").read_text() == "{}"
        assert list((work_dir / "checkpoints").iterdir()) == []
        assert mode(taken / "0") == 0o700

    @pytest.mark.parametrize(
        "path", ["", ".", "..", "/", "checkpoints/../checkpoints/5-1", "checkpoints//5-1", "a\0b", "/etc"]
    )
    def test_paths_that_are_none_are_refused(self, work_dir: Path, taken: Path, path: str) -> None:
        with pytest.raises(ForeignFolder):
            take_folder(work_dir, path, taken / "0")

    def test_link_on_the_way_is_refused(self, work_dir: Path, taken: Path) -> None:
        (work_dir / "elsewhere").symlink_to("checkpoints")
        (work_dir / "last").symlink_to("checkpoints/5-1")
        for path in ("elsewhere/5-1", "last"):
            with pytest.raises(ForeignFolder):
                take_folder(work_dir, path, taken / "0")

    def test_anything_in_it_but_files_is_refused(self, work_dir: Path, taken: Path) -> None:
        (work_dir / "checkpoints" / "5-1" / "weights").symlink_to("/etc/passwd")
        with pytest.raises(ForeignFolder, match="something else than files"):
            take_folder(work_dir, "checkpoints/5-1", taken / "0")

    def test_file_in_its_place_is_refused(self, work_dir: Path, taken: Path) -> None:
        with pytest.raises(ForeignFolder):
            take_folder(work_dir, "checkpoints/5-1/state.json", taken / "0")

    def test_what_is_not_there_is_an_error_of_the_system(self, work_dir: Path, taken: Path) -> None:
        with pytest.raises(FileNotFoundError):
            take_folder(work_dir, "checkpoints/6-1", taken / "0")
