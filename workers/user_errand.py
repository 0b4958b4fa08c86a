"""What every process does first that runs the code of a finished python model: give up rights, then load the model."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from app.archives import Limits
from workers.confinement import confine
from workers.data.encoding import Encoder
from workers.environments.activation import activate
from workers.exports.request import CannotExport
from workers.model_file import PythonDescription, encoder_of
from workers.predictor import told
from workers.protocol import ModelErrand
from workers.user_model.built import UserModel
from workers.user_model.errors import UserCodeFailed
from workers.user_model.saved import load_saved

CODE: Final = "code"
_GIB: Final = 1024**3


def received(assignment: int) -> ModelErrand:
    """Read what to do, and give up what this process needs no more: memory without a bound, the network, capabilities.

    The launcher's sandbox has done most of it already.
    """
    with open(assignment, "rb") as file:
        errand = ModelErrand.model_validate_json(file.read())
    confine(errand.memory_bytes)
    return errand


def opened(errand: ModelErrand) -> tuple[PythonDescription, Encoder, UserModel]:
    """Load the model, with the packages and variables that the user asked for; from here on the user's code runs.

    Raises:
        UnreadableModel: its files are not what was saved.
        UnsafeArchive, ArchiveTooLarge, NotAnArchive: its code cannot be unpacked.
        UserCodeFailed: its code fails, or needs more memory than it may use.
    """
    os.environ.update(errand.variables)
    if errand.packages is not None:
        activate(errand.packages)
    folder, limits = Path(errand.model), Limits(**errand.archive.model_dump())
    try:
        description, model = load_saved(folder, Path(errand.work_dir, CODE), limits)
    except MemoryError as error:
        most = f"{errand.memory_bytes / _GIB:.1f} GiB"
        raise UserCodeFailed(f"To be built, the model needs more memory than the {most} that it may use.") from error
    return description, encoder_of(folder, description), model


def safely(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do the work; whatever is wrong with the rows, the model or the user's code becomes an error that says so."""
    code = "user_code"
    try:
        return told(work)
    except CannotExport as error:
        code, message = "export_failed", str(error)
    except UserCodeFailed as error:
        message = str(error)
    except BaseException as error:  # noqa: BLE001 - a framework's own, for one: no memory
        message = f"{type(error).__name__}: {error}"
    return {"error": {"code": code, "message": message, "errors": []}}
