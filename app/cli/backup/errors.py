"""What keeps a backup from being made or used."""

from pathlib import Path

from app.errors import Conflict, TrainshedError


class BackupFailed(TrainshedError):
    """The file cannot be written or read."""

    code = "backup_failed"

    def __init__(self, name: str, error: OSError) -> None:
        super().__init__(f"The backup '{name}' failed: {error.strerror or error}. Name a file in a folder with room.")


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
