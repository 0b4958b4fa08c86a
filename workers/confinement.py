"""What a process does to itself before it reads a model: limits on memory, no network, and no capability.

For processes that make or answer something from a finished model. They need no network, so they cannot have one: a
library that opens a socket gets "operation not permitted". Linux; standard library only.
"""

import ctypes
import os
import resource
import signal
import sys
from typing import Final

from workers.call_filter import install, is_known, no_network
from workers.privileges import drop_capabilities

_PR_SET_PDEATHSIG: Final = 1


def confine(memory_bytes: int) -> bool:
    """Confine this process for good; to be called first, with one thread. True when the network is shut off too.

    `memory_bytes` limits what it may allocate (data, not mapped libraries); then Python raises MemoryError.
    """
    _limit(resource.RLIMIT_DATA, memory_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    drop_capabilities()
    return _shut_off_network()


def end_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, in the process `parent`.

    Only where that thread waits for this process: the kernel's signal follows the thread, not the process.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("The process that asked for this has ended.")


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def _shut_off_network() -> bool:
    """Install a system call filter under which socket() makes AF_UNIX sockets alone; False where there is none."""
    return is_known() and install(no_network())
