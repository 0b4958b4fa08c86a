"""A script with a user of its own: what it is, what it reaches, and what its worker gets back."""

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.workers.users.confined import GROUP, confined, needs_root
from tests.workers.users.conftest import open_folder
from workers.launch import TEMPORARY

pytestmark = needs_root

Scenario = Callable[[str], Any]
SCENARIOS = "tests.workers.users.script_scenarios"


@pytest.fixture(scope="module")
def scenario() -> Iterator[Scenario]:
    """What a scenario found, by its name."""
    with ExitStack() as stack:
        yield functools.cache(lambda name: confined(name, stack.enter_context(open_folder()), scenarios=SCENARIOS))


def facts(found: dict[str, Any]) -> dict[str, Any]:
    (line,) = [line for line in found["output"] if line.startswith("facts")]
    told: dict[str, Any] = json.loads(line.removeprefix("facts"))
    return told


class TestScript:
    def test_it_is_its_user_and_reaches_nothing_of_the_worker(self, scenario: Scenario) -> None:
        found = scenario("script_that_tells")
        told = facts(found)

        assert told["users"] == [found["uid"]] * 3
        assert told["secret"] == "PermissionError"
        assert told["signal"] == "PermissionError"
        assert told["network"] in ("OSError", "PermissionError"), "unreachable, or no sockets at all"

    def test_its_folders_are_its_own(self, scenario: Scenario) -> None:
        told = facts(scenario("script_that_tells"))

        assert told["home"].endswith("/run/work/job_1")
        assert told["temporary"] == f"{told['home']}/{TEMPORARY}"

    def test_what_it_leaves_comes_back_to_the_worker(self, scenario: Scenario) -> None:
        found = scenario("script_that_tells")

        assert (found["messages"][-1]["type"], found["code"]) == ("done", 0)
        assert [message["name"] for message in found["messages"] if message["type"] == "artifact"] == ["model.txt"]
        assert {tuple(facts[:2]) for facts in found["files"].values()} == {(0, GROUP)}
        assert found["left"] == []


class TestForks:
    def test_into_new_sessions_are_bounded_by_the_kernel_and_all_end(self, scenario: Scenario) -> None:
        found = scenario("script_that_forks")

        assert found["left"] == []
        assert not found["survivors"]
        assert (found["messages"][-1]["type"], found["code"]) == ("done", 0), "it says so when it was refused some"
