"""A user's model, built: the same few things of it in either framework."""

import importlib
from typing import Any, Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from app.spec.training import Precision
from app.spec.weights import WeightFacts
from workers.backends.initial import Weights
from workers.user_model.module import UserModule

_MODULES: Final = {"torch": "workers.backends.torch.user_model", "tensorflow": "workers.backends.tensorflow.user_model"}


class UserModel(Protocol):
    """A model in memory. `native` is the `torch.nn.Module` or `keras.Model` itself."""

    @property
    def native(self) -> Any: ...  # noqa: ANN401 - a class of a framework

    def facts(self) -> dict[str, WeightFacts]:
        """Return every weight by name, buffers among them, which are not trained."""
        ...

    def weights(self) -> Weights:
        """Copy all weights out."""
        ...

    def load(self, weights: Weights) -> None:
        """Take weights as `weights` gave them, in this process or another.

        Raises:
            UserCodeFailed: they are those of another model.
        """
        ...

    def outputs(self, x: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the logits of encoded rows (rows, *input shape) as (rows, units): no dropout, nothing is changed.

        Raises:
            UserCodeFailed: the model's own code fails, or gives something else.
        """
        ...


def build_model(module: UserModule, precision: Precision = "float32") -> UserModel:
    """Import the framework and the user's code and build the model, in float32; takes seconds.

    A torch model lies on the CPU, a Keras one where TensorFlow puts it. `precision`: what its `outputs` multiply in.

    Raises:
        UserCodeFailed: the function cannot be found or fails, or what it gives is no model that takes the rows.
        ImportError: the framework is not installed here.
    """
    found = importlib.import_module(_MODULES[module.framework])
    return cast("UserModel", found.create(module, precision))
