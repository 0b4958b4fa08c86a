"""Messages between the ranks of a job: a line of JSON, then arrays.

The two ends are processes of one job, one of them forked from the other. Arrays travel as safetensors, so there is
nothing to run in a message, and no copy of a class to be in step with.
"""

import json
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

ByName = dict[str, NDArray[Any]]


def send(connection: Connection, head: Mapping[str, object], arrays: Mapping[str, NDArray[Any]] | None = None) -> None:
    """Send a message; blocks while the other end is slow.

    Raises:
        OSError: the other end is gone.
    """
    connection.send_bytes(json.dumps(head).encode())
    # Not ascontiguousarray, which gives a number an axis.
    connection.send_bytes(save({name: np.array(value, order="C") for name, value in (arrays or {}).items()}))


def receive(connection: Connection) -> tuple[dict[str, Any], ByName]:
    """Wait for a message.

    Raises:
        EOFError: the other end is gone.
        OSError: likewise, in the middle of a message.
    """
    head: dict[str, Any] = json.loads(connection.recv_bytes())
    return head, {name: value.copy() for name, value in load(connection.recv_bytes()).items()}
