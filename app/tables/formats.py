"""Which kind of table a file is, told by its content: names and content types are what clients happen to send."""

import csv
import io
import zipfile
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from app.tables.blocks import TableFile
from app.tables.encoding import BOM, DAMAGED_ZIP, other_kind
from app.tables.npz import NpzFile, names_in
from app.tables.parquet import ParquetFile
from app.tables.pieces import BLOCK_BYTES
from app.tables.problems import InvalidTable
from app.tables.records import CsvFile

TableFormat: TypeAlias = Literal["csv", "tsv", "parquet", "npz"]
FORMATS: Final[tuple[TableFormat, ...]] = get_args(TableFormat)

_ZIP, _PARQUET = b"PK", b"PAR1"
_HEADER_BYTES: Final = 256 * 1024


def detect(path: Path) -> TableFormat:
    """Tell a file's format; anything that is no Parquet and no ZIP archive is taken for text.

    A header line with tabs is TSV, unless it has at least as many commas.

    Raises:
        InvalidTable: a ZIP archive that is damaged or holds no arrays.
    """
    with path.open("rb") as file:
        start = file.read(_HEADER_BYTES)
    if start.startswith(_PARQUET):
        return "parquet"
    if start.startswith(_ZIP):
        return _archive(path, start)
    return text_format(start)


def text_format(start: bytes) -> Literal["csv", "tsv"]:
    """Tell CSV from TSV by the first line that is not empty; separators in quotes do not count."""
    lines = start.removeprefix(BOM).lstrip(b"\r\n").split(b"\n", 1)
    line = lines[0].decode("utf-8", errors="replace")
    tabs = _cells(line, "\t")
    return "tsv" if tabs > 1 and tabs > _cells(line, ",") else "csv"


def _cells(line: str, separator: str) -> int:
    try:
        return len(next(csv.reader(io.StringIO(line, newline=""), delimiter=separator), []))
    except csv.Error:
        return 0


def _archive(path: Path, start: bytes) -> TableFormat:
    try:
        names = names_in(path)
    except ValueError:
        names = []
    except (zipfile.BadZipFile, OSError):
        raise InvalidTable([DAMAGED_ZIP]) from None
    if any(name.endswith(".npy") for name in names):
        return "npz"
    problem = other_kind(start)
    raise InvalidTable([problem or DAMAGED_ZIP])


def format_of(word: str) -> TableFormat:
    """Return the format of that name, as a stored data set has it. Raises ValueError when there is none."""
    for known in FORMATS:
        if word == known:
            return known
    raise ValueError(f"There is no table format {word!r}; there are {', '.join(FORMATS)}.")


def open_table(path: Path, table_format: str | None = None, *, block_bytes: int = BLOCK_BYTES) -> TableFile:
    """Open a file of that format, else of the one that its content has.

    Raises:
        InvalidTable: the file is not a table of that format.
        ValueError: there is no such format.
    """
    chosen = detect(path) if table_format is None else format_of(table_format)
    if chosen == "parquet":
        return ParquetFile(path)
    if chosen == "npz":
        return NpzFile(path)
    return CsvFile(path, separator="\t" if chosen == "tsv" else ",", block_bytes=block_bytes)
