"""Run a program that the kernel signals when its parent dies: `PARENT_PID SIGNAL UID GID PROGRAM ARGUMENT...`.

A killed test run then leaves no server behind. The order matters: the kernel forgets the wish when the uid changes, so
the uid changes first; and a parent that died before the wish was made is found by its pid.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, signum, uid, gid = (int(argument) for argument in sys.argv[1:5])
    program = sys.argv[5:]
    if uid != os.geteuid():
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signum, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    os.execv(program[0], program)  # noqa: S606 - the point of this file; no shell is wanted


if __name__ == "__main__":
    main()
