"""The archive of a backup: a tar file, written and read as a stream, whose last member has the SHA-256 of each other.

Order of members: `manifest.json`, `storage/<key>` …, `tables/<name>.jsonl` …, `late/…`, `contents.json`. Tables come
after the files that their rows name, so that whoever restores can store files first and write all rows in one short
transaction.
"""

import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import orjson

from app.cli.backup.errors import damaged, no_backup

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
CONTENTS: Final = "contents.json"
STORAGE: Final = "storage/"
TABLES: Final = "tables/"
LATE: Final = "late/"
"""Rows of a moment after that of all others: they replace those with the same key."""
_BLOCK: Final = 1024 * 1024
_MODE: Final = 0o600
# These are held in memory, so an archive from who knows where must not choose their size. A line of contents has some
# 150 bytes.
_MOST_MANIFEST: Final = 1024 * 1024
_MOST_CONTENTS: Final = 512 * 1024 * 1024


class _Hashing(io.RawIOBase):
    """A stream that hashes what is read through it."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a writable buffer, as io has it
        try:
            found = self._source.read(len(buffer))
        except tarfile.TarError as error:
            raise damaged(f"its tar file ends early ({error})") from error
        buffer[: len(found)] = found
        self.hash.update(found)
        return len(found)


class Writer:
    """Writes members one after another; `finish` writes the last one. Memory does not grow with what is written."""

    def __init__(self, stream: BinaryIO) -> None:
        self._tar = tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - see finish
        self._digests: dict[str, str] = {}

    def add(self, name: str, source: BinaryIO, size: int) -> None:
        """Add the next `size` bytes of an open file.

        Raises:
            OSError: it is shorter, or the archive cannot be written.
        """
        member = tarfile.TarInfo(name)
        member.size, member.mode = size, _MODE
        hashing = _Hashing(source)
        self._tar.addfile(member, io.BufferedReader(hashing, _BLOCK))
        self._digests[name] = hashing.hash.hexdigest()
        self._tar.members.clear()  # type: ignore[attr-defined] # else it keeps every one

    def has(self, name: str) -> bool:
        return name in self._digests

    def add_document(self, name: str, content: object) -> None:
        text = orjson.dumps(content)
        self.add(name, io.BytesIO(text), len(text))

    def finish(self, **facts: object) -> None:
        """Write the digests of all members, and what else is known only at the end."""
        self.add_document(CONTENTS, {"sha256": dict(self._digests), **facts})
        self._tar.close()


@dataclass(frozen=True)
class Member:
    name: str
    stream: BinaryIO
    size: int


class Reader:
    """Reads members in their order, each to its end before the next. Used as a context manager."""

    def __init__(self, stream: BinaryIO, source: Path | None) -> None:
        self._source = source
        self._digests: dict[str, str] = {}
        self.contents: dict[str, Any] = {}
        self.members = self._read()
        """What comes next, to the end; what of a member was not read is read before the next. Raises BackupUnusable."""
        try:
            self._tar = tarfile.open(fileobj=stream, mode="r|")  # noqa: SIM115 - closed by __exit__
        except tarfile.TarError as error:
            raise no_backup(source) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tar.close()

    def manifest(self) -> dict[str, Any]:
        """The first member.

        Raises:
            BackupUnusable: it is no archive of ours.
        """
        member = next(self.members, None)
        if member is None or member.name != MANIFEST:
            raise no_backup(self._source)
        return self._document(member, _MOST_MANIFEST)

    def _read(self) -> Iterator[Member]:
        """The last member is not among them: it fills `contents`."""
        try:
            while (info := self._tar.next()) is not None:
                self._tar.members.clear()  # type: ignore[attr-defined] # else it keeps every one
                source = self._tar.extractfile(info) if info.isreg() else None
                if source is None:
                    raise damaged(f"'{info.name[:200]}' is not a file")
                hashing = _Hashing(source)  # type: ignore[arg-type] # IO[bytes] has all that is used
                member = Member(info.name, io.BufferedReader(hashing, _BLOCK), info.size)
                if info.name == CONTENTS:
                    self.contents = self._document(member)
                    continue
                yield member
                while member.stream.read(_BLOCK):
                    pass
                self._digests[info.name] = hashing.hash.hexdigest()
        except (tarfile.TarError, EOFError) as error:
            raise damaged(f"its tar file ends early or cannot be read ({error})") from error

    def check(self) -> None:
        """Compare all that was read with what was written; to be called after the last member.

        Raises:
            BackupUnusable: something is missing or was changed.
        """
        if not self.contents:
            raise damaged("it ends early")
        written = self.contents.get("sha256")
        if not isinstance(written, dict):
            raise damaged("its list of contents cannot be read")
        wrong = [name for name, digest in written.items() if self._digests.get(name) != digest]
        wrong += [name for name in self._digests if name not in written]
        if wrong:
            raise damaged(f"'{wrong[0]}' is not what was backed up")

    @property
    def missing(self) -> list[str]:
        """Keys of files that the storage did not have when the backup was made; known after the last member."""
        found = self.contents.get("missing")
        if not isinstance(found, list) or not all(isinstance(key, str) for key in found):
            raise damaged("its list of missing files cannot be read")
        return found

    def _document(self, member: Member, limit: int = _MOST_CONTENTS) -> dict[str, Any]:
        try:
            content = orjson.loads(member.stream.read()) if member.size <= limit else None
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise damaged(f"'{member.name}' cannot be read") if self._digests else no_backup(self._source)
        return content
