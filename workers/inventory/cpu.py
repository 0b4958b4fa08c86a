"""CPU slots: shares of the host's cores that jobs with `device_type: cpu` are given."""

from dataclasses import dataclass

from app.fleet.devices import DeviceFacts
from workers.inventory.base import Listing

_CORES_PER_SLOT = 4


@dataclass(frozen=True)
class CpuInventory:
    """`slots` shares of `cores` cores; without a number one slot for each four cores, at least one.

    Each slot's thread limit is cores ÷ slots: two jobs of two threads on two cores were measured five times slower
    each than with one thread.
    """

    host_id: str
    cores: int
    slots: int | None = None

    def list_devices(self) -> Listing:
        slots = max(1, self.cores // _CORES_PER_SLOT) if self.slots is None else self.slots
        if not slots:
            return Listing()
        threads = max(1, self.cores // slots)
        name = f"CPU slot, {threads} thread{'s' if threads > 1 else ''}"
        return Listing(
            tuple(
                DeviceFacts(id=f"cpu-{number}@{self.host_id}", kind="cpu", name=name, position=number, threads=threads)
                for number in range(slots)
            )
        )
