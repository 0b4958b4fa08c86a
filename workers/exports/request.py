"""What a maker of files is told, and what it answers."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from app.errors import TrainshedError

Kind = Literal["model", "report"]


class CannotExport(TrainshedError):
    """A file cannot be made, or is not what it should be; the sentence is the reason, for the user."""

    code: ClassVar[str] = "artifact_unreadable"


@dataclass(frozen=True)
class Request:
    """The model's folder, the folder to write into, and what a report shows besides (files of JSON, if there are)."""

    model: Path
    output: Path
    series: Path | None = None
    evaluation: Path | None = None


@dataclass(frozen=True)
class Made:
    """A file in the output folder, complete."""

    name: str
    media_type: str
    kind: Kind
