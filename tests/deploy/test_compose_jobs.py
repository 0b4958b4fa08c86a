"""What the compose test demands of the jobs that it puts in danger."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from app.spec.parse import parse_job
from scripts.compose_test import standing
from scripts.compose_test.commands import Shell
from scripts.compose_test.engine import Engine
from scripts.compose_test.jobs import (
    Drill,
    came_through,
    digits,
    epochs_for,
    expect_attempts,
    train_whole,
    went_on_without_loss,
)
from scripts.compose_test.service import ServerFailed, UnexpectedAnswer
from scripts.compose_test.stack import NotInTime, Stack, until
from tests.deploy.programs import service_that_answers

JOB = "/v1/jobs/job_1"
JOURNAL = {"data": [{"seq": 1}, {"seq": 2}], "has_more": False, "next_after": 2}


def drill(tmp_path: Path, answers: dict[str, Any]) -> Drill:
    shell = Shell({}, tmp_path / "log", tmp_path)
    stack = Stack(Engine(shell, ("docker-compose",), "0", ours=False), tmp_path, "p", {}, tmp_path / "override.json")
    return Drill(stack, service_that_answers(answers), tmp_path, "ts_key")


def job(*causes: str | None, **changes: Any) -> dict[str, Any]:
    attempts = [
        {"number": number, "cause": cause, "resumed_from_step": None if number == 1 else 100}
        for number, cause in enumerate(causes, 1)
    ]
    made = {
        "id": "job_1",
        "framework": "torch",
        "state": "succeeded",
        "cause": None,
        "message": None,
        "attempts": attempts,
        "metrics": {"last": {"test_accuracy": 0.97, "samples_per_s": 5000.0}},
        "effective_spec": {"hyperparameters": {"epochs": 4}},
    }
    return made | changes


def series(steps: list[int], attempts: list[int], epochs: list[int] | None = None) -> dict[str, Any]:
    found = {"step": steps, "attempt": attempts, "epoch": epochs or list(range(1, len(steps) + 1))}
    return {"data": [found]}


class TestSpecs:
    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_are_accepted_by_the_product(self, framework: str) -> None:
        accepted = parse_job(digits(framework, 5, exports=[]))
        assert (accepted.framework, accepted.hyperparameters.epochs) == (framework, 5)

    def test_upload_has_three_classes_a_text_column_and_one_gap(self) -> None:
        head, *rows = standing.measurements().decode().splitlines()
        assert head == "length,width,place,kind"
        assert len(rows) == standing.ROWS
        assert {row.split(",")[3] for row in rows} == {"a", "b", "c"}
        assert [row.split(",")[0] for row in rows].count("") == 1

    def test_length_follows_the_machine(self) -> None:
        # 40 s at 10 000 rows a second are 400 000 rows: 400 epochs of 1000.
        assert epochs_for(40, 10_000, 1000) == 400

    def test_slow_machine_still_gets_epochs_to_interrupt(self) -> None:
        assert epochs_for(40, 1, 1000) == 40


class TestWholeJob:
    def test_that_clears_its_bar_tells_the_machine_s_speed(self, tmp_path: Path) -> None:
        at = drill(tmp_path, {"POST /v1/jobs": {"id": "job_1"}, f"GET {JOB}": job(None)})
        assert train_whole(at, {}, "test_accuracy", 0.9)["id"] == "job_1"
        assert at.rates == {"torch": 5000.0}

    def test_below_its_bar_is_a_failure(self, tmp_path: Path) -> None:
        at = drill(tmp_path, {"POST /v1/jobs": {"id": "job_1"}, f"GET {JOB}": job(None)})
        with pytest.raises(UnexpectedAnswer, match=r"test_accuracy is 0\.97, and must be at least 0\.98"):
            train_whole(at, {}, "test_accuracy", 0.98)

    def test_job_that_fails_is_told_with_its_cause_at_once(self, tmp_path: Path) -> None:
        failed = job(None, state="failed", cause="user_code", message="It broke.")
        at = drill(tmp_path, {"POST /v1/jobs": {"id": "job_1"}, f"GET {JOB}": failed})
        with pytest.raises(UnexpectedAnswer, match="job_1 failed: user_code: It broke"):
            train_whole(at, {}, "test_accuracy", 0.9)


class TestCameThrough:
    def test_with_every_epoch_once_and_the_expected_attempts(self, tmp_path: Path) -> None:
        answers = {f"GET {JOB}": job("drained", None), f"GET {JOB}/metrics": series([10, 20, 30, 40], [1, 1, 2, 2])}
        answers[f"GET {JOB}/events"] = JOURNAL
        assert came_through(drill(tmp_path, answers), "job_1", ["drained", None])["id"] == "job_1"

    @pytest.mark.parametrize("numbers", [[1, 3], [1, 1, 2], [2, 3]])
    def test_gap_in_the_journal_is_a_failure(self, tmp_path: Path, numbers: list[int]) -> None:
        answers = {f"GET {JOB}": job(None), f"GET {JOB}/metrics": series([10, 20, 30, 40], [1] * 4)}
        answers[f"GET {JOB}/events"] = {**JOURNAL, "data": [{"seq": number} for number in numbers]}
        with pytest.raises(UnexpectedAnswer, match="journal of job_1 has gaps"):
            came_through(drill(tmp_path, answers), "job_1", [None])

    @pytest.mark.parametrize("epochs", [[1, 2, 4], [1, 2, 2, 3, 4], [1, 2, 3, 4, 5], []])
    def test_missing_or_repeated_epoch_is_a_failure(self, tmp_path: Path, epochs: list[int]) -> None:
        told = series([10] * len(epochs), [1] * len(epochs), epochs)
        if not epochs:
            told["data"][0]["epoch"] = []
        answers = {f"GET {JOB}": job(None), f"GET {JOB}/metrics": told}
        with pytest.raises(UnexpectedAnswer, match="epochs of 4"):
            came_through(drill(tmp_path, answers), "job_1", [None])

    @pytest.mark.parametrize("causes", [[None], ["drained", None, None], ["worker_lost", None]])
    def test_other_attempts_are_a_failure(self, causes: list[str | None]) -> None:
        with pytest.raises(UnexpectedAnswer, match="should have by"):
            expect_attempts(job("drained", None), causes)


class TestNoStepIsLost:
    def went_on(self, tmp_path: Path, told: dict[str, Any], reason: str = "stop") -> int:
        checkpoints = {"data": [{"step": 100, "reason": reason}]}
        answers = {f"GET {JOB}/metrics": told, f"GET {JOB}/checkpoints": checkpoints}
        return went_on_without_loss(drill(tmp_path, answers), job("drained", None))

    def test_second_attempt_goes_on_where_the_first_stopped(self, tmp_path: Path) -> None:
        assert self.went_on(tmp_path, series([50, 100, 150], [1, 1, 2])) == 100

    def test_first_attempt_beyond_the_checkpoint_is_a_failure(self, tmp_path: Path) -> None:
        with pytest.raises(UnexpectedAnswer, match="attempt 1 told step 120, attempt 2 went on at 100"):
            self.went_on(tmp_path, series([50, 120, 150], [1, 1, 2]))

    def test_second_attempt_behind_the_checkpoint_is_a_failure(self, tmp_path: Path) -> None:
        with pytest.raises(UnexpectedAnswer, match="told 90"):
            self.went_on(tmp_path, series([50, 90, 150], [1, 2, 2]))

    def test_checkpoint_of_another_kind_is_a_failure(self, tmp_path: Path) -> None:
        with pytest.raises(UnexpectedAnswer, match="was written for 'final'"):
            self.went_on(tmp_path, series([50, 100, 150], [1, 1, 2]), "final")


class TestService:
    def test_server_that_cannot_answer_just_now_is_asked_again(self, tmp_path: Path) -> None:
        answers = [httpx.Response(503), httpx.ConnectError("refused"), job(None)]
        at = drill(tmp_path, {f"GET {JOB}": answers})
        assert at.service.wait("job_1")["state"] == "succeeded"

    def test_refusal_is_told_with_its_text(self, tmp_path: Path) -> None:
        at = drill(tmp_path, {"GET /v1/x": httpx.Response(422, text="no such column")})
        with pytest.raises(UnexpectedAnswer, match="GET /v1/x answered 422: no such column"):
            at.service.get("/v1/x")

    def test_failure_of_the_server_is_told_apart(self, tmp_path: Path) -> None:
        at = drill(tmp_path, {"GET /v1/x": httpx.Response(500)})
        with pytest.raises(ServerFailed):
            at.service.get("/v1/x")

    def test_journal_is_read_to_its_end(self, tmp_path: Path) -> None:
        pages = [
            {"data": [{"seq": 1}], "has_more": True, "next_after": 1},
            {"data": [{"seq": 2}], "has_more": False, "next_after": 2},
        ]
        at = drill(tmp_path, {f"GET {JOB}/events": pages})
        assert [event["seq"] for event in at.service.events("job_1")] == [1, 2]

    @pytest.mark.parametrize(
        ("database", "broker", "online", "ready"),
        [("ok", "degraded", 1, True), ("down", "ok", 1, False), ("ok", "ok", 0, False)],
    )
    def test_is_ready_without_a_word_of_redis(
        self, tmp_path: Path, *, database: str, broker: str, online: int, ready: bool
    ) -> None:
        checks = {"checks": {"database": {"status": database}, "broker": {"status": broker}}}
        workers = {"data": [{"online": False}, {"online": True}][: 1 + online]}
        at = drill(tmp_path, {"GET /readyz": checks, "GET /v1/workers": workers})
        assert at.service.is_ready() is ready

    def test_is_not_ready_while_nothing_answers(self, tmp_path: Path) -> None:
        at = drill(tmp_path, {"GET /readyz": httpx.ConnectError("refused")})
        assert not at.service.is_ready()


class TestUntil:
    def test_answers_what_it_found(self) -> None:
        found = iter([None, "there"])
        assert until(lambda: next(found), "a thing", 10) == "there"

    def test_names_what_did_not_come(self) -> None:
        with pytest.raises(NotInTime, match="not in 0 s: a thing"):
            until(lambda: None, "a thing", 0)
