"""A part measured without training: the model's outputs block by block, metrics from them in NumPy.

Every row counts once, whatever the number of devices, and both frameworks are measured by the same code. Class weights
are not in these losses: they say what training shall care about, not how well the model does.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.spec import EffectiveSpec
from app.spec.layers import GruLayer, Layer, LstmLayer, Shape
from app.spec.shapes import trace
from app.spec.weights import weights_of
from workers.backends.base import Session
from workers.data.dataset import Dataset
from workers.data.metrics import evaluate, report
from workers.data.split import PartName

_WORK: Final = 1e9
"""Multiplications in one call of `outputs`: a fraction of a second on one core."""

_VALUES: Final = 1 << 24
"""Numbers that the widest layer may give out in one call: 64 MB."""

_LEAST, _MOST = 32, 8192


class Evaluator:
    """Measures the parts of one training; `safe_point` is called before each block and may raise to leave."""

    def __init__(
        self, session: Session, data: Dataset, spec: EffectiveSpec, block: int, safe_point: Callable[[], None]
    ) -> None:
        self._session = session
        self._data = data
        self._spec = spec
        self._block = block
        self._safe_point = safe_point

    def rows(self, part: PartName) -> int:
        return len(self._data.parts[part])

    def outputs(self, part: PartName, limit: int | None = None) -> NDArray[np.floating]:
        """The logits of a part that is not empty, or of its first `limit` rows, (rows, units)."""
        rows = self.rows(part) if limit is None else min(limit, self.rows(part))
        blocks = []
        for start in range(0, rows, self._block):
            self._safe_point()
            blocks.append(self._session.outputs(part, start, min(start + self._block, rows)))
        return np.concatenate(blocks)

    def measure(self, part: PartName, prefix: str) -> dict[str, float]:
        """The loss and the spec's metrics of a part, names with a prefix; nothing for an empty part."""
        if not self.rows(part):
            return {}
        values = evaluate(
            self.outputs(part),
            self._data.parts[part].y,
            self._spec.task,
            self._spec.metrics,
            self._data.unit,
            self._spec.loss,
        )
        return {f"{prefix}{name}": value for name, value in values.items()}

    def report(self, part: PartName) -> dict[str, Any]:
        """All that is measured of a part at the end, as JSON holds it."""
        if not self.rows(part):
            return {"rows": 0}
        labels = self._data.vocabulary.labels if self._data.vocabulary else None
        return report(
            self.outputs(part),
            self._data.parts[part].y,
            task=self._spec.task,
            loss=self._spec.loss,
            labels=labels,
            target=self._data.target,
        )


def block_rows(layers: Sequence[Layer], input_shape: Shape) -> int:
    """How many rows `outputs` gets at once: fixed by the model, so that results do not depend on the time of day."""
    work, widest = 1, max(1, math.prod(input_shape))
    for layer, taken, given in trace(layers, input_shape):
        places = taken[0] if isinstance(layer, LstmLayer | GruLayer) else math.prod(given[:-1])
        work += places * sum(facts.size for facts in weights_of(layer, taken).values())
        widest = max(widest, math.prod(given))
    return max(_LEAST, min(_MOST, int(_WORK / work), _VALUES // widest))
