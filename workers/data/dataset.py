"""A table's columns made ready for training: divided, encoded, scaled, with all that `predict` needs to do the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from app.spec import EffectiveSpec
from app.tables import Columns
from workers.data.arrays import Arrays
from workers.data.encoding import Encoder
from workers.data.fitted import Shape
from workers.data.labels import Label, Vocabulary
from workers.data.metrics import Yardstick
from workers.data.split import PART_NAMES, Division, PartName, divide
from workers.data.standardise import Scaling

__all__ = ["Arrays", "Dataset", "prepare"]

_SHOWN_CLASSES: Final = 5


@dataclass(frozen=True)
class Dataset:
    """The parts and how they were made.

    `encoder` was fitted to the training part. Classification has a `vocabulary` and `class_rows`, how many training
    rows each class has; regression a `target` scaling of one column: the loss is computed on standardised targets (a
    learning rate of 0.001 would need thousands of steps to reach a mean of 150), while mae and rmse are reported in the
    target's own unit. With `preprocess.numeric: none` numbers and targets stay as they are. `row_numbers` are the
    table's own numbers of the usable rows, which `division` indexes. `notices`: (code, sentence) about
    the division; `Columns` has its own about gaps.
    """

    parts: dict[PartName, Arrays]
    yardsticks: dict[PartName, Yardstick]
    division: Division
    row_numbers: NDArray[np.int64]
    encoder: Encoder
    vocabulary: Vocabulary | None
    class_rows: NDArray[np.int64] | None
    target: Scaling | None
    notices: tuple[tuple[str, str], ...]

    @property
    def output_units(self) -> int:
        return len(self.vocabulary.labels) if self.vocabulary else 1

    @property
    def input_shape(self) -> Shape:
        """The shape of one row of `parts[…].x`, as the model takes it."""
        return self.encoder.input_shape

    @property
    def unit(self) -> float:
        """One standard deviation of the target in its own unit; 1 where it is not scaled."""
        return float(self.target.scale[0]) if self.target else 1.0


def prepare(columns: Columns, spec: EffectiveSpec, dtype: DTypeLike = np.float32) -> Dataset:
    """Divide first, then fit on the training part and apply to all: no part is scaled with what it should not know.

    Raises:
        TooFewRows: no row is left for training.
    """
    vocabulary = Vocabulary.of(columns.y) if spec.task == "classification" else None
    classes = vocabulary.encode(columns.y) if vocabulary else None
    division = divide(len(columns.y), classes, spec.data.split, columns.split)
    encoder = Encoder.fit(
        columns.features,
        division.train,
        columns.inputs,
        spec.data.preprocess,
        impute=spec.data.missing == "impute",
        others=columns.others,
    )
    target: Scaling | None = None
    if classes is None:
        goals = np.asarray(columns.y, np.float64)[:, None]
        standardise = spec.data.preprocess.numeric == "standardize"
        target = Scaling.fit(goals[division.train]) if standardise else Scaling.identity(1)
        targets: NDArray[np.generic] = target.apply(goals).astype(dtype)
    else:
        targets = classes
    parts = _parts(columns, targets, division, encoder, dtype)
    unit = float(target.scale[0]) if target else 1.0
    return Dataset(
        parts=parts,
        yardsticks={name: Yardstick.of(spec.task, part.y, unit) for name, part in parts.items()},
        division=division,
        row_numbers=columns.row_numbers,
        encoder=encoder,
        vocabulary=vocabulary,
        class_rows=_class_rows(classes, division, vocabulary),
        target=target,
        notices=tuple(_rare(vocabulary, classes, division, spec)) if vocabulary and classes is not None else (),
    )


def _parts(
    columns: Columns, targets: NDArray[np.generic], division: Division, encoder: Encoder, dtype: DTypeLike
) -> dict[PartName, Arrays]:
    encoded = np.empty((len(targets), encoder.width), dtype)
    with np.errstate(over="ignore"):  # a value beyond float32 becomes infinite; the loss then says "diverged"
        encoder.write(columns.features, encoded)
    encoded = encoded.reshape(-1, *encoder.input_shape)
    return {name: Arrays(x=encoded[rows], y=targets[rows]) for name in PART_NAMES for rows in [division.rows(name)]}


def _class_rows(
    classes: NDArray[np.int64] | None, division: Division, vocabulary: Vocabulary | None
) -> NDArray[np.int64] | None:
    if classes is None or vocabulary is None:
        return None
    return np.bincount(classes[division.train], minlength=len(vocabulary.labels)).astype(np.int64)


def _rare(
    vocabulary: Vocabulary, classes: NDArray[np.int64], division: Division, spec: EffectiveSpec
) -> Iterator[tuple[str, str]]:
    """Name the classes that a split cannot share out: one row only, or none in the training part; one notice a kind."""
    counts = np.bincount(classes, minlength=len(vocabulary.labels))
    trained = np.bincount(classes[division.train], minlength=len(vocabulary.labels))
    absent = [vocabulary.labels[place] for place in np.flatnonzero(trained == 0)]
    single = [vocabulary.labels[place] for place in np.flatnonzero((counts == 1) & (trained == 1))]
    if absent:
        rows = int(counts[trained == 0].sum())
        whose = _classes(absent, spec.data.target, f"{rows} row{'' if rows == 1 else 's'}, none of them for training")
        yield "class_not_trained", f"{whose}: the model cannot learn it. Use data.split.method 'stratified'."
    if single:
        whose = _classes(single, spec.data.target, "1 row" if len(single) == 1 else "1 row each")
        yield "rare_class", f"{whose}. It is used for training, so how well such a class is known is not measured."


def _classes(labels: Sequence[Label], target: str, have: str) -> str:
    """Write `Class 'a' of 'target' has …`, or the first of several classes and how many more there are."""
    if len(labels) == 1:
        return f"Class '{labels[0]}' of '{target}' has {have}"
    shown = ", ".join(f"'{label}'" for label in labels[:_SHOWN_CLASSES])
    more = f" and {len(labels) - _SHOWN_CLASSES} more" if len(labels) > _SHOWN_CLASSES else ""
    return f"Classes {shown}{more} of '{target}' have {have}"
