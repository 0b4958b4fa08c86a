"""A graph under construction: nodes and weights get names here, and are put together at the end."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET: Final = 17
"""Old enough for every runtime since 2022, new enough for LayerNormalization."""
IR_VERSION: Final = 8
"""The file format that belongs to the opset; a newer one is refused by an older runtime for nothing."""


class Graph:
    """Adds nodes one after the other; each gives the name of what it computes."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}
        self._count = 0

    def weight(self, name: str, value: NDArray[np.generic]) -> str:
        """Store an array, floats as float32; the same name twice is the same array."""
        stored = value.astype(np.float32) if value.dtype.kind == "f" else value
        self._weights.setdefault(name, numpy_helper.from_array(np.array(stored, order="C"), name))
        return name

    def node(self, operator: str, *inputs: str, output: str | None = None, outputs: int = 1, **attributes: Any) -> str:  # noqa: ANN401 - what ONNX takes
        """Apply an operator; returns its last output, the earlier ones are left unnamed (which ONNX leaves out)."""
        self._count += 1
        name = output or f"{operator.lower()}_{self._count}"
        names = ["" for _ in range(outputs - 1)] + [name]
        self._nodes.append(helper.make_node(operator, inputs, names, name=f"node_{self._count}", **attributes))
        return name

    def build(
        self, inputs: Mapping[str, Sequence[int]], outputs: Mapping[str, Sequence[int]], metadata: Mapping[str, str]
    ) -> onnx.ModelProto:
        """Put it together; the first axis of every input and output is the batch, which stays free."""
        model = helper.make_model(
            helper.make_graph(
                self._nodes,
                "trainshed",
                [_value(name, shape) for name, shape in inputs.items()],
                [_value(name, shape) for name, shape in outputs.items()],
                list(self._weights.values()),
            ),
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="trainshed",
        )
        model.ir_version = IR_VERSION
        helper.set_model_props(model, dict(metadata))
        return model


def _value(name: str, shape: Sequence[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
