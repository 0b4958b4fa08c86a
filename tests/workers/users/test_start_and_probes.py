"""The start of a worker whose trainers have users of their own, and what such a user sees, with few capabilities."""

from collections.abc import Callable
from typing import Any

from tests.workers.users.confined import needs_root

pytestmark = needs_root

Scenario = Callable[[str], Any]


class TestWhatIsSeen:
    def test_what_must_be_closed_and_what_is_needed(self, scenario: Scenario) -> None:
        found = scenario("seen")

        assert (found["open"], found["closed"], found["fault"]) == (["open"], ["secret"], None)

    def test_interpreter_that_does_not_run_is_a_fault(self, scenario: Scenario) -> None:
        assert "could not be tried: it said nothing" in scenario("seen")["without"]

    def test_interpreter_that_says_nothing_is_not_waited_for(self, scenario: Scenario) -> None:
        assert scenario("seen")["mute"].endswith("could not be tried: it did not answer within 0.2 s")

    def test_nothing_is_left_of_a_look(self, scenario: Scenario) -> None:
        found = scenario("seen")

        assert (found["left"], found["notes"]) == ([], [])


class TestStart:
    def test_home_is_closed_to_trainers_and_the_way_to_their_work_is_open(self, scenario: Scenario) -> None:
        modes = scenario("started")["modes"]

        assert modes["trainshed.db"] & 0o007 == 0
        assert modes["run/locks"] & 0o007 == 0
        assert (modes["run"] & 0o001, modes["run/work"] & 0o001) == (1, 1)

    def test_work_of_an_earlier_start_is_removed(self, scenario: Scenario) -> None:
        assert not any(name.startswith("run/work/") for name in scenario("started")["modes"])

    def test_data_root_that_trainers_cannot_read_is_told_until_they_can(self, scenario: Scenario) -> None:
        found = scenario("started")

        assert found["before"]["roots"]["scans"]["ok"] is False
        assert "cannot read it: let others read it" in found["before"]["roots"]["scans"]["problem"]
        assert found["after"]["roots"]["scans"] == {"ok": True, "problem": None}

    def test_storage_that_trainers_can_read_keeps_jobs_away(self, scenario: Scenario) -> None:
        found = scenario("started")

        assert found["before"]["blockers"] == []
        assert [blocker["code"] for blocker in found["after"]["blockers"]] == ["open_to_trainers"]
        assert "can read the storage folder" in found["after"]["blockers"][0]["message"]


class TestSelfTest:
    def test_it_runs_as_a_trainer_would(self, scenario: Scenario) -> None:
        assert scenario("self_tested") == {"found": {"torch": None}, "left": [], "notes": []}
