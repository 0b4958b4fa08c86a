"""Names in an archive, and the tree that they make: relative, inside, without a second reading on any system."""

import re
import unicodedata
from typing import Final

from app.archives.errors import ArchiveTooLarge, UnsafeArchive

_LONGEST: Final = 1024
_LONGEST_PART: Final = 255
_DEEPEST: Final = 64
_DRIVE: Final = re.compile(r"[A-Za-z]:")
# Characters that turn the text around them: a name must not look like another one.
_TURNING: Final = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNSEEN: Final = ("Cc", "Cs", "Zl", "Zp")


def check_name(name: str) -> None:
    """Refuse a name that is not a plain relative path; a folder's ends in one `/`.

    Raises:
        UnsafeArchive: naming it, with the reason.
    """
    reason = _fault(name)
    if reason:
        raise UnsafeArchive(name, reason)


def _fault(name: str) -> str:
    path = name.removesuffix("/")
    parts = path.split("/")
    unseen = any(character in _TURNING or unicodedata.category(character) in _UNSEEN for character in name)
    sizes = [len(part.encode(errors="surrogatepass")) for part in parts]
    faults = (
        (not name, "has no name"),
        (unseen, "has a character in its name that cannot be seen (NUL, a line break, or the like)"),
        (name.startswith("/"), "is an absolute path"),
        ("\\" in name, "has a backslash in its name; parts of a path are joined by /"),
        (_DRIVE.match(name) is not None, "begins with the letter of a drive"),
        (".." in parts, "leads out of its folder (..)"),
        ("" in parts or "." in parts, "has an empty part or a part '.' in its name"),
        (max(sizes) > _LONGEST_PART, f"has too long a part in its name; one has at most {_LONGEST_PART} bytes"),
        (sum(sizes) + len(sizes) > _LONGEST, f"has too long a name; one has at most {_LONGEST} bytes"),
        (len(parts) > _DEEPEST, f"is too deep; a name has at most {_DEEPEST} parts"),
    )
    return next((reason for wrong, reason in faults if wrong), "")


class Tree:
    """What names make together: no two the same, also where capitals do not count, and no file that is a folder too."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._named: set[str] = set()

    @property
    def folders(self) -> tuple[str, ...]:
        """Without `/` at their ends; each after those that it is in."""
        return tuple(self._folders.values())

    def add(self, name: str) -> None:
        """Take one name that `check_name` let pass.

        Raises:
            UnsafeArchive: it does not fit to the others.
            ArchiveTooLarge: there are more files and folders than allowed.
        """
        path = name.removesuffix("/")
        is_file = path == name
        for at, character in enumerate(name):
            if character == "/":
                self._folder(name, path[:at])
        if is_file:
            self._file(name)
        elif path in self._named:
            raise UnsafeArchive(name, "is there twice")
        self._named.add(path)
        if len(self._files) + len(self._folders) > self._limit:
            raise ArchiveTooLarge("has too many files and folders", self._limit)

    def _folder(self, name: str, path: str) -> None:
        key = _key(path)
        if key in self._files:
            raise UnsafeArchive(name, f"is below '{path}', which is a file")
        if self._folders.setdefault(key, path) != path:
            raise UnsafeArchive(name, "differs from another one in capitals only")

    def _file(self, name: str) -> None:
        key = _key(name)
        if key in self._folders:
            raise UnsafeArchive(name, "is a file and a folder")
        other = self._files.setdefault(key, name)
        if name in self._named:
            raise UnsafeArchive(name, "is there twice")
        if other != name:
            raise UnsafeArchive(name, "differs from another one in capitals only")


def _key(path: str) -> str:
    """What is the same on systems that do not tell capitals, or ways to write an accent, apart."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
