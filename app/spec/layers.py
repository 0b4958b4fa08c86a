"""The layers that a backend builds, and what each of them means: the contract that every backend conforms to.

A layer maps a batch of shape (batch, *shape) to another; shapes are written without the batch, and the last axis holds
the features: a picture is (height, width, channels), a sequence (steps, features). Weights are drawn once, with NumPy,
from the job's seed, and loaded into whichever framework runs the job (see `app.spec.weights` for names and shapes).

- **dense**: `y = x @ kernel + bias` over the last axis, whatever the rank. Kernel (inputs, units), bias (units).
- **activation**: element by element, no parameters. `gelu` is the exact form `0.5 x (1 + erf(x / sqrt(2)))`, not the
  tanh approximation; `elu` has alpha 1; `leaky_relu` has slope 0.01 below 0; `softplus` is `log(1 + exp(x))`; `silu` is
  `x sigmoid(x)`; `selu` uses scale 1.0507009873554805 and alpha 1.6732632423543772; `softsign` is `x / (1 + |x|)`;
  `linear` is `x`.
- **dropout**: while training, each value is kept with probability `1 - rate` and divided by it, else it is 0; in
  validation and prediction it does nothing. Which values are kept is decided by an integer hash of (seed, layer, step,
  row, column), not by a framework's random numbers: there is no random state to save, and both frameworks agree. The
  row is that of the global batch, the column the place in the flattened rest of the shape, the layer the number of the
  dropout layer, depth first.
- **batch_norm**: per feature of the last axis, with statistics over all other axes: `gamma (x - mean) / sqrt(variance +
  epsilon) + beta`. While training, mean and (biased) variance are those of the *global* batch, over all devices; the
  moving statistics become `momentum old + (1 - momentum) batch`, both biased, and are used in validation and
  prediction. They start at mean 0 and variance 1, and are not trained.
- **layer_norm**: the same formula with the mean and biased variance of each row's last axis; no moving statistics.
- **flatten**: to one axis, in channels-last order (the last axis moves fastest). **reshape**: the same order.
- **conv1d, conv2d**: cross-correlation, as every framework has it; kernel (k, in, out) or (kh, kw, in, out). `same`
  pads as TensorFlow does: in all max((ceil(n / s) - 1) s + (k - 1) d + 1 - n, 0) zeros, the smaller half before, so
  that the output has ceil(n / s) steps; `valid` pads nothing and gives floor((n - (k - 1) d - 1) / s) + 1.
- **max_pool2d, avg_pool2d**: the same two paddings; padding is never the maximum and never counted in a mean. With
  equal values, the gradient of a maximum goes to the first. **global_avg_pool2d**: the mean over height and width.
- **embedding**: row number `x` of a table (input_dim, output_dim); x are whole numbers below input_dim.
- **lstm**: gates i, f, g, o: `c = sigmoid(f) c + sigmoid(i) tanh(g)`, `h = sigmoid(o) tanh(c)`, all from
  `x @ kernel + h @ recurrent_kernel + bias`; c and h start at 0. Gives the last h, or every one.
- **gru**: gates z, r, h; the reset gate acts after the product: `h' = tanh(x @ kernel_h + bias_0h + sigmoid(r)
  (h @ recurrent_h + bias_1h))`, `h = sigmoid(z) h + (1 - sigmoid(z)) h'` (Keras: reset_after).
- **residual**: `y = layers(x) + shortcut(x)`; without shortcut layers, `+ x`.
- **parallel**: every branch sees x; their outputs are joined on the last axis (`concat`) or summed (`add`).
- The **output** layer is added by us: a dense layer with one unit per class (classification) or one unit (regression),
  without activation. Losses are computed from its values; softmax is applied only when predicting.

`app.spec.layer_specs` has what a client writes; `app.spec.expand.layers_of` makes these layers of it, each a single
operation with a stable name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Shape: TypeAlias = tuple[int, ...]
"""The shape of one row, without the batch."""

ActivationName: TypeAlias = Literal[
    "linear", "relu", "leaky_relu", "tanh", "sigmoid", "elu", "selu", "gelu", "silu", "softplus", "softsign"
]
ACTIVATIONS: tuple[str, ...] = get_args(ActivationName)
Padding: TypeAlias = Literal["valid", "same"]
Merge: TypeAlias = Literal["concat", "add"]
Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """`x @ kernel + bias` over the last axis, kernel (inputs, units), bias (units); no activation."""

    name: str
    units: int
    use_bias: bool = True
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


@dataclass(frozen=True, slots=True)
class BatchNormLayer:
    """`momentum` is the share of the OLD moving statistics; the moving variance is biased."""

    name: str
    momentum: float = 0.9
    epsilon: float = 1e-3
    type: Literal["batch_norm"] = "batch_norm"


@dataclass(frozen=True, slots=True)
class LayerNormLayer:
    """Mean and biased variance of the last axis."""

    name: str
    epsilon: float = 1e-3
    type: Literal["layer_norm"] = "layer_norm"


@dataclass(frozen=True, slots=True)
class FlattenLayer:
    """To one axis, in channels-last order."""

    name: str
    type: Literal["flatten"] = "flatten"


@dataclass(frozen=True, slots=True)
class ReshapeLayer:
    """To `shape`, in channels-last order; the number of values stays."""

    name: str
    shape: Shape
    type: Literal["reshape"] = "reshape"


@dataclass(frozen=True, slots=True)
class Conv1dLayer:
    """(steps, in) to (steps', filters)."""

    name: str
    filters: int
    kernel_size: int
    strides: int = 1
    padding: Padding = "same"
    dilation: int = 1
    use_bias: bool = True
    type: Literal["conv1d"] = "conv1d"


@dataclass(frozen=True, slots=True)
class Conv2dLayer:
    """(height, width, in) to (height', width', filters)."""

    name: str
    filters: int
    kernel_size: Pair
    strides: Pair = (1, 1)
    padding: Padding = "same"
    dilation: Pair = (1, 1)
    use_bias: bool = True
    type: Literal["conv2d"] = "conv2d"


@dataclass(frozen=True, slots=True)
class MaxPool2dLayer:
    """The largest value of each window."""

    name: str
    pool_size: Pair = (2, 2)
    strides: Pair = (2, 2)
    padding: Padding = "valid"
    type: Literal["max_pool2d"] = "max_pool2d"


@dataclass(frozen=True, slots=True)
class AvgPool2dLayer:
    """The mean of each window; padding is not counted."""

    name: str
    pool_size: Pair = (2, 2)
    strides: Pair = (2, 2)
    padding: Padding = "valid"
    type: Literal["avg_pool2d"] = "avg_pool2d"


@dataclass(frozen=True, slots=True)
class GlobalAvgPool2dLayer:
    """(height, width, channels) to (channels)."""

    name: str
    type: Literal["global_avg_pool2d"] = "global_avg_pool2d"


@dataclass(frozen=True, slots=True)
class EmbeddingLayer:
    """Whole numbers of any shape to that shape with `output_dim` values for each."""

    name: str
    input_dim: int
    output_dim: int
    type: Literal["embedding"] = "embedding"


@dataclass(frozen=True, slots=True)
class LstmLayer:
    """(steps, features) to (units), or to (steps, units) with `return_sequences`."""

    name: str
    units: int
    return_sequences: bool = False
    type: Literal["lstm"] = "lstm"


@dataclass(frozen=True, slots=True)
class GruLayer:
    """As `LstmLayer`, with the cell that Keras calls `reset_after`."""

    name: str
    units: int
    return_sequences: bool = False
    type: Literal["gru"] = "gru"


@dataclass(frozen=True, slots=True)
class ResidualLayer:
    """`layers(x) + shortcut(x)`; an empty shortcut is x itself."""

    name: str
    layers: "tuple[Layer, ...]"
    shortcut: "tuple[Layer, ...]" = ()
    type: Literal["residual"] = "residual"


@dataclass(frozen=True, slots=True)
class ParallelLayer:
    """Every branch sees x; an empty branch is x itself."""

    name: str
    branches: "tuple[tuple[Layer, ...], ...]"
    merge: Merge = "concat"
    type: Literal["parallel"] = "parallel"


Layer: TypeAlias = (
    DenseLayer
    | ActivationLayer
    | DropoutLayer
    | BatchNormLayer
    | LayerNormLayer
    | FlattenLayer
    | ReshapeLayer
    | Conv1dLayer
    | Conv2dLayer
    | MaxPool2dLayer
    | AvgPool2dLayer
    | GlobalAvgPool2dLayer
    | EmbeddingLayer
    | LstmLayer
    | GruLayer
    | ResidualLayer
    | ParallelLayer
)


def sequences_in(layer: Layer) -> "tuple[tuple[Layer, ...], ...]":
    """Return the lists of layers inside of a container, in the order of their weights; none for any other layer."""
    if isinstance(layer, ResidualLayer):
        return (layer.layers, layer.shortcut)
    return layer.branches if isinstance(layer, ParallelLayer) else ()


def walk(layers: Iterable[Layer]) -> Iterator[Layer]:
    """Yield every layer depth first: a container, then what is inside (residual: its layers, then its shortcut)."""
    for layer in layers:
        yield layer
        for inner in sequences_in(layer):
            yield from walk(inner)
