"""Whether the data roots of this host can be read.

A child looks: a file system that does not answer then blocks the child and nobody else.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from app.fleet.condition import RootState

_LONGEST_S: Final = 10.0
_DYING_S: Final = 1.0
# No number of an error. An empty folder has no data, and is what the place of a disk that is not mounted looks like.
_EMPTY: Final = 254
# Exits with the number of the error: there is then no pipe that a hanging child could keep open.
_LOOK: Final = """
import os, sys
try:
    with os.scandir(sys.argv[1]) as entries:
        sys.exit(0 if next(entries, None) else 254)
except OSError as error:
    sys.exit(error.errno or 255)
"""


def probe_roots(roots: Mapping[str, Path], *, longest_s: float = _LONGEST_S) -> dict[str, RootState]:
    """Look at each data root, as the user of this process.

    Never raises; takes little more than `longest_s` for each root.
    """
    return {name: _look(path, longest_s) for name, path in roots.items()}


def _look(path: Path, longest_s: float) -> RootState:
    command = [sys.executable, "-I", "-S", "-c", _LOOK, str(path)]
    null = subprocess.DEVNULL
    try:
        child = subprocess.Popen(command, stdin=null, stdout=null, stderr=null)
    except OSError as error:
        return RootState(ok=False, problem=f"It could not be looked at: {error.strerror}.")
    try:
        code = child.wait(longest_s)
    except subprocess.TimeoutExpired:
        child.kill()
        # A process that hangs in a file system may not die before that answers.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_DYING_S)
        return RootState(ok=False, problem=f"It did not answer within {longest_s:g} s.")
    if code == 0:
        return RootState(ok=True)
    if code == _EMPTY:
        return RootState(ok=False, problem="It is empty: perhaps nothing is mounted there.")
    return RootState(ok=False, problem=f"The worker's user {os.geteuid()} cannot read it: {os.strerror(code)}.")
