"""A ZIP archive that is written while it is sent: several stored files as one download, none of it in memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Final
from zipfile import ZIP_STORED, ZipFile, ZipInfo

_BLOCK: Final = 256 * 1024
_PRIVATE: Final = 0o600 << 16
# A member that may pass this says so beforehand, since nobody goes back to its head.
_LARGE: Final = 1 << 31


@dataclass(frozen=True)
class Member:
    """A file of the archive, open for reading; `size` is what it is expected to have."""

    name: str
    file: BinaryIO
    size: int


class _Sink:
    """Where the archive is written: what was written since the last look."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []

    def write(self, block: bytes) -> int:
        self._blocks.append(bytes(block))
        return len(block)

    def flush(self) -> None:
        """Nothing waits anywhere else."""

    def take(self) -> bytes:
        blocks, self._blocks = self._blocks, []
        return b"".join(blocks)


def zip_chunks(members: Sequence[Member], at: datetime) -> Iterator[bytes]:
    """The archive in pieces, members uncompressed (they are numbers without a pattern) and dated `at`; closes them."""
    sink = _Sink()
    try:
        with ZipFile(sink, "w", ZIP_STORED) as archive:  # type: ignore[call-overload] # what can only write is enough
            for member in members:
                info = ZipInfo(member.name, at.timetuple()[:6])
                info.external_attr = _PRIVATE
                with archive.open(info, "w", force_zip64=member.size >= _LARGE) as entry:
                    while block := member.file.read(_BLOCK):
                        entry.write(block)
                        yield sink.take()
        yield sink.take()
    finally:
        for member in members:
            member.file.close()
