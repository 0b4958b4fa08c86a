import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.datasets.names import FALLBACK, NAME_LIMIT, clean_name


class TestCleanName:
    @pytest.mark.parametrize(
        ("sent", "kept"),
        [
            ("penguins.csv", "penguins.csv"),
            ("/etc/passwd", "passwd"),
            (r"C:\Users\ada\penguins.csv", "penguins.csv"),
            ("../../penguins.csv", "penguins.csv"),
            ("  two   words\t.csv ", "two words .csv"),
            ("a\u202eb\0c.csv", "abc.csv"),
            ("re\u0301sultat.csv", "r\u00e9sultat.csv"),
            ("日本.csv", "日本.csv"),
            ("\ud800x.csv", "x.csv"),
            ("<script>alert(1)<.csv", "<script>alert(1)<.csv"),
            ("CON", "CON"),
            ("", FALLBACK),
            ("..", FALLBACK),
            ("a/..", FALLBACK),
            ("\0\n", FALLBACK),
            ("---", FALLBACK),
        ],
    )
    def test_known_names(self, sent: str, kept: str) -> None:
        # Several come from C79 of the collected failure cases: what is harmless as text is kept as it is.
        assert clean_name(sent) == kept

    def test_a_long_name_keeps_its_ending(self) -> None:
        assert clean_name("x" * 300 + ".csv") == "x" * 116 + ".csv"
        assert clean_name("x" * 300) == "x" * 120
        assert clean_name("x." + "y" * 300) == "x." + "y" * 118

    def test_what_stands_for_nothing_is_the_callers_choice(self) -> None:
        assert clean_name("..", "dataset.npz") == "dataset.npz"

    @given(st.text(max_size=400))
    def test_any_name_becomes_one_that_can_be_stored_and_shown(self, sent: str) -> None:
        kept = clean_name(sent)
        assert 0 < len(kept) <= NAME_LIMIT
        assert not any(unicodedata.category(character).startswith("C") for character in kept)
        assert "/" not in kept
        assert kept.encode()
