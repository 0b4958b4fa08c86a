"""A user's model as it was just saved: read back, built afresh, and asked what the trained one was asked."""

from pathlib import Path
from typing import Final

import numpy as np

from app.errors import Cause
from app.spec.training import Precision
from workers.backends.base import TrainingFailed
from workers.model_file import UnreadableModel, read_probe, read_python
from workers.user_model.built import build_model
from workers.user_model.errors import UserCodeFailed
from workers.user_model.module import UserModule

TOLERANCES: Final[dict[Precision, float]] = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}
"""How far the fresh model may be from the trained one, as a share of the largest output.

The fresh one computes on the CPU, the trained one perhaps on a card; the deeper, the further their roundings part.
"""


def check_python(folder: Path, module: UserModule, precision: Precision) -> None:
    """Build the saved model by its function again, as a prediction will, and compare its answers to the probe.

    The code is that which this process has imported already; everything else comes from the saved files.

    Raises:
        TrainingFailed: the files cannot be read; cause `artifact_unreadable`.
        UserCodeFailed: a fresh model does not take the weights, or answers otherwise with them.
    """
    try:
        _, weights = read_python(folder)
        probe = read_probe(folder)
    except UnreadableModel as error:
        raise TrainingFailed(f"The saved model cannot be read back: {error}", Cause.ARTIFACT_UNREADABLE) from error
    if probe is None:
        raise TrainingFailed("The saved model has no probe to be tried with.", Cause.ARTIFACT_UNREADABLE)
    fresh = build_model(module, precision)
    fresh.load(weights)
    found = fresh.outputs(probe.x)
    scale = max(1.0, float(np.abs(probe.outputs).max()))
    # Not "more than": a NaN is not more than anything.
    if found.shape != probe.outputs.shape or not np.abs(found - probe.outputs).max() <= TOLERANCES[precision] * scale:
        raise UserCodeFailed(
            "A fresh model by the function, with the trained weights, does not answer as the trained one did, so no "
            "prediction would. Something that training changed is not among its weights: keep it in a parameter or a "
            f"registered buffer (torch), or in a weight of a layer (Keras). Asked for {len(probe.outputs)} rows."
        )
