"""Reading the files of a model with every doubt: what comes from a disk may be anything."""

import hashlib
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file

from workers.model_file.description import DESCRIPTION_NAME, WEIGHTS_NAME
from workers.model_file.errors import UnreadableModel

_Model = TypeVar("_Model", bound=BaseModel)


def description_bytes(directory: Path) -> bytes:
    """Read model.json as it is."""
    try:
        return (directory / DESCRIPTION_NAME).read_bytes()
    except OSError as error:
        raise absent(directory, error) from error


def parsed(model: type[_Model], directory: Path, content: bytes) -> _Model:
    """Read a description of one version."""
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "all of it"
        reason = f"'{DESCRIPTION_NAME}' is no description of a model ({where}: {first['msg']})."
        raise UnreadableModel(directory, reason) from error


def arrays(directory: Path, name: str) -> dict[str, NDArray[np.floating]]:
    """Read a file of tensors."""
    try:
        return dict(load_file(directory / name))
    except OSError as error:
        raise absent(directory, error) from error
    except (SafetensorError, KeyError, ValueError) as error:  # the last two: a type that NumPy does not have
        raise UnreadableModel(directory, f"'{name}' is no file of weights ({error}).") from error


def require_digest(directory: Path, name: str, sha256: str) -> None:
    """Check that a file is the one that the description belongs to."""
    try:
        found = digest(directory / name)
    except OSError as error:
        raise absent(directory, error) from error
    if found != sha256:
        raise UnreadableModel(directory, f"'{name}' is not the file that '{DESCRIPTION_NAME}' belongs to.")


def weights_of(directory: Path, sha256: str) -> dict[str, NDArray[np.floating]]:
    """Read the weights that a description names."""
    require_digest(directory, WEIGHTS_NAME, sha256)
    return arrays(directory, WEIGHTS_NAME)


def absent(directory: Path, error: OSError) -> UnreadableModel:
    return UnreadableModel(directory, f"{error.strerror}: '{Path(str(error.filename)).name}'.")


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
