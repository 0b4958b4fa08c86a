"""The process that makes a file of a python model: the framework, the user's code, its own user.

Entry of a launcher, which has put it into the sandbox of code jobs. One line comes, `{}`, and one answer goes:

    {"made": {"name", "media_type", "kind"}}, the file in the folder `made`   or   {"error": {"code", "message", ...}}

Whoever asks believes nothing of it: another process loads the file and compares, see `workers.user_export_check`.
"""

import importlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from workers.exports.python_model import MADE
from workers.exports.request import CannotExport
from workers.model_file import read_probe
from workers.protocol import ModelErrand
from workers.user_errand import opened, received, safely

_MAKERS: Final = {
    "torch": "workers.exports.python_model.torch_onnx",
    "tensorflow": "workers.exports.python_model.keras_native",
}
"""By the framework, modules with `make(native, description, x, folder)`."""


def main(messages: int, assignment: int) -> int:
    """Make the file."""
    errand = received(assignment)
    return answer_once(messages, lambda: _made(errand))


def answer_once(messages: int, work: Callable[[], dict[str, Any]]) -> int:
    """Wait for the line that asks, and answer it with what the work gives or how it failed."""
    with socket.socket(fileno=messages) as connection, connection.makefile("rb") as lines:
        if not lines.readline():
            return 0
        found = safely(work)
        connection.sendall(json.dumps(found, allow_nan=False).encode() + b"\n")
    return os.EX_SOFTWARE if "error" in found else 0


def _made(errand: ModelErrand) -> dict[str, Any]:
    description, _, model = opened(errand)
    probe = read_probe(Path(errand.model))
    if probe is None:
        raise CannotExport("There is no probe beside the model to try the file with.")
    folder = Path(errand.work_dir, MADE)
    folder.mkdir()
    maker = importlib.import_module(_MAKERS[errand.framework])
    return {"made": vars(maker.make(model.native, description, probe.x.astype(np.float32), folder))}
