"""The built-in sets: scikit-learn's own data files, read without importing scikit-learn (that takes a second).

Columns and values are those of `sklearn.datasets.load_*`; the target column is called `target`, as there.
"""

import csv
import gzip
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.spec.job import Task
from app.spec.table import LABEL_LIMIT, Column, TableSchema

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A built-in set in memory: columns by name (float64, or int64 for whole numbers), and their description."""

    columns: Mapping[str, NDArray[Any]]
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class Builtin:
    """A built-in set: what it is about, its task, and how to get it; `load()` reads it once per process."""

    name: str
    title: str
    task: Task
    features: tuple[str, ...]
    read: Callable[[], tuple[Matrix, Matrix]]
    image_shape: tuple[int, int, int] | None = None

    def load(self) -> Loaded:
        """Return the set; the arrays are shared and cannot be written to."""
        return _load(self.name)


def builtin_schema(name: str) -> TableSchema:
    """Return the description of a built-in set; KeyError when there is none of that name."""
    return BUILTIN[name].load().schema


@cache
def _load(name: str) -> Loaded:
    dataset = BUILTIN[name]
    features, target = dataset.read()
    columns: dict[str, NDArray[Any]] = {}
    described = []
    for label, values in (*zip(dataset.features, features.T, strict=True), ("target", target)):
        whole = bool(np.all(values == np.floor(values)))
        column = np.ascontiguousarray(values, dtype=np.int64 if whole else np.float64)
        column.flags.writeable = False
        columns[label] = column
        described.append(_describe(label, column, whole=whole))
    schema = TableSchema(
        source_kind="builtin",
        rows=len(target),
        columns=described,
        default_target="target",
        default_task=dataset.task,
        image_shape=list(dataset.image_shape) if dataset.image_shape else None,
    )
    return Loaded(columns, schema)


def _describe(name: str, values: NDArray[Any], *, whole: bool) -> Column:
    different, counts = np.unique(values, return_counts=True)
    labelled = whole and len(different) <= LABEL_LIMIT
    return Column(
        name=name,
        kind="integer" if whole else "number",
        missing=0,
        distinct=min(len(different), LABEL_LIMIT + 1),
        labels=[str(int(value)) for value in different] if labelled else None,
        counts=counts.tolist() if labelled else None,
        minimum=float(values.min()),
        maximum=float(values.max()),
    )


def _file(name: str) -> Path:
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("The built-in sets are part of scikit-learn, which is not installed.")
    return Path(spec.submodule_search_locations[0]) / "datasets" / "data" / name


def _counted_csv(name: str) -> tuple[Matrix, Matrix]:
    """Read a file whose first line holds counts and class names, and whose last column is the class."""
    with _file(name).open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    table = np.array(rows, dtype=np.float64)
    return table[:, :-1], table[:, -1]


def _digits() -> tuple[Matrix, Matrix]:
    with gzip.open(_file("digits.csv.gz"), "rt", encoding="ascii") as file:
        table = np.loadtxt(file, delimiter=",")
    return table[:, :-1], table[:, -1]


def _diabetes() -> tuple[Matrix, Matrix]:
    """Read the raw features and scale them as scikit-learn does: centred, each column with a sum of squares of 1."""
    with gzip.open(_file("diabetes_data_raw.csv.gz"), "rt", encoding="ascii") as file:
        raw = np.loadtxt(file)
    with gzip.open(_file("diabetes_target.csv.gz"), "rt", encoding="ascii") as file:
        target = np.loadtxt(file)
    centred = raw - raw.mean(axis=0)
    return centred / np.sqrt((centred**2).sum(axis=0)), target


_IRIS = ("sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)")
_WINE = (
    "alcohol",
    "malic_acid",
    "ash",
    "alcalinity_of_ash",
    "magnesium",
    "total_phenols",
    "flavanoids",
    "nonflavanoid_phenols",
    "proanthocyanins",
    "color_intensity",
    "hue",
    "od280/od315_of_diluted_wines",
    "proline",
)
_CELL = (
    "radius",
    "texture",
    "perimeter",
    "area",
    "smoothness",
    "compactness",
    "concavity",
    "concave points",
    "symmetry",
    "fractal dimension",
)
_BREAST_CANCER = (
    *(f"mean {name}" for name in _CELL),
    *(f"{name} error" for name in _CELL),
    *(f"worst {name}" for name in _CELL),
)
_DIGITS = tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8))
_DIABETES = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")

BUILTIN: dict[str, Builtin] = {
    dataset.name: dataset
    for dataset in (
        Builtin(
            "digits",
            "Handwritten digits of 8 x 8 pixels, ten classes",
            "classification",
            _DIGITS,
            _digits,
            image_shape=(8, 8, 1),
        ),
        Builtin("iris", "Iris flowers, three species", "classification", _IRIS, lambda: _counted_csv("iris.csv")),
        Builtin("wine", "Wines of three growers", "classification", _WINE, lambda: _counted_csv("wine_data.csv")),
        Builtin(
            "breast_cancer",
            "Breast tumours: 0 = malignant, 1 = benign",
            "classification",
            _BREAST_CANCER,
            lambda: _counted_csv("breast_cancer.csv"),
        ),
        Builtin("diabetes", "Diabetes progression after one year", "regression", _DIABETES, _diabetes),
    )
}
