"""Whatever a process writes becomes lines, and fills no memory."""

import random

import pytest

from workers.scripts.lines import LONGEST, Lines


def cut(pieces: list[bytes]) -> list[tuple[bytes, bool]]:
    lines = Lines()
    return [line for piece in pieces for line in lines.feed(piece)] + lines.finish()


class TestLines:
    def test_lines_keep_their_newline(self) -> None:
        assert cut([b"a\nb\n"]) == [(b"a\n", True), (b"b\n", True)]

    def test_last_line_without_a_newline_gets_one(self) -> None:
        assert cut([b"a\nb"]) == [(b"a\n", True), (b"b\n", True)]

    def test_nothing_gives_nothing(self) -> None:
        assert cut([b""]) == []

    @pytest.mark.parametrize("seed", range(5))
    def test_how_the_bytes_were_split_does_not_matter(self, seed: int) -> None:
        dice = random.Random(seed)  # noqa: S311 - repeatable, not secret
        text = bytes(dice.choice(b"ab\n\r\xff") for _ in range(2_000))
        cuts = sorted(dice.choices(range(len(text)), k=40))
        pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

        assert cut(pieces) == cut([text])

    def test_endless_line_is_cut_into_pieces_that_are_no_lines(self) -> None:
        found = cut([b"x" * LONGEST] * 8 + [b"\nshort\n"])

        assert b"".join(line for line, _ in found).replace(b"\n", b"") == b"x" * 8 * LONGEST + b"short"
        assert [whole for _, whole in found[:-1]] == [False] * (len(found) - 1)
        assert found[-1] == (b"short\n", True)

    def test_no_piece_is_much_longer_than_the_limit(self) -> None:
        assert max(len(line) for line, _ in cut([b"x" * 1_000] * 1_000)) <= LONGEST + 1_001
