"""Python models on disk, made by hand from format 3: a bundle, weights drawn at random, and what they must answer.

The models are linear, so that the right answer is one product of matrices, whoever computes it.
"""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from tests.workers.training_jobs import effective
from workers.data.encoding import Encoder
from workers.data.fitted import NumberInput
from workers.data.standardise import Scaling
from workers.model_file import PROBE_NAME, PythonTrained, save_python

FEATURES: Final = ("a", "b", "c", "d")
CLASSES: Final = ("setosa", "versicolor", "virginica")
ROWS: Final = [{"a": 5.1, "b": 3.5, "c": 1.4, "d": 0.2}, {"a": 6.7, "b": 3.0, "c": 5.2, "d": 2.3}]
MEAN, SCALE = 150.0, 70.0
BUNDLE: Final = "bun_01hxxxxxxxxxxxxxxxxxxxxxxx"

TORCH: Final = """
from torch import nn

def build(width=1, *, input_shape, output_units):
    return nn.Linear(*input_shape, output_units)
"""
KERAS: Final = """
import keras

def build(*, input_shape, output_units):
    return keras.Sequential([keras.Input(input_shape), keras.layers.Dense(output_units)])
"""
WEIGHTS: Final = {"torch": ("weight", "bias"), "tensorflow": ("sequential/dense/kernel", "sequential/dense/bias")}


@dataclass(frozen=True)
class Saved:
    """A model's folder, and the linear map that it is."""

    folder: Path
    kernel: NDArray[np.float32]
    bias: NDArray[np.float32]

    def logits(self, rows: list[dict[str, Any]]) -> NDArray[np.float64]:
        x = np.array([[row[name] for name in FEATURES] for row in rows])
        return x.astype(np.float32).astype(np.float64) @ self.kernel.astype(np.float64) + self.bias

    def labels(self, rows: list[dict[str, Any]]) -> list[str]:
        return [CLASSES[place] for place in self.logits(rows).argmax(axis=1)]


def write_bundle(path: Path, files: Mapping[str, str]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)


def write_python_model(
    folder: Path,
    files: Mapping[str, str] | None = None,
    *,
    framework: Literal["torch", "tensorflow"] = "torch",
    task: Literal["classification", "regression"] = "classification",
    entrypoint: str = "net:build",
    probe: bool = True,
    seed: int = 0,
    **model: Any,
) -> Saved:
    """Save one; `files` of the bundle are by default those of the linear model, `model` are more keys of the spec's."""
    folder.mkdir(parents=True)
    source = TORCH if framework == "torch" else KERAS
    archive = folder.parent / f"{folder.name}.bundle"
    write_bundle(archive, files or {"net.py": source})
    random = np.random.default_rng(seed)
    units = len(CLASSES) if task == "classification" else 1
    kernel = random.normal(size=(len(FEATURES), units)).astype(np.float32)
    bias = random.normal(size=units).astype(np.float32)
    names = WEIGHTS[framework]
    spec = effective(
        "iris" if task == "classification" else "diabetes",
        framework,
        model={"type": "python", "bundle": BUNDLE, "entrypoint": entrypoint, **model},
    )
    features = spec.data.model_copy(update={"features": list(FEATURES)})
    inputs = tuple(NumberInput(name, Scaling.identity(1)) for name in FEATURES)
    save_python(
        folder,
        PythonTrained(
            weights=dict(zip(names, (kernel.T if framework == "torch" else kernel, bias), strict=True)),
            entrypoint=entrypoint,
            parameters=model.get("parameters", {}),
            archive=archive,
            versions={},
            encoder=Encoder(inputs),
            classes=list(CLASSES) if task == "classification" else None,
            target=None if task == "classification" else Scaling(np.array([MEAN]), np.array([SCALE])),
            spec=spec.model_copy(update={"data": features}),
            metrics={"loss": 0.5},
        ),
    )
    if probe:
        x = random.normal(size=(5, len(FEATURES))).astype(np.float32)
        save_file({"x": x, "outputs": x @ kernel + bias}, folder / PROBE_NAME)
    return Saved(folder, kernel, bias)
