"""What a person gets, and what is never taken from a job for it."""

from datetime import timedelta
from typing import Any

import pytest

from app.accounts.models import Project
from app.errors import NotFound
from app.fleet.models import Device, Worker
from app.holds.errors import DevicesBusy, HoldEnded, InvalidHold
from app.holds.repository import get_hold, held_devices, holders, list_holds, told
from app.holds.schemas import environment_of, hold_json
from app.holds.service import extend, give_back, locked
from app.scheduling.admission import InsufficientDevices
from app.scheduling.run import schedule
from tests.fakes import START
from tests.holds.bench import HOUR_S, HoldBench
from tests.jobs.placing import TIMES, effective_spec
from tests.rows import add_job, add_project, add_worker

ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def queue_job(bench: HoldBench, count: int = 1, **changes: Any) -> str:
    with bench.database.write() as session:
        project = session.get_one(Project, bench.project_id)
        values = {"effective_spec": effective_spec(), "device_count": count, **changes}
        return add_job(session, project, **values).id


class TestTake:
    def test_leases_the_devices_until_the_time_is_over(self, bench: HoldBench) -> None:
        hold = bench.take(2)
        assert bench.leases() == {"host-a-0": hold.id, "host-a-1": hold.id}
        assert (hold.owner, hold.worker_id, hold.until) == ("ana", bench.worker_id, START + timedelta(hours=1))
        assert [device["id"] for device in hold.devices] == ["host-a-0", "host-a-1"]
        with bench.database.read() as session:
            assert {session.get_one(Device, name).epoch for name in bench.leases()} == {1}, "each lease is a new epoch"

    def test_a_job_gets_only_what_is_left(self, bench: HoldBench) -> None:
        bench.take(1)
        jobs = [queue_job(bench), queue_job(bench)]
        placed = schedule(bench.database, TIMES)
        assert [placement.job_id for placement in placed] == jobs[:1]
        assert bench.leases()["host-a-1"] == jobs[0]

    def test_what_a_job_has_is_never_taken(self, bench: HoldBench) -> None:
        job = queue_job(bench, 2)
        schedule(bench.database, TIMES)
        with pytest.raises(DevicesBusy, match=f"waiting for 1 device, 0 free; held by {job}"):
            bench.take(1, visible=[job])
        assert set(bench.leases().values()) == {job}

    def test_jobs_and_people_of_other_projects_are_only_counted(self, bench: HoldBench) -> None:
        with bench.database.write() as session:
            other = add_project(session, "whales").id
        bench.take(1, project_id=other, owner="bob")
        with pytest.raises(DevicesBusy, match=r"1 free; held by 1 hold of other projects\. Ask") as caught:
            bench.take(2)
        assert "bob" not in str(caught.value)

    def test_people_of_the_project_are_named_with_their_end(self, bench: HoldBench) -> None:
        bench.take(2, for_s=6 * HOUR_S)
        with pytest.raises(DevicesBusy, match="held by ana until 2026-01-31 18:00 UTC"):
            bench.take(1)

    def test_what_is_kept_for_a_waiting_job_is_not_given_away(self, bench: HoldBench) -> None:
        bench.take(1)
        queue_job(bench, 2)
        with pytest.raises(DevicesBusy, match="first 1 job for the same devices"):
            bench.take(1)

    @ONE_DATABASE
    @pytest.mark.parametrize("changes", [{"cordoned": True}, {"state": "offline"}])
    def test_a_host_that_takes_no_jobs_takes_no_holds(self, bench: HoldBench, changes: dict[str, Any]) -> None:
        with bench.database.write() as session:
            worker = session.get_one(Worker, bench.worker_id)
            for name, value in changes.items():
                setattr(worker, name, value)
        with pytest.raises(DevicesBusy, match="no worker online"):
            bench.take(1)

    @ONE_DATABASE
    def test_a_sick_device_is_not_given_away(self, bench: HoldBench) -> None:
        bench.set_device(0, health="unhealthy", reason="ECC error")
        assert [device["id"] for device in bench.take(1).devices] == ["host-a-1"]
        with pytest.raises(DevicesBusy):
            bench.take(1)

    @ONE_DATABASE
    def test_more_than_any_host_has_is_refused_for_good(self, bench: HoldBench) -> None:
        with pytest.raises(InsufficientDevices) as caught:
            bench.take(3)
        assert (caught.value.pointer, caught.value.maximum) == ("/device_count", 2)

    @ONE_DATABASE
    def test_all_devices_are_of_one_host(self, bench: HoldBench) -> None:
        with bench.database.write() as session:
            add_worker(session, "host-b", devices=1)
        bench.take(1, host="host-a")
        with pytest.raises(DevicesBusy):
            bench.take(2)

    @ONE_DATABASE
    def test_the_host_may_be_chosen_by_name_and_id(self, bench: HoldBench) -> None:
        with bench.database.write() as session:
            other = add_worker(session, "host-b", devices=2).id
        assert bench.take(1, host="host-b").worker_id == other
        assert bench.take(1, host=bench.worker_id).worker_id == bench.worker_id
        with pytest.raises(InvalidHold, match=r"no host 'host-c'. Known: host-a, host-b"):
            bench.take(1, host="host-c")

    @ONE_DATABASE
    @pytest.mark.parametrize("asked", [{"device_name": "a100"}, {"min_device_memory_bytes": 90_000_000_000}])
    def test_devices_may_be_chosen_by_name_and_memory(self, bench: HoldBench, asked: dict[str, Any]) -> None:
        bench.set_device(1, name="NVIDIA A100", memory_bytes=94_000_000_000)
        assert [device["id"] for device in bench.take(1, **asked).devices] == ["host-a-1"]

    @ONE_DATABASE
    def test_a_framework_is_not_needed(self, bench: HoldBench) -> None:
        with bench.database.write() as session:
            session.get_one(Worker, bench.worker_id).frameworks = {}
        assert len(bench.take(2).devices) == 2

    @ONE_DATABASE
    def test_a_slice_may_be_held_alone(self, bench: HoldBench) -> None:
        # NVIDIA, MIG User Guide: a CUDA process sees at most one slice.
        with bench.database.write() as session:
            worker = add_worker(session, "host-b", devices=0)
            for number in range(2):
                session.add(
                    Device(
                        id=f"MIG-{number}",
                        worker_id=worker.id,
                        position=number,
                        kind="cuda",
                        name="Slice",
                        memory_bytes=10,
                        seen_at=START,
                    )
                )
        assert [device["id"] for device in bench.take(1, host="host-b").devices] == ["MIG-0"]
        with pytest.raises(InsufficientDevices):
            bench.take(2, host="host-b")


class TestEnd:
    def test_given_back_it_is_free_for_a_job_at_once(self, bench: HoldBench) -> None:
        hold = bench.take(2)
        job = queue_job(bench)
        assert schedule(bench.database, TIMES) == []
        with bench.database.write() as session:
            give_back(session, locked(session, bench.project_id, hold.id), bench.clock.advance(20))
        assert [placed.job_id for placed in schedule(bench.database, TIMES)] == [job]
        ended = bench.hold(hold.id)
        assert (ended.ended_why, ended.ended_at) == ("released", START + timedelta(seconds=20))

    def test_again_is_harmless_and_keeps_the_first_end(self, bench: HoldBench) -> None:
        hold = bench.take(1)
        for _ in range(2):
            with bench.database.write() as session:
                give_back(session, locked(session, None, hold.id), bench.clock.advance(60))
        assert bench.hold(hold.id).ended_at == START + timedelta(seconds=60)

    @ONE_DATABASE
    def test_it_is_extended_while_it_is_open(self, bench: HoldBench) -> None:
        hold = bench.take(1)
        later = START + timedelta(hours=9)
        with bench.database.write() as session:
            extend(session, locked(session, bench.project_id, hold.id), later)
        assert bench.hold(hold.id).until == later
        with bench.database.write() as session:
            mine = locked(session, bench.project_id, hold.id)
            give_back(session, mine, START)
            with pytest.raises(HoldEnded, match="is over \\(released\\)"):
                extend(session, mine, later)


@ONE_DATABASE
class TestReading:
    def test_other_projects_see_nothing(self, bench: HoldBench) -> None:
        hold = bench.take(1)
        with bench.database.read() as session:
            assert get_hold(session, bench.project_id, hold.id).id == hold.id
            assert get_hold(session, None, hold.id).id == hold.id
            assert told(session, "prj_other") == {}
            for lookup in (get_hold, locked):
                with pytest.raises(NotFound):
                    lookup(session, "prj_other", hold.id)

    def test_lists_go_by_state_and_page(self, bench: HoldBench) -> None:
        first, second = bench.take(1).id, bench.take(1).id
        with bench.database.write() as session:
            give_back(session, locked(session, None, first), START)
        with bench.database.read() as session:

            def ids(**asked: Any) -> list[str]:
                return [hold.id for hold in list_holds(session, bench.project_id, **asked)]

            assert ids() == [second, first]
            assert (ids(is_open=True), ids(is_open=False)) == ([second], [first])
            assert ids(descending=False, limit=1) == [first]
            assert (ids(after=second), ids(after=first, descending=False)) == ([first], [second])
            assert list_holds(session, "prj_other") == []
            assert set(holders(session)) == {second}

    def test_the_worker_learns_of_its_cards(self, bench: HoldBench) -> None:
        hold = bench.take(2, stop_when_idle_s=600.0)
        with bench.database.read() as session:
            (held,) = held_devices(session, bench.worker_id)
            assert (held.hold_id, held.cards, held.stop_when_idle_s) == (hold.id, ("host-a-0", "host-a-1"), 600.0)
            assert held_devices(session, "wrk_other") == []


class TestEnvironment:
    def test_names_cards_by_id_and_gives_their_share_of_threads(self) -> None:
        # CUDA Programming Guide, "CUDA Environment Variables": ids are taken, and the order is the bus's.
        devices = [{"id": "GPU-a", "kind": "cuda", "threads": 4}, {"id": "GPU-b", "kind": "cuda", "threads": 4}]
        assert environment_of(devices) == {
            "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "OMP_NUM_THREADS": "8",
        }

    def test_cpu_slots_hide_every_card(self) -> None:
        found = environment_of([{"id": "cpu-0@box", "kind": "cpu", "threads": 2}])
        assert (found["CUDA_VISIBLE_DEVICES"], found["OMP_NUM_THREADS"]) == ("", "2")

    @ONE_DATABASE
    def test_the_wire_form_counts_device_seconds(self, bench: HoldBench) -> None:
        hold = bench.take(2)
        assert hold_json(hold, "box", START + timedelta(seconds=90))["device_s"] == 180.0, "two devices for 90 s"
        hold.ended_at = START + timedelta(seconds=10)
        assert hold_json(hold, "box", START + timedelta(seconds=90))["device_s"] == 20.0, "they end with it"
