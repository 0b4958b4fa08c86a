"""A NumPy archive (.npz) as blocks of typed columns. Nothing in it is executed, and nothing is believed.

An archive is a ZIP of arrays; sizes in it are claims. So the directory is bounded before it is parsed, the arrays'
headers say how much will be read, that is bounded over all of them, and exactly so much is read.
"""

import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import polars as pl

from app.spec.table import SourceKind
from app.tables.blocks import Array, Block
from app.tables.cells import Cells, typed_cells
from app.tables.content import MOST_CELLS, check_moments
from app.tables.header import check_names
from app.tables.npy import AGAIN, header, refused
from app.tables.problems import InvalidTable, TableProblem

MOST_ARRAYS: Final = 512
MOST_BYTES: Final = 2**31
"""What the arrays may unpack to, all together: a good archive of zeros is a thousandth of its content."""

_LARGEST_AT_ONCE: Final = 2**28
"""For all that stays in memory: arrays in Fortran order, whose rows are not in one place, and one row of the others."""

_MOST_AXES: Final = 8
_CELL_BYTES: Final = 16
"""What a value takes at least once it is a column's: so a block of truths is not eight million rows."""

_BLOCK_BYTES: Final = 8 * 2**20
_ENDING: Final = ".npy"
_SURROGATES: Final = (0xD800, 0xDFFF)
_LAST_CHARACTER: Final = 0x10FFFF
_DIRECTORY_LIMIT: Final = 4 * 2**20
_KINDS: Final = "biufUM"
_WIDEST: Final = 8
_END_RECORD: Final = struct.Struct("<4s4H2LH")
_END_MARK, _ZIP64_MARK = b"PK\x05\x06", b"PK\x06\x07"
_BROKEN: Final = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, struct.error)


@dataclass(frozen=True)
class _Member:
    """An array in the archive, as its header describes it."""

    name: str
    entry: zipfile.ZipInfo
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def names_in(path: Path) -> list[str]:
    """Return the names in a ZIP archive. Raises BadZipFile, or ValueError for a directory that is too large."""
    _bounded_directory(path)
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def _bounded_directory(path: Path) -> None:
    """Look at the record at the archive's end before Python builds an object for each entry that it announces."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        start = max(0, size - _END_RECORD.size - 0xFFFF - 20)
        file.seek(start)
        tail = file.read()
    at = tail.rfind(_END_MARK)
    if at < 0 or len(tail) - at < _END_RECORD.size:
        raise zipfile.BadZipFile("no end record")
    _, _, _, _, entries, directory, _, _ = _END_RECORD.unpack_from(tail, at)
    if entries > MOST_ARRAYS or directory > _DIRECTORY_LIMIT or _ZIP64_MARK in tail[max(0, at - 20) : at]:
        raise ValueError("the archive has too many entries")


def _entries(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The entries that there are, whatever the record at the end says. Raises ValueError when they are too many."""
    entries = archive.infolist()
    if len(entries) > MOST_ARRAYS:
        raise ValueError("the archive has too many entries")
    return entries


class NpzFile:
    """A NumPy archive to be read once: each array is a column, its first axis the rows.

    Arrays of one axis are columns of values (numbers, booleans, text, dates), those of more are columns of arrays.
    Raises InvalidTable naming the array: for Python objects, which are never loaded, for other types, for lengths that
    differ, for what is damaged, and for more than `MOST_ARRAYS` or `MOST_BYTES`.
    """

    kind: ClassVar[SourceKind] = "npz"

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            _bounded_directory(path)
            with zipfile.ZipFile(path) as archive:
                self._members = [_member(archive, entry) for entry in _entries(archive)]
        except ValueError:
            sentence = f"The archive has more than {MOST_ARRAYS} entries."
            raise InvalidTable(
                [TableProblem(sentence, "Put the numbers into one array x of rows and columns.")]
            ) from None
        except _BROKEN:
            raise InvalidTable([TableProblem("The archive is damaged or cut off.", AGAIN)]) from None
        self.names = [member.name for member in self._members]
        check_names(self.names)
        self._rows = _common_rows(self._members)
        self.shapes = {member.name: member.shape[1:] for member in self._members if len(member.shape) > 1}

    def blocks(self) -> Iterator[Block]:
        """Yield the rows, some megabytes at a time."""
        per_row = sum(max(member.row_bytes, _CELL_BYTES) for member in self._members)
        size = max(1, _BLOCK_BYTES // max(1, per_row))
        with ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(self._path))
            readers = [_Reader(stack, archive, member) for member in self._members]
            for start in range(0, self._rows, size):
                count = min(size, self._rows - start)
                cells = [reader.take(count) for reader in readers]
                yield Block(cells, np.arange(start + 1, start + 1 + count, dtype=np.int64))
            for reader in readers:
                reader.finish()

    @staticmethod
    def read(cells: pl.Series) -> Cells:
        """Read a column of a block."""
        return typed_cells(cells)


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> _Member:
    """Read the header of one array, and refuse what cannot be a column."""
    name = entry.filename.removesuffix(_ENDING).strip()
    if entry.is_dir() or not entry.filename.endswith(_ENDING):
        sentence = f"'{entry.filename[:80]}' in the archive is no array ({_ENDING})."
        raise InvalidTable([TableProblem(sentence, "Write the archive with numpy.savez.")])
    if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise refused(name, "is encrypted, or packed in a way that numpy.savez does not use")
    with _damage(name), archive.open(entry) as file:
        shape, fortran, dtype = header(name, file)
    if dtype.kind not in _KINDS:
        raise refused(name, f"has the type {dtype}, which cannot be used", "Use numbers, true and false, or text.")
    if not shape:
        raise refused(name, "is a single value; its first axis must be the rows", f"Leave '{name[:60]}' out.")
    if len(shape) > 1 and dtype.kind not in "iuf":
        raise refused(name, f"has {len(shape)} axes and the type {dtype}; arrays must be of integers or floats")
    if len(shape) > _MOST_AXES:
        raise refused(name, f"has {len(shape)} axes, of at most {_MOST_AXES}", "Reshape it.")
    if not dtype.itemsize or any(length < 1 for length in shape):
        raise refused(name, f"is empty: its shape is {shape}", "Leave it out, or fill it.")
    return _Member(name, entry, dtype, shape, fortran and len(shape) > 1)


def _common_rows(members: list[_Member]) -> int:
    """Return the number of rows; refuse arrays that differ in it, or that unpack to too much."""
    total = sum(member.size for member in members)
    if total > MOST_BYTES:
        sentence = f"The arrays unpack to {total:,} bytes; at most {MOST_BYTES:,} are accepted."
        raise InvalidTable([TableProblem(sentence, "Take fewer rows, or a smaller type such as float32.")])
    rows = members[0].shape[0]
    shapes = ", ".join(f"{member.name} {member.shape}" for member in members[:8])
    for member in members:
        if member.shape[0] != rows:
            sentence = f"The arrays have different numbers of rows: {shapes}."
            advice = "The first axis of every array is the rows."
            raise InvalidTable([TableProblem(sentence, advice, column=member.name)])
    _check_memory(members, rows)
    return rows


def _check_memory(members: list[_Member], rows: int) -> None:
    """Refuse what no block size keeps small, and more values than a table may have."""
    at_once = [member.size if member.fortran else member.row_bytes for member in members]
    if sum(at_once) > _LARGEST_AT_ONCE:
        member = members[at_once.index(max(at_once))]
        what = "is in Fortran order and too large for it" if member.fortran else "has rows that are too large"
        others = ", with the others like it" if max(at_once) <= _LARGEST_AT_ONCE else ""
        advice = "Write it in C order (numpy.ascontiguousarray), with smaller rows."
        raise refused(member.name, f"{what}{others}", advice)
    cells = rows * sum(len(member.shape) == 1 for member in members)
    if cells > MOST_CELLS:
        sentence = f"The table has {cells:,} cells ({rows:,} rows); at most {MOST_CELLS:,} are accepted."
        raise InvalidTable([TableProblem(sentence, "Take fewer rows.")])


class _Reader:
    """Reads one array's rows in order."""

    def __init__(self, stack: ExitStack, archive: zipfile.ZipFile, member: _Member) -> None:
        self._member = member
        self._whole: Array | None = None
        self._taken = 0
        with _damage(member.name):
            self._file = stack.enter_context(archive.open(member.entry))
            header(member.name, self._file)

    def take(self, count: int) -> pl.Series | Array:
        """Return the next rows."""
        member = self._member
        if member.fortran:
            if self._whole is None:
                self._whole = self._values(member.size).reshape(member.shape, order="F")
            rows = self._whole[self._taken : self._taken + count]
        else:
            rows = self._values(count * member.row_bytes).reshape(count, *member.shape[1:])
        first, self._taken = self._taken + 1, self._taken + count
        if len(member.shape) == 1:
            return _series(member, rows, first)
        return np.ascontiguousarray(rows, None if member.dtype.itemsize <= _WIDEST else np.float64)

    def finish(self) -> None:
        """Check that nothing follows; reading to the end also checks the archive's checksum."""
        with _damage(self._member.name):
            if self._file.read(1):
                raise refused(self._member.name, "has more bytes than its shape says")

    def _values(self, size: int) -> Array:
        content = np.empty(size, np.uint8)
        with _damage(self._member.name):
            done = 0
            while done < size:
                piece = self._file.read(min(size - done, _BLOCK_BYTES))
                if not piece:
                    raise EOFError
                content[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
                done += len(piece)
        values = content.view(self._member.dtype)
        return values.astype(values.dtype.newbyteorder("="), copy=False)


def _series(member: _Member, rows: Array, first: int) -> pl.Series:
    """Return a column's values; `first`: the number of the first row."""
    kind = rows.dtype.kind
    if kind == "f" and rows.dtype.itemsize not in (4, 8):
        rows = rows.astype(np.float64)
    if kind == "M":
        moments = pl.Series(member.name, rows.astype("datetime64[us]"))
        return check_moments(moments, first)
    if kind == "U":
        _check_characters(member, rows, first)
        return pl.Series(member.name, rows.tolist(), dtype=pl.String)
    return pl.Series(member.name, rows != 0 if kind == "b" else rows)


def _check_characters(member: _Member, rows: Array, first: int) -> None:
    """Refuse numbers that are no characters: Python's own reader of such an array does not look."""
    codes = rows.view(np.uint32).reshape(len(rows), -1)
    wrong = (codes > _LAST_CHARACTER) | ((codes >= _SURROGATES[0]) & (codes <= _SURROGATES[1]))
    if wrong.any():
        row = first + int(wrong.any(axis=1).argmax())
        sentence = f"Row {row}, array '{member.name[:80]}': the text holds a number that is no character."
        raise InvalidTable([TableProblem(sentence, AGAIN, row=row, column=member.name[:80])])


@contextmanager
def _damage(name: str) -> Iterator[None]:
    try:
        yield
    except _BROKEN:
        raise refused(name, "is damaged or cut off", AGAIN) from None
