"""The layers, and what each of them means: this page is the contract that every backend conforms to.

- Rows are batches of shape (batch, features), computed in float32. Weights are drawn once, with NumPy, from the job's
  seed, and loaded into whichever framework runs the job, so both start from the same numbers.
- **dense**: `y = x @ kernel + bias`. Kernel of shape (inputs, units), drawn *Glorot uniform*: uniform in [-a, a] with
  `a = sqrt(6 / (inputs + units))`. Bias of shape (units), zero. Both are trained.
- **activation**: element by element, no parameters. `gelu` is the exact form `0.5 x (1 + erf(x / sqrt(2)))`, not the
  tanh approximation; `elu` has alpha 1; `softplus` is `log(1 + exp(x))`; `silu` is `x sigmoid(x)`; `selu` uses
  scale 1.0507009873554805 and alpha 1.6732632423543772; `softsign` is `x / (1 + |x|)`; `linear` is `x`.
- **dropout**: while training, each value is kept with probability `1 - rate` and divided by it, else it is 0; in
  validation and prediction it does nothing. Which values are kept is decided by an integer hash of (seed, layer, step,
  row, column), not by a framework's random numbers: there is no random state to save, and both frameworks agree.
- The **output** layer is added by us: a dense layer with one unit per class (classification) or one unit (regression),
  without activation. Losses are computed from its values; softmax is applied only when predicting.

`Dense`, `Activation`, `Dropout` are what a client writes; `DenseLayer`, `ActivationLayer`, `DropoutLayer` are what a
backend builds: one operation each, with a stable name (see `app.spec.expand.layers_of`).
"""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import Field

from app.spec.base import SpecModel

ActivationName: TypeAlias = Literal[
    "linear", "relu", "tanh", "sigmoid", "elu", "selu", "gelu", "silu", "softplus", "softsign"
]
ACTIVATIONS: tuple[str, ...] = get_args(ActivationName)

Units = Annotated[int, Field(ge=1, le=65536)]
DropoutRate = Annotated[float, Field(ge=0, lt=1)]


class Dense(SpecModel):
    """A fully connected layer: `activation(x @ kernel + bias)`."""

    type: Literal["dense"] = Field(description="The kind of layer.")
    units: Units = Field(description="How many values the layer gives out.", examples=[64])
    activation: ActivationName = Field(default="linear", description="Applied to each value.", examples=["relu"])


class Activation(SpecModel):
    """A function applied to each value; it has no parameters."""

    type: Literal["activation"] = Field(description="The kind of layer.")
    function: ActivationName = Field(description="The function; `gelu` is the exact (erf) form.", examples=["relu"])


class Dropout(SpecModel):
    """While training, set a share of the values to zero and scale the others up; later do nothing."""

    type: Literal["dropout"] = Field(description="The kind of layer.")
    rate: DropoutRate = Field(description="The share of values set to zero, below 1.", examples=[0.2])


LayerSpec = Annotated[Dense | Activation | Dropout, Field(discriminator="type")]


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """`x @ kernel + bias`, kernel (inputs, units), bias (units); no activation."""

    name: str
    units: int
    type: Literal["dense"] = "dense"


@dataclass(frozen=True, slots=True)
class ActivationLayer:
    """One function, element by element."""

    name: str
    function: ActivationName
    type: Literal["activation"] = "activation"


@dataclass(frozen=True, slots=True)
class DropoutLayer:
    """Our own hash decides which values are kept; `rate` is the share set to zero."""

    name: str
    rate: float
    type: Literal["dropout"] = "dropout"


Layer: TypeAlias = DenseLayer | ActivationLayer | DropoutLayer
