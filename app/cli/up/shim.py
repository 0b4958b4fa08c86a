"""Become a program that the kernel signals when its parent dies: `PARENT_PID PROGRAM ARGUMENT...`.

Run as a file by `python -I -S`, so it may use nothing but the standard library. SIGTERM, not SIGKILL: each child ends
what it started itself. The wish is made after the fork and kept over the exec; a parent that died before it was made is
found by its pid.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, program = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    os.execv(program[0], program)  # noqa: S606 - the point of this file; no shell is wanted


if __name__ == "__main__":
    main()
