"""float32 means float32 on a card, and half precision is half where it should be and nowhere else."""

import pytest

from tests.gpu.cards import Card
from tests.gpu.conftest import Compute

EXACT = 2e-5
"""float32 keeps 24 bits, 6e-8; sums of some thousand products of it were seen to be 1e-6 apart."""
TF32 = 1e-4
"""TF32 keeps 11 bits of each factor, 5e-4, so sums of products are off by more than this."""
HALF = {"bfloat16": 5e-2, "float16": 1e-2}
"""8 and 11 bits: 4e-3 and 5e-4 for one factor, and some times that at the end of a model of two layers."""


class TestFloat32:
    def test_no_layer_multiplies_in_tf32(self, compute: Compute, card: Card) -> None:
        errors = compute(card, "errors float32")

        assert errors.keys() == {"dense", "conv2d", "lstm"}, errors
        assert max(errors.values()) < EXACT < TF32


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
class TestHalf:
    def test_products_are_half_and_not_worse(self, compute: Compute, card: Card, precision: str) -> None:
        errors = compute(card, f"errors {precision}")

        assert errors.keys() == {"dense", "conv2d", "lstm"}, errors
        assert min(errors.values()) > EXACT, "it was computed in float32"
        assert max(errors.values()) < HALF[precision]

    def test_it_learns(self, compute: Compute, card: Card, precision: str) -> None:
        first, last = compute(card, f"losses {precision}")

        assert last < first / 2
