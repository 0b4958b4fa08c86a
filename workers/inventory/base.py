"""The port behind which a host's devices are found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from app.fleet.condition import Driver
from app.fleet.devices import DeviceFacts


@dataclass(frozen=True)
class Listing:
    """What a host offers; `reason` says why it offers less than one would expect, in a sentence for the operator.

    `processes` of the devices are all that the driver names, ours too. `used_bytes` is the memory in use by device id,
    where the driver tells that without its own share. `blind`: the driver as a whole did not answer, so a device that
    is not listed may well be there.
    """

    devices: tuple[DeviceFacts, ...] = ()
    reason: str | None = None
    used_bytes: Mapping[str, int] = field(default_factory=dict)
    driver: Driver | None = None
    blind: bool = False


class Inventory(Protocol):
    """Lists devices. Ids are opaque, and stay the same from one listing to the next.

    A listing never raises for a device or a driver that is broken: the device is listed as unhealthy with a reason,
    and a driver that does not answer gives no devices and a reason. Nothing falls back to the CPU.
    """

    def list_devices(self) -> Listing: ...


@dataclass(frozen=True)
class Combined:
    """Several inventories as one; positions run on, so that the order is that of the inventories."""

    parts: Sequence[Inventory]

    def list_devices(self) -> Listing:
        listings = [part.list_devices() for part in self.parts]
        devices = [device for listing in listings for device in listing.devices]
        reasons = [listing.reason for listing in listings if listing.reason]
        return Listing(
            devices=tuple(replace(device, position=position) for position, device in enumerate(devices)),
            reason=" ".join(reasons) or None,
            used_bytes={identity: used for listing in listings for identity, used in listing.used_bytes.items()},
            driver=next((listing.driver for listing in listings if listing.driver), None),
            blind=any(listing.blind for listing in listings),
        )


def share_of_threads(cores: int, devices: int) -> int:
    """How many threads each of `devices` trainers may use so that all of them together fit the cores."""
    return max(1, cores // devices) if devices else max(1, cores)
