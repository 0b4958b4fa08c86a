"""The models that this host has fetched from the storage, a folder for each; the least recently used go first.

A folder is named after the digests of its files, so a model that was stored anew is another one, and what lies there
was checked when it was fetched.
"""

import contextlib
import hashlib
import secrets
import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

from app.artifacts.models import Artifact
from app.errors import TrainshedError
from app.storage import Storage

_BYTES: Final = 2 * 1024**3
_UNFINISHED: Final = ".unfinished-"


class ModelUnreadable(TrainshedError):
    """The storage does not give the model's files, or other bytes than were stored."""

    code: ClassVar[str] = "model_unreadable"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"The model's file {name} {reason}. Train the job again if it stays so.")


class ModelStore:
    """May be used from any thread. `folder` belongs to it alone and is emptied at the start."""

    def __init__(self, storage: Storage, folder: Path, max_bytes: int = _BYTES) -> None:
        self._storage = storage
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        # In the order of their last use.
        self._sizes: dict[str, int] = {}
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    @contextlib.contextmanager
    def held(self, files: Sequence[Artifact]) -> Iterator[Path]:
        """The folder with these files, which stays while the block runs.

        Raises:
            ModelUnreadable: a file is missing, damaged, or the storage failed.
        """
        name = _name(files)
        with self._lock:
            self._held[name] += 1
            there = self._is_there(name, files)
        try:
            if not there:
                self._fetch(name, files)
            with self._lock:
                self._sizes[name] = self._sizes.pop(name)
            yield self._folder / name
        finally:
            with self._lock:
                self._held[name] -= 1
                self._make_room()

    def _is_there(self, name: str, files: Sequence[Artifact]) -> bool:
        """Whether all files lie there: the run folder may be one that the host cleans up, /tmp for example."""
        if name in self._sizes and not all((self._folder / name / file.name).is_file() for file in files):
            del self._sizes[name]
            shutil.rmtree(self._folder / name, ignore_errors=True)
        return name in self._sizes

    def _fetch(self, name: str, files: Sequence[Artifact]) -> None:
        unfinished = self._folder / f"{_UNFINISHED}{secrets.token_hex(8)}"
        unfinished.mkdir(parents=True)
        try:
            for file in files:
                _get(self._storage, file, unfinished / file.name)
            with self._lock:
                if name not in self._sizes:  # else another thread was first
                    unfinished.rename(self._folder / name)
                    self._sizes[name] = sum(file.size_bytes for file in files)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _make_room(self) -> None:
        total = sum(self._sizes.values())
        for name in [name for name in self._sizes if not self._held[name]]:
            if total <= self._max_bytes:
                return
            total -= self._sizes.pop(name)
            del self._held[name]
            shutil.rmtree(self._folder / name, ignore_errors=True)


def _get(storage: Storage, file: Artifact, path: Path) -> None:
    try:
        storage.get(file.storage_key, path)
    except OSError as error:
        raise ModelUnreadable(file.name, "cannot be read from the storage") from error
    if digest_of(path) != file.digest:
        raise ModelUnreadable(file.name, "is damaged in the storage: its digest is another one")


def digest_of(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _name(files: Sequence[Artifact]) -> str:
    text = "\n".join(sorted(f"{file.name} {file.digest}" for file in files))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
