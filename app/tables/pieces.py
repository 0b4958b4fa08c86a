"""A CSV or TSV file cut into pieces of whole records, checked for encoding and quotes.

The file is read once from start to end, some megabytes at a time, so memory does not grow with the file.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from app.tables.encoding import BOM, not_utf8, other_kind, zero_byte
from app.tables.problems import InvalidTable, TableProblem

BLOCK_BYTES = 8 * 2**20
"""Bytes read at a time, and the longest record: a longer one is a quotation mark that nobody closed."""

_NEWLINE, _QUOTE = b'\n"'
_QUOTE_RULE = 'Put quotation marks around the whole cell, with no blank outside, and write a mark inside it twice ("").'


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole records as they stand in the file.

    `ends`: position of the line end after each record. `inside`: which bytes are in quotes, None when none is.
    `offset`: of the first byte in the file; `row`: of the first record; `last`: nothing follows; `separator`: the byte
    between cells.
    """

    data: bytes
    ends: NDArray[np.intp]
    inside: NDArray[np.bool_] | None
    offset: int
    row: int
    last: bool
    separator: int

    @property
    def codes(self) -> NDArray[np.uint8]:
        """The bytes as numbers, without a copy."""
        return np.frombuffer(self.data, dtype=np.uint8)

    def row_at(self, position: int) -> int:
        """Return the row of the byte at `position`."""
        return self.row + int(np.searchsorted(self.ends, position))

    def cells_per_record(self) -> NDArray[np.intp]:
        """Count each record's cells: its separators outside quotes, plus one."""
        separators = self.codes == self.separator
        if self.inside is not None:
            separators &= ~self.inside
        return np.diff(np.searchsorted(np.flatnonzero(separators), self.ends), prepend=0) + 1


def pieces_of(source: Path | BinaryIO, block_bytes: int = BLOCK_BYTES, *, separator: str = ",") -> Iterator[Piece]:
    """Cut a file after line ends outside quotes; one that is open already stays open.

    Raises InvalidTable at the first byte that is no UTF-8 text, the first quotation mark out of place, and for files of
    another kind.
    """
    with _opened(source) as file:
        size = file.seek(0, 2)
        file.seek(0)
        start = file.read(8)
        problem = other_kind(start)
        if problem is not None:
            raise InvalidTable([problem])
        offset = len(BOM) if start.startswith(BOM) else 0
        file.seek(offset)
        row, carry = 1, b""
        while offset < size:
            data = carry + file.read(block_bytes)
            piece = _cut(data, offset, row, ord(separator), last=file.tell() >= size)
            yield piece
            row += len(piece.ends)
            offset += len(piece.data)
            carry = data[len(piece.data) :]


def _opened(source: Path | BinaryIO) -> AbstractContextManager[BinaryIO]:
    return source.open("rb") if isinstance(source, Path) else nullcontext(source)


def _cut(data: bytes, offset: int, row: int, separator: int, *, last: bool) -> Piece:
    """Take the whole records at the start of `data`; the last record of a file gets the line end that it may lack."""
    if last and not data.endswith(b"\n"):
        data += b"\n"
    codes = np.frombuffer(data, dtype=np.uint8)
    newlines = codes == _NEWLINE
    inside = None
    if _QUOTE in data:
        inside = np.bitwise_xor.accumulate(codes == _QUOTE)
        newlines &= ~inside
    ends = np.flatnonzero(newlines)
    length = int(ends[-1]) + 1 if len(ends) else 0
    piece = Piece(data[:length], ends, None if inside is None else inside[:length], offset, row, last, separator)
    _check_text(piece)
    if inside is not None:
        _check_quotes(piece)
    if length < len(data) and (last or not length):
        raise InvalidTable([_endless(piece, quoted=inside is not None and bool(inside[-1]))])
    return piece


def _check_text(piece: Piece) -> None:
    zero = piece.data.find(0)
    if zero >= 0:
        raise InvalidTable([zero_byte(piece.offset + zero, piece.row_at(zero))])
    try:
        piece.data.decode()
    except UnicodeDecodeError as error:
        raise InvalidTable([not_utf8(error, offset=piece.offset, row=piece.row_at(error.start))]) from None


def _check_quotes(piece: Piece) -> None:
    """Check that quotes open at the start of a cell and close at its end.

    Quotes alternate between opening and closing; a doubled one inside a cell closes and opens again.
    """
    codes = piece.codes
    quotes = np.flatnonzero(codes == _QUOTE)
    before = codes[quotes[0::2] - 1]
    fine_before = np.isin(before, (piece.separator, _NEWLINE, _QUOTE)) | (quotes[0::2] == 0)
    after = codes[quotes[1::2] + 1]
    fine_after = np.isin(after, (piece.separator, _NEWLINE, _QUOTE, ord("\r")))
    wrong = np.concatenate([quotes[0::2][~fine_before], quotes[1::2][~fine_after]])
    if len(wrong):
        row = piece.row_at(int(wrong.min()))
        sentence = f"Row {row} has a quotation mark in the middle of a cell, or one before it was not closed."
        raise InvalidTable([TableProblem(sentence, _QUOTE_RULE, row=row)])


def _endless(piece: Piece, *, quoted: bool) -> TableProblem:
    row = piece.row + len(piece.ends)
    if quoted:
        sentence = f"A quotation mark that opens in row {row} is never closed; the file seems to be cut off."
        return TableProblem(sentence, "Close it, or upload the whole file.", row=row)
    return TableProblem(f"Row {row} is too long to be a row of a table.", "Separate rows by line breaks.", row=row)
