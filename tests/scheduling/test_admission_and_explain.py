"""What is refused at submit, what `auto` means, and why a job waits (cases C25 and C28)."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

from app.fleet.repository import HostView
from app.scheduling.admission import InsufficientDevices, check_possible, resolve_device_type
from app.scheduling.explain import explain
from app.scheduling.plan import WaitingJob, plan
from tests.fakes import START
from tests.scheduling.fleets import BLOCKED, device, fleets, host, job, queues

TWO_CARDS = host("box", device("d0"), device("d1"))
TWO_SLICES = host("sliced", device("MIG-1"), device("MIG-2"))
SLICED = host(
    "mixed", device("MIG-1", name="A slice", memory_bytes=20), device("MIG-2", memory_bytes=10), device("GPU-1")
)
TWO_CARDS_ONE_HELD = host("box", device("d0", held_by="job_x"), device("d1"))


class TestAuto:
    def test_cuda_where_a_card_is_or_ever_was(self) -> None:
        gone = host("box", device("d0", health="gone"), device("c0", "cpu"), online=False)
        assert resolve_device_type("auto", [gone]).device_type == "cuda"

    def test_cpu_with_a_warning_where_there_never_was_one(self) -> None:
        choice = resolve_device_type("auto", [host("box", device("c0", "cpu"))])
        assert choice.device_type == "cpu"
        assert "no host has or ever had a CUDA device" in choice.warnings[0]

    def test_a_host_that_cannot_list_its_cards_counts_as_one_with_cards(self) -> None:
        broken = host("box", reason="The driver does not answer.")
        assert resolve_device_type("auto", [broken]).device_type == "cuda"

    @pytest.mark.parametrize("asked", ["cpu", "cuda"])
    def test_what_was_asked_for_is_never_changed(self, asked: str) -> None:
        choice = resolve_device_type(asked, [TWO_CARDS])  # type: ignore[arg-type] # parametrized text
        assert (choice.device_type, choice.warnings) == (asked, [])


class TestPossible:
    def test_more_than_any_host_has_is_refused_with_the_maximum(self) -> None:
        with pytest.raises(InsufficientDevices, match="largest host has 2 devices") as refused:
            check_possible(job("j", 3), [TWO_CARDS, host("small", device("e0"))])
        assert (refused.value.maximum, refused.value.pointer) == (2, "/device_count")
        assert "at most 2" in refused.value.suggestion

    def test_a_kind_nobody_has_names_the_kind_that_works(self) -> None:
        with pytest.raises(InsufficientDevices) as refused:
            check_possible(job("j"), [host("box", device("c0", "cpu"))])
        assert (refused.value.pointer, refused.value.suggestion) == ("/device_type", "Use device_type: cpu.")

    @pytest.mark.parametrize(
        ("wish", "pointer"),
        [({"device_name": "H900"}, "/device_name"), ({"min_device_memory_bytes": 1 << 60}, "/min_device_memory_bytes")],
    )
    def test_a_wish_no_device_meets_names_what_there_is(self, wish: dict[str, object], pointer: str) -> None:
        with pytest.raises(InsufficientDevices) as refused:
            check_possible(replace(job("j"), **wish), [TWO_CARDS])  # type: ignore[arg-type] # parametrized fields
        assert refused.value.pointer == pointer
        assert "FakeCard" in refused.value.suggestion

    def test_busy_offline_or_unknown_hosts_are_no_reason_to_refuse(self) -> None:
        check_possible(job("j", 2), [TWO_CARDS_ONE_HELD])
        check_possible(job("j", 2), [host("box", device("d0"), device("d1"), online=False)])
        check_possible(job("j", 9), [])
        check_possible(job("j", 9), [host("box", reason="The driver does not answer.")])


class TestSlices:
    """What one host has of whole cards and of MIG slices decides; both are told (case C17)."""

    ASIDE = host("aside", device("MIG-x"), device("MIG-y"), device("MIG-z"))

    def refusal(self, count: int, *hosts: HostView, **wishes: Any) -> InsufficientDevices:
        with pytest.raises(InsufficientDevices) as refused:
            check_possible(job("j", count, **wishes), hosts)
        return refused.value

    def test_two_devices_of_two_slices_and_a_card_are_refused_with_what_there_is(self) -> None:
        refused = self.refusal(2, SLICED)
        assert str(refused) == (
            "device_count is 2; the largest host has 1 whole card and 2 MIG slices. "
            "A CUDA process sees at most one slice, and nothing beside it."
        )
        assert (refused.pointer, refused.suggestion, refused.maximum) == ("/device_count", "Use device_count: 1.", 1)

    @pytest.mark.parametrize("count", [2, 3, 9])
    def test_slices_alone_serve_one_device(self, count: int) -> None:
        refused = self.refusal(count, self.ASIDE, TWO_SLICES)
        assert "the largest host has no whole cards and 3 MIG slices" in str(refused)
        assert (refused.suggestion, refused.maximum) == ("Use device_count: 1.", 1)

    def test_what_whole_cards_can_do_is_offered(self) -> None:
        refused = self.refusal(3, host("box", device("MIG-1"), device("GPU-1"), device("GPU-2")), self.ASIDE)
        assert "the largest host has 2 whole cards and 1 MIG slice." in str(refused)
        assert (refused.suggestion, refused.maximum) == ("Use a device_count of at most 2, or device_count: 1.", 2)

    def test_a_wish_that_slices_meet_is_told_with_the_numbers(self) -> None:
        refused = self.refusal(2, SLICED, device_name="slice")
        assert "1 MIG slice with a name that contains 'slice'." in str(refused)
        assert refused.maximum == 1

    def test_a_wish_that_no_slice_meets_is_refused_as_on_any_host(self) -> None:
        refused = self.refusal(2, SLICED, min_device_memory_bytes=12 * 1024**3)
        assert (
            str(refused)
            == "device_count is 2, but at most 1 devices of one host have at least 12884901888 bytes of memory."
        )
        assert refused.pointer == "/min_device_memory_bytes"

    def test_one_device_and_jobs_for_the_cpu_are_not_concerned(self) -> None:
        check_possible(job("j"), [TWO_SLICES])
        slots = host("box", device("MIG-1"), device("c0", "cpu"), device("c1", "cpu"))
        check_possible(job("j", 2, device_type="cpu"), [slots])
        with pytest.raises(InsufficientDevices, match="largest host has 2 devices of type 'cpu'"):
            check_possible(job("j", 3, device_type="cpu"), [slots])

    @given(queues(), fleets())
    def test_what_is_accepted_fits_some_host_that_is_all_free_and_what_is_refused_none(
        self, queue: list[WaitingJob], hosts: list[HostView]
    ) -> None:
        """An oracle of its own: the plan, on a fleet where everything works and nobody holds anything."""
        every = frozenset({"torch", "tensorflow"})
        ideal = [
            replace(
                box,
                online=True,
                cordoned=False,
                condition={},
                frameworks=every,
                devices=tuple(replace(one, health="ok", job_id=None) for one in box.devices),
            )
            for box in hosts
        ]
        for each in queue:
            wanted = replace(each, not_before=None)
            possible = bool(plan([wanted], ideal, START).placements)
            if possible:
                check_possible(wanted, hosts)
                continue
            with pytest.raises(InsufficientDevices) as refused:
                check_possible(wanted, hosts)
            assert 0 <= refused.value.maximum < wanted.device_count
            offered = replace(wanted, device_count=refused.value.maximum)
            assert not refused.value.maximum or plan([offered], ideal, START).placements, "what is offered is possible"


class TestExplain:
    def reason(self, *args: object, **kwargs: object) -> tuple[str, str]:
        found = explain(*args, **kwargs)  # type: ignore[arg-type] # passed through
        return found.code, found.message

    def test_no_worker(self) -> None:
        assert self.reason(job("j"), [], [], START) == ("no_worker_online", "no worker online")
        asleep = host("box", device("d0"), online=False)
        assert self.reason(job("j"), [], [asleep], START)[0] == "no_worker_online"

    def test_a_framework_that_failed_its_test_says_how(self) -> None:
        failed = {"code": "self_test_failed", "message": "torch is not offered: no kernel image for this card."}
        other = {"code": "self_test_failed", "message": "tensorflow is not offered: no cuDNN."}
        box = host("box", device("d0"), frameworks=frozenset[str](), condition={"problems": [failed, other]})
        assert self.reason(job("j"), [], [box], START) == (
            "framework_offline",
            "no worker online that runs torch (box: torch is not offered: no kernel image for this card.)",
        )

    def test_a_host_that_blocks_itself_says_why(self) -> None:
        blocked = host("box", device("d0"), condition=BLOCKED)
        code, message = self.reason(job("j"), [], [blocked], START)
        assert code == "host_blocked"
        assert message == "no host that could run it takes jobs now (box: The disk is full.)"
        assert self.reason(job("j"), [], [blocked, host("other", device("e0"))], START)[0] == "about_to_start"
        torch_only = host("other", device("e0"), frameworks=frozenset({"tensorflow"}))
        assert self.reason(job("j"), [], [blocked, torch_only], START)[0] == "host_blocked"

    def test_a_device_that_somebody_uses_is_told_with_whom(self) -> None:
        used = device("d0", health="in_use_elsewhere", reason="In use by process 4711 (python, user ana).")
        code, message = self.reason(job("j"), [], [host("box", used)], START)
        assert code == "devices_unavailable"
        assert "d0: In use by process 4711 (python, user ana)." in message

    def test_waiting_for_devices_counts_them_and_names_the_holder(self) -> None:
        code, message = self.reason(job("j", 2), [], [TWO_CARDS_ONE_HELD], START)
        assert code == "waiting_for_devices"
        assert message == "waiting for 2 devices, 1 free; held by job_x"

    def test_holders_that_the_reader_may_not_know_of_are_only_counted(self) -> None:
        cards = [device(f"d{n}", held_by=holder) for n, holder in enumerate(("job_x", "job_y", "job_z"))]
        full = host("box", *cards)
        found = [
            explain(job("j"), [], [full], START, visible=visible).message.partition("; ")[2]
            for visible in ({"job_x", "job_y", "job_z"}, {"job_y"}, {"job_x", "job_y"}, set[str]())
        ]
        assert found == [
            "held by job_x, job_y, job_z",
            "held by job_y, 2 jobs of other projects",
            "held by job_x, job_y, 1 job of other projects",
            "held by 3 jobs of other projects",
        ]

    def test_a_framework_that_is_not_online(self) -> None:
        only_torch = host("box", device("d0"), frameworks=frozenset({"torch"}))
        code, message = self.reason(job("j", framework="tensorflow"), [], [only_torch], START)
        assert (code, message) == ("framework_offline", "no worker online that runs tensorflow")

    def test_sick_devices_are_named(self) -> None:
        sick = host("box", device("d0", health="sick", reason="Xid 79"))
        code, message = self.reason(job("j"), [], [sick], START)
        assert code == "devices_unavailable"
        assert "d0: Xid 79" in message

    def test_slices_are_not_counted_for_several_devices(self) -> None:
        busy = host("box", device("MIG-1"), device("GPU-1", held_by="job_x"), device("GPU-2"), device("MIG-2"))
        message = "waiting for 2 whole cards, 1 free; held by job_x"
        assert self.reason(job("j", 2), [], [busy], START) == ("waiting_for_devices", message)
        code, message = self.reason(job("j", 2), [], [SLICED, host("away", device("a"), online=False)], START)
        assert code == "devices_unavailable"
        assert "MIG slices do not count, since a CUDA process sees at most one" in message
        assert self.reason(job("j"), [], [SLICED], START)[0] == "about_to_start"

    def test_its_place_in_line(self) -> None:
        queue = [job("a", age_s=30), job("b", age_s=20), job("c", age_s=10)]
        found = explain(queue[2], queue, [TWO_CARDS], START)
        assert (found.code, found.position) == ("behind_others", 3)
        first = explain(queue[0], queue, [TWO_CARDS], START)
        assert (first.code, first.position) == ("about_to_start", 1)
        assert first.as_json() == {
            "code": "about_to_start",
            "message": "starts with the next scheduling pass",
            "position": 1,
        }

    def test_not_before(self) -> None:
        later = job("j", not_before=START + timedelta(hours=1))
        assert self.reason(later, [], [TWO_CARDS], START) == ("not_before", "not before 2026-01-31T13:00:00.000000Z")
