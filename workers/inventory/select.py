"""Which inventory this host uses: decided once, at start, and never by falling back."""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from workers.inventory.base import Combined, Inventory, Listing
from workers.inventory.cpu import CpuInventory
from workers.inventory.nvml import NvmlInventory
from workers.inventory.simulated import SimulatedInventory

# `trainshed doctor` reads a host also where no worker is installed, and NVIDIA's library with it.
PYNVML: Final[Any] = importlib.import_module("pynvml") if importlib.util.find_spec("pynvml") else None
NO_GPU: Final = (
    "This host should have NVIDIA cards ({sign}), but {problem} It offers nothing, not even its CPU, so that no job "
    "trains on the wrong thing. Repair the driver, or set TRAINSHED_DEVICES=cpu."
)


@dataclass(frozen=True)
class InventoryChoice:
    """What the operator and the host say about devices; sizes in cores."""

    devices: Literal["auto", "cuda", "cpu"]
    host_id: str
    cores: int
    simulated: Path | None = None
    cpu_slots: int | None = None


def gpu_sign(root: Path = Path("/")) -> str | None:
    """What says that this host has NVIDIA cards, although nobody asked the driver yet."""
    if (root / "proc/driver/nvidia").exists():
        return "/proc/driver/nvidia exists"
    nodes = sorted((root / "dev").glob("nvidia[0-9]*"))
    return f"/dev/{nodes[0].name} exists" if nodes else None


@dataclass(frozen=True)
class OnlyWithCards:
    """Offers nothing at all unless `cards` lists some: the guard against training on the CPU by accident."""

    cards: Inventory
    others: Inventory
    sign: str

    def list_devices(self) -> Listing:
        listing = self.cards.list_devices()
        if not listing.devices:
            problem = listing.reason or "the driver lists none."
            reason = NO_GPU.format(sign=self.sign, problem=problem[0].lower() + problem[1:])
            return Listing(reason=reason, driver=listing.driver, blind=listing.blind)
        return Combined([_Fixed(listing), self.others]).list_devices()


@dataclass(frozen=True)
class _Fixed:
    listing: Listing

    def list_devices(self) -> Listing:
        return self.listing


def choose_inventory(
    choice: InventoryChoice,
    *,
    nvml: Any = PYNVML,  # noqa: ANN401 - the module, or what stands in for it in tests
    sign: Callable[[], str | None] = gpu_sign,
) -> Inventory:
    """Pick the inventory: a simulated one if a file is named; else by `devices`, where `auto` looks for cards.

    CPU slots are offered beside cards, simulated or real: they are what jobs with `device_type: cpu` get, and a job
    for `cuda` never sees them.
    """
    slots = CpuInventory(choice.host_id, choice.cores, choice.cpu_slots)
    if choice.simulated is not None:
        return Combined([SimulatedInventory(choice.simulated, choice.cores), slots])
    if choice.devices == "cpu":
        return slots
    cards = NvmlInventory(nvml, choice.cores)
    found = "TRAINSHED_DEVICES=cuda" if choice.devices == "cuda" else sign()
    if found is not None:
        return OnlyWithCards(cards, slots, found)
    # No sign of a card: a driver that answers all the same (inside some containers) still counts.
    return Combined([cards, slots]) if cards.list_devices().devices else slots
