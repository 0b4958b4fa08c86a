"""Folders that go from one user to another and back, whatever the other has done in them meanwhile.

The worker has no right to read or change what belongs to others (CAP_DAC_OVERRIDE), only to give and take ownership
(CAP_CHOWN). So a trainer's folder belongs to its user, and to the worker's group, which the setgid bit passes on to all
that is made below; and what the trainer leaves is made the worker's own before anything else is done with it.

A trainer may be hostile. No link is followed. Only folders, and files with one name and the trainer as their owner,
are taken: a second name may be that of a file elsewhere. No depth and no permission keeps a folder from being removed.
Standard library only.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SHARED_FOLDER: Final = 0o2770
_SHARED_FILE: Final = 0o660
_OWN_FOLDER: Final = 0o700
_OWN_FILE: Final = 0o600
_DEEPEST: Final = 12
"""Names of 255 bytes each still fit one path of 4096; what lies deeper is moved to the top."""

Kind = Literal["folder", "file"]
_Change = Callable[[str, int, Kind], None]
"""Changes the entry of this name in the folder of this descriptor."""


class ForeignFolder(OSError):
    """What a trainer named is not a plain folder of its own files."""


def hand_over(root: Path, uid: int) -> None:
    """Give a folder of this process to the user `uid`, with all that is in it; this process can still read it.

    No process of that user may be running. What is neither a folder nor a file with one name is removed.
    """
    group = os.getegid()

    def give(name: str, folder: int, kind: Kind) -> None:
        # In this order: only the owner may change the mode, and only a member of the group may set its bit.
        os.chown(name, -1, group, dir_fd=folder, follow_symlinks=False)
        os.chmod(name, _SHARED_FOLDER if kind == "folder" else _SHARED_FILE, dir_fd=folder)
        os.chown(name, uid, -1, dir_fd=folder, follow_symlinks=False)

    _change_tree(root, give, {os.geteuid()})


def take_back(root: Path, uid: int) -> None:
    """Make a folder of the user `uid`, and all that is in it, this process' own and nobody else's.

    No process of that user may be running. What cannot be taken, links among it, is removed.
    """
    user, group = os.geteuid(), os.getegid()

    def take(name: str, folder: int, kind: Kind) -> None:
        os.chown(name, user, group, dir_fd=folder, follow_symlinks=False)
        os.chmod(name, _OWN_FOLDER if kind == "folder" else _OWN_FILE, dir_fd=folder)

    _change_tree(root, take, {user, uid})


def remove_tree(root: Path) -> None:
    """Remove a folder with all that is in it, whoever owns it; no process of another user may be at work there.

    What cannot be removed is left; never raises for it.
    """
    with contextlib.suppress(OSError):
        _change_tree(root, _take_folder_only, None)
    shutil.rmtree(root, ignore_errors=True)


def remove_of(uid: int, folder: Path) -> None:
    """Remove what the user `uid` left in a folder where everybody may write; no process of it may be running."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                facts = path.lstat()
                if facts.st_uid != uid:
                    continue
                if stat.S_ISDIR(facts.st_mode):
                    remove_tree(path)
                else:
                    # Where the sticky bit is set only its owner may remove a file, so this process becomes that.
                    os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)
                    path.unlink()


def take_folder(root: Path, relative: str, destination: Path) -> None:
    """Move a folder of files out of a work folder whose trainer still runs, to a new place of this process' own.

    Once this returns its entries are plain files, and the trainer can neither add nor exchange any. (It may still
    write to files that it has open; whoever reads them compares digests.) `destination` must not be there, and its
    parent must be this process' own folder on the same file system.

    Raises:
        ForeignFolder: it is not a folder inside the work folder, is reached through a link, or holds anything but
            regular files of its owner.
        OSError: it is not there, or could not be moved.
    """
    *parents, name = _parts(relative)
    with contextlib.ExitStack() as stack:
        parent = _open(root, None, stack)
        for part in parents:
            parent = _open(part, parent, stack)
        folder = _open(name, parent, stack)
        owner = os.fstat(folder).st_uid
        if owner != os.geteuid():
            os.fchown(folder, os.geteuid(), os.getegid())
        os.fchmod(folder, _OWN_FOLDER)  # from now on the trainer can change nothing in it
        place = _open(destination.parent, None, stack)
        os.rename(name, destination.name, src_dir_fd=parent, dst_dir_fd=place)
        if not os.path.samestat(os.stat(destination.name, dir_fd=place, follow_symlinks=False), os.fstat(folder)):
            raise ForeignFolder("it was exchanged while it was taken")
        _take_files(folder, owner)


def _take_files(folder: int, owner: int) -> None:
    for name in os.listdir(folder):
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not _is_plain(facts) or facts.st_uid not in (owner, os.geteuid()):
            raise ForeignFolder("it holds something else than files of its own")
        if owner != os.geteuid():
            os.chown(name, os.geteuid(), os.getegid(), dir_fd=folder, follow_symlinks=False)
            os.chmod(name, _OWN_FILE, dir_fd=folder)


def _parts(relative: str) -> list[str]:
    parts = relative.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ForeignFolder("it is no path inside the work folder")
    return parts


def _open(name: str | Path, parent: int | None, stack: contextlib.ExitStack) -> int:
    try:
        descriptor = os.open(name, FOLDER, dir_fd=parent)
    except NotADirectoryError as error:  # a link, too, is none
        raise ForeignFolder("it is not a folder, or is reached through a link") from error
    stack.callback(os.close, descriptor)
    return descriptor


def _take_folder_only(name: str, folder: int, kind: Kind) -> None:
    if kind == "folder":
        os.chown(name, os.geteuid(), os.getegid(), dir_fd=folder, follow_symlinks=False)
        os.chmod(name, _OWN_FOLDER, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def _change_tree(root: Path, change: _Change, owners: set[int] | None) -> None:
    """Call `change` for the folder and all folders and files in it that belong to `owners`; remove the rest.

    `owners` None: whoever they belong to. An entry that resists is left, and found by whoever wants it.
    """
    with contextlib.ExitStack() as stack:
        above = _open(root.parent, None, stack)
        change(root.name, above, "folder")
        top = _open(root.name, above, stack)
        folders = ["."]
        while folders:
            path = folders.pop()
            with contextlib.suppress(OSError), contextlib.ExitStack() as open_now:
                folder = os.open(path, FOLDER, dir_fd=top)
                open_now.callback(os.close, folder)
                folders += [_within_reach(f"{path}/{name}", folder, top) for name in _changed(folder, change, owners)]


def _within_reach(path: str, folder: int, top: int) -> str:
    """The path of a folder in `folder`, which is moved to the top if its path would become too long."""
    if path.count("/") <= _DEEPEST:
        return path
    moved = f"./.moved-{os.urandom(8).hex()}"
    os.rename(path.rpartition("/")[2], moved, src_dir_fd=folder, dst_dir_fd=top)
    return moved


def _changed(folder: int, change: _Change, owners: set[int] | None) -> list[str]:
    """Change the entries of one folder; the folders among them."""
    below: list[str] = []
    for name in os.listdir(folder):
        with contextlib.suppress(OSError):
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
            is_folder, ours = stat.S_ISDIR(facts.st_mode), owners is None or facts.st_uid in owners
            if is_folder and ours:
                change(name, folder, "folder")
                below.append(name)
            elif ours and (owners is None or _is_plain(facts)):
                change(name, folder, "file")
            elif not is_folder:
                os.unlink(name, dir_fd=folder)
    return below


def _is_plain(facts: os.stat_result) -> bool:
    return stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1
