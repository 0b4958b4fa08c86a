"""Tells a file of a known format that was cut off: written halfway when its writer ended.

By what the file begins with; ZIP (so .pt, .npz, .keras too), safetensors, Parquet and HDF5 say where they end.
"""

import json
import os
import struct
from collections.abc import Callable, Mapping
from typing import Final

_EOCD: Final = b"PK\x05\x06"
_EOCD_BYTES: Final = 22
_LOCATOR: Final = b"PK\x06\x07"
_LOCATOR_BYTES: Final = 20
_COMMENT_BYTES: Final = 65_535
_IN_ZIP64: Final = 0xFFFF_FFFF
_MANY: Final = 0xFFFF
_LENGTH_BYTES: Final = 8
_LEAST_PARQUET: Final = 12
_SUPERBLOCK: Final = 64
_HEADER_BYTES: Final = 100 * 1024 * 1024
"""The largest header of safetensors."""
_NEVER_EMPTY: Final = (".pt", ".pth", ".ckpt", ".npz", ".npy", ".keras", ".safetensors", ".parquet", ".h5", ".zip")


def is_cut_off(descriptor: int, name: str, size: int) -> bool:
    """Whether the open file is the beginning of one of a known format, and not all of it."""
    if size == 0:
        return name.endswith(_NEVER_EMPTY)
    if name.endswith(".safetensors"):
        return not _whole_safetensors(descriptor, size)
    begin = os.pread(descriptor, 8, 0)
    check = next((check for magic, check in _BY_MAGIC.items() if begin.startswith(magic)), None)
    return check is not None and not check(descriptor, size)


def _whole_zip(descriptor: int, size: int) -> bool:
    """Its directory is written last and says where it lies; that of an archive inside lies elsewhere."""
    length = min(size, _EOCD_BYTES + _COMMENT_BYTES)
    tail = os.pread(descriptor, length, size - length)
    at = tail.rfind(_EOCD)
    if at < 0 or len(tail) - at < _EOCD_BYTES:
        return False
    entries, directory_bytes, directory_at, comment = struct.unpack("<HIIH", tail[at + 10 : at + _EOCD_BYTES])
    end = size - length + at
    if end + _EOCD_BYTES + comment > size:
        return False
    locator = tail[at - _LOCATOR_BYTES : at] if at >= _LOCATOR_BYTES else b""
    if locator.startswith(_LOCATOR) and (directory_at == _IN_ZIP64 or entries == _MANY or directory_bytes == _IN_ZIP64):
        (zip64_at,) = struct.unpack("<Q", locator[8:16])
        return bool(zip64_at < end) and os.pread(descriptor, 4, zip64_at) == b"PK\x06\x06"
    # PyTorch writes a ZIP64 record also where nothing needs it, between the directory and its end.
    return directory_at + directory_bytes == end or (
        locator.startswith(_LOCATOR) and directory_at + directory_bytes < end
    )


def _whole_safetensors(descriptor: int, size: int) -> bool:
    """Eight bytes for the length of the header, the header, and the tensors up to the last offset that it names."""
    begin = os.pread(descriptor, 8, 0)
    if len(begin) < _LENGTH_BYTES:
        return False
    (length,) = struct.unpack("<Q", begin)
    if length > min(_HEADER_BYTES, size):
        return False
    try:
        header = json.loads(os.pread(descriptor, length, 8))
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
        return bool(8 + length + max(ends, default=0) <= size)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return False


def _whole_parquet(descriptor: int, size: int) -> bool:
    return size > _LEAST_PARQUET and os.pread(descriptor, 4, size - 4) == b"PAR1"


def _whole_hdf5(descriptor: int, size: int) -> bool:
    """The superblock says how long the file is; it is written anew when the file is closed."""
    block = os.pread(descriptor, _SUPERBLOCK, 0)
    if len(block) < _SUPERBLOCK:
        return False
    at = {0: 40, 1: 44, 2: 28, 3: 28}.get(block[8])
    return at is None or int.from_bytes(block[at : at + 8], "little") <= size


_BY_MAGIC: Final[Mapping[bytes, Callable[[int, int], bool]]] = {
    b"PK\x03\x04": _whole_zip,
    b"PAR1": _whole_parquet,
    b"\x89HDF\r\n\x1a\n": _whole_hdf5,
}
