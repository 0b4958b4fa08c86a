"""An archive's directory, bounded before it is parsed: Python makes half a kilobyte of objects for each entry in it.

The layout is the plain one, so that every reader finds the same directory: files, directory, end records, a comment;
nothing before, between or behind. Source: PKWARE APPNOTE 6.3.10, 4.3.12 to 4.3.16.
"""

import struct
from typing import BinaryIO, Final

from app.archives.contents import Limits
from app.archives.errors import ArchiveTooLarge, NotAnArchive

_END: Final = struct.Struct("<4s4H2LH")
_END_MARK: Final = b"PK\x05\x06"
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_END64_MARK: Final = b"PK\x06\x06"
_LOCATOR: Final = struct.Struct("<4sLQL")
_LOCATOR_MARK: Final = b"PK\x06\x07"
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")
_ENTRY_MARK: Final = b"PK\x01\x02"
_LONGEST_COMMENT: Final = 0xFFFF
_OF_THE_REST: Final = 12
"""How much of the large end record its own size does not count."""
_BYTES_PER_ENTRY: Final = 1024
_LEAST_BYTES: Final = 64 * 1024
_CUT_OFF: Final = "its end record is missing or damaged, so it was cut off, or it is another kind of file."
_ODD: Final = "its directory is not where its end record says, or something was put before or behind it."


def check_directory(file: BinaryIO, limits: Limits) -> tuple[int, int]:
    """Where the directory begins, which is where the files end, and the size of the archive.

    Raises:
        NotAnArchive: there is no directory, or not just where it must be.
        ArchiveTooLarge: it has more entries than allowed.
    """
    size = file.seek(0, 2)
    tail_at = max(0, size - _END.size - _LONGEST_COMMENT - _LOCATOR.size - _END64.size)
    file.seek(tail_at)
    tail = file.read(size - tail_at)
    at = _end_record(tail)
    _, *disks, _, count, length, start, _ = _END.unpack_from(tail, at)
    end = tail_at + at
    if any(disks):
        raise NotAnArchive("it is one part of several.")
    wide = _wide_record(tail, at, tail_at)
    if wide is not None:
        count, length, start = wide
        end -= _LOCATOR.size + _END64.size
    if start + length != end:
        raise NotAnArchive(_ODD)
    if length > max(_LEAST_BYTES, limits.entries * _BYTES_PER_ENTRY):
        raise ArchiveTooLarge("has too large a directory for so many entries as it may have", limits.entries)
    file.seek(start)
    found = _count(file.read(length), limits.entries)
    if found != count:
        raise NotAnArchive("its end record tells another number of entries than its directory has.")
    return start, size


def _end_record(tail: bytes) -> int:
    """Where the end record is: the last one, and what follows it is its comment and nothing else."""
    at = tail.rfind(_END_MARK)
    if at < 0 or len(tail) - at < _END.size:
        raise NotAnArchive(_CUT_OFF)
    comment = _END.unpack_from(tail, at)[-1]
    if at + _END.size + comment != len(tail):
        raise NotAnArchive(_ODD)
    return at


def _wide_record(tail: bytes, at: int, tail_at: int) -> tuple[int, int, int] | None:
    """Entries, length and start of the directory by the record with wide numbers, None when there is none."""
    if tail[max(0, at - _LOCATOR.size) : at][:4] != _LOCATOR_MARK:
        return None
    record_at = at - _LOCATOR.size - _END64.size
    if record_at < 0 or tail[record_at : record_at + 4] != _END64_MARK:
        raise NotAnArchive(_ODD)
    _, disk, where, disks = _LOCATOR.unpack_from(tail, at - _LOCATOR.size)
    _, rest, _, _, this_disk, first_disk, here, count, length, start = _END64.unpack_from(tail, record_at)
    if where != tail_at + record_at or rest != _END64.size - _OF_THE_REST:
        raise NotAnArchive(_ODD)
    if disk or disks > 1 or this_disk or first_disk or here != count:
        raise NotAnArchive("it is one part of several.")
    return count, length, start


def _count(directory: bytes, limit: int) -> int:
    """How many entries there are, whatever the end record says."""
    at = found = 0
    while at < len(directory):
        if len(directory) - at < _ENTRY.size or directory[at : at + 4] != _ENTRY_MARK:
            raise NotAnArchive("its directory is damaged.")
        fields = _ENTRY.unpack_from(directory, at)
        at += _ENTRY.size + sum(fields[10:13])  # of the name, the extra fields, the comment
        found += 1
        if found > limit:
            raise ArchiveTooLarge("has too many entries", limit)
    if at != len(directory):
        raise NotAnArchive("its directory is damaged.")
    return found
