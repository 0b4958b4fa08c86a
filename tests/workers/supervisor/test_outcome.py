"""The table from a trainer's end to its cause, without any process."""

import signal
from dataclasses import replace

import pytest

from app.errors import Cause
from tests.workers.supervisor.bench import started
from workers.launch_port import Busy, Ended, LauncherGone
from workers.outcome import DETAIL_CHARACTERS, Proof, Watched, clean, ending_of
from workers.protocol import Artifact, Done, Failed
from workers.stopping import StopReason

MODEL = Artifact(name="m", path="m", media_type="application/octet-stream", kind="model")
REPORT = Artifact(name="r", path="r", media_type="application/json", kind="report")
GOOD = Watched(
    end=Ended(code=0, signal=None, max_rss_bytes=1000, survivors=False),
    started=started(),
    last_word=Done(metrics={"loss": 0.5, "bad": float("nan")}),
    artifacts=(MODEL,),
)


def by_code(code: int) -> Ended:
    return Ended(code=code, signal=None, max_rss_bytes=0, survivors=False)


def by_signal(number: int, *, deadline: bool = False) -> Ended:
    return Ended(code=None, signal=number, max_rss_bytes=0, survivors=False, deadline=deadline)


class TestSuccess:
    def test_it_takes_every_proof(self) -> None:
        ending = ending_of(GOOD)
        assert ending.succeeded
        assert ending.max_rss_bytes == 1000

    def test_not_finite_metrics_travel_as_words(self) -> None:
        assert ending_of(GOOD).final_metrics == {"loss": 0.5, "bad": "NaN"}

    @pytest.mark.parametrize(
        ("missing", "cause"),
        [
            ({"started": None}, Cause.INCOMPLETE),
            ({"last_word": None}, Cause.INCOMPLETE),
            ({"artifacts": ()}, Cause.INCOMPLETE),
            ({"artifacts": (REPORT,)}, Cause.INCOMPLETE),
            ({"end": by_code(1)}, Cause.INCOMPLETE),
            ({"end": by_signal(signal.SIGKILL)}, Cause.TRAINER_KILLED),
            ({"end": LauncherGone()}, Cause.WORKER_LOST),
            ({"last_word": Done(metrics={}, stopped="stop")}, Cause.TRAINER_KILLED),
            ({"stop": StopReason.FENCED}, Cause.WORKER_LOST),
        ],
    )
    def test_without_one_of_them_it_is_none(self, missing: dict[str, object], cause: Cause) -> None:
        ending = ending_of(replace(GOOD, **missing))  # type: ignore[arg-type] # any field
        assert (ending.succeeded, ending.cause) == (False, cause)

    @pytest.mark.parametrize(
        ("proof", "kind", "succeeds"),
        [
            (Proof.MODEL, "output", False),
            (Proof.OUTPUT, "model", False),
            (Proof.OUTPUT, "output", True),
            (Proof.EXIT, None, True),
        ],
    )
    def test_each_kind_of_job_has_its_own(self, proof: Proof, kind: str | None, *, succeeds: bool) -> None:
        artifacts = () if kind is None else (MODEL.model_copy(update={"kind": kind}),)
        ending = ending_of(replace(GOOD, proof=proof, artifacts=artifacts))
        assert (ending.succeeded, ending.cause) == (succeeds, None if succeeds else Cause.INCOMPLETE)

    def test_exit_code_alone_must_be_0(self) -> None:
        assert not ending_of(replace(GOOD, proof=Proof.EXIT, artifacts=(), end=by_code(1))).succeeded

    def test_remark_tells_why_nothing_may_have_been_left(self) -> None:
        word = Done(metrics={}, remark="Its output speaks of memory.")
        ending = ending_of(replace(GOOD, proof=Proof.OUTPUT, artifacts=(), last_word=word))
        detail = str(ending.detail)
        assert detail.startswith("The command left with exit code 0, but no output file.")
        assert detail.endswith(" Its output speaks of memory.")

    def test_script_without_files_is_told_what_to_do(self) -> None:
        ending = ending_of(replace(GOOD, proof=Proof.OUTPUT, artifacts=(), last_word=Done(metrics={})))
        assert ending.cause is Cause.INCOMPLETE
        for way in ("TRAINSHED_OUTPUT_DIR", 'script.success "exit"', "trainshed run --success exit"):
            assert way in str(ending.detail)

    def test_one_that_was_killed_only_because_it_did_not_leave_counts(self) -> None:
        assert ending_of(replace(GOOD, end=by_signal(signal.SIGKILL), lingered=True)).succeeded

    @pytest.mark.parametrize("reason", [r for r in StopReason if r is not StopReason.FENCED])
    def test_a_stop_that_came_too_late_does_not_undo_it(self, reason: StopReason) -> None:
        assert ending_of(replace(GOOD, stop=reason)).succeeded


class TestStopped:
    @pytest.mark.parametrize(
        ("reason", "cause"),
        [
            (StopReason.DRAIN, Cause.DRAINED),
            (StopReason.PREEMPT, Cause.PREEMPTED),
            (StopReason.PAUSE, None),
            (StopReason.CANCEL, None),
            (StopReason.TIMED_OUT, Cause.TIMED_OUT),
            (StopReason.FENCED, Cause.WORKER_LOST),
        ],
    )
    @pytest.mark.parametrize("end", [by_code(0), by_code(1), by_signal(9), by_signal(15), LauncherGone()])
    def test_who_leaves_when_asked_leaves_for_that_reason(
        self, reason: StopReason, cause: Cause | None, end: Ended | LauncherGone
    ) -> None:
        assert ending_of(Watched(end=end, stop=reason)).cause == cause

    def test_a_failure_of_its_own_keeps_its_cause(self) -> None:
        word = Failed(cause=Cause.DEVICE_OUT_OF_MEMORY, message="CUDA out of memory")
        ending = ending_of(Watched(end=by_code(1), last_word=word, stop=StopReason.DRAIN))
        assert ending.cause is Cause.DEVICE_OUT_OF_MEMORY


class TestUnexplained:
    def test_kill_while_memory_ran_out_is_the_hosts_memory(self) -> None:
        watched = Watched(end=by_signal(signal.SIGKILL), started=started(), out_of_memory=True)
        assert ending_of(watched).cause is Cause.HOST_OUT_OF_MEMORY

    def test_so_is_a_rank_that_was_killed_then(self) -> None:
        word = Failed(cause=Cause.TRAINER_KILLED, message="Rank 1 of 2 was ended by signal 9 (SIGKILL).")
        ending = ending_of(Watched(end=by_code(1), last_word=word, out_of_memory=True))
        assert ending.cause is Cause.HOST_OUT_OF_MEMORY
        assert "Rank 1 of 2" in str(ending.detail)
        assert ending_of(Watched(end=by_code(1), last_word=word)).cause is Cause.TRAINER_KILLED

    def test_another_signal_at_that_time_is_not(self) -> None:
        watched = Watched(end=by_signal(signal.SIGSEGV), started=started(), out_of_memory=True)
        assert ending_of(watched).cause is Cause.TRAINER_KILLED

    @pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE])
    def test_a_crash_is_the_fault_of_the_users_code_where_there_is_any(self, number: signal.Signals) -> None:
        ending = ending_of(Watched(end=by_signal(number), started=started(), own_code=True, tail="Fatal"))
        assert ending.cause is Cause.USER_CODE
        assert f"crashed: it ended by signal {number.name}. Its last output:\nFatal" in str(ending.detail)
        assert ending_of(Watched(end=by_signal(number), started=started())).cause is Cause.TRAINER_KILLED

    def test_a_kill_is_not_the_fault_of_the_users_code(self) -> None:
        watched = Watched(end=by_signal(signal.SIGKILL), started=started(), own_code=True)
        assert ending_of(watched).cause is Cause.TRAINER_KILLED

    def test_launcher_killed_for_memory(self) -> None:
        assert ending_of(Watched(end=LauncherGone(), out_of_memory=True)).cause is Cause.HOST_OUT_OF_MEMORY

    def test_a_real_time_signal_has_a_number(self) -> None:
        assert "signal 40" in str(ending_of(Watched(end=by_signal(40))).detail)

    def test_a_deadline_is_no_kill_from_outside(self) -> None:
        assert ending_of(Watched(end=by_signal(9, deadline=True))).cause is Cause.WORKER_LOST

    def test_a_launcher_that_could_not_start_says_why(self) -> None:
        detail = ending_of(Watched(end=LauncherGone(), tail="No module named 'workers'")).detail
        assert "No module named 'workers'" in str(detail)

    def test_the_last_output_explains(self) -> None:
        detail = ending_of(Watched(end=by_code(1), tail="ImportError: torch")).detail
        assert detail == "It left with exit code 1. Its last output:\nImportError: torch"

    def test_a_held_lock_is_named(self) -> None:
        ending = ending_of(Watched(end=Busy("/run/locks/dev-GPU-1.lock")))
        assert ending.cause is Cause.DEVICE_UNAVAILABLE
        assert "dev-GPU-1 " in f"{ending.detail} ".replace(".", " ")


class TestClean:
    @pytest.mark.parametrize("text", ["a\x00b", "\ud800", "x" * 10_000])
    def test_every_text_can_be_stored(self, text: str) -> None:
        cleaned = clean(text)
        assert "\x00" not in cleaned
        assert len(cleaned.encode()) <= DETAIL_CHARACTERS * 4
