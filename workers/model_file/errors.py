"""Why a model cannot be used."""

from pathlib import Path
from typing import ClassVar

from app.errors import TrainshedError


class UnreadableModel(TrainshedError):
    """The directory does not hold a model as we write it."""

    code: ClassVar[str] = "artifact_unreadable"

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(f"The model in '{directory.name}' cannot be used: {reason}")
        self.reason = reason
