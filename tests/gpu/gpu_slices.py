"""MIG: a slice is a device of its own."""

import pytest

from tests.gpu.attempts import until
from tests.gpu.cards import Card, slices
from tests.gpu.conftest import Train


@pytest.fixture
def part(all_cards: list[Card]) -> Card:
    """The first slice."""
    found = slices()
    if not found:
        pytest.skip(f"none of the {len(all_cards)} cards of this host is sliced (MIG)")
    return found[0]


class TestSlice:
    def test_job_trains_on_it(self, train: Train, part: Card) -> None:
        said = until(train(part), "done", "failed")

        assert said[0]["type"] == "started", said[0]
        assert (said[0]["device_kind"], said[0]["simulated"]) == ("cuda", False)
        assert said[0]["environment"]["CUDA_VISIBLE_DEVICES"] == part.id
        assert said[-1]["type"] == "done", said[-1]
