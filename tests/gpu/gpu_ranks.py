"""A job on two cards: NCCL between them, and the result of one card."""

import pytest

from tests.gpu.attempts import LONG, series, until
from tests.gpu.cards import MIB, Card, used_bytes
from tests.gpu.conftest import Compute, Train

APART = 1e-3
"""Of a loss: sums in another order, over some hundred steps."""


class TestTwoCards:
    def test_both_work(self, train: Train, two_cards: tuple[Card, Card]) -> None:
        before = [used_bytes(card) for card in two_cards]
        said = until(train(*two_cards, epochs=LONG), "report", "failed")
        growth = [used_bytes(card) - before[number] for number, card in enumerate(two_cards)]

        assert said[-1]["type"] == "report", said[-1]
        assert min(growth) > 100 * MIB

    def test_the_losses_are_those_of_one(self, train: Train, two_cards: tuple[Card, Card]) -> None:
        alone = until(train(two_cards[0], epochs=6, batch_size=64), "done", "failed")
        said = until(train(*two_cards, epochs=6, batch_size=64), "done", "failed")

        assert said[-1]["type"] == "done", said[-1]
        assert series(alone, "loss")
        assert series(said, "loss") == pytest.approx(series(alone, "loss"), rel=APART)

    def test_nccl_is_on_record(self, compute: Compute, two_cards: tuple[Card, Card], framework: str) -> None:
        if framework == "tensorflow":
            pytest.skip("TensorFlow has NCCL linked in and does not tell its version")
        assert int(compute(two_cards[0], "versions")["nccl"].split(".")[0]) >= 2
