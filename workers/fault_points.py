"""Named places where a test may have the process killed, to prove that a kill there costs nothing.

`TRAINSHED_FAULT_POINT=checkpoint.half_written:3` kills the process the third time it comes by that place. Without the
variable a point does nothing.
"""

import os
import signal
from collections import Counter
from typing import Final, Literal, get_args

VARIABLE: Final = "TRAINSHED_FAULT_POINT"

Name = Literal[
    "checkpoint.begin",
    "checkpoint.half_written",
    "checkpoint.before_manifest",
    "checkpoint.after_manifest",
    "checkpoint.announced",
    "checkpoint.before_store",
    "checkpoint.stored",
    "checkpoint.recorded",
]
"""Up to `announced` in the trainer, in the order in which a checkpoint passes them; the others in the worker."""

NAMES: Final[tuple[Name, ...]] = get_args(Name)

_passes: Final[Counter[str]] = Counter()


def point(name: Name) -> None:
    """Kill this process if the environment asks for it here."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    where, _, count = wanted.partition(":")
    _passes[name] += 1
    if where == name and _passes[name] == int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
