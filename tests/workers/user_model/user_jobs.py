"""Jobs whose model is a user's own: small bundles, as text, and assignments over built-in data."""

import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from app.spec.script import EXAMPLE_BUNDLE
from tests.workers.training_jobs import builtin_job
from workers.protocol import Assignment
from workers.user_code import prepare_user_code
from workers.user_model.module import UserModule

TORCH_NETS: Final = '''
import torch
from torch import nn


class Cnn(nn.Module):
    """Digits as pictures of 8 x 8; the width of the last layer is found out from the first batch."""

    def __init__(self, width, units):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(),
        )
        self.drop = nn.Dropout(0.2)
        self.out = nn.LazyLinear(units)

    def forward(self, x):
        return self.out(self.drop(self.features(x.reshape(-1, 1, 8, 8)).flatten(1)))


def cnn(width=16, *, output_units):
    return Cnn(width, output_units)


def mlp(hidden=8, *, input_shape, output_units):
    return nn.Sequential(
        nn.Linear(*input_shape, hidden), nn.BatchNorm1d(hidden), nn.Tanh(), nn.Dropout(0.2),
        nn.Linear(hidden, output_units),
    )
'''

KERAS_NETS: Final = '''
import keras
from keras import layers


def cnn(width=16, *, output_units):
    """Built by its first batch."""
    return keras.Sequential([
        layers.Reshape((8, 8, 1)), layers.Conv2D(width, 3, padding="same", activation="relu"),
        layers.BatchNormalization(momentum=0.9), layers.MaxPooling2D(2),
        layers.Conv2D(2 * width, 3, activation="relu"), layers.Flatten(), layers.Dropout(0.2),
        layers.Dense(output_units),
    ])


def mlp(hidden=8, *, input_shape, output_units):
    x = inputs = keras.Input(input_shape)
    x = layers.BatchNormalization()(layers.Dense(hidden)(x))
    x = layers.Dropout(0.2)(layers.Activation("tanh")(x))
    return keras.Model(inputs, layers.Dense(output_units)(x))
'''

NETS: Final[Mapping[str, str]] = {"torch": TORCH_NETS, "tensorflow": KERAS_NETS}


def write_bundle(path: Path, files: Mapping[str, str]) -> Path:
    """Pack files, as a client does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def write_folder(folder: Path, files: Mapping[str, str]) -> Path:
    """Write an unpacked bundle."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def module(folder: Path, framework: Any, text: str, function: str = "build", **changes: Any) -> UserModule:
    """Write a bundle of one module, and say which of its functions builds the model."""
    write_folder(folder, {"nets.py": text})
    values = {"parameters": {}, "input_shape": (6,), "output_units": 3, "seed": 0, **changes}
    return UserModule(framework=framework, folder=str(folder), entrypoint=f"nets:{function}", **values)


def python_job(
    work_dir: Path,
    framework: str,
    entrypoint: str = "nets:mlp",
    *,
    text: str | None = None,
    data: str | dict[str, Any] = "iris",
    parameters: dict[str, Any] | None = None,
    packed: bool = False,
    **rest: object,
) -> Assignment:
    """A job whose bundle is one module, `nets`; `text` is another than that of the framework's `NETS`.

    The code is unpacked as a trainer does it first of all; `packed`: that is left to the trainer.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    write_bundle(work_dir / "bundle.zip", {"nets.py": text or NETS[framework]})
    model = {"type": "python", "bundle": EXAMPLE_BUNDLE, "entrypoint": entrypoint, "parameters": parameters or {}}
    found = builtin_job(work_dir, data, framework, model=model, **rest)
    assignment = with_code(found, work_dir)
    if not packed:
        prepare_user_code(assignment)
    return assignment


def with_code(assignment: Assignment, work_dir: Path) -> Assignment:
    """Say where the bundle is and will be, as a worker says it."""
    return assignment.model_copy(update={"bundle": str(work_dir / "bundle.zip"), "code": str(work_dir / "code")})


def with_the_code_of(earlier: Assignment, assignment: Assignment) -> Assignment:
    """Give a later attempt its copy of the bundle, unpacked."""
    work_dir = Path(assignment.work_dir)
    shutil.copy(Path(earlier.work_dir) / "bundle.zip", work_dir)
    found = with_code(assignment, work_dir)
    prepare_user_code(found)
    return found
