"""Makes what a trainer's user installed the worker's own: readable by all, to be written by nobody.

A user of trainers may be hostile, where packages are built from sources: no link is followed, nothing but folders,
links, and files with one name of that user is taken, and all else is removed. No process of that user may be running.
"""

import os
import stat
from pathlib import Path
from typing import Final

_FOLDER: Final = 0o555
_OPEN_FOLDER: Final = 0o755
_PROGRAM: Final = 0o555
_FILE: Final = 0o444


def publish(root: Path, uid: int | None = None) -> None:
    """Take over the folder and all that is in it; `uid` None: it is this process' own already.

    The folder itself stays writable for its owner, who has to put a mark into it and to remove it.

    Raises:
        OSError: something resists; the folder must not be used.
    """
    owners = {os.geteuid()} if uid is None else {os.geteuid(), uid}
    os.chown(root, os.geteuid(), os.getegid(), follow_symlinks=False)
    root.chmod(_OPEN_FOLDER)
    for _, folders, files, place in os.fwalk(root):
        for name in [*folders, *files]:
            _take(name, place, owners)
    for _, folders, _, place in os.fwalk(root):
        for name in folders:
            if stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
                os.chmod(name, _FOLDER, dir_fd=place)


def _take(name: str, place: int, owners: set[int]) -> None:
    facts = os.stat(name, dir_fd=place, follow_symlinks=False)
    is_folder, is_link = stat.S_ISDIR(facts.st_mode), stat.S_ISLNK(facts.st_mode)
    is_file = stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1
    if facts.st_uid not in owners or not (is_folder or is_link or is_file):
        os.unlink(name, dir_fd=place)
        return
    os.chown(name, os.geteuid(), os.getegid(), dir_fd=place, follow_symlinks=False)
    if is_folder:
        os.chmod(name, _OPEN_FOLDER, dir_fd=place)
    elif is_file:
        os.chmod(name, _PROGRAM if facts.st_mode & stat.S_IXUSR else _FILE, dir_fd=place)
