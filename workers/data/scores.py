"""Scores of predictions, from logits and true classes, or from numbers. Definitions as in scikit-learn, in float64.

Where scikit-learn warns or raises because a class is absent, the value is left out or NaN here; `docs/metrics.md`
says which.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Classes = NDArray[np.int64]


def log_softmax(logits: Floats) -> Floats:
    """The logarithm of each class's probability, (rows, classes)."""
    with np.errstate(over="ignore", invalid="ignore"):
        shifted = logits - logits.max(axis=1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def places(logits: Floats, classes: Classes) -> Classes:
    """How many classes come before the true one, by falling logit; of equal logits the lower class comes first.

    So 0 means that `argmax` is right, and a row counts for top-k when its place is below k.
    """
    own = logits[np.arange(len(classes)), classes][:, None]
    before = np.arange(logits.shape[1])[None, :] < classes[:, None]
    return np.asarray(((logits > own) | ((logits == own) & before)).sum(axis=1), np.int64)


def confusion(truth: Classes, predicted: Classes, count: int) -> Classes:
    """How often class i was taken for class j, (count, count): rows are the truth, columns what was predicted."""
    cells = np.bincount(truth * count + predicted, minlength=count * count)
    return np.asarray(cells.reshape(count, count), np.int64)


def precision_recall_f1(matrix: Classes) -> tuple[Floats, Floats, Floats]:
    """Per class, from a confusion matrix; NaN where undefined: nothing predicted, no rows, neither of both."""
    hits = np.diag(matrix).astype(np.float64)
    have, said = matrix.sum(axis=1), matrix.sum(axis=0)
    return _ratio(hits, said), _ratio(hits, have), _ratio(2 * hits, have + said)


def roc_auc(log_probabilities: Floats, classes: Classes) -> Floats:
    """Area under the ROC curve of each class against all others; NaN for a class that has all rows or none.

    By ranks (Mann-Whitney U): the share of pairs of a row of the class and a row of another in which the first has the
    higher probability; a tie counts one half.
    """
    rows, count = log_probabilities.shape
    areas = np.full(count, np.nan)
    have = np.bincount(classes, minlength=count)
    for label in np.flatnonzero((have > 0) & (have < rows)):
        ranks = _ranks(log_probabilities[:, label])
        own = float(have[label])
        wins = ranks[classes == label].sum() - own * (own + 1) / 2
        areas[label] = wins / (own * (rows - own))
    return areas


def mean_of_known(values: Floats) -> float:
    """The mean of the values that are not NaN; NaN when there is none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def loss_of_rows(name: str, outputs: Floats, targets: NDArray[np.generic]) -> Floats:
    """The loss of each row, (rows,): cross-entropy from logits, or of the error of standardised targets.

    Huber has delta 1: half the square up to 1, then the distance minus one half.
    """
    if name == "cross_entropy":
        return np.asarray(-log_softmax(outputs)[np.arange(len(targets)), targets.astype(np.int64)])
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(outputs - targets.astype(np.float64).reshape(outputs.shape)).sum(axis=1)
        if name == "mae":
            return np.asarray(error)
        if name == "huber":
            return np.asarray(np.where(error <= 1, error**2 / 2, error - 0.5))
        return np.asarray(error**2)


def _ratio(above: Floats, below: NDArray[np.generic]) -> Floats:
    share = np.full(len(above), np.nan)
    np.divide(above, below, out=share, where=below.astype(np.float64) > 0)
    return share


def _ranks(values: Floats) -> Floats:
    """Ranks from 1, equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse])
