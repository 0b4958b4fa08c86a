"""What every reader of files gives: names, shapes of arrays, and blocks of rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from app.spec.table import SourceKind
from app.tables.cells import Cells

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows: each column as a series (null = nothing there) or as an array, and the rows' numbers in the file."""

    cells: Sequence[pl.Series | Array]
    rows: NDArray[np.int64]


class TableFile(Protocol):
    """A file to be read once. What is wrong with it is raised as InvalidTable, when it is made or while it is read.

    `shapes`: of each row's value, for the columns that hold arrays; their cells are arrays (rows, *shape) of integers
    or floats. A file with a header counts rows from 2, as a spreadsheet does; others from 1.
    """

    names: list[str]
    shapes: dict[str, tuple[int, ...]]

    @property
    def kind(self) -> SourceKind: ...

    def blocks(self) -> Iterator[Block]: ...

    def read(self, cells: pl.Series) -> Cells:
        """Read a column of a block that holds no arrays."""
        ...
