"""What a host does with what it sees around it: faults of devices, other people's processes, blockers."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from app.db import DatabaseDown
from app.fleet.condition import Condition
from app.fleet.devices import DeviceFacts, lift_quarantine, quarantine
from app.fleet.models import Device
from app.jobs.states import JobState
from tests.workers.eventually import eventually
from tests.workers.host.bench import HostBench
from tests.workers.host.looking import CAUSE_OF_ECC, FULL, cause, look, notices, obey, running, sick
from tests.workers.inventory.planted import ANA, Planted, cards, used_by
from workers.inventory import InvalidInventory
from workers.inventory.base import Listing
from workers.inventory.neighbours import Neighbours, Policy
from workers.lookout import Lookout
from workers.protocol import Done, Failed

# What becomes rows is tried with both databases in tests/fleet; here it is about looks.
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


class TestInventory:
    def test_a_card_that_comes_goes_and_comes_back_is_followed(self, bench: HostBench) -> None:
        host = bench.make(devices=1)
        host.attend()
        assert (bench.view(0).health, bench.view(1).health) == ("ok", "gone")
        bench.ground.plant(*cards(2))
        look(bench, host)
        assert bench.view(1).health == "ok"
        bench.clock.advance(30)
        bench.ground.plant(cards(1)[0], reason="The driver lists 2 cards, but card 1 does not answer: GPU is lost.")
        look(bench, host)
        gone = bench.view(1)
        assert (gone.health, gone.health_at) == ("gone", bench.clock.now())
        assert "GPU is lost" in str(gone.reason)
        assert bench.worker().reason == "The driver lists 2 cards, but card 1 does not answer: GPU is lost."

    def test_a_card_that_was_sliced_becomes_its_slices(self, bench: HostBench) -> None:
        host = bench.make()
        host.attend()
        slices = [DeviceFacts(id=f"MIG-{n}", kind="cuda", name="Slice", position=n, memory_bytes=10) for n in (1, 2)]
        bench.ground.plant(*slices, cards(2)[1])
        look(bench, host)
        shown = {device.id: device.usable for device in bench.host_view().devices}
        assert shown == {"host-a-0": False, "host-a-1": True, "MIG-1": True, "MIG-2": True}

    def test_nothing_is_written_while_nothing_changes(self, bench: HostBench) -> None:
        host = bench.make()
        host.attend()
        seen = bench.device(0).seen_at
        bench.clock.advance(30)
        look(bench, host)
        assert bench.device(0).seen_at == seen

    def test_a_report_that_was_lost_is_written_with_the_next_beat(self, bench: HostBench) -> None:
        host = bench.make()
        host.attend()
        bench.ground.plant(sick(cards(2)[0]), cards(2)[1])
        bench.ground.surroundings.look()
        bench.database.keep_answers, bench.database.lose_answers = 1, 1
        with pytest.raises(DatabaseDown):
            host.attend()
        host.attend()
        assert (bench.view(0).health, bench.view(0).reason) == ("unhealthy", "Xid 79")

    def test_looks_and_reports_go_on_by_themselves(self, bench: HostBench) -> None:
        host = bench.make(interval_s=0.01)
        host.start()
        assert host.registered.wait(20)
        bench.ground.plant(sick(cards(2)[0]), cards(2)[1])

        def is_seen() -> bool:
            host.wake()
            return bench.view(0).health == "unhealthy"

        eventually(is_seen, "the report")


class TestVanished:
    def test_the_attempt_ends_as_a_loss_and_the_job_goes_elsewhere(self, bench: HostBench) -> None:
        host = bench.make()
        run = running(bench, host)
        bench.ground.plant(cards(2)[1], reason="Card 0 does not answer: GPU is lost.")
        look(bench, host)
        assert run.heard == [], "one answer that failed ends no run"
        look(bench, host)
        obey(run)
        eventually(lambda: bench.scene.state() is JobState.QUEUED)

        assert cause(bench) == ("device_unavailable", "The host does not see the device any more.")
        assert (bench.scene.job().failures, bench.scene.job().losses) == (0, 1)
        (told,) = notices(bench, "device_vanished")
        assert "host-a-0 is not there any more. Card 0 does not answer: GPU is lost." in told
        bench.scene.place()
        host.attend()
        again = bench.launcher.next_run()
        assert [device.id for device in again.request.assignment.devices] == ["host-a-1"]

    def test_a_card_that_is_back_at_the_next_look_costs_nothing(self, bench: HostBench) -> None:
        host = bench.make()
        run = running(bench, host)
        for present in (cards(2)[1:], cards(2), cards(2)[1:]):
            bench.ground.plant(*present)
            look(bench, host)
        assert (run.heard, run.signals, bench.scene.state()) == ([], [], JobState.RUNNING)

    def test_a_driver_that_answers_nothing_takes_nothing_away(self, bench: HostBench) -> None:
        host = bench.make()
        run = running(bench, host)
        bench.ground.plant(reason="The NVIDIA driver does not answer: Unknown Error.", blind=True)
        look(bench, host, times=5)
        assert (run.heard, bench.scene.state()) == ([], JobState.RUNNING)
        assert [device.health for device in bench.host_view().devices] == ["ok", "ok"]
        assert bench.host_view().blocked == "The NVIDIA driver does not answer: Unknown Error."
        other = bench.scene.add_job()
        assert bench.scene.place() == [], "nothing new starts there"
        bench.ground.plant(*cards(2))
        look(bench, host)
        assert bench.host_view().blocked is None
        assert [placed.job_id for placed in bench.scene.place()] == [other]

    def test_nor_does_one_that_is_silent_when_the_worker_starts_again(self, bench: HostBench) -> None:
        bench.make().attend()
        host = bench.make("start-2")
        bench.ground.surroundings._lookout = Lookout(
            Planted(Listing(reason="Unknown Error", blind=True)),
            Neighbours(bench.ground.table, Policy()),
            bench.clock,
            Listing(reason="Unknown Error", blind=True),
        )
        host.attend()
        assert [device.health for device in bench.host_view().devices] == ["ok", "ok"]
        assert bench.host_view().blocked == "Unknown Error"
        assert bench.scene.place() == [], "whether the cards are still there nobody knows"

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (InvalidInventory(Path("cards.json"), "it is half written"), "it is half written"),
            (AttributeError("odd"), "the worker's log says why"),
        ],
    )
    def test_nor_does_a_look_that_fails(self, bench: HostBench, error: Exception, reason: str) -> None:
        host = bench.make()
        run = running(bench, host)

        class Failing:
            def list_devices(self) -> Listing:
                raise error

        bench.ground.surroundings._lookout._inventory = Failing()
        look(bench, host, times=3)
        assert (run.heard, bench.view(1).health) == ([], "ok")
        assert reason in str(bench.host_view().blocked)


class TestSick:
    def test_a_device_that_becomes_sick_is_offered_no_more_and_its_job_is_told_once(self, bench: HostBench) -> None:
        host = bench.make()
        run = running(bench, host)
        bench.ground.plant(sick(cards(2)[0]), cards(2)[1])
        look(bench, host, times=3)
        eventually(lambda: bool(notices(bench, "device_unhealthy")))
        assert notices(bench, "device_unhealthy") == ["host-a-0 is not well any more: Xid 79"]
        assert (run.heard, bench.scene.state()) == ([], JobState.RUNNING)
        assert bench.view(0).health == "unhealthy"

    def test_that_a_stranger_is_there_too_does_not_keep_it_from_being_told(self, bench: HostBench) -> None:
        host = bench.make()
        running(bench, host)
        bench.ground.plant(used_by(sick(cards(2)[0]), ANA), cards(2)[1])
        look(bench, host)
        eventually(lambda: bool(notices(bench, "device_unhealthy")))
        assert len(notices(bench, "foreign_process")) == 1

    def test_a_fault_of_the_device_quarantines_it_and_costs_the_user_nothing(self, bench: HostBench) -> None:
        """C26: healthy by the inventory, but what runs on it fails with an uncorrectable ECC error."""
        host = bench.make()
        run = running(bench, host)
        bench.clock.advance(2)
        run.says(Failed(cause="device_fault", message=CAUSE_OF_ECC))
        run.end(code=1)
        eventually(lambda: bench.scene.state() is JobState.QUEUED)

        assert (bench.scene.job().failures, bench.scene.job().losses) == (0, 1)
        kept = bench.view(0)
        assert (kept.health, kept.reason, kept.health_at) == ("quarantined", CAUSE_OF_ECC, bench.clock.now())
        look(bench, host, times=2)  # the inventory still says that it is well
        for _ in range(3):
            bench.scene.add_job()
        (placed,) = bench.scene.place()
        assert placed.job_id == bench.scene.job_id
        host.attend()
        again = bench.launcher.next_run()
        assert [device.id for device in again.request.assignment.devices] == ["host-a-1"]
        with bench.database.write() as session:
            lift_quarantine(session, "host-a-0")
        assert len(bench.scene.place()) == 1, "released, it takes the next job"


class TestOthers:
    def test_a_card_that_somebody_uses_is_not_offered_until_they_leave(self, bench: HostBench) -> None:
        host = bench.make()
        bench.ground.plant(used_by(cards(2)[0], ANA), cards(2)[1])
        look(bench, host)
        shown = bench.view(0)
        assert (shown.health, shown.reason) == ("in_use_elsewhere", "In use by process 4711 (python, user ana).")
        assert [process["pid"] for process in shown.processes] == [4711]
        bench.scene.add_job()
        assert len(bench.scene.place()) == 1
        bench.ground.plant(*cards(2))
        look(bench, host)
        assert (bench.view(0).health, bench.view(0).processes) == ("ok", ())
        assert len(bench.scene.place()) == 1

    def test_one_that_comes_later_is_a_notice_once_per_process(self, bench: HostBench) -> None:
        host = bench.make()
        run = running(bench, host)
        later = replace(ANA, pid=4712)
        for processes in ((ANA,), (ANA,), (ANA, later), (ANA,)):
            bench.ground.plant(used_by(cards(2)[0], *processes), cards(2)[1])
            look(bench, host)
        eventually(lambda: len(notices(bench, "foreign_process")) == 2)
        first, second = notices(bench, "foreign_process")
        assert first == (
            "Process 4711 (python, user ana) is using host-a-0 as well; "
            "the job may get slower or run out of the device's memory."
        )
        assert "Process 4712" in second
        assert (run.heard, bench.scene.state()) == ([], JobState.RUNNING)
        run.says(Done(metrics={}, stopped="stop"))
        run.end(code=1)
        eventually(lambda: bench.scene.state() is not JobState.RUNNING)
        assert bench.view(0).health == "in_use_elsewhere", "they have it to themselves now"

    def test_our_own_trainer_is_no_neighbour(self, bench: HostBench) -> None:
        host = bench.make()
        running(bench, host)
        (supervisor,) = host._supervisors()
        assert supervisor.pgid is not None
        ours = replace(ANA, pid=supervisor.pgid, name=None, user=None)
        bench.ground.plant(used_by(cards(2)[0], ours), cards(2)[1])
        look(bench, host, times=3)
        assert (bench.view(0).health, bench.view(0).processes) == ("ok", ())
        assert notices(bench, "foreign_process") == []


class TestCondition:
    def test_a_host_with_a_blocker_gets_nothing_until_it_is_gone(self, bench: HostBench) -> None:
        """C68: a run folder that cannot be written, a full disk: the worker is online, says why, and starts nothing."""
        host = bench.make()
        bench.ground.condition[0] = Condition(disk_free_bytes=1, blockers=(FULL,))
        bench.ground.surroundings.probe()
        host.attend()
        assert bench.host_view().blocked == FULL.message
        assert bench.scene.place() == []
        bench.ground.condition[0] = Condition(disk_free_bytes=1 << 40)
        bench.ground.surroundings.probe()
        host.attend()
        assert bench.host_view().blocked is None
        assert bench.host_view().condition["disk_free_bytes"] == 1 << 40
        assert len(bench.scene.place()) == 1

    def test_a_driver_that_hangs_blocks_the_host_and_delays_no_beat(self, bench: HostBench) -> None:
        host = bench.make(interval_s=10)
        run = running(bench, host)
        asked, answers = threading.Event(), threading.Event()

        class Hanging:
            def list_devices(self) -> Listing:
                asked.set()
                answers.wait(20)
                return Listing(cards(2))

        surroundings = bench.ground.surroundings
        surroundings._lookout._inventory = Hanging()
        thread = threading.Thread(target=surroundings._looks.call, daemon=True)
        thread.start()
        try:
            assert asked.wait(20)
            bench.clock.advance(29)
            host.attend()
            assert bench.host_view().blocked is None
            bench.clock.advance(2)  # more than three intervals
            host.attend()
            assert "does not answer" in str(bench.host_view().blocked)
            assert surroundings.blind_s == 31
            assert (run.heard, run.signals) == ([], [])
        finally:
            answers.set()
            thread.join(20)
        host.attend()
        assert bench.host_view().blocked is None


class TestQuarantineRows:
    def test_a_report_does_not_touch_a_quarantine(self, bench: HostBench) -> None:
        host = bench.make()
        host.attend()
        with bench.database.write() as session:
            assert quarantine(session, ["host-a-0", "GPU-none"], "x" * 5000, bench.clock.now()) == 1
        bench.ground.plant(sick(cards(2)[0]), cards(2)[1])
        look(bench, host)
        with bench.database.read() as session:
            row = session.get_one(Device, "host-a-0")
        assert (row.health, row.quarantine_reason) == ("unhealthy", "x" * 1000)
        assert bench.view(0).health == "quarantined"
