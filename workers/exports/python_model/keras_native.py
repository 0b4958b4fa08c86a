"""A `keras.Model` as model.keras, by Keras itself."""

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from workers.exports.request import CannotExport, Made
from workers.model_file import PythonDescription

NAME: Final = "model.keras"


def make(native: Any, _: PythonDescription, x: NDArray[np.float32], folder: Path) -> Made:  # noqa: ANN401 - a class of a framework
    """Write the file; `x` are a few encoded rows.

    Raises:
        CannotExport: a layer cannot say how it is built again (it has no `get_config`), or Keras fails otherwise.
    """
    try:
        native(x, training=False)  # a model that was never called cannot be saved with its shapes
        native.save(folder / NAME)
    except Exception as error:
        raise CannotExport(f"Keras cannot save the model ({type(error).__name__}: {error}).") from error
    return Made(NAME, "application/octet-stream", "model")
