"""What is wrong with an archive. Names in the sentences are shortened and shown with escapes: a stranger wrote them."""

from typing import ClassVar, Final

from app.errors import TrainshedError

_SHOWN: Final = 120


def shown(name: str) -> str:
    """A member's name for a sentence or a log: quoted, without control characters, not too long."""
    short = name if len(name) <= _SHOWN else name[:_SHOWN] + "…"
    return ascii(short) if not short.isprintable() else f"'{short}'"


class NotAnArchive(TrainshedError):
    """It is no ZIP archive, or a broken one; `reason` is a sentence."""

    code: ClassVar[str] = "not_an_archive"

    def __init__(self, reason: str) -> None:
        super().__init__(f"This is not a ZIP archive that can be unpacked: {reason}")
        self.reason = reason


class UnsafeArchive(TrainshedError):
    """A member that is not unpacked, whatever the rest is like, so nothing is."""

    code: ClassVar[str] = "unsafe_archive"

    def __init__(self, entry: str, reason: str) -> None:
        super().__init__(f"The archive's entry {shown(entry)} {reason}; nothing of the archive was unpacked.")
        self.entry = entry
        self.reason = reason


class ArchiveTooLarge(TrainshedError):
    """More files or more bytes than allowed; `limit` is the number that was passed."""

    code: ClassVar[str] = "archive_too_large"

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"The archive {what}; the limit is {limit}.")
        self.limit = limit


class NoSuchMember(TrainshedError):
    """The archive has no file of that name."""

    code: ClassVar[str] = "not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"The archive has no file {shown(name)}.")
        self.name = name
