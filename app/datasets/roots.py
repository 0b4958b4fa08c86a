"""Data roots: folders of this host whose tables are read where they lie, `root://name/path/in/it.csv`.

What follows the name is the path as it stands, without percent-encoding. Nothing is ever written there.
"""

import re
import unicodedata
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from app.errors import TrainshedError
from app.tables.in_place import OpenFile, UnusableFile, open_below

SCHEME: Final = "root://"
URI_LIMIT: Final = 1024
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_SHOWN: Final = 200
_EXAMPLE: Final = "root://scans/2025/table.csv"


class InvalidUri(UnusableFile):
    """Not the address of a file in a data root."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(uri[:_SHOWN], f"{reason}; an address looks like '{_EXAMPLE}'.")
        self.suggestion = _EXAMPLE


class UnknownRoot(TrainshedError):
    """The address names a data root that this host does not have; another host may have it."""

    code: ClassVar[str] = "invalid_data"
    pointer: ClassVar[str] = "/uri"

    def __init__(self, uri: str, root: str, known: tuple[str, ...]) -> None:
        names = f"it has {', '.join(known)}" if known else "it has none; TRAINSHED_DATA_ROOTS names them"
        super().__init__(f"'{uri}' is in the data root '{root}', which this host does not have: {names}.")
        self.root = root
        self.suggestion = f"{SCHEME}{known[0]}/…" if len(known) == 1 else None


@dataclass(frozen=True)
class Place:
    """An address, taken apart."""

    root: str
    path: str

    @property
    def uri(self) -> str:
        return f"{SCHEME}{self.root}/{self.path}"


def parse_uri(uri: str) -> Place:
    """Take an address apart.

    Raises:
        InvalidUri: it is none, or has parts such as `..` that name no file.
    """
    root, slash, path = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not slash or not _NAME.fullmatch(root):
        raise InvalidUri(uri, "does not name a data root and a path in it")
    if len(uri) > URI_LIMIT:
        raise InvalidUri(uri, f"is longer than {URI_LIMIT} characters")
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise InvalidUri(uri, "has a part that is empty, '.' or '..'")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in path):
        raise InvalidUri(uri, "has a control character")
    return Place(root, path)


def root_of(uri: str | None) -> str | None:
    """The data root that a stored address names; None for a data set that was uploaded."""
    return None if uri is None else parse_uri(uri).root


class DataRoots:
    """The data roots of this host, by name."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = dict(folders)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._folders))

    def folder_of(self, uri: str) -> tuple[Path, str]:
        """The folder of an address's root, and the path below it.

        Raises:
            InvalidUri, UnknownRoot: this host has no such root.
        """
        place = parse_uri(uri)
        folder = self._folders.get(place.root)
        if folder is None:
            raise UnknownRoot(uri, place.root, self.names)
        return folder, place.path

    def open(self, uri: str) -> AbstractContextManager[OpenFile]:
        """The file of an address, open as long as the block runs.

        Raises:
            InvalidUri, UnknownRoot: at once.
            UnusableFile, OSError: as `open_below`.
        """
        return open_below(*self.folder_of(uri), uri)
