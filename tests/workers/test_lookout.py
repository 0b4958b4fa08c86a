"""A look that takes long, while one attempt ends and the next one begins on the same card."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.fleet.devices import DeviceProcess
from app.jobs.claims import ClaimedDevice
from tests.fakes import FakeClock
from tests.workers.inventory.planted import ProcessTable, cards, used_by
from workers.inventory.base import Listing
from workers.inventory.neighbours import Neighbours, Policy
from workers.lookout import Lookout
from workers.stopping import StopReason

(CARD,) = cards(1)
STRANGER, FIRST_PID, SECOND_PID = 40_000, 50_001, 50_002


@dataclass
class Run:
    """An attempt on the card; what it was told is kept."""

    key: tuple[str, int]
    told: list[str] = field(default_factory=list)
    holds_devices: bool = True
    pgid: int | None = None
    devices: Sequence[ClaimedDevice] = (ClaimedDevice(CARD.id, "cuda", "Card", None, None, 1, simulated=False),)

    def notice(self, code: str, message: str) -> None:
        self.told.append(f"{code}: {message}")

    def stop(self, reason: StopReason) -> None:
        self.told.append(reason.value)


class Slow:
    """A driver that answers only after the attempts have changed."""

    def __init__(self) -> None:
        self.present: list[Run] = []
        self.following: list[Run] | None = None
        self.pids: tuple[int, ...] = ()

    def list_devices(self) -> Listing:
        if self.following is not None:
            self.present, self.following = self.following, None
        # As NVML tells it in a container: numbers of the host, which name nothing here.
        return Listing((used_by(CARD, *(unknown(pid) for pid in self.pids)),))


def unknown(pid: int) -> DeviceProcess:
    return DeviceProcess(pid)


class TestACardThatIsGone:
    def test_ends_its_run_at_the_second_look_and_not_before_the_database_knows(self) -> None:
        # Else the job would be given the same card again.
        run = Run(("job_1", 1))
        neighbours = Neighbours(ProcessTable(is_hosts=False), Policy())
        lookout = Lookout(Empty(), neighbours, FakeClock(), Listing((CARD,)))
        lookout.on_record = frozenset({CARD.id})
        for _ in range(3):
            lookout.look(lambda: [run])
        assert run.told == []
        lookout.on_record = frozenset()
        lookout.look(lambda: [run])
        lookout.look(lambda: [run])
        assert [told.partition(":")[0] for told in run.told] == ["device_vanished", StopReason.DEVICE_GONE.value]


class Empty:
    """A driver that answers, and has no card any more."""

    def list_devices(self) -> Listing:
        return Listing()


class TestAnAttemptThatFollowsAnother:
    def test_is_no_neighbour_of_itself_and_a_stranger_stays_one(self) -> None:
        driver, first, second = Slow(), Run(("job_1", 1)), Run(("job_2", 1))
        neighbours = Neighbours(ProcessTable(is_hosts=False), Policy())
        lookout = Lookout(driver, neighbours, FakeClock(), Listing((CARD,)))

        def look(*pids: int) -> list[int]:
            driver.pids = pids
            (device,) = lookout.look(lambda: driver.present).devices
            return [process.pid for process in device.processes]

        driver.present = [first]
        assert look(FIRST_PID) == []
        assert look(FIRST_PID, STRANGER) == [STRANGER]
        driver.following = [second]
        assert look(SECOND_PID, STRANGER) == [STRANGER]
        assert look(STRANGER, SECOND_PID) == [STRANGER]
        assert [told.partition(":")[0] for told in second.told] == ["foreign_process"], "of the stranger alone"
        assert str(STRANGER) in second.told[0]
