"""The host as the database is to know it: its devices, and its disk, memory and folders, each looked at by a thread.

The heartbeat only reads what was found last, so neither a driver nor a disk that hangs can delay it. One that has hung
for long keeps new jobs off the host.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from app.clock import Clock
from app.fleet.condition import Condition, Remark
from app.fleet.devices import DeviceFacts
from app.fleet.registry import HostReport
from workers.lookout import Attempt, Lookout, Outlook, blind_s
from workers.repeated import Repeated

_PATIENCE_S: Final = 30.0
_LATE_LOOKS: Final = 3

DRIVER_SILENT: Final = Remark(
    "driver_silent",
    "The driver of the devices does not answer, so nothing new starts here. If nvidia-smi hangs too, restart the host.",
)
PROBE_SILENT: Final = Remark(
    "disk_silent",
    "The disk of the run folder, the storage or a data root does not answer, so nothing new starts here. "
    "Look at its mount.",
)


def _no_attempts() -> Iterable[Attempt]:
    return ()


class Surroundings:
    """What `report` says at any moment; `probe` finds out all but the devices, `first` is what it found at the start.

    `standing` are problems that were found at the start and stay; `missing` is why the host can run nothing, if so.
    """

    def __init__(
        self,
        lookout: Lookout,
        probe: Callable[[], Condition],
        first: Condition,
        clock: Clock,
        *,
        interval_s: float,
        standing: Sequence[Remark] = (),
        missing: str | None = None,
        metrics_port: int | None = None,
    ) -> None:
        self._lookout = lookout
        self._probe = probe
        self._condition = first
        self._clock = clock
        self._standing = tuple(standing)
        self._missing = missing
        self._metrics_port = metrics_port
        self._patience_s = max(_LATE_LOOKS * interval_s, _PATIENCE_S)
        self._attempts: Callable[[], Iterable[Attempt]] = _no_attempts
        self._looks = Repeated("devices", interval_s, self.look, clock)
        self._probes = Repeated("condition", interval_s, self.probe, clock)

    def tell(self, attempts: Callable[[], Iterable[Attempt]]) -> None:
        """`attempts` are those of this host; from now on they are told what concerns them."""
        self._attempts = attempts

    def start(self) -> None:
        """Look from now on."""
        self._looks.start()
        self._probes.start()

    def stop(self) -> None:
        """Look no more; waits for nothing. Harmless twice, and before a start."""
        self._looks.stop()
        self._probes.stop()

    def look(self) -> Outlook:
        return self._lookout.look(self._attempts)

    def probe(self) -> None:
        self._condition = self._probe()

    def reported(self, seen: HostReport) -> None:
        """Take note that a report is in the database now."""
        if seen.devices is not None:
            self._lookout.on_record = frozenset(device.id for device in seen.devices)

    def report(self) -> HostReport:
        """What is known now; equal to the last report when nothing has changed."""
        outlook = self._lookout.outlook
        reasons = " ".join(filter(None, (outlook.reason, self._missing))) or None
        condition = replace(
            self._condition,
            problems=(*self._standing, *self._condition.problems),
            blockers=(*self._silence(outlook), *self._condition.blockers),
            driver=outlook.driver,
            metrics_port=self._metrics_port,
        )
        devices = outlook.devices if outlook.blind_since_ns is None else None
        return HostReport(devices, reasons, condition)

    def devices(self) -> tuple[DeviceFacts, ...]:
        """Those of the last look at which the driver answered."""
        return self._lookout.outlook.devices

    @property
    def blind_s(self) -> float:
        """For how long no look has told anything: the driver answers with an error, or not at all."""
        hanging_s = self._looks.under_way_s if self._looks.under_way_s > self._patience_s else 0.0
        return max(blind_s(self._lookout.outlook, self._clock.boot_ns()), hanging_s)

    def beacon(self) -> dict[str, object]:
        """What a health check wants to know of the devices."""
        outlook = self._lookout.outlook
        sees = outlook.blind_since_ns is None and (bool(outlook.devices) or outlook.reason is None)
        return {"inventory_ok": sees, "inventory_at_boot_ns": outlook.at_boot_ns, "reason": outlook.reason}

    def _silence(self, outlook: Outlook) -> list[Remark]:
        """Also before a first answer: what an earlier start wrote of the devices still stands, and may not be so."""
        found = []
        if outlook.blind_since_ns is not None:
            found.append(Remark("driver_silent", outlook.reason or DRIVER_SILENT.message))
        elif self._looks.under_way_s > self._patience_s:
            found.append(DRIVER_SILENT)
        if self._probes.under_way_s > self._patience_s:
            found.append(PROBE_SILENT)
        return found
