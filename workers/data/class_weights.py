"""How much a row counts in the loss, by its class."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from workers.data.labels import Vocabulary, written

Setting = Literal["balanced"] | Mapping[str, float] | None


def class_weights(
    setting: Setting, vocabulary: Vocabulary | None, counts: Sequence[int] | NDArray[np.int64] | None
) -> NDArray[np.float64] | None:
    """The weight of each class in the vocabulary's order, or None when every row counts the same.

    `balanced`: rows / (classes * rows of the class) over the classes that the training part has, so the weights of all
    training rows add up to their number (scikit-learn's `compute_class_weight`). With a mapping the classes that it
    does not name count 1. A class without a training row counts 1 as well. `counts`: training rows of each class.
    """
    if setting is None or vocabulary is None or counts is None:
        return None
    have = np.asarray(counts, np.float64)
    if setting == "balanced":
        present = have > 0
        weights = np.ones(len(have))
        weights[present] = have.sum() / (present.sum() * have[present])
        return weights
    return np.array([setting.get(written(label), 1.0) for label in vocabulary.labels], np.float64)
