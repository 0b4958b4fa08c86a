"""The plan's promises, as properties over drawn fleets and queues, and as named examples."""

from hypothesis import given

from app.fleet.repository import HostView
from app.scheduling.plan import AGE_CLASS_S, Plan, WaitingJob, accepts, order_of, plan, suitable
from tests.fakes import START
from tests.scheduling.fleets import device, fleets, host, job, queues


def placed(result: Plan) -> list[str]:
    return [placement.job_id for placement in result.placements]


class TestProperties:
    @given(queues(), fleets())
    def test_no_device_twice_and_none_that_is_held_or_sick(
        self, queue: list[WaitingJob], hosts: list[HostView]
    ) -> None:
        used = [d for placement in plan(queue, hosts, START).placements for d in placement.device_ids]
        assert len(used) == len(set(used))
        free = {d.id for h in hosts for d in h.devices if d.free}
        assert set(used) <= free

    @given(queues(), fleets())
    def test_a_gang_is_whole_and_on_one_host_that_accepts_it(
        self, queue: list[WaitingJob], hosts: list[HostView]
    ) -> None:
        jobs = {j.id: j for j in queue}
        by_id = {h.worker_id: h for h in hosts}
        for placement in plan(queue, hosts, START).placements:
            target, wanted = by_id[placement.worker_id], jobs[placement.job_id]
            assert accepts(wanted, target)
            assert (target.online, target.cordoned, target.blocked) == (True, False, None)
            assert len(placement.device_ids) == wanted.device_count
            assert set(placement.device_ids) <= {d.id for d in suitable(wanted, target)}

    @given(queues(), fleets())
    def test_a_slice_goes_to_a_job_of_one_device_and_to_no_other(
        self, queue: list[WaitingJob], hosts: list[HostView]
    ) -> None:
        slices = {d.id for h in hosts for d in h.devices if d.id.startswith("MIG-")}
        for placement in plan(queue, hosts, START).placements:
            assert len(placement.device_ids) == 1 or not slices & set(placement.device_ids)

    @given(queues(), fleets())
    def test_nobody_starts_on_devices_that_an_earlier_job_waits_for(
        self, queue: list[WaitingJob], hosts: list[HostView]
    ) -> None:
        placements = {p.job_id: p for p in plan(queue, hosts, START).placements}
        ready = sorted((j for j in queue if j.not_before is None), key=lambda j: order_of(j, START))
        for index, early in enumerate(ready):
            if early.id in placements:
                continue
            targets = {
                device.id
                for h in hosts
                if accepts(early, h) and len(suitable(early, h)) >= early.device_count
                for device in suitable(early, h)
            }
            for late in ready[index + 1 :]:
                if late.id in placements:
                    assert not targets & set(placements[late.id].device_ids)

    @given(queues(), fleets())
    def test_the_first_in_line_starts_whenever_it_fits(self, queue: list[WaitingJob], hosts: list[HostView]) -> None:
        ready = sorted((j for j in queue if j.not_before is None), key=lambda j: order_of(j, START))
        if not ready:
            return
        first = ready[0]
        fits = any(accepts(first, h) and sum(d.free for d in suitable(first, h)) >= first.device_count for h in hosts)
        assert (first.id in placed(plan(queue, hosts, START))) is fits

    @given(queues(), fleets())
    def test_the_order_of_the_input_does_not_matter(self, queue: list[WaitingJob], hosts: list[HostView]) -> None:
        assert plan(queue, hosts, START) == plan(queue[::-1], hosts, START)


class TestOrder:
    def test_class_first_then_age_then_id(self) -> None:
        queue = [job("b"), job("a"), job("old", age_s=60), job("high", priority=1)]
        one_each = [host(f"h{n}", device(f"d{n}")) for n in range(4)]
        assert placed(plan(queue, one_each, START)) == ["high", "old", "a", "b"]

    def test_six_hours_of_waiting_are_worth_one_class(self) -> None:
        patient = job("patient", age_s=AGE_CLASS_S)
        one = [host("h", device("d"))]
        assert placed(plan([job("high", priority=1), patient], one, START)) == ["patient"]
        assert placed(plan([job("high", priority=1), job("young", age_s=AGE_CLASS_S - 1)], one, START)) == ["high"]


class TestGang:
    def test_a_large_job_is_not_passed_by_small_ones(self) -> None:
        hosts = [host("h", device("d0"), device("d1", held_by="job_x"))]
        assert placed(plan([job("large", 2, age_s=10), job("small", 1)], hosts, START)) == []

    def test_what_it_waits_for_does_not_hold_other_kinds_back(self) -> None:
        hosts = [host("h", device("d0"), device("d1", held_by="job_x"), device("c0", "cpu"))]
        queue = [job("large", 2, age_s=10), job("small", 1, device_type="cpu")]
        assert placed(plan(queue, hosts, START)) == ["small"]

    def test_devices_that_it_cannot_use_are_not_kept_for_it(self) -> None:
        cards = [device("GPU-0"), device("GPU-1", held_by="job_x"), device("MIG-0"), device("tiny", memory_bytes=1)]
        large = job("large", 2, age_s=10, min_device_memory_bytes=2)
        (first, second) = plan([large, job("a"), job("b"), job("c")], [host("h", *cards)], START).placements
        assert [*first.device_ids, *second.device_ids] == ["tiny", "MIG-0"]

    def test_a_job_that_no_host_can_run_now_holds_nobody_back(self) -> None:
        hosts = [host("h", device("d0"), frameworks=frozenset({"torch"}))]
        queue = [job("tf", age_s=10, framework="tensorflow"), job("huge", 9, age_s=5), job("torch")]
        assert placed(plan(queue, hosts, START)) == ["torch"]

    def test_the_tightest_host_and_the_smallest_card_are_taken(self) -> None:
        big, small = device("big", memory_bytes=48 * 1024**3), device("small", memory_bytes=8 * 1024**3)
        roomy = host("a", device("x0"), device("x1"), device("x2"))
        (placement,) = plan([job("j")], [roomy, host("b", big, small)], START).placements
        assert placement.device_ids == ("small",)


class TestWishes:
    def test_memory_and_name(self) -> None:
        cards = host("h", device("s", memory_bytes=8), device("b", memory_bytes=48, name="BigCard"))
        (by_memory,) = plan([job("j", min_device_memory_bytes=40)], [cards], START).placements
        (by_name,) = plan([job("j", device_name="bigcard")], [cards], START).placements
        assert by_memory.device_ids == by_name.device_ids == ("b",)
        assert placed(plan([job("j", min_device_memory_bytes=49)], [cards], START)) == []


class TestSlices:
    """A CUDA process sees at most one MIG slice, and nothing beside it (case C17)."""

    SLICED = host("h", device("MIG-1", memory_bytes=20), device("MIG-2", memory_bytes=10), device("GPU-1"))

    def test_jobs_of_one_device_get_slices_and_the_card_smallest_first(self) -> None:
        result = plan([job("a"), job("b"), job("c"), job("d")], [self.SLICED], START)
        assert [p.device_ids for p in result.placements] == [("MIG-2",), ("MIG-1",), ("GPU-1",)]

    def test_a_job_of_two_gets_neither_two_slices_nor_a_slice_and_a_card(self) -> None:
        assert placed(plan([job("pair", 2)], [self.SLICED], START)) == []

    def test_it_gets_whole_cards_of_a_host_that_has_slices_too(self) -> None:
        mixed = host("h", device("MIG-1", memory_bytes=1), device("GPU-1"), device("MIG-2"), device("GPU-2"))
        (placement,) = plan([job("pair", 2)], [mixed], START).placements
        assert placement.device_ids == ("GPU-1", "GPU-2")

    def test_ids_of_old_drivers_name_a_slice_too(self) -> None:
        # NVIDIA, MIG User Guide: before R470 the UUID was MIG-<card's UUID>/<GPU instance>/<compute instance>.
        old = host("h", device("MIG-GPU-5f7e/1/0"), device("MIG-GPU-5f7e/2/0"))
        assert placed(plan([job("pair", 2), job("one")], [old], START)) == ["one"]

    def test_a_name_that_only_looks_like_one_is_a_card(self) -> None:
        named = host("h", device("GPU-MIG-1"), device("GPU-MIG-2"))
        assert placed(plan([job("pair", 2)], [named], START)) == ["pair"]
