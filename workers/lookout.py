"""Looks at the host's devices again and again: what is there, how it is, who uses it, and what our attempts must know.

A driver that does not answer takes nothing away from what runs: contexts that exist go on, as in a container that has
lost its view of the cards. It only keeps new jobs off the host.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import structlog

from app.clock import Clock
from app.errors import TrainshedError
from app.fleet.condition import Driver
from app.fleet.devices import UNHEALTHY, DeviceFacts, DeviceProcess
from app.jobs.claims import ClaimedDevice
from workers.inventory.base import Inventory, Listing
from workers.inventory.neighbours import Neighbours, Occupant
from workers.stopping import SECOND_NS, StopReason

log = structlog.get_logger("worker")

FOREIGN: Final = "{process} is using {device} as well; the job may get slower or run out of the device's memory."
SICK: Final = "{device} is not well any more: {reason}"
VANISHED: Final = "{device} is not there any more. {reason} The attempt ends, and the job goes on elsewhere."


_SEVERAL: Final = ("", 0)
"""Stands for two attempts in a row on a device."""


class Attempt(Protocol):
    """What is asked of and told to an attempt that holds devices; all may be called at any time, also after its end."""

    key: tuple[str, int]

    @property
    def devices(self) -> Sequence[ClaimedDevice]: ...
    @property
    def holds_devices(self) -> bool: ...
    @property
    def pgid(self) -> int | None: ...
    def notice(self, code: str, message: str) -> None: ...
    def stop(self, reason: StopReason) -> None: ...


@dataclass(frozen=True)
class Outlook:
    """What one look found; `at_boot_ns` is when it ended.

    `devices` are those of the last look at which the driver answered; `blind_since_ns` is since when it has not.
    """

    devices: tuple[DeviceFacts, ...]
    reason: str | None = None
    driver: Driver | None = None
    at_boot_ns: int = 0
    blind_since_ns: int | None = None


class Lookout:
    """One look at a time, by one thread; `outlook` is the newest whole one, and may be read by any thread."""

    def __init__(
        self,
        inventory: Inventory,
        neighbours: Neighbours,
        clock: Clock,
        first: Listing,
    ) -> None:
        self._inventory = inventory
        self._neighbours = neighbours
        self._clock = clock
        self._told: set[tuple[tuple[str, int], str, object]] = set()
        self._missing: frozenset[str] = frozenset()
        self.on_record: frozenset[str] = frozenset()
        """Ids of the devices that the database has as present; whoever writes them there says so here."""
        self.outlook = self._outlook(first, neighbours.judge(first, {}), None)

    def look(self, attempts: Callable[[], Iterable[Attempt]]) -> Outlook:
        """Ask the driver, and tell each attempt what is new about its own devices; `attempts` are all of this host."""
        before = occupants(attempts())
        listing = self._list()
        present = list(attempts())
        last = self.outlook
        if listing.blind:
            self.outlook = self._outlook(listing, last.devices, last)
            return self.outlook
        devices = self._neighbours.judge(listing, _meanwhile(before, occupants(present)))
        self.outlook = self._outlook(listing, devices, last)
        self._tell(present, devices, listing.reason)
        return self.outlook

    def _list(self) -> Listing:
        """What goes wrong on the way is no news of any device."""
        try:
            return self._inventory.list_devices()
        except TrainshedError as error:  # a file of simulated devices that somebody is just writing
            return Listing(reason=str(error), blind=True)
        except Exception:
            log.exception("devices_not_listed")
            return Listing(reason="The devices could not be listed; the worker's log says why.", blind=True)

    def _outlook(self, listing: Listing, devices: tuple[DeviceFacts, ...], last: Outlook | None) -> Outlook:
        now = self._clock.boot_ns()
        already = None if last is None else last.blind_since_ns
        if listing.reason and (last is None or last.reason != listing.reason):
            log.warning("devices_missing", reason=listing.reason)
        blind_since = (already if already is not None else now) if listing.blind else None
        driver = listing.driver or (last.driver if last is not None and listing.blind else None)
        return Outlook(devices, listing.reason, driver, now, blind_since)

    def _tell(self, attempts: Sequence[Attempt], devices: Sequence[DeviceFacts], reason: str | None) -> None:
        present = {device.id: device for device in devices}
        held = {(attempt.key, device.id) for attempt in attempts for device in attempt.devices}
        self._told = {told for told in self._told if told[:2] in held}
        missing = set()
        for attempt in attempts:
            if not attempt.holds_devices:
                continue
            for device in attempt.devices:
                if device.id in present:
                    self._tell_of(attempt, present[device.id])
                elif device.kind == "cuda":
                    missing.add(device.id)
                    self._tell_missing(attempt, device.id, reason)
        self._missing = frozenset(missing)

    def _tell_of(self, attempt: Attempt, device: DeviceFacts) -> None:
        for process in device.processes:
            if self._is_news(attempt, device.id, process.pid):
                log.warning("foreign_process", job_id=attempt.key[0], device=device.id, pid=process.pid)
                text = FOREIGN.format(process=_capital(process), device=device.id)
                attempt.notice("foreign_process", text)
        is_sick = device.health == UNHEALTHY and device.reason is not None
        if is_sick and self._is_news(attempt, device.id, device.reason):
            log.warning("device_unhealthy", job_id=attempt.key[0], device=device.id, reason=device.reason)
            attempt.notice("device_unhealthy", SICK.format(device=device.id, reason=device.reason))

    def _tell_missing(self, attempt: Attempt, device_id: str, reason: str | None) -> None:
        """Only when it was missing at the last look too: one answer that failed must not cost a run its progress.

        Nor before the database has it as gone: it would give the job the same device again.
        """
        if device_id not in self._missing or device_id in self.on_record:
            return
        if self._is_news(attempt, device_id, StopReason.DEVICE_GONE):
            log.error("device_vanished", job_id=attempt.key[0], device=device_id, reason=reason)
            attempt.notice("device_vanished", VANISHED.format(device=device_id, reason=reason or "").replace("  ", " "))
            attempt.stop(StopReason.DEVICE_GONE)

    def _is_news(self, attempt: Attempt, device_id: str, what: object) -> bool:
        told = (attempt.key, device_id, what)
        if told in self._told:
            return False
        self._told.add(told)
        return True


def occupants(attempts: Iterable[Attempt]) -> dict[str, Occupant]:
    """Who of ours is on which device."""
    return {
        device.id: Occupant(attempt.key, attempt.pgid, len(attempt.devices))
        for attempt in attempts
        if attempt.holds_devices
        for device in attempt.devices
    }


def _meanwhile(before: Mapping[str, Occupant], after: Mapping[str, Occupant]) -> dict[str, Occupant]:
    """Who was on each device during a look.

    Where one attempt followed another meanwhile, a number of unknown origin may be either's: then none counts.
    """
    changed = {
        device: replace(after[device], key=_SEVERAL, devices=sys.maxsize)
        for device in before.keys() & after.keys()
        if before[device].key != after[device].key
    }
    return {**before, **after, **changed}


def blind_s(outlook: Outlook, now_ns: int) -> float:
    """For how long the driver has answered nothing; 0 while it answers."""
    return 0.0 if outlook.blind_since_ns is None else (now_ns - outlook.blind_since_ns) / SECOND_NS


def _capital(process: DeviceProcess) -> str:
    text = str(process)
    return text[0].upper() + text[1:]
