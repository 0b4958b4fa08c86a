"""NaN and infinities on channels that know only JSON."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.series.nonfinite import from_json, to_json


class TestToJson:
    @pytest.mark.parametrize(
        ("value", "word"),
        # The words that the HTTP interface promises.
        [(math.nan, "NaN"), (-math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")],
    )
    def test_what_json_cannot_write_becomes_a_word(self, value: float, word: str) -> None:
        assert to_json(value) == word

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_finite_numbers_stay_numbers(self, value: float) -> None:
        assert to_json(value) == value


class TestFromJson:
    @given(st.floats())
    def test_it_reads_back_what_went_through_strict_json(self, value: float) -> None:
        found = from_json(json.loads(json.dumps(to_json(value), allow_nan=False)))
        assert found == value or (math.isnan(found) and math.isnan(value))

    def test_a_whole_number_becomes_a_float(self) -> None:
        assert isinstance(from_json(3), float)

    @pytest.mark.parametrize("word", ["nan", "inf", "infinity", "+Infinity", "1.5", "", "null"])
    def test_other_words_are_refused(self, word: str) -> None:
        with pytest.raises(ValueError, match="is not a number; the only words allowed are NaN, Infinity and -Infinity"):
            from_json(word)
