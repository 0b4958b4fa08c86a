"""The folder with a host's environments: which are complete, when each was last used, and what is left over.

Below `<run_dir>/environments`:

    <key>/environment.json    the mark of a complete one, written last; its time is that of the last use
    <key>.launch              the mark of the processes that install into one
    .scratch-<key>/           downloads of one that is being made
"""

import contextlib
import ctypes
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from workers.ownership import remove_tree
from workers.processes import kill_launch

FOLDER: Final = "environments"
MARK: Final = "environment.json"
LAUNCH: Final = "launch"
_SCRATCH: Final = ".scratch-"
_REMOVED: Final = ".removed-"
_WAIT_MS: Final = 2_000


@dataclass(frozen=True)
class Record:
    """What is written down of a complete environment; `packages` are its own, by version, without those of the base."""

    framework: str
    python: str
    requirements: tuple[str, ...]
    packages: Mapping[str, str]
    bytes: int
    seconds: float
    created_at: str


@dataclass(frozen=True)
class Stored:
    """A complete environment; `used_at` is a POSIX time."""

    key: str
    record: Record
    used_at: float


@dataclass(frozen=True)
class Kept:
    """How many complete environments there are, and their bytes on the disk."""

    count: int
    bytes: int


class Shelf:
    """Not safe to use from several threads; whoever has it takes turns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def folder_of(self, key: str) -> Path:
        return self._folder / key

    def scratch_of(self, key: str) -> Path:
        return self._folder / f"{_SCRATCH}{key}"

    def interpreter_of(self, key: str) -> Path:
        return self._folder / key / "bin" / "python"

    def begin(self, key: str, launch: str) -> None:
        """Two empty folders for one that is to be made, with a note of what runs for it; what was there is removed."""
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._folder.chmod(0o755)  # whatever the umask: every job's interpreter is below
        for folder in (self.folder_of(key), self.scratch_of(key)):
            remove_tree(folder)
            folder.mkdir(mode=0o700)
        self._note(key).write_text(launch, encoding="ascii")

    def finish(self, key: str, record: Record) -> Stored:
        """Mark it as complete: from now on it counts, also after a power cut."""
        remove_tree(self.scratch_of(key))
        folder = self.folder_of(key)
        _flush(folder)
        mark = folder / f"{MARK}.new"
        mark.write_text(json.dumps(asdict(record)), encoding="utf-8")
        mark.chmod(0o444)
        mark.rename(folder / MARK)
        _flush(folder)
        self._note(key).unlink(missing_ok=True)
        return Stored(key, record, (folder / MARK).stat().st_mtime)

    def give_up(self, key: str) -> None:
        """Remove one that did not become complete; what resists is left to the next `begin`, or start."""
        remove_tree(self.folder_of(key))
        remove_tree(self.scratch_of(key))
        with contextlib.suppress(OSError):
            self._note(key).unlink()

    def find(self, key: str) -> Stored | None:
        """A complete environment, or None."""
        mark = self.folder_of(key) / MARK
        try:
            fields: dict[str, Any] = json.loads(mark.read_text(encoding="utf-8"))
            record = Record(**{**fields, "requirements": tuple(fields["requirements"])})
            return Stored(key, record, mark.stat().st_mtime)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def touch(self, key: str, at: float) -> None:
        """Note that it was used then, a POSIX time."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.folder_of(key) / MARK, (at, at))

    def all(self) -> list[Stored]:
        """The complete ones, the longest unused first."""
        found = [stored for key in self._keys() if (stored := self.find(key)) is not None]
        return sorted(found, key=lambda stored: stored.used_at)

    def take_out(self, key: str) -> Path:
        """From now on it is not there; the folder that is left is for `remove_tree`, which takes its time."""
        aside = self._folder / f"{_REMOVED}{key}"
        remove_tree(aside)
        self.folder_of(key).rename(aside)
        return aside

    def clean_up(self) -> list[int]:
        """Remove all that is not complete, and end what an earlier worker left at work there; the pids."""
        killed: list[int] = []
        for note in self._folder.glob(f"*.{LAUNCH}"):
            with contextlib.suppress(OSError):
                launch = note.read_text(encoding="ascii")
                killed += kill_launch(launch, wait_ms=_WAIT_MS) if launch else []
                note.unlink()
        with contextlib.suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                if path.is_symlink() or path.is_file():
                    path.unlink()
                elif path.name.startswith(".") or self.find(path.name) is None:
                    remove_tree(path)
        return killed

    def _keys(self) -> Iterator[str]:
        with contextlib.suppress(FileNotFoundError):
            yield from (path.name for path in self._folder.iterdir() if not path.name.startswith("."))

    def _note(self, key: str) -> Path:
        """Beside the folder and not in it: what installs may write there what it likes."""
        return self._folder / f"{key}.{LAUNCH}"


def kept(folder: Path) -> Kept:
    """What a folder of environments holds; none where there is no such folder."""
    stored = Shelf(folder).all()
    return Kept(len(stored), sum(one.record.bytes for one in stored))


def _flush(folder: Path) -> None:
    """Have the disk of the folder hold what was written there; an environment of empty files must never count."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        ctypes.CDLL(None, use_errno=True).syncfs(descriptor)
    finally:
        os.close(descriptor)
