"""The header of one NumPy array (.npy), read by its pattern: nothing in it is evaluated, and sizes are claims."""

import re
from typing import IO, Any, Final

import numpy as np

from app.tables.problems import InvalidTable, TableProblem

AGAIN: Final = "Write the file again with numpy.savez, and upload all of it."

_HEADER_LIMIT: Final = 10_000
_MAGIC, _PREFIX_BYTES = b"\x93NUMPY", 12
_HEADER: Final = re.compile(
    r"\{'descr': (?:'(?P<type>[^']{1,40})'|(?P<fields>\[.*\])), 'fortran_order': (?P<order>True|False), "
    r"'shape': \((?P<shape>(?:\d{1,20}, ?)*(?:\d{1,20})?)\),? ?\} *\n?"
)
"""Each digit has one way to match: a pattern with several takes time without end to refuse what almost fits."""

_TYPE: Final = re.compile(r"[<>=|]?[a-zA-Z]\d{0,9}(?:\[(?:[1-9]\d{0,4})?[a-zA-Z]{1,2}\])?")


def header(name: str, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header by its pattern, which all writers keep to; NumPy's parser evaluates it as Python literals."""
    start = file.read(_PREFIX_BYTES)
    wide = len(start) == _PREFIX_BYTES and start[:6] == _MAGIC and start[6] in (2, 3)
    length = int.from_bytes(start[8:12] if wide else start[8:10], "little")
    if start[:6] != _MAGIC or start[6] not in (1, 2, 3) or not _PREFIX_BYTES < length <= _HEADER_LIMIT:
        raise refused(name, "has no header that NumPy writes")
    text = (b"" if wide else start[10:]) + file.read(length - (0 if wide else 2))
    found = _HEADER.fullmatch(text.decode("latin-1"))
    if found is None:
        raise refused(name, "has no header that NumPy writes")
    if found["fields"]:
        raise refused(name, "has several fields in each row, which cannot be used", "Write one array for each field.")
    if found["type"].lstrip("<>|=").startswith("O"):
        advice = "Convert it, for example with astype(float) or astype(str), and write the file again."
        raise refused(name, "holds Python objects (pickle), which are never loaded", advice)
    dtype = _dtype(found["type"])
    if dtype is None:
        raise refused(name, f"has the type {found['type'][:40]}, which cannot be used")
    return tuple(int(length) for length in found["shape"].split(",") if length.strip()), found["order"] == "True", dtype


def _dtype(text: str) -> np.dtype[Any] | None:
    """The type of that name; NumPy reads far more than names of types, some of it as Python."""
    try:
        return np.dtype(text) if _TYPE.fullmatch(text) else None
    except (TypeError, ValueError):
        return None


def refused(name: str, what: str, advice: str = AGAIN) -> InvalidTable:
    return InvalidTable([TableProblem(f"Array '{name[:80]}' {what}.", advice, column=name[:80])])
