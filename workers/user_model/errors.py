"""What goes wrong in the user's own code, told with the place in it."""

import re
import traceback
from pathlib import Path
from typing import ClassVar, Final, Self

from app.errors import Cause
from workers.backends.base import TrainingFailed

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")  # Keras writes in bold, for terminals
_LONGEST: Final = 1000


class UserCodeFailed(TrainingFailed):
    """The user's model cannot be built, or cannot be trained as it is; the job's cause is `user_code`."""

    code = "training_failed"
    default_cause: ClassVar[Cause] = Cause.USER_CODE

    @classmethod
    def of(cls, error: BaseException, doing: str, folder: str | None) -> Self:
        """Put an error of the user's code into a sentence: `<doing>: ValueError: … (model.py, line 12, in forward)`."""
        said = " ".join(_COLOURS.sub("", str(error)).split())[:_LONGEST]
        text = f"{type(error).__name__}: {said}" if said else type(error).__name__
        place = place_of(error, folder)
        return cls(f"{doing}: {text}{f' ({place})' if place else ''}")


def place_of(error: BaseException, folder: str | None) -> str | None:
    """Say which line of the bundle an error went through last; None where it never was in the bundle's code."""
    if folder is None:
        return None
    root = Path(folder).resolve()
    found = None
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename).resolve()
        if path.is_relative_to(root):
            found = f"{path.relative_to(root)}, line {frame.lineno}, in {frame.name}"
    return found
