"""An inventory whose answer the test plants, and surroundings around it with clocks and processes of the test's own."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from app.clock import Clock
from app.fleet.condition import Condition
from app.fleet.devices import DeviceFacts, DeviceProcess
from workers.inventory.base import Listing
from workers.inventory.neighbours import Neighbours, Policy
from workers.lookout import Lookout
from workers.surroundings import Surroundings

GIB = 1 << 30
NEVER_S = 3600.0
ANA = DeviceProcess(4711, "ana", "python", 9 * GIB)


def cards(count: int = 2, *, host: str = "host-a") -> tuple[DeviceFacts, ...]:
    """Healthy cards named `<host>-<n>`, as `tests.rows.add_worker` names them."""
    return tuple(DeviceFacts(id=f"{host}-{n}", kind="cuda", name="Card", position=n) for n in range(count))


def used_by(device: DeviceFacts, *processes: DeviceProcess) -> DeviceFacts:
    return replace(device, processes=processes)


@dataclass
class Planted:
    """Lists what `listing` says at the time."""

    listing: Listing

    def list_devices(self) -> Listing:
        return self.listing


@dataclass
class ProcessTable:
    """`ours` are numbers of ours, `others` somebody's by number; every other number names no process."""

    ours: set[int] = field(default_factory=set)
    others: dict[int, tuple[str, str]] = field(default_factory=dict)
    is_hosts: bool = True

    def is_ours(self, pid: int, groups: Collection[int]) -> bool | None:
        if pid in self.ours or pid in groups:
            return True
        return False if pid in self.others else None

    def owner(self, pid: int) -> tuple[str | None, str | None]:
        return self.others.get(pid, (None, None))


@dataclass
class Ground:
    """A host's surroundings as a test plants them; `condition` is what a probe finds."""

    inventory: Planted
    table: ProcessTable
    surroundings: Surroundings
    condition: list[Condition]

    def plant(self, *devices: DeviceFacts, **changes: object) -> None:
        self.inventory.listing = Listing(devices, **changes)  # type: ignore[arg-type] # any field


def ground(clock: Clock, *devices: DeviceFacts, interval_s: float = NEVER_S) -> Ground:
    inventory, table, condition = Planted(Listing(devices)), ProcessTable(), [Condition()]
    lookout = Lookout(inventory, Neighbours(table, Policy()), clock, inventory.listing)
    surroundings = Surroundings(lookout, lambda: condition[0], condition[0], clock, interval_s=interval_s)
    return Ground(inventory, table, surroundings, condition)
