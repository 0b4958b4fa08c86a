"""The folder of environments: what counts as complete, and what is left over."""

import stat
from pathlib import Path

import pytest

from workers.environments.shelf import FOLDER, MARK, Kept, Record, Shelf, kept

RECORD = Record(
    framework="torch",
    python="3.11.7",
    requirements=("rich==14.1.0",),
    packages={"rich": "14.1.0"},
    bytes=4096,
    seconds=1.5,
    created_at="2026-01-01T00:00:00.000000Z",
)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / FOLDER)


class TestMaking:
    def test_it_counts_once_it_is_finished(self, shelf: Shelf) -> None:
        shelf.begin("key", "launch")
        assert shelf.find("key") is None
        shelf.finish("key", RECORD)
        stored = shelf.find("key")
        assert stored is not None
        assert stored.record == RECORD
        assert not shelf.scratch_of("key").exists()

    def test_the_folder_is_open_whatever_the_umask(self, shelf: Shelf, tmp_path: Path) -> None:
        shelf.begin("key", "launch")
        assert stat.S_IMODE((tmp_path / FOLDER).stat().st_mode) == 0o755
        assert stat.S_IMODE(shelf.folder_of("key").stat().st_mode) == 0o700

    def test_it_begins_empty(self, shelf: Shelf) -> None:
        shelf.begin("key", "launch")
        (shelf.folder_of("key") / "left").write_text("over")
        shelf.begin("key", "launch")
        assert list(shelf.folder_of("key").iterdir()) == []

    def test_nothing_is_left_of_one_that_was_given_up(self, shelf: Shelf, tmp_path: Path) -> None:
        shelf.begin("key", "launch")
        shelf.give_up("key")
        assert list((tmp_path / FOLDER).iterdir()) == []

    def test_the_interpreter_is_where_a_virtual_environment_has_it(self, shelf: Shelf, tmp_path: Path) -> None:
        assert shelf.interpreter_of("key") == tmp_path / FOLDER / "key" / "bin" / "python"


class TestFinding:
    @pytest.mark.parametrize("mark", ["", "{", "[]", '{"framework": "torch"}', '{"unknown": 1}'])
    def test_a_mark_that_cannot_be_read_is_none(self, shelf: Shelf, mark: str) -> None:
        shelf.begin("key", "launch")
        (shelf.folder_of("key") / MARK).write_text(mark, encoding="utf-8")
        assert shelf.find("key") is None

    def test_where_there_is_no_folder_there_is_none(self, shelf: Shelf, tmp_path: Path) -> None:
        assert (shelf.find("key"), shelf.all(), shelf.clean_up()) == (None, [], [])
        assert kept(tmp_path / FOLDER) == Kept(0, 0)

    def test_a_use_moves_it_to_the_end(self, shelf: Shelf) -> None:
        for key in ("a", "b"):
            shelf.begin(key, "launch")
            shelf.finish(key, RECORD)
        shelf.touch("a", 4_000_000_000)
        assert [stored.key for stored in shelf.all()] == ["b", "a"]

    def test_one_that_was_taken_out_is_not_there(self, shelf: Shelf, tmp_path: Path) -> None:
        shelf.begin("key", "launch")
        shelf.finish("key", RECORD)
        aside = shelf.take_out("key")
        assert shelf.find("key") is None
        assert kept(tmp_path / FOLDER) == Kept(0, 0)
        assert (aside / MARK).exists()


class TestCleaningUp:
    def test_complete_ones_stay_and_all_else_goes(self, shelf: Shelf, tmp_path: Path) -> None:
        for key in ("complete", "taken", "half"):
            shelf.begin(key, "")
        for key in ("complete", "taken"):
            shelf.finish(key, RECORD)
        shelf.take_out("taken")
        (tmp_path / FOLDER / "stray").write_text("a file")
        shelf.clean_up()
        assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["complete"]

    def test_closed_folders_do_not_keep_it_from_going(self, shelf: Shelf) -> None:
        shelf.begin("half", "")
        (shelf.folder_of("half") / "closed").mkdir(mode=0)
        shelf.clean_up()
        assert not shelf.folder_of("half").exists()
