"""A stored model of a user's own code, built again: what a prediction and an export answer with."""

from pathlib import Path

from app.archives import Limits, extract
from workers.model_file import CODE_NAME, PythonDescription, read_python
from workers.user_model.built import UserModel, build_model
from workers.user_model.module import UserModule


def load_saved(directory: Path, code_folder: Path, limits: Limits | None = None) -> tuple[PythonDescription, UserModel]:
    """Unpack the model's code into `code_folder`, a new folder, build the model and give it its weights.

    Runs the user's code: only for a process that may. The framework is imported here; on the CPU, in float32.

    Raises:
        UnreadableModel: the model's files are not what was saved.
        UnsafeArchive, ArchiveTooLarge, NotAnArchive: its code cannot be unpacked.
        UserCodeFailed: the function fails, or builds another model than the one that was saved.
    """
    description, weights = read_python(directory)
    if description.python.code is not None:
        extract(directory / CODE_NAME, code_folder, limits or Limits())
    model = build_model(module_of(description, code_folder))
    model.load(weights)
    return description, model


def module_of(description: PythonDescription, code_folder: Path) -> UserModule:
    """Say which function builds a stored model, its code being in `code_folder`."""
    source = description.python
    return UserModule(
        framework=description.framework,
        folder=None if source.code is None else str(code_folder),
        entrypoint=source.entrypoint,
        parameters=source.parameters,
        input_shape=description.input_shape,
        output_units=description.outputs,
        seed=description.seed,
    )
