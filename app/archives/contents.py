"""What an archive may have at most, and what it has."""

from dataclasses import dataclass
from typing import Final

GIB: Final = 1024**3


@dataclass(frozen=True)
class Limits:
    """What an archive may have at most. Sizes are bytes after unpacking.

    `ratio` is how many times larger than the archive its files may be together; below `small_bytes` nobody asks, since
    a few kilobytes of zeros are no attack. Deflate cannot do more than 1032 times.
    """

    entries: int = 10_000
    total_bytes: int = GIB
    file_bytes: int = GIB
    ratio: int = 200
    small_bytes: int = 16 * 1024 * 1024


@dataclass(frozen=True)
class Member:
    """A file of an archive: its name, parts joined by `/`, its size in bytes, and whether its owner may execute it."""

    name: str
    size: int
    executable: bool = False


@dataclass(frozen=True)
class Contents:
    """The files of an archive in its own order, its folders (also those that are only implied), and all bytes."""

    files: tuple[Member, ...]
    folders: tuple[str, ...]
    unpacked_bytes: int

    @property
    def names(self) -> frozenset[str]:
        return frozenset(member.name for member in self.files)
