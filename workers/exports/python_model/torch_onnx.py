"""A `torch.nn.Module` as model.onnx: traced by torch's own exporter, the batch free, with what the logits mean."""

import logging
import warnings
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from workers.exports.onnx_file.metadata import metadata_of
from workers.exports.onnx_file.names import INPUT, LOGITS, NAME, PROBABILITIES, VALUES
from workers.exports.request import CannotExport, Made
from workers.model_file import PythonDescription

_LIMIT: Final = 2**31 - 2**20
"""A file of protobuf cannot be larger than 2 GiB; ONNX would need a second file beside it then."""
_LONGEST: Final = 2_000


class _Answering(nn.Module):
    """The model, and the answer beside its logits: probabilities, or values in the target's own unit."""

    scale: Tensor
    mean: Tensor

    def __init__(self, model: nn.Module, description: PythonDescription) -> None:
        super().__init__()
        self.model = model
        self._classes = description.classes is not None
        scaling = description.target_scaling
        self.register_buffer("scale", torch.tensor([1.0 if scaling is None else scaling.scale[0]]))
        self.register_buffer("mean", torch.tensor([0.0 if scaling is None else scaling.mean[0]]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits: Tensor = self.model(x)
        return logits, torch.softmax(logits, -1) if self._classes else logits * self.scale + self.mean


def make(native: Any, description: PythonDescription, x: NDArray[np.float32], folder: Path) -> Made:  # noqa: ANN401 - a class of a framework
    """Write the file; `x` are a few encoded rows.

    Raises:
        CannotExport: torch's exporter cannot follow the module, or the file would be too large.
    """
    if sum(value.nbytes for value in native.state_dict().values()) > _LIMIT:
        raise CannotExport("Its weights are larger than the 2 GiB that one file of ONNX can hold.")
    model = _Answering(native, description).eval()
    logging.disable(logging.WARNING)  # which of torchvision's operators are not there, for one
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                model,
                (torch.from_numpy(np.array(x)),),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                input_names=[INPUT],
                output_names=[LOGITS, VALUES if description.classes is None else PROBABILITIES],
                external_data=False,
                verbose=False,
            )
    except ModuleNotFoundError:
        raise
    except Exception as error:
        text = str(error)[:_LONGEST]
        raise CannotExport(f"torch's exporter cannot follow the module ({type(error).__name__}: {text}).") from error
    assert program is not None  # noqa: S101 - what the new exporter always gives; this tells the type checker
    program.model.metadata_props.update(metadata_of(description))
    program.save(folder / NAME, external_data=False)
    return Made(NAME, "application/octet-stream", "model")
