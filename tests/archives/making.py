"""ZIP archives written field by field, so that each can lie. Layout: PKWARE APPNOTE 6.3.10, 4.3.7 to 4.3.16."""

import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

STORED, DEFLATED, BZIP2, LZMA, ZSTANDARD = 0, 8, 12, 14, 93
UTF8 = 0x800
FILE, FOLDER, LINK, PIPE, SOCKET, CHARACTERS, BLOCKS = (
    kind << 16 for kind in (0o100644, 0o040755, 0o120777, 0o010644, 0o140755, 0o020644, 0o060644)
)


@dataclass(frozen=True)
class Entry:
    """A file of an archive. What is None is said truly; anything else is what the archive says instead."""

    name: bytes | str
    data: bytes = b"x"
    method: int = STORED
    flags: int = UTF8
    external: int = FILE
    size: int | None = None
    packed_size: int | None = None
    crc: int | None = None
    offset: int | None = None
    own_name: bytes | None = None
    own_method: int | None = None
    own_flags: int | None = None
    extra: bytes = b""
    version: int = 20

    @property
    def raw_name(self) -> bytes:
        return self.name.encode() if isinstance(self.name, str) else self.name

    @property
    def packed(self) -> bytes:
        if self.method != DEFLATED:
            return self.data
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(self.data) + packer.flush()


def _or(value: int | None, true: int) -> int:
    return true if value is None else value


def head(entry: Entry) -> bytes:
    """A file's own head, with its packed bytes."""
    name = entry.raw_name if entry.own_name is None else entry.own_name
    sizes = (_or(entry.crc, zlib.crc32(entry.data)), len(entry.packed), len(entry.data))
    fields = (20, _or(entry.own_flags, entry.flags), _or(entry.own_method, entry.method), 0, 0x21)
    return struct.pack("<4s5H3L2H", b"PK\x03\x04", *fields, *sizes, len(name), 0) + name + entry.packed


def listing(entry: Entry, offset: int) -> bytes:
    """A file's entry in the directory."""
    crc = _or(entry.crc, zlib.crc32(entry.data))
    sizes = (crc, _or(entry.packed_size, len(entry.packed)), _or(entry.size, len(entry.data)))
    lengths = (len(entry.raw_name), len(entry.extra), 0)
    start = _or(entry.offset, offset)
    made_by = 3 << 8 | entry.version
    fixed = struct.pack("<4s6H", b"PK\x01\x02", made_by, entry.version, entry.flags, entry.method, 0, 0x21)
    rest = struct.pack("<3L5H2L", *sizes, *lengths, 0, 0, entry.external, start)
    return fixed + rest + entry.raw_name + entry.extra


def end(count: int, length: int, start: int, comment: bytes = b"", disk: int = 0) -> bytes:
    return struct.pack("<4s4H2LH", b"PK\x05\x06", disk, disk, count, count, length, start, len(comment)) + comment


def wide_end(count: int, length: int, start: int, where: int, disks: int = 1) -> bytes:
    """The two records with wide numbers, and the narrow one that points to them. `where`: that of the first."""
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, length, start)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, where, disks)
    return record + locator + end(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)


def archive(*entries: Entry) -> bytes:
    body = b""
    directory = b""
    for entry in entries:
        directory += listing(entry, len(body))
        body += head(entry)
    return body + directory + end(len(entries), len(directory), len(body))


def write(path: Path, *entries: Entry) -> Path:
    path.write_bytes(archive(*entries))
    return path


def plain(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    """An archive as everybody makes them."""
    with zipfile.ZipFile(path, "w", method) as target:
        for name, content in files.items():
            target.writestr(name, content)
    return path


def overlapping(path: Path, names: int, kernel_bytes: int) -> Path:
    """A small archive in which all entries are the same packed bytes (D. Fifield, "A better zip bomb", 2019)."""
    kernel = Entry("0", b"\0" * kernel_bytes, DEFLATED)
    body = head(kernel)
    directory = b"".join(listing(Entry(f"{number:05}", kernel.data, DEFLATED, offset=0), 0) for number in range(names))
    path.write_bytes(body + directory + end(names, len(directory), len(body)))
    return path
