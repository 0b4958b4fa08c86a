"""The host as a check sees it, in one object, so that a test can plant faults without breaking a machine."""

import ctypes
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from app.settings import Settings
from workers.interpreters import Interpreter, find_interpreters
from workers.inventory.base import Listing
from workers.inventory.cores import usable_cores
from workers.inventory.nvml import NvmlInventory
from workers.inventory.select import PYNVML
from workers.sandbox_probe import isolation

_IN_CONTAINER: Final = (".dockerenv", "run/.containerenv")
_TIME_ERROR: Final = 5  # adjtimex(2): the clock is not synchronised
_TIMEX_BYTES: Final = 512  # more than the kernel's struct on any platform


def clock_is_synchronised() -> bool | None:
    """Whether the kernel's clock follows a time server; None when it does not tell."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else bool(state != _TIME_ERROR)


@dataclass(frozen=True)
class Place:
    """The settings and the host. `root` is where `/proc`, `/sys`, `/etc` and `/dev` are; `nvml` None: not installed.

    `isolation` tells how code of users is kept from the network, as the worker's user or as a trainer's.
    """

    settings: Settings
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    root: Path = Path("/")
    nvml: Any = PYNVML
    disk_usage: Callable[[Path], Any] = shutil.disk_usage
    now: Callable[[], float] = time.time
    synchronised: Callable[[], bool | None] = clock_is_synchronised
    uid: int = field(default_factory=os.geteuid)
    driver_s: float = 30.0
    isolation: Callable[[int | None], str | None] = isolation

    @property
    def in_container(self) -> bool:
        return any((self.root / name).exists() for name in _IN_CONTAINER)

    @property
    def works(self) -> bool:
        """Whether a worker can run here at all: the API's image has neither its packages nor a framework."""
        return self.nvml is not None or bool(self.settings.interpreters)

    @cached_property
    def interpreters(self) -> dict[str, Interpreter]:
        """Raises InvalidSettings: one of them is no program."""
        return find_interpreters(self.settings.interpreters)

    @cached_property
    def cards(self) -> Listing:
        """What the driver lists, whatever TRAINSHED_DEVICES says. A driver can hang for good, and is left to it."""
        if self.nvml is None:
            return Listing()
        found: queue.SimpleQueue[Listing] = queue.SimpleQueue()
        inventory = NvmlInventory(self.nvml, usable_cores())
        threading.Thread(target=lambda: found.put(inventory.list_devices()), name="driver", daemon=True).start()
        try:
            return found.get(timeout=self.driver_s)
        except queue.Empty:
            return Listing(reason=f"The NVIDIA driver has not answered for {self.driver_s:g} s; it hangs.")
