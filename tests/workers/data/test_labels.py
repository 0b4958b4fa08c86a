"""Class labels to numbers and back."""

from typing import Any

import numpy as np
import pytest

from workers.data.labels import Label, Vocabulary


def column(*values: Label) -> np.ndarray[tuple[int], np.dtype[Any]]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


class TestVocabulary:
    @pytest.mark.parametrize(
        ("values", "ordered"),
        [
            ((3, 1, 2, 1), (1, 2, 3)),
            ((4, -1, 2, 4), (-1, 2, 4)),
            ((10, 9, 100), (9, 10, 100)),  # by value, not as text
            (("pine tree", "oak", "Ash"), ("Ash", "oak", "pine tree")),
            ((True, False, True), (False, True)),
            ((0.5, 2.0, 1), (0.5, 1, 2)),
        ],
    )
    def test_orders_classes(self, values: tuple[Label, ...], ordered: tuple[Label, ...]) -> None:
        labels = Vocabulary.of(column(*values)).labels

        assert labels == ordered
        assert [type(label) for label in labels] == [type(label) for label in ordered]

    def test_encodes_as_places_in_the_order(self) -> None:
        values = column("b", "a", "c", "a")

        encoded = Vocabulary.of(values).encode(values)

        assert encoded.tolist() == [1, 0, 2, 0]
        assert encoded.dtype == np.int64

    def test_whole_numbers_read_as_floats_are_the_same_classes(self) -> None:
        vocabulary = Vocabulary.of(np.array([1.0, 2.0]))

        assert vocabulary.labels == (1, 2)
        assert vocabulary.encode(np.array([2.0, 1.0])).tolist() == [1, 0]

    @pytest.mark.parametrize("values", [(-1, 2, 4, 2), ("x", "y", "x"), (True, False)])
    def test_decodes_to_the_original_labels(self, values: tuple[Label, ...]) -> None:
        vocabulary = Vocabulary.of(column(*values))

        assert vocabulary.decode(vocabulary.encode(column(*values))) == list(values)
