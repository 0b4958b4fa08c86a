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
            assert len(placement.device_ids) == wanted.device_count
            assert set(placement.device_ids) <= {d.id for d in suitable(wanted, target)}

    @given(queues(), fleets())
    def test_nobody_starts_on_hosts_that_an_earlier_job_waits_for(
        self, queue: list[WaitingJob], hosts: list[HostView]
    ) -> None:
        placements = {p.job_id: p for p in plan(queue, hosts, START).placements}
        ready = sorted((j for j in queue if j.not_before is None), key=lambda j: order_of(j, START))
        for index, early in enumerate(ready):
            if early.id in placements:
                continue
            targets = {
                h.worker_id for h in hosts if accepts(early, h) and len(suitable(early, h)) >= early.device_count
            }
            for late in ready[index + 1 :]:
                if late.id in placements and late.device_type == early.device_type:
                    assert placements[late.id].worker_id not in targets

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
