"""Storage in a folder of this host.

A file is written beside its place under another name, forced to disk, renamed, and its folder forced to disk, so that a
crash at any moment leaves either the whole file or none. Every folder on the way is opened from its parent's descriptor
and no link is ever followed, so that a link planted below the root leads nowhere.
"""

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from app.storage.errors import MissingObject
from app.storage.keys import is_segment, segments_of
from app.storage.regular import CREATE, READ, NotRegular, new_file, open_source, regular

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK: Final = 1024 * 1024
# A link in the place of a folder is reported as "not a directory".
_ABSENT: Final = (FileNotFoundError, NotADirectoryError)
# No key has a segment that begins with a dot.
_UNFINISHED: Final = ".unfinished-"
_TRIES: Final = 5
# In a folder with the setgid bit the API and the worker write as two users of one group (docs/deployment.md).
_SHARED_FOLDER: Final = 0o2770
_SHARED_FILE: Final = 0o660


class LocalStorage:
    """Files below `root`, which is created when it is missing, for this user alone."""

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root = root.resolve()

    def put(self, key: str, source: Path) -> None:
        *parents, name = segments_of(key)
        with open_source(source) as file, contextlib.ExitStack() as stack:
            folder, unfinished, descriptor = self._begin(parents, stack)
            try:
                with os.fdopen(descriptor, "wb") as copy:
                    shutil.copyfileobj(file, copy, _BLOCK)
                    copy.flush()
                    os.fsync(copy.fileno())
                os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(unfinished, dir_fd=folder)
                raise
            os.fsync(folder)

    def get(self, key: str, destination: Path) -> None:
        with self.open(key) as file, new_file(destination) as copy:
            shutil.copyfileobj(file, copy, _BLOCK)

    def exists(self, key: str) -> bool:
        try:
            with self.open(key):
                return True
        except MissingObject:
            return False

    def list(self, prefix: str = "") -> list[str]:
        parents = segments_of(prefix.rstrip("/")) if prefix else ()
        found: list[str] = []
        with contextlib.suppress(*_ABSENT), self._folder(parents, create=False) as top:
            for folder, _, names, descriptor in os.fwalk(dir_fd=top, follow_symlinks=False):
                below = [part for part in folder.split("/") if part != "."]
                found.extend("/".join((*parents, *below, name)) for name in names if _is_stored(name, descriptor))
        return sorted(found)

    def delete(self, key: str) -> None:
        *parents, name = segments_of(key)
        with contextlib.suppress(*_ABSENT), self._folder(parents, create=False) as folder:
            os.unlink(name, dir_fd=folder)
        self._remove_empty(parents)

    def local_path(self, key: str) -> Path | None:
        with self.open(key):
            return self._root.joinpath(*segments_of(key))

    def open(self, key: str) -> BinaryIO:
        *parents, name = segments_of(key)
        try:
            with self._folder(parents, create=False) as folder:
                return regular(os.open(name, READ, dir_fd=folder), key)
        except OSError as error:
            if isinstance(error, (*_ABSENT, NotRegular)) or error.errno == errno.ELOOP:
                raise MissingObject(key) from error
            raise

    def _begin(self, parents: Sequence[str], stack: contextlib.ExitStack) -> tuple[int, str, int]:
        """A new file in the folder `parents`, created if need be: the folder, the file's name, the open file.

        Whoever deletes a file takes empty folders along, perhaps between our making one and using it.
        """
        unfinished = f"{_UNFINISHED}{secrets.token_hex(8)}"
        for left in reversed(range(_TRIES)):
            with contextlib.suppress(*(() if left == 0 else (FileNotFoundError,))), contextlib.ExitStack() as attempt:
                folder = attempt.enter_context(self._folder(parents, create=True))
                descriptor = os.open(unfinished, CREATE, 0o666, dir_fd=folder)
                if _is_shared(folder):
                    os.fchmod(descriptor, _SHARED_FILE)
                stack.push(attempt.pop_all())
                return folder, unfinished, descriptor
        raise AssertionError("the last try returns or raises")

    def _remove_empty(self, parents: Sequence[str]) -> None:
        """Remove the folder `parents` and those above it, as far as they are empty; the first one below the root stays.

        A job that trains for days drops a checkpoint every few seconds: a folder of each would stay for ever.
        """
        with contextlib.suppress(OSError):
            for depth in range(len(parents), 1, -1):
                with self._folder(parents[: depth - 1], create=False) as above:
                    os.rmdir(parents[depth - 1], dir_fd=above)

    @contextlib.contextmanager
    def _folder(self, parents: Sequence[str], *, create: bool) -> Iterator[int]:
        """A descriptor of the folder `parents` below the root."""
        try:
            descriptor = os.open(self._root, _FOLDER)
        except FileNotFoundError as error:
            # Else every file would look deleted while a disk is not mounted.
            raise OSError(errno.EIO, "the folder of the storage is gone", str(self._root)) from error
        try:
            for part in parents:
                if create:
                    _make_folder(part, descriptor)
                below = os.open(part, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)


def _make_folder(name: str, parent: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
        if _is_shared(parent):
            os.chmod(name, _SHARED_FOLDER, dir_fd=parent)
        os.fsync(parent)


def _is_shared(folder: int) -> bool:
    """Whether the folder's group shares it: the setgid bit, which the folders made in it inherit."""
    return bool(os.fstat(folder).st_mode & stat.S_ISGID)


def _is_stored(name: str, folder: int) -> bool:
    if not is_segment(name):
        return False
    with contextlib.suppress(FileNotFoundError):
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False
