"""What the demo trains, and the bar that each result must clear.

The settings were tried with seeds 0 to 5 on both frameworks, which agree to four digits; see docs/evidence.
"""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FRAMEWORKS: Final = ("torch", "tensorflow")
# Texts and gaps are in it: the file as it was published has cells "NA", which are filled because the spec says so.
_PENGUIN_FEATURES: Final = ("island", "bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g", "sex")
_SPLIT: Final = {"validation": 0.1, "test": 0.2, "seed": 0}
_COSINE: Final = {"name": "cosine"}


PENGUINS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    (
        "Adelie",
        {
            "island": "Torgersen",
            "bill_length_mm": 39.1,
            "bill_depth_mm": 18.7,
            "flipper_length_mm": 181,
            "body_mass_g": 3750,
            "sex": "male",
        },
    ),
    (
        "Gentoo",
        {
            "island": "Biscoe",
            "bill_length_mm": 48.7,
            "bill_depth_mm": 14.1,
            "flipper_length_mm": 210,
            "body_mass_g": 4450,
            "sex": "female",
        },
    ),
    (
        "Chinstrap",
        {
            "island": "Dream",
            "bill_length_mm": 46.5,
            "bill_depth_mm": 17.9,
            "flipper_length_mm": 192,
            "body_mass_g": 3500,
            "sex": None,
        },
    ),
)
"""Three rows of the set and what they are; the last one with a gap of our making."""


@dataclass(frozen=True)
class Trial:
    """A spec, and the least that `metric` must be. `kill`: its trainer is killed once, and has to go on."""

    spec: dict[str, Any]
    metric: str
    bar: float
    kill: bool = False
    predict: bool = False

    @property
    def name(self) -> str:
        return str(self.spec["name"])


def trials(penguins: str | None, pair: str | None = "cpu") -> Iterator[Trial]:
    """All trials, the longest first.

    `penguins` is the id of the uploaded table, `pair` the type of device of which there are two; None leaves the trials
    out that need it.
    """
    for framework in FRAMEWORKS:
        yield Trial(_killed(framework), "test_accuracy", 0.95, kill=True)
    for framework in FRAMEWORKS if pair is not None else ():
        yield Trial(_two_devices(framework, str(pair)), "test_accuracy", 0.95)
    for framework in FRAMEWORKS:
        yield Trial(_cnn(framework), "test_accuracy", 0.95)
        yield Trial(_digits(framework), "test_accuracy", 0.95)
        yield Trial(_diabetes(framework), "test_r2", 0.3)
    for framework in FRAMEWORKS if penguins is not None else ():
        yield Trial(_penguins(framework, str(penguins)), "test_accuracy", 0.95, predict=True)


def penguins_file() -> Path | None:
    """The CSV file inside the package palmerpenguins, which need not be imported; None when it is not installed."""
    spec = importlib.util.find_spec("palmerpenguins")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "data" / "penguins.csv"


def _digits(framework: str) -> dict[str, Any]:
    return {
        "name": f"digits {framework}",
        "framework": framework,
        "model": {"type": "mlp", "hidden": [128]},
        "data": {"source": "digits", "split": _SPLIT},
        "hyperparameters": {"epochs": 20, "batch_size": 32, "learning_rate": 0.003, "schedule": _COSINE},
        "device_count": 1,
    }


def _cnn(framework: str) -> dict[str, Any]:
    return {
        "name": f"digits-cnn {framework}",
        "framework": framework,
        "model": {"type": "cnn", "filters": [16, 32], "dense": [64]},
        "data": {"source": "digits", "split": _SPLIT, "preprocess": {"numeric": "none"}},
        "hyperparameters": {"epochs": 10, "batch_size": 32, "learning_rate": 0.003, "schedule": _COSINE},
        "device_count": 1,
    }


def _two_devices(framework: str, device_type: str) -> dict[str, Any]:
    return {
        "name": f"digits-two-devices {framework}",
        "framework": framework,
        "model": {"type": "mlp", "hidden": [128], "batch_norm": True, "dropout": 0.1},
        "data": {"source": "digits", "split": _SPLIT},
        "hyperparameters": {"epochs": 20, "batch_size": 64, "learning_rate": 0.003, "schedule": _COSINE},
        "device_count": 2,
        "device_type": device_type,
    }


def _killed(framework: str) -> dict[str, Any]:
    """Long enough to be met at work: many small steps."""
    return {
        "name": f"digits-killed {framework}",
        "framework": framework,
        "model": {"type": "mlp", "hidden": [128]},
        "data": {"source": "digits", "split": _SPLIT},
        "hyperparameters": {
            "epochs": 160,
            "batch_size": 8,
            "learning_rate": 0.0005,
            "schedule": _COSINE,
            "checkpoint_every_epochs": 5,
        },
        "device_count": 1,
        "retry": {"failures": 1},
    }


def _diabetes(framework: str) -> dict[str, Any]:
    return {
        "name": f"diabetes {framework}",
        "framework": framework,
        "model": "linear",
        "data": {"source": "diabetes", "split": _SPLIT},
        "hyperparameters": {"epochs": 30, "batch_size": 32, "learning_rate": 1.0, "schedule": _COSINE},
        "device_count": 1,
    }


def _penguins(framework: str, source: str) -> dict[str, Any]:
    return {
        "name": f"penguins {framework}",
        "framework": framework,
        "model": {"type": "mlp", "hidden": [16]},
        "data": {
            "source": source,
            "target": "species",
            "features": list(_PENGUIN_FEATURES),
            "missing": "impute",
            "split": _SPLIT,
        },
        "hyperparameters": {"epochs": 40, "batch_size": 16, "learning_rate": 0.01, "schedule": _COSINE},
        "device_count": 1,
    }
