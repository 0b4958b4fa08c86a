"""What keeps a backup from being made or used."""

import errno
from pathlib import Path
from typing import Final

from app.errors import Conflict, TrainshedError

UNFINISHED: Final = ".trainshed-"
"""How the folder begins in which a backup grows, beside its target."""


class BackupFailed(TrainshedError):
    """The file, or the storage, cannot be written or read."""

    code = "backup_failed"

    def __init__(self, name: str, error: OSError) -> None:
        # Whether it is the backup, the storage or a folder for temporary files is told by its name alone.
        other = str(error.filename or name)
        where = f" ({other})" if other != name and UNFINISHED not in other else ""
        advice = _ADVICE.get(error.errno or 0, "See that the file and the storage can be read and written.")
        super().__init__(f"The backup '{name}' failed: {error.strerror or error}{where}. {advice}")


_ROOM: Final = "Free space there, or name a file in a folder with room; TMPDIR is where temporary files go."
_ADVICE: Final = {
    errno.ENOENT: "Name one that is there, or a new one in a folder that is there.",
    errno.EISDIR: "Name a file.",
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EPIPE: "Who was to read it has ended.",
}


class NotAFile(TrainshedError):
    """A backup takes the place of what has its name, so that must be a file."""

    code = "backup_failed"

    def __init__(self, name: str) -> None:
        super().__init__(f"'{name}' is no regular file; name a new file, or - for standard output.")


class BackupUnusable(TrainshedError):
    """It is no backup, it is cut off or changed, or a newer version made it; nothing was restored."""

    code = "backup_unusable"


class DatabaseInUse(Conflict):
    """A backup is the whole state of a service and cannot be mixed with another one's."""

    code = "database_in_use"

    def __init__(self, found: str) -> None:
        super().__init__(
            f"The database already has {found}. Restore into a new one (TRAINSHED_DATABASE_URL), or add --replace to "
            "delete all of them first."
        )


def damaged(what: str) -> BackupUnusable:
    return BackupUnusable(f"The backup is damaged: {what}. Nothing was changed; take another copy of it.")


def no_backup(source: Path | None) -> BackupUnusable:
    name = f"'{source}'" if source else "What came"
    return BackupUnusable(f"{name} is no backup; `trainshed backup FILE.tar` makes one.")
