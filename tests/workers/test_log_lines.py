"""Lines out of bytes: the same lines however the bytes were cut, and what a terminal would show."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.log_lines import LINE_CHARACTERS, LogLines


def lines_of(*pieces: bytes) -> list[str]:
    cutter = LogLines()
    return [line for piece in pieces for line in cutter.feed(piece)] + cutter.finish()


class TestLines:
    @pytest.mark.parametrize(
        ("data", "lines"),
        [
            (b"", []),
            (b"one", ["one"]),
            (b"one\n", ["one"]),
            (b"one\r\ntwo\r\n", ["one", "two"]),
            (b"one\n\ntwo\n", ["one", "", "two"]),
            (b" 10%\r 50%\r100%\n", ["100%"]),
            (b"100%\r\n", ["100%"]),
            (b"\xff\xfe\n", ["\ufffd\ufffd"]),
            ("müde\n".encode(), ["müde"]),
        ],
    )
    def test_they_are_what_a_terminal_shows(self, data: bytes, lines: list[str]) -> None:
        assert lines_of(data) == lines

    @given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
    @settings(deadline=None)
    def test_cuts_do_not_matter(self, data: bytes, cuts: list[int]) -> None:
        places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
        pieces = [data[start:end] for start, end in pairwise(places)]
        assert lines_of(*pieces) == lines_of(data)

    @given(st.integers(0, 3 * LINE_CHARACTERS), st.integers(1, 3 * LINE_CHARACTERS))
    @settings(max_examples=30, deadline=None)
    def test_a_line_without_an_end_is_cut_the_same_way_always(self, length: int, cut: int) -> None:
        data = b"x" * length
        assert lines_of(data[:cut], data[cut:]) == lines_of(data)
        assert "".join(lines_of(data)) == data.decode()
        assert all(len(line) <= LINE_CHARACTERS for line in lines_of(data))


class TestTail:
    def test_it_is_the_last_lines_that_say_something(self) -> None:
        cutter = LogLines()
        cutter.feed(b"".join(b"line %d\n\n" % number for number in range(100)))
        assert cutter.tail().splitlines() == [f"line {number}" for number in range(88, 100)]
