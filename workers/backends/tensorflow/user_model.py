"""A user's `keras.Model`: checked, built by a first batch, its weights by their paths."""

from typing import Any, Final

import keras
import numpy as np
from numpy.typing import NDArray

from app.spec.training import Precision
from app.spec.weights import WeightFacts
from workers.backends.base import DType
from workers.backends.initial import Weights
from workers.backends.tensorflow.framework import tf
from workers.user_model.built import UserModel
from workers.user_model.entrypoint import Known, load_entrypoint
from workers.user_model.errors import UserCodeFailed
from workers.user_model.module import UserModule
from workers.user_model.names import matched

Tensor = Any

_TRY_ROWS: Final = 2
_WORD: Final = 1 << 32
_SEED_SHAPE: Final = (2,)
"""A generator of Keras is a variable of two whole numbers: a seed, and how often it was asked."""


class KerasUserModel:
    """See `workers.user_model.built.UserModel`; computes in `dtype`, products in `precision`."""

    def __init__(
        self,
        module: UserModule,
        dtype: DType = "float32",
        precision: Precision = "float32",
        known: Known = lambda _: None,
    ) -> None:
        if keras.backend.backend() != "tensorflow":
            raise UserCodeFailed(f"Keras computes with {keras.backend.backend()} here; it must be with TensorFlow.")
        self._folder = module.folder
        self.units = module.output_units
        self._known = known
        self.dtype = tf.as_dtype(dtype)
        keras.utils.clear_session(free_memory=False)  # layers are counted from the start, and so named as ever
        keras.config.set_dtype_policy(dtype if precision == "float32" else f"mixed_{precision}")
        keras.utils.set_random_seed(module.seed % _WORD)
        found = load_entrypoint(
            module.folder, module.entrypoint, module.parameters, module.input_shape, module.output_units, known
        )
        self.native: Any = _require_model(found, module.entrypoint)
        # A model that is not built yet gets its weights here.
        self.logits(tf.zeros([_TRY_ROWS, *module.input_shape], self.dtype), train=False)
        self.variables = _by_path(self.native.weights)
        if not self.native.trainable_variables:
            raise UserCodeFailed("The model has no weight that can be trained: no trainable variable.")

    @property
    def trained(self) -> dict[str, Any]:
        """The variables of TensorFlow that an optimizer moves, by path."""
        moved = {id(variable) for variable in self.native.trainable_variables}
        return {path: variable.value for path, variable in self.variables.items() if id(variable) in moved}

    @property
    def generators(self) -> list[Any]:
        """The states of the model's random generators, those of its dropout layers among them, in a fixed order."""
        weights = {id(variable) for variable in self.native.weights}
        return [
            variable.value
            for variable in self.native.variables
            if id(variable) not in weights and tuple(variable.shape) == _SEED_SHAPE and variable.value.dtype.is_integer
        ]

    def facts(self) -> dict[str, WeightFacts]:
        trained = self.trained
        return {path: WeightFacts(tuple(each.shape), path in trained) for path, each in self.variables.items()}

    def weights(self) -> Weights:
        return {path: np.array(variable.value.numpy()) for path, variable in self.variables.items()}

    def load(self, weights: Weights) -> None:
        given = matched(list(self.variables), weights)
        if given is None:
            strange = sorted(self.variables.keys() ^ weights.keys())
            raise UserCodeFailed(
                "The model that the function builds now is not the one whose weights were saved; they differ in "
                f"'{strange[0]}'. The function must build the same model every time."
            )
        for path, variable in self.variables.items():
            if tuple(variable.shape) != given[path].shape:
                raise UserCodeFailed(
                    f"The model that the function builds now is not the one whose weights were saved: '{path}' has "
                    f"shape {given[path].shape} in the file and {tuple(variable.shape)} in the model."
                )
            variable.value.assign(tf.constant(given[path], variable.value.dtype))

    def logits(self, x: Tensor, *, train: bool) -> Tensor:
        """Return the logits of a batch, (rows, units), in the model's own type; inside a graph or eagerly.

        Raises:
            UserCodeFailed: the model fails, gives something else, or ends the process.
        """
        try:
            found = self.native(x, training=train)
        except BaseException as error:
            if isinstance(error, MemoryError | UserCodeFailed) or self._known(error) is not None:
                raise
            doing = f"The model's call failed for rows of shape {list(x.shape[1:])}"
            raise UserCodeFailed.of(error, doing, self._folder) from error
        return self._checked(found, x)

    def _checked(self, found: Any, x: Tensor) -> Tensor:  # noqa: ANN401 - whatever a user's model gives
        wanted = f"one tensor of shape [rows, {self.units}] of floating-point numbers, the logits of the rows"
        if not tf.is_tensor(found):
            raise UserCodeFailed(f"The model's call gives {type(found).__qualname__}; it must give {wanted}.")
        fits = found.shape.rank == 2 and found.shape[1] == self.units  # noqa: PLR2004 - rows and units
        rows = x.shape[0] is None or found.shape.rank is None or found.shape[0] in {None, x.shape[0]}
        if not (fits and rows and found.dtype.is_floating):
            shape = list(found.shape)
            raise UserCodeFailed(
                f"The model's call gives the shape {shape} of {found.dtype.name}; it must give {wanted}."
            )
        return tf.cast(found, self.dtype)

    def outputs(self, x: NDArray[np.floating]) -> NDArray[np.floating]:
        logits: NDArray[np.floating] = self.logits(tf.constant(x, self.dtype), train=False).numpy()
        return logits


def create(module: UserModule, precision: Precision) -> UserModel:
    return KerasUserModel(module, precision=precision)


def _require_model(found: object, entrypoint: str) -> Any:  # noqa: ANN401 - Keras has no types
    if isinstance(found, keras.Model):
        return found
    kind = f"{type(found).__module__}.{type(found).__qualname__}"
    hint = (
        " Set framework to 'torch'." if any(base.__module__.startswith("torch") for base in type(found).__mro__) else ""
    )
    raise UserCodeFailed(f"'{entrypoint}' returned {kind}; with framework 'tensorflow' it must be a keras.Model.{hint}")


def _by_path(variables: list[Any]) -> dict[str, Any]:
    """Name the variables by their paths; where two layers have one name, the later ones get a number."""
    found: dict[str, Any] = {}
    for variable in variables:
        path, number = variable.path, 1
        while path in found:
            path, number = f"{variable.path}_{number}", number + 1
        found[path] = variable
    return found
