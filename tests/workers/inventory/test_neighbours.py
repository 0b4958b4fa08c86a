"""Whose the processes on a device are, on a host and in a container that numbers processes in its own way."""

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.fleet.devices import DeviceFacts, DeviceProcess
from tests.workers.inventory.planted import ANA, GIB, ProcessTable, cards, used_by
from workers.inventory.base import Listing
from workers.inventory.neighbours import Neighbours, Occupant, Policy, SystemProcesses

CARD, OTHER = cards(2)
RUN = Occupant(("job_1", 1), pgid=100, devices=1)
NEXT = Occupant(("job_2", 1), pgid=200, devices=1)


def unknown(pid: int, memory_bytes: int | None = None, kind: str = "compute") -> DeviceProcess:
    """As NVML tells it: a number, no name."""
    return DeviceProcess(pid, memory_bytes=memory_bytes, kind=kind)


def judge(
    neighbours: Neighbours, *devices: DeviceFacts, run: Occupant | None = None, used: dict[str, int] | None = None
) -> DeviceFacts:
    """The first device, on which `run` is."""
    occupants = {CARD.id: run} if run else {}
    return neighbours.judge(Listing(devices, used_bytes=used or {}), occupants)[0]


def pids(device: DeviceFacts) -> list[int]:
    return [process.pid for process in device.processes]


class TestOnAHost:
    table = ProcessTable(ours={7}, others={4711: ("ana", "python"), 900: ("root", "Xorg")})

    def neighbours(self, **policy: object) -> Neighbours:
        return Neighbours(self.table, Policy(frozenset({"Xorg"}), **policy))  # type: ignore[arg-type] # one field

    def test_a_process_of_somebody_else_is_named_and_takes_the_device(self) -> None:
        found = judge(self.neighbours(), used_by(CARD, unknown(4711, 9 * GIB)))
        assert (found.health, found.processes) == ("in_use_elsewhere", (ANA,))
        assert found.reason == "In use by process 4711 (python, user ana)."

    def test_ours_and_what_has_ended_are_nobody(self) -> None:
        found = judge(self.neighbours(), used_by(CARD, unknown(7), unknown(100), unknown(12_345)), run=RUN)
        assert (found.health, found.processes) == ("ok", ())

    def test_other_devices_are_not_concerned(self) -> None:
        found = self.neighbours().judge(Listing((used_by(CARD, unknown(4711)), OTHER)), {})
        assert [device.health for device in found] == ["in_use_elsewhere", "ok"]

    def test_a_small_display_is_nobody_and_a_large_one_counts(self) -> None:
        small, large = unknown(900, GIB - 1, "graphics"), unknown(900, GIB, "graphics")
        assert judge(self.neighbours(), used_by(CARD, small)).health == "ok"
        assert judge(self.neighbours(), used_by(CARD, large)).health == "in_use_elsewhere"
        assert judge(self.neighbours(memory_bytes=0), used_by(CARD, small)).health == "in_use_elsewhere"

    def test_names_are_compared_as_the_kernel_keeps_them(self) -> None:
        long = Neighbours(ProcessTable(others={1: ("u", "fifteen-charact")}), Policy(frozenset({"fifteen-characters"})))
        assert judge(long, used_by(CARD, unknown(1))).health == "ok"

    def test_a_sick_device_stays_sick_and_still_shows_who_is_there(self) -> None:
        sick = replace(used_by(CARD, unknown(4711)), health="unhealthy", reason="Xid 79")
        found = judge(self.neighbours(), sick)
        assert (found.health, found.reason, pids(found)) == ("unhealthy", "Xid 79", [4711])

    def test_a_process_that_the_inventory_names_needs_no_table(self) -> None:
        """Simulated cards: such a number may be no process at all."""
        assert pids(judge(self.neighbours(), used_by(CARD, DeviceProcess(1, "eve", "python")))) == [1]


class TestMemoryOfNobody:
    """Where the driver hides processes, as from a container, memory in use is the only sign of them."""

    def test_it_counts_when_it_is_there_at_two_looks(self) -> None:
        neighbours = Neighbours(ProcessTable(), Policy())
        used = {CARD.id: 12 * GIB}
        assert judge(neighbours, CARD, used=used).health == "ok", "a trainer's is given back a moment after its end"
        found = judge(neighbours, CARD, used=used)
        assert (found.health, found.processes) == ("in_use_elsewhere", ())
        assert found.reason == "12.0 GiB of its memory are in use by nobody that this host can see."
        assert judge(neighbours, CARD, used={CARD.id: 0}).health == "ok"

    @pytest.mark.parametrize(
        ("used", "run", "process"),
        [
            (GIB - 1, None, None),
            (12 * GIB, RUN, None),
            (12 * GIB, None, unknown(7, 12 * GIB)),
        ],
    )
    def test_not_when_it_is_little_or_ours(
        self, used: int, run: Occupant | None, process: DeviceProcess | None
    ) -> None:
        neighbours = Neighbours(ProcessTable(ours={7}), Policy())
        device = used_by(CARD, process) if process else CARD
        found = [judge(neighbours, device, run=run, used={CARD.id: used}) for _ in range(3)]
        assert [device.health for device in found] == ["ok"] * 3


class TestInAContainer:
    """NVML numbers processes as the host does; a number that is not there may be anybody's."""

    @pytest.fixture
    def neighbours(self) -> Neighbours:
        return Neighbours(ProcessTable(is_hosts=False), Policy())

    def test_a_number_that_comes_with_our_trainer_is_its_own(self, neighbours: Neighbours) -> None:
        assert pids(judge(neighbours, CARD, run=RUN)) == []
        assert pids(judge(neighbours, used_by(CARD, unknown(50_001)), run=RUN)) == []
        assert pids(judge(neighbours, used_by(CARD, unknown(50_001)), run=RUN)) == []

    def test_one_more_than_it_has_devices_is_somebody_else(self, neighbours: Neighbours) -> None:
        judge(neighbours, used_by(CARD, unknown(50_001)), run=RUN)
        found = judge(neighbours, used_by(CARD, unknown(50_001), unknown(60_000)), run=RUN)
        assert pids(found) == [60_000]
        pair = replace(RUN, key=("job_3", 1), devices=2)
        fresh = Neighbours(ProcessTable(is_hosts=False), Policy())
        assert pids(judge(fresh, used_by(CARD, unknown(1), unknown(2), unknown(3)), run=pair)) == [3]

    def test_one_that_was_there_before_our_trainer_is_somebody_else(self, neighbours: Neighbours) -> None:
        assert judge(neighbours, used_by(CARD, unknown(60_000))).health == "in_use_elsewhere"
        found = judge(neighbours, used_by(CARD, unknown(60_000), unknown(50_001)), run=RUN)
        assert pids(found) == [60_000]

    def test_one_that_outlives_our_trainer_is_nobody_of_ours_any_more(self, neighbours: Neighbours) -> None:
        judge(neighbours, used_by(CARD, unknown(50_001)), run=RUN)
        assert judge(neighbours, used_by(CARD, unknown(50_001))).health == "in_use_elsewhere"
        assert pids(judge(neighbours, used_by(CARD, unknown(50_001), unknown(50_002)), run=NEXT)) == [50_001]

    def test_the_next_trainer_has_numbers_of_its_own(self, neighbours: Neighbours) -> None:
        judge(neighbours, used_by(CARD, unknown(50_001)), run=RUN)
        assert pids(judge(neighbours, used_by(CARD, unknown(50_002)), run=NEXT)) == []


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


class TestThisHost:
    def test_what_descends_from_this_process_is_ours(self, child: subprocess.Popen[bytes]) -> None:
        processes = SystemProcesses()
        assert processes.is_ours(child.pid, ()) is True
        assert processes.is_ours(os.getpid(), ()) is True
        assert processes.is_ours(os.getppid(), ()) is False

    def test_so_is_whoever_is_in_the_group_of_a_trainer(self, child: subprocess.Popen[bytes]) -> None:
        processes = SystemProcesses()
        processes._worker = child.pid  # as if the worker were another process
        assert processes.is_ours(os.getpid(), ()) is False
        assert processes.is_ours(os.getpid(), {os.getpgrp()}) is True

    def test_a_process_that_is_not_there_is_neither(self, child: subprocess.Popen[bytes]) -> None:
        child.kill()
        child.wait()
        assert SystemProcesses().is_ours(child.pid, ()) is None
        assert SystemProcesses().owner(child.pid) == (None, None)

    def test_one_that_is_there_and_hides_is_somebody_else(self, child: subprocess.Popen[bytes]) -> None:
        blind = SystemProcesses(read=lambda _pid: None)
        assert blind.is_ours(child.pid, ()) is False
        child.kill()
        child.wait()
        assert blind.is_ours(child.pid, ()) is None

    def test_user_and_name_are_those_of_the_kernel(self) -> None:
        processes = SystemProcesses()
        user, name = processes.owner(os.getpid())
        assert user in {os.environ.get("USER"), str(os.geteuid()), pwd.getpwuid(os.geteuid()).pw_name}
        assert name == Path("/proc/self/comm").read_text().strip()
