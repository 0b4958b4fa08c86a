"""A checkpoint on disk: a folder that holds all a training needs to go on as if it had never been interrupted.

    weights.safetensors     all weights, the moving statistics too
    optimizer.safetensors   the session's state: slots of the optimizer, the loss scale
    best.safetensors        the best weights so far, only where early stopping keeps them
    state.json              how far the training is, and what its decisions depend on
    manifest.json           written last: the name, size and SHA-256 of each of the others

Each file is written under a temporary name, flushed to the disk and renamed, the manifest after all others: a folder
with a manifest is complete, one without is not a checkpoint, whenever the process was killed. Tensors and plain JSON,
nothing that is executed when it is read. No framework is needed, so the worker checks the same way.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from app.errors import TrainshedError
from workers.fault_points import point
from workers.position import BestSoFar, Partial, PatienceState, Position, Record

__all__ = [
    "BEST_NAME",
    "MANIFEST_NAME",
    "OPTIMIZER_NAME",
    "STATE_NAME",
    "WEIGHTS_NAME",
    "BestSoFar",
    "FileFacts",
    "Manifest",
    "Partial",
    "PatienceState",
    "Position",
    "State",
    "UnreadableCheckpoint",
    "read",
    "read_weights",
    "verify",
    "write",
]

WEIGHTS_NAME: Final = "weights.safetensors"
OPTIMIZER_NAME: Final = "optimizer.safetensors"
BEST_NAME: Final = "best.safetensors"
STATE_NAME: Final = "state.json"
MANIFEST_NAME: Final = "manifest.json"
MOST_MANIFEST_BYTES: Final = 64 * 1024
"""No list of a checkpoint's files is longer; it is read by the worker, and written by code that it does not trust."""

_TEMPORARY: Final = ".tmp"
_BLOCK: Final = 1024 * 1024
_NUMBERS: Final = "fiub"  # NumPy's letters of floating, whole, unsigned and true or false

Tensors = dict[str, NDArray[np.generic]]
Weights = dict[str, NDArray[np.floating]]


class UnreadableCheckpoint(TrainshedError):
    """The folder does not hold a complete checkpoint as we write it."""

    code: ClassVar[str] = "artifact_unreadable"

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f"The checkpoint in '{folder.name}' cannot be used: {reason} A complete one has a {MANIFEST_NAME} and the "
            f"files that it names, for example {WEIGHTS_NAME}."
        )
        self.reason = reason


class FileFacts(Record):
    """One file of a checkpoint. The name has no folder in it: nothing outside of the checkpoint can be named."""

    name: str = Field(pattern=r"^[a-z]+\.(safetensors|json|zip)$")
    size_bytes: int
    sha256: str


class Manifest(Record):
    """The content of manifest.json."""

    format: Literal["trainshed-checkpoint/1"] = "trainshed-checkpoint/1"
    step: int
    epoch: int
    files: list[FileFacts]


@dataclass(frozen=True)
class State:
    """All of a checkpoint. `best`: the weights of `position.best`, where early stopping keeps them."""

    weights: Weights
    optimizer: Tensors
    best: Weights | None
    position: Position


def write(folder: Path, state: State) -> Manifest:
    """Write the checkpoint into a new folder; when it returns, the checkpoint is complete and on the disk.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    point("checkpoint.begin")
    folder.mkdir(parents=True)
    contents = {
        WEIGHTS_NAME: _packed(state.weights),
        OPTIMIZER_NAME: _packed(state.optimizer),
        **({BEST_NAME: _packed(state.best)} if state.best is not None else {}),
        STATE_NAME: state.position.model_dump_json(indent=1).encode(),
    }
    facts = [_write_file(folder, name, content) for name, content in contents.items()]
    point("checkpoint.before_manifest")
    manifest = Manifest(step=state.position.step, epoch=state.position.epoch, files=facts)
    _write_file(folder, MANIFEST_NAME, manifest.model_dump_json(indent=1).encode())
    _sync_folder(folder)
    _sync_folder(folder.parent)
    point("checkpoint.after_manifest")
    return manifest


def verify(folder: Path) -> Manifest:
    """Check that a checkpoint is complete and unchanged; reads every byte of it, holding none in memory.

    Raises:
        UnreadableCheckpoint: a file is missing, too short or changed, or there is no manifest.
    """
    manifest = _manifest(folder)
    for facts in manifest.files:
        try:
            with (folder / facts.name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                size = file.tell()
        except OSError as error:
            raise UnreadableCheckpoint(folder, f"{error.strerror}: '{facts.name}'.") from error
        if (size, digest) != (facts.size_bytes, facts.sha256):
            raise UnreadableCheckpoint(
                folder, f"'{facts.name}' has {size} bytes that are not the {facts.size_bytes} that were written."
            )
    return manifest


def read(folder: Path) -> State:
    """Verify a checkpoint and load it.

    Raises:
        UnreadableCheckpoint: it is not complete, was changed, or is of another format.
    """
    names = {facts.name for facts in verify(folder).files}
    try:
        position = Position.model_validate_json((folder / STATE_NAME).read_bytes())
    except (OSError, ValidationError) as error:
        raise UnreadableCheckpoint(folder, f"'{STATE_NAME}' is not what it should be.") from error
    return State(
        weights=_weights(folder, WEIGHTS_NAME),
        optimizer=_tensors(folder, OPTIMIZER_NAME),
        best=_weights(folder, BEST_NAME) if BEST_NAME in names else None,
        position=position,
    )


def read_weights(folder: Path) -> Weights:
    """Verify a checkpoint and load its weights alone, which is what another job starts from.

    Raises:
        UnreadableCheckpoint: it is not complete, was changed, or is of another format.
    """
    verify(folder)
    return _weights(folder, WEIGHTS_NAME)


def _manifest(folder: Path) -> Manifest:
    try:
        with (folder / MANIFEST_NAME).open("rb") as file:
            text = file.read(MOST_MANIFEST_BYTES + 1)
        if len(text) > MOST_MANIFEST_BYTES:
            raise UnreadableCheckpoint(folder, f"'{MANIFEST_NAME}' is larger than any list of a checkpoint's files.")
        return Manifest.model_validate_json(text)
    except OSError as error:
        raise UnreadableCheckpoint(folder, f"{error.strerror}: '{MANIFEST_NAME}'.") from error
    except ValidationError as error:
        raise UnreadableCheckpoint(folder, f"'{MANIFEST_NAME}' is no list of a checkpoint's files.") from error


def _packed(tensors: Tensors | Weights) -> bytes:
    # Not ascontiguousarray: it makes a vector of one out of a number, which then no longer fits where it came from.
    return bytes(save({name: np.array(value, order="C") for name, value in tensors.items()}))


def _tensors(folder: Path, name: str) -> Tensors:
    try:
        return dict(load((folder / name).read_bytes()))
    except (OSError, SafetensorError) as error:
        raise UnreadableCheckpoint(folder, f"'{name}' is no file of tensors.") from error


def _weights(folder: Path, name: str) -> Weights:
    """Read weights: floating-point numbers; a user's own module may have counts and switches among them."""
    tensors = _tensors(folder, name)
    strange = [key for key, value in tensors.items() if value.dtype.kind not in _NUMBERS]
    if strange:
        raise UnreadableCheckpoint(folder, f"'{strange[0]}' in '{name}' does not hold numbers.")
    return cast("Weights", tensors)


def _write_file(folder: Path, name: str, content: bytes) -> FileFacts:
    temporary = folder / f"{name}{_TEMPORARY}"
    half = len(content) // 2
    with temporary.open("xb") as file:
        file.write(content[:half])
        file.flush()
        point("checkpoint.half_written")
        file.write(content[half:])
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / name)
    return FileFacts(name=name, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
