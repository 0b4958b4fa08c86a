"""People who hold devices, as the plan and the explanations see them."""

from hypothesis import given
from hypothesis import strategies as st

from app.fleet.repository import HostView
from app.scheduling.explain import explain
from app.scheduling.plan import WaitingJob, plan
from tests.fakes import START
from tests.scheduling.fleets import device, fleets, host, job, queues

HOLDERS = {"hold_1": "ana until 2026-01-31 18:00 UTC"}


class TestPlan:
    def test_a_held_device_is_nobody_elses(self) -> None:
        box = host("box", device("d0", hold_id="hold_1"), device("d1"))
        (placement,) = plan([job("a"), job("b")], [box], START).placements
        assert placement.device_ids == ("d1",)

    def test_a_wish_needs_no_framework_and_may_name_its_worker(self) -> None:
        hosts = [host("small", device("s0")), host("bare", device("b0"), device("b1"), frameworks=frozenset())]
        anywhere = job("~hold", framework=None)
        named = job("~hold", framework=None, worker_ids=frozenset({"wrk_bare"}))
        nowhere = job("~hold", framework=None, worker_ids=frozenset({"wrk_gone"}))
        found = [
            [placement.worker_id for placement in plan([wish], hosts, START).placements]
            for wish in (anywhere, named, nowhere)
        ]
        assert found == [["wrk_small"], ["wrk_bare"], []], "the tightest fit, the named one, none"

    @given(queues(), fleets(), st.integers(1, 3))
    def test_a_wish_that_comes_last_changes_nothing_for_those_before_it(
        self, queue: list[WaitingJob], hosts: list[HostView], count: int
    ) -> None:
        wish = job("~hold", count, framework=None, priority=-1_000)
        without = plan(queue, hosts, START).placements
        with_it = plan([*queue, wish], hosts, START).placements
        assert [placement for placement in with_it if placement.job_id != wish.id] == without


class TestExplain:
    def test_names_who_holds_and_until_when(self) -> None:
        box = host("box", device("d0", held_by="job_x"), device("d1", hold_id="hold_1"))
        found = explain(job("j"), [], [box], START, visible={"job_x"}, holders=HOLDERS)
        assert found.code == "waiting_for_devices"
        assert found.message == "waiting for 1 device, 0 free; held by job_x, ana until 2026-01-31 18:00 UTC"

    def test_holds_that_the_reader_may_not_know_of_are_only_counted(self) -> None:
        box = host("box", *(device(f"d{n}", hold_id=f"hold_{n}") for n in range(1, 4)))
        found = explain(job("j"), [], [box], START, holders=HOLDERS)
        assert found.message.endswith("held by ana until 2026-01-31 18:00 UTC, 2 holds of other projects")

    def test_a_wish_is_not_told_of_a_framework(self) -> None:
        wish = job("~hold", framework=None, worker_ids=frozenset({"wrk_gone"}))
        found = explain(wish, [], [host("box", device("d0"))], START)
        assert found.message == "no worker online that takes anything new"
