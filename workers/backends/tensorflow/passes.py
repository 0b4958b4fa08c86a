"""What a layer needs to know of one pass over a batch besides its input."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from app.spec.layers import BatchNormLayer
from workers.backends.tensorflow.framework import tf

Tensor = Any
Drop = Callable[[Tensor, int], Tensor]


class Statistics(Protocol):
    """The moments of a batch, for batch norm while training."""

    def moments(self, layer: BatchNormLayer, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and biased variance per feature over the whole batch, and remember them for the layer."""
        ...


class Pass:
    """One pass: the weights, and whether it trains. It counts the dropout layers that it comes by."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        drop: Drop | None,
        statistics: Statistics | None,
        product: Any,  # noqa: ANN401 - TensorFlow has no types
    ) -> None:
        self.weights = weights
        self.statistics = statistics
        self.product = product
        self._drop = drop
        self._dropouts = 0

    def dropped(self, x: Tensor) -> Tensor:
        """Apply the next dropout layer."""
        if self._drop is None:
            return x
        self._dropouts += 1
        return self._drop(x, self._dropouts - 1)

    def factor(self, value: Tensor) -> Tensor:
        """Bring one side of a product to the type of products."""
        return value if self.product is None else tf.cast(value, self.product)

    def factors(self, x: Tensor, kernel: Tensor, *, whole: bool = False) -> tuple[Tensor, Tensor]:
        """Bring both sides of a product to one type; `whole`: the kernel's own, whatever the precision is."""
        return (tf.cast(x, kernel.dtype), kernel) if whole else (self.factor(x), self.factor(kernel))

    def biased(self, y: Tensor, name: str) -> Tensor:
        """Add the bias of a layer to its product, in the product's type."""
        bias = self.weights[f"{name}.bias"]
        return tf.nn.bias_add(y, bias if self.product is None else tf.cast(bias, y.dtype))


class Operation(Protocol):
    """What a layer does to a batch, inside a graph or eagerly."""

    def __call__(self, layer: Any, x: Tensor, call: Pass) -> Tensor: ...  # noqa: ANN401 - any layer
