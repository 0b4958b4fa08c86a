"""Which files of a checkpoint folder are complete, by looks at times that the test chooses."""

import pytest

from workers.scripts.metrics import Standing
from workers.scripts.stillness import SMALL_BYTES, Watched, is_wanted
from workers.scripts.tree import Entry, File

LARGE = SMALL_BYTES + 1


def entry(name: str, version: int = 1, size: int = 10) -> Entry:
    return Entry(name, is_folder=False, files=(File(name, size, version, 1, executable=False),))


def folder(*entries: Entry) -> dict[str, Entry]:
    return {found.name: found for found in entries}


def at(step: int) -> Standing:
    return Standing(step, 0, {})


class TestIsWanted:
    @pytest.mark.parametrize("name", ["last.pt", "step-1", "a.tmp.pt"])
    def test_finished_names(self, name: str) -> None:
        assert is_wanted(name)

    @pytest.mark.parametrize("name", [".hidden", "a.tmp", "a.part", "a.partial", "a.incomplete"])
    def test_hidden_and_unfinished_names(self, name: str) -> None:
        assert not is_wanted(name)


class TestRipe:
    def test_entry_is_complete_when_it_has_rested(self) -> None:
        watched = Watched()
        watched.look(folder(entry("a")), 10.0, at(1))
        assert watched.ripe(11.9) == []

        watched.look(folder(entry("a")), 12.0, at(2))
        assert watched.ripe(12.0) == ["a"]

    def test_every_change_starts_the_rest_anew(self) -> None:
        watched = Watched()
        for version, now_s in ((1, 10.0), (2, 11.5)):
            watched.look(folder(entry("a", version)), now_s, at(1))

        assert watched.ripe(13.0) == []
        assert watched.ripe(13.5) == ["a"]

    def test_what_was_taken_is_not_new_until_it_changes(self) -> None:
        watched = Watched()
        watched.look(folder(entry("a")), 0.0, at(1))
        watched.taken(["a"])
        assert watched.ripe(100.0) == []

        watched.look(folder(entry("a", 2)), 100.0, at(2))
        assert watched.ripe(102.0) == ["a"]

    def test_entries_written_together_wait_for_each_other(self) -> None:
        watched = Watched()
        watched.look(folder(entry("model")), 10.0, at(1))
        watched.look(folder(entry("model"), entry("optimizer")), 11.0, at(1))
        watched.look(folder(entry("model"), entry("optimizer", 2)), 12.5, at(1))

        assert watched.ripe(13.0) == []
        assert set(watched.ripe(14.5)) == {"model", "optimizer"}

    def test_long_save_in_several_files_is_one_group(self) -> None:
        watched = Watched()
        watched.look(folder(entry("model")), 0.0, at(1))
        for second in range(1, 10):
            watched.look(folder(entry("model"), entry("optimizer", second)), float(second), at(1))

        assert watched.ripe(9.5) == []

    def test_entries_apart_in_time_do_not_wait(self) -> None:
        watched = Watched()
        watched.look(folder(entry("step-1")), 10.0, at(1))
        watched.look(folder(entry("step-1"), entry("step-2")), 13.0, at(2))

        assert watched.ripe(13.0) == ["step-1"]

    def test_one_that_never_rests_holds_the_others_up_for_a_while_only(self) -> None:
        watched = Watched()
        for second in range(40):
            watched.look(folder(entry("log", second), entry("model")), float(second), at(second))
            if second < 30:
                assert watched.ripe(float(second)) == []

        assert watched.ripe(39.0) == ["model"]

    def test_announced_entry_is_complete_at_once(self) -> None:
        watched = Watched()
        watched.announce("a", at(5))
        watched.look(folder(entry("a"), entry("b")), 10.0, at(6))

        assert watched.ripe(10.0) == ["a"]
        assert watched.standing_of(["a"]) == at(5)

    def test_announcement_holds_for_what_was_there_alone(self) -> None:
        watched = Watched()
        watched.announce("a", at(5))
        watched.look(folder(entry("a")), 10.0, at(5))
        watched.look(folder(entry("a", 2)), 10.5, at(5))

        assert watched.ripe(10.5) == []

    def test_all_are_taken_when_the_command_has_ended_in_order(self) -> None:
        watched = Watched()
        watched.look(folder(entry("a"), entry("b")), 10.0, at(1))

        assert set(watched.ripe(10.0, all_of_them=True)) == {"a", "b"}

    def test_empty_folder_is_nothing(self) -> None:
        watched = Watched()
        watched.look({"empty": Entry("empty", is_folder=True, files=())}, 0.0, at(1))

        assert watched.ripe(100.0, all_of_them=True) == []

    def test_entry_that_went_away_is_forgotten(self) -> None:
        watched = Watched()
        watched.look(folder(entry("a")), 0.0, at(1))
        watched.look({}, 1.0, at(1))

        assert watched.ripe(100.0) == []


class TestStandingOf:
    def test_it_is_where_the_script_was_at_the_last_change(self) -> None:
        watched = Watched()
        watched.look(folder(entry("a")), 10.0, at(3))
        watched.look(folder(entry("a"), entry("b")), 11.0, at(4))
        watched.look(folder(entry("a"), entry("b")), 14.0, at(9))

        assert watched.standing_of(["a", "b"]) == at(4)


class TestCompanions:
    def known(self, *entries: Entry) -> Watched:
        watched = Watched()
        watched.look(folder(*entries), 0.0, at(1))
        watched.taken([found.name for found in entries])
        return watched

    def test_small_unchanged_entries_come_along(self) -> None:
        watched = self.known(entry("state.json"), entry("tokens.txt"))

        assert watched.companions({"new"}) == ["state.json", "tokens.txt"]

    def test_large_one_comes_along_when_nothing_new_takes_its_place(self) -> None:
        watched = self.known(entry("best.pt", size=LARGE))

        assert watched.companions({"last.pt"}) == ["best.pt"]

    def test_of_a_numbered_row_only_the_newest_is_kept(self) -> None:
        row = [entry(f"step-{step}", step, LARGE) for step in (10, 20, 30)]

        assert self.known(*row).companions({"state.json"}) == ["step-30"]
        assert self.known(*row).companions({"step-40"}) == []

    def test_small_ones_have_a_common_limit_and_the_newest_win(self) -> None:
        row = [entry(f"part-{number:02}", number, SMALL_BYTES) for number in range(20)]

        assert self.known(*row).companions({"part-99"}) == [f"part-{number:02}" for number in range(4, 20)]

    def test_changed_entry_that_is_not_complete_stays_out(self) -> None:
        watched = self.known(entry("a"))
        watched.look(folder(entry("a", 2), entry("b")), 1.0, at(1))

        assert watched.companions({"b"}) == []


class TestNeverAtRest:
    """A script that saves more often than every two seconds."""

    def saves(self, watched: Watched, until_s: float, *, inodes: bool, beside: bool = False) -> list[str]:
        """A save and a look each second; what is ripe at the end."""
        for second in range(int(until_s) + 1):
            file = File("last", 10, second, second if inodes else 1, executable=False)
            entries = folder(Entry("last", is_folder=False, files=(file,)), *([entry("log", second)] if beside else []))
            watched.look(entries, float(second), at(second))
        return watched.ripe(until_s)

    def test_file_that_is_renamed_into_place_is_complete_whenever_it_is_seen(self) -> None:
        assert self.saves(Watched(), 5.0, inodes=True) == []
        assert self.saves(Watched(), 6.0, inodes=True) == ["last"]

    def test_one_that_is_written_over_may_be_half_written(self) -> None:
        assert self.saves(Watched(), 60.0, inodes=False) == []

    def test_one_of_several_files_may_not_fit_to_the_others(self) -> None:
        assert self.saves(Watched(), 60.0, inodes=True, beside=True) == []

    def test_it_is_named_after_a_while(self) -> None:
        watched = Watched()
        self.saves(watched, 29.0, inodes=False)
        assert watched.restless(29.0) is None
        self.saves(watched, 31.0, inodes=False)
        assert watched.restless(31.0) == "last"
        assert watched.restless(34.0) is None, "it rests, and will be taken"
