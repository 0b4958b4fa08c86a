"""A CSV or TSV file as its column names and blocks of checked rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from app.spec.table import SourceKind
from app.tables.blocks import Block
from app.tables.cells import Cells, read_cells
from app.tables.header import names_of
from app.tables.pieces import BLOCK_BYTES, Piece, pieces_of
from app.tables.problems import InvalidTable, TableProblem

MOST_PROBLEMS = 10
_RETURN = ord("\r")
_TAB = ord("\t")


class CsvFile:
    """A file to be read once: `names`, then `blocks()`.

    Raises InvalidTable: for the header when it is made, for rows while `blocks()` runs. A wrong number of cells is
    reported for up to ten rows; everything else ends the reading at once. `fewest_columns`: 2 for a table to train on.
    """

    kind: ClassVar[SourceKind] = "csv"

    def __init__(
        self,
        source: Path | BinaryIO,
        *,
        separator: str = ",",
        block_bytes: int = BLOCK_BYTES,
        fewest_columns: int = 2,
    ) -> None:
        self._separator = separator
        self._pieces = pieces_of(source, block_bytes, separator=separator)
        self._piece, self._header = self._find_header()
        start = int(self._piece.ends[self._header - 1]) + 1 if self._header else 0
        line = self._piece.data[start : int(self._piece.ends[self._header])]
        row = self._piece.row + self._header
        self.names = names_of(line.decode(), row, separator=separator, fewest=fewest_columns)
        self.shapes: dict[str, tuple[int, ...]] = {}

    @staticmethod
    def read(cells: pl.Series) -> Cells:
        """Read a column of a block."""
        return read_cells(cells)

    def _find_header(self) -> tuple[Piece, int]:
        """Return the first piece with a line that is not empty, and that line's index."""
        empty = True
        for piece in self._pieces:
            empty = False
            filled = np.flatnonzero(~_blank(piece))
            if len(filled):
                return piece, int(filled[0])
        sentence = "The file is empty." if empty else "The file has only empty lines."
        raise InvalidTable([TableProblem(sentence, "Upload a CSV file with a header row and rows of values.")])

    def _body(self) -> Iterator[tuple[Piece, NDArray[np.bool_]]]:
        """Yield each piece, and which of its records are rows of values."""
        values = ~_blank(self._piece)
        values[: self._header + 1] = False
        yield self._piece, values
        for piece in self._pieces:
            yield piece, ~_blank(piece)

    def blocks(self) -> Iterator[Block]:
        """Yield the rows below the header; empty lines are left out, but count in the row numbers."""
        problems: list[TableProblem] = []
        found = False
        for piece, values in self._body():
            found = found or bool(values.any())
            problems += _ragged(piece, values, len(self.names), MOST_PROBLEMS - len(problems))
            if len(problems) >= MOST_PROBLEMS:
                break
            if values.any() and not problems:
                rows = piece.row + np.flatnonzero(values).astype(np.int64)
                yield Block(_cells(piece, values, len(self.names), self._separator), rows)
        if problems:
            raise InvalidTable(problems)
        if not found:
            advice = "Add at least one row of values below the header."
            raise InvalidTable([TableProblem("The file has a header but no rows.", advice)])


def _blank(piece: Piece) -> NDArray[np.bool_]:
    """Tell which records are empty lines."""
    starts = np.concatenate([[0], piece.ends[:-1] + 1])
    lengths = piece.ends - starts
    blank: NDArray[np.bool_] = (lengths == 0) | ((lengths == 1) & (piece.codes[starts] == _RETURN))
    return blank


def _ragged(piece: Piece, values: NDArray[np.bool_], width: int, most: int) -> list[TableProblem]:
    counts = piece.cells_per_record()
    wrong = np.flatnonzero(values & (counts != width))[:most]
    problems = []
    for index in wrong:
        row, count = piece.row + int(index), int(counts[index])
        cut_off = piece.last and index == len(counts) - 1 and count < width
        sentence = f"Row {row} has {count} {'cell' if count == 1 else 'cells'}, but the header has {width}."
        what = "a tab" if piece.separator == _TAB else "a comma"
        advice = "Fill the missing cells, or leave out the row." if count < width else f"Quote cells that hold {what}."
        if cut_off:
            sentence += " It is the last row: the file seems to be cut off."
            advice = "Upload the whole file."
        problems.append(TableProblem(sentence, advice, row=row))
    return problems


def _cells(piece: Piece, values: NDArray[np.bool_], width: int, separator: str) -> list[pl.Series]:
    data = piece.data
    if not values.all():
        lengths = np.diff(piece.ends, prepend=-1)
        data = piece.codes[np.repeat(values, lengths)].tobytes()
    frame = pl.read_csv(
        data,
        has_header=False,
        separator=separator,
        schema={str(index): pl.String for index in range(width)},
        quote_char=None if piece.inside is None else '"',
    )
    return frame.get_columns()
