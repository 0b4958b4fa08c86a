"""Cutting a file into whole records."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.tables import InvalidTable
from app.tables.pieces import pieces_of

Write = Callable[[bytes | str], Path]


class TestPieces:
    def test_they_put_together_are_the_file(self, write: Write) -> None:
        content = b"a,b\n" + b"".join(f"{index},{index * index}\n".encode() for index in range(500))
        pieces = list(pieces_of(write(content), 64))
        assert len(pieces) > 50
        assert b"".join(piece.data for piece in pieces) == content

    def test_only_the_last_one_is_the_last(self, write: Write) -> None:
        pieces = list(pieces_of(write("a,b\n1,2\n3,4\n5,6\n"), 8))
        assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]

    @pytest.mark.parametrize("block_bytes", [4, 8, 12, 16, 17])
    def test_a_file_that_ends_with_a_block_ends_there(self, write: Write, block_bytes: int) -> None:
        pieces = list(pieces_of(write("a,b\n1,2\n3,4\n5,6\n"), block_bytes))
        assert sum(len(piece.ends) for piece in pieces) == 4
        assert pieces[-1].last

    def test_a_missing_last_line_end_is_added(self, write: Write) -> None:
        assert [piece.data for piece in pieces_of(write("a,b\n1,2"))] == [b"a,b\n1,2\n"]

    def test_a_byte_order_mark_is_left_out_and_counted(self, write: Write) -> None:
        (piece,) = pieces_of(write(b"\xef\xbb\xbfa,b\n"))
        assert (piece.data, piece.offset) == (b"a,b\n", 3)

    def test_a_line_end_in_quotes_ends_no_record(self, write: Write) -> None:
        (piece,) = pieces_of(write('"a\nb","c\r\nd"\n1,2\n'))
        assert piece.ends.tolist() == [12, 16]

    def test_commas_in_quotes_separate_nothing(self, write: Write) -> None:
        (piece,) = pieces_of(write('a,b,c\n"1,2",3\n"say ""x,y""",\n'))
        assert piece.cells_per_record().tolist() == [3, 2, 2]

    def test_rows_are_found_by_position(self, write: Write) -> None:
        pieces = list(pieces_of(write("a,b\n1,2\n3,4\n"), 8))
        found = [(piece.row, piece.row_at(0), piece.row_at(4)) for piece in pieces if len(piece.data) > 4]
        assert found == [(1, 1, 2)]
        assert pieces[-1].row == 3

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(st.binary(max_size=60), st.integers(1, 70))
    def test_any_bytes_give_pieces_or_a_problem_and_never_another_error(
        self, tmp_path: Path, content: bytes, block_bytes: int
    ) -> None:
        path = tmp_path / "any"
        path.write_bytes(content)
        text = content.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n")
        with suppress(InvalidTable):
            assert b"".join(piece.data for piece in pieces_of(path, block_bytes)).removesuffix(b"\n") == text
