"""The code of a python model with a user of its own: what it reaches while it answers, and what is left of it."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.workers.users.confined import GROUP, confined, needs_root
from tests.workers.users.conftest import open_folder

pytestmark = needs_root

Scenario = Callable[[str], Any]
SCENARIOS = "tests.workers.users.model_scenarios"
NOTHING: dict[str, list[str]] = {"work": [], "processes": [], "notes": []}


@pytest.fixture(scope="module")
def scenario() -> Iterator[Scenario]:
    """What a scenario found, by its name."""
    with ExitStack() as stack:
        yield functools.cache(lambda name: confined(name, stack.enter_context(open_folder()), scenarios=SCENARIOS))


class TestPredicting:
    def test_it_is_its_user_and_reaches_nothing_of_the_worker(self, scenario: Scenario) -> None:
        found = scenario("model_asked")
        facts = found["facts"]

        assert facts["users"] == [found["uids"][0]] * 3
        assert (facts["secret"], facts["model store"]) == ("PermissionError", "PermissionError")
        assert facts["mode"] == "0o42770"

    def test_rows_are_answered_by_a_user_too(self, scenario: Scenario) -> None:
        found = scenario("model_asked")

        assert found["labels"] == found["expected"]
        assert found["running"] == 1

    def test_nothing_is_left(self, scenario: Scenario) -> None:
        assert scenario("model_asked")["left"] == NOTHING


class TestExporting:
    def test_the_file_becomes_the_workers_own(self, scenario: Scenario) -> None:
        found = scenario("model_exported")

        assert (found["made"], found["owner"]) == ("model.onnx", [os.geteuid(), GROUP, 0o600])
        assert found["left"] == NOTHING
