"""model.keras as a user loads it: in safe mode, with nothing of ours or of anybody's registered."""

from collections.abc import Callable, Mapping
from pathlib import Path

import keras
import numpy as np
from numpy.typing import NDArray

from workers.exports.keras_file.names import LOGITS, NAME

Values = NDArray[np.floating]


def load(folder: Path) -> Callable[[Values], Mapping[str, Values]]:
    """Return what answers encoded rows, float32, with the one output, `logits`. Raises whatever Keras does."""
    model = keras.saving.load_model(folder / NAME, safe_mode=True, compile=False)
    return lambda x: {LOGITS: np.asarray(model(x, training=False))}
