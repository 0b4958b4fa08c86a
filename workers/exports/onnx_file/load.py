"""model.onnx as another program loads it: in onnxruntime, on one thread of the CPU."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from workers.exports.onnx_file.names import INPUT, NAME

Values = NDArray[np.floating]


def load(folder: Path) -> Callable[[Values], Mapping[str, Values]]:
    """Return what answers encoded rows, float32, with the outputs by name. Raises whatever onnxruntime does."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(folder / NAME, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda x: dict(zip(names, session.run(None, {INPUT: x}), strict=True))
