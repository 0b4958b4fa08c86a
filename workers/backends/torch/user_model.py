"""A user's `torch.nn.Module`: checked, moved to its device and type, its weights by the names of its `state_dict`."""

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from app.errors import Cause
from app.spec.training import Precision
from app.spec.weights import WeightFacts
from workers.backends.initial import Weights
from workers.backends.torch.causes import cause_of
from workers.backends.torch.precision import HALVES
from workers.user_model.built import UserModel
from workers.user_model.entrypoint import load_entrypoint
from workers.user_model.errors import UserCodeFailed
from workers.user_model.module import UserModule

_TRY_ROWS: Final = 2
"""Rows of zeros that a new model is tried with: batch norm in front of one row is an error in some models."""

_WORD: Final = 1 << 32


class TorchUserModel:
    """See `workers.user_model.built.UserModel`; in `dtype`, on `device`."""

    def __init__(
        self,
        module: UserModule,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
        precision: Precision = "float32",
    ) -> None:
        self.device = device or torch.device("cpu")
        self.dtype = dtype
        self._folder = module.folder
        self._product = HALVES.get(precision)
        self.units = module.output_units
        seed_all(module.seed, self.device)
        self.native: nn.Module = _require_module(
            load_entrypoint(
                module.folder,
                module.entrypoint,
                module.parameters,
                module.input_shape,
                module.output_units,
                cause_of,
            ),
            module.entrypoint,
        )
        self._place()
        # A lazy module gets its weights here, from its first batch.
        self.forward(torch.zeros(_TRY_ROWS, *module.input_shape, device=self.device, dtype=dtype), train=False)
        self._place()
        _require_trainable(self.native)

    def _place(self) -> None:
        """Bring floating-point weights and buffers to one type: whole numbers, and what they count, stay."""
        strange = [name for name, value in _all_tensors(self.native) if value.is_complex()]
        if strange:
            raise UserCodeFailed(f"The model's weight '{strange[0]}' is complex; weights must be real numbers.")
        try:
            self.native.to(self.device, self.dtype)
        except RuntimeError as error:
            if cause_of(error) is not None:
                raise
            raise UserCodeFailed.of(error, f"The model cannot be moved to '{self.device}'", self._folder) from error

    @property
    def state(self) -> dict[str, Tensor]:
        """The weights and buffers by name, themselves; looked up anew, since a module may replace a buffer.

        Raises:
            UserCodeFailed: the module keeps something there that is no tensor.
        """
        state = self.native.state_dict(keep_vars=True)
        strange = [name for name, value in state.items() if not isinstance(value, Tensor)]
        if strange:
            raise UserCodeFailed(
                f"The module keeps '{strange[0]}' in its state_dict, which is no tensor and cannot be saved."
            )
        return state

    @property
    def trained(self) -> dict[str, Tensor]:
        """The weights that an optimizer moves, by name; one that two layers share is there once."""
        return {name: value for name, value in self.native.named_parameters() if value.requires_grad}

    def facts(self) -> dict[str, WeightFacts]:
        trained = self.trained
        return {name: WeightFacts(tuple(value.shape), name in trained) for name, value in self.state.items()}

    def weights(self) -> Weights:
        return {name: value.detach().cpu().numpy().copy() for name, value in self.state.items()}

    @torch.no_grad()
    def load(self, weights: Weights) -> None:
        require_same({name: tuple(value.shape) for name, value in self.state.items()}, weights)
        for name, value in self.state.items():
            value.copy_(torch.from_numpy(np.array(weights[name])))

    def forward(self, x: Tensor, *, train: bool) -> Tensor:
        """Return the logits of a batch, (rows, units), in the weights' own type, with a gradient where one is on.

        Raises:
            UserCodeFailed: the module gives something else, or ends the process.
        """
        if self.native.training != train:
            self.native.train(train)
        try:
            with torch.set_grad_enabled(train), self._products():
                found = self.native(x)
        except Exception as error:
            if isinstance(error, MemoryError | UserCodeFailed) or cause_of(error) is not None:
                raise
            doing = f"The model's forward failed for rows of shape {list(x.shape[1:])}"
            raise UserCodeFailed.of(error, doing, self._folder) from error
        except BaseException as error:  # SystemExit, KeyboardInterrupt
            raise UserCodeFailed.of(error, "The model's forward ended the process", self._folder) from error
        return self._checked(found, len(x))

    def _products(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext() if self._product is None else torch.autocast(self.device.type, self._product)

    def _checked(self, found: object, rows: int) -> Tensor:
        wanted = f"a tensor of shape [{rows}, {self.units}] of floating-point numbers, the logits of {rows} rows"
        if not isinstance(found, Tensor):
            raise UserCodeFailed(f"The model's forward gives {type(found).__qualname__}; it must give {wanted}.")
        if tuple(found.shape) != (rows, self.units) or not found.is_floating_point():
            hint = " End it with .unsqueeze(1)." if self.units == 1 and tuple(found.shape) == (rows,) else ""
            kind = str(found.dtype).removeprefix("torch.")
            raise UserCodeFailed(
                f"The model's forward gives the shape {list(found.shape)} of {kind}; it must give {wanted}.{hint}"
            )
        return found.to(self.dtype)

    def outputs(self, x: NDArray[np.floating]) -> NDArray[np.floating]:
        seed_all(0, self.device)
        with _plain_memory_errors():
            found = self.forward(torch.from_numpy(np.array(x)).to(self.device, self.dtype), train=False)
            logits: NDArray[np.floating] = found.cpu().numpy()
        return logits


def create(module: UserModule, precision: Precision) -> UserModel:
    with _plain_memory_errors():
        return TorchUserModel(module, precision=precision)


@contextlib.contextmanager
def _plain_memory_errors() -> Iterator[None]:
    """Turn torch's own error for a full memory into Python's, which a caller without torch knows."""
    try:
        yield
    except RuntimeError as error:
        if cause_of(error) is not Cause.HOST_OUT_OF_MEMORY:
            raise
        raise MemoryError(str(error)) from error


def seed_all(seed: int, device: torch.device) -> None:
    """Fix every generator that a model's code may draw from; only those of this process."""
    random.seed(seed)
    np.random.seed(seed % _WORD)  # noqa: NPY002 - the user's code may use the old interface
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def require_same(own: Mapping[str, Sequence[int]], weights: Weights) -> None:
    """Check that weights have the names and shapes of the model's own.

    Raises:
        UserCodeFailed: at the first one that is missing, strange, or of another shape.
    """
    for name in (*own, *weights):
        wanted = tuple(own[name]) if name in own else None
        found = weights[name].shape if name in weights else None
        if wanted != found:
            raise UserCodeFailed(
                f"The model that the function builds now is not the one whose weights were saved: '{name}' has shape "
                f"{found} in the file and {wanted} in the model. The function must build the same model every time."
            )


def _require_module(found: object, entrypoint: str) -> nn.Module:
    if isinstance(found, nn.Module):
        return found
    kind = f"{type(found).__module__}.{type(found).__qualname__}"
    hint = (
        " Set framework to 'tensorflow'."
        if any(base.__module__.startswith("keras") for base in type(found).__mro__)
        else ""
    )
    if isinstance(found, type) and issubclass(found, nn.Module):
        hint = " Return an instance, not the class."
    raise UserCodeFailed(f"'{entrypoint}' returned {kind}; with framework 'torch' it must be a torch.nn.Module.{hint}")


def _all_tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    every = [*module.named_parameters(), *module.named_buffers()]
    return [(name, value) for name, value in every if not nn.parameter.is_lazy(value)]


def _require_trainable(module: nn.Module) -> None:
    if not any(value.requires_grad for value in module.parameters()):
        raise UserCodeFailed("The model has no weight that can be trained: no parameter with requires_grad.")
