"""pause, resume, retry, clone, checkpoints."""

import json
import uuid

import httpx

from tests.cli.conftest import Trainshed
from tests.cli.fake_server import AT, JOB, OTHER_JOB, FakeServer, job, listing, problem, state, stream

CHECKPOINT = {
    "object": "checkpoint",
    "job_id": JOB,
    "step": 120,
    "epoch": 4,
    "attempt": 1,
    "reason": "periodic",
    "best": True,
    "last": True,
    "final": False,
    "metrics": {"loss": 0.5, "val_loss": 0.25},
    "size_bytes": 2048,
    "created_at": AT,
}


class TestPause:
    def test_a_running_job_pauses_at_its_next_safe_point(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(f"POST /v1/jobs/{JOB}/pause", job(state="running", stop_requested="pause"))
        ran = trainshed("pause", JOB)
        assert (ran.code, ran.out) == (0, f"{JOB} running, pauses at its next safe point\n")

    def test_a_waiting_job_is_paused_at_once(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(f"POST /v1/jobs/{JOB}/pause", job(state="paused"))
        assert trainshed("pause", JOB).out == f"{JOB} paused\n"

    def test_a_refusal_says_what_is_legal(self, server: FakeServer, trainshed: Trainshed) -> None:
        detail = "Job x has already ended (succeeded); there is nothing to pause."
        server.on(f"POST /v1/jobs/{JOB}/pause", problem(409, "state_conflict", detail))
        ran = trainshed("pause", JOB)
        assert (ran.code, ran.err) == (2, f"error: {detail}\n")


class TestResume:
    def test_the_job_waits_again(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(f"POST /v1/jobs/{JOB}/resume", job(state="queued"))
        assert trainshed("resume", JOB).out == f"{JOB} queued\n"


class TestRetry:
    def test_without_options_the_body_is_empty_and_the_request_repeatable(
        self, server: FakeServer, trainshed: Trainshed
    ) -> None:
        server.on(f"POST /v1/jobs/{JOB}/retry", httpx.Response(201, json=job(OTHER_JOB)))
        assert trainshed("retry", JOB).out == f"{OTHER_JOB} queued\n"
        (request,) = server.asked(f"POST /v1/jobs/{JOB}/retry")
        assert request.content == b""
        assert uuid.UUID(request.headers["Idempotency-Key"]).version == 4

    def test_from_chooses_the_checkpoint(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(f"POST /v1/jobs/{JOB}/retry", httpx.Response(201, json=job(OTHER_JOB)))
        trainshed("retry", JOB, "--from", "best")
        (request,) = server.asked(f"POST /v1/jobs/{JOB}/retry")
        assert json.loads(request.content) == {"from": "best"}


class TestClone:
    def test_changes_are_sent_as_a_patch_of_the_spec(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(f"POST /v1/jobs/{JOB}/clone", httpx.Response(201, json=job(OTHER_JOB)))
        ran = trainshed("clone", JOB, "--set", "framework=tensorflow", "--set", "hyperparameters.epochs=5")
        assert ran.code == 0
        (request,) = server.asked(f"POST /v1/jobs/{JOB}/clone")
        assert json.loads(request.content) == {"spec": {"framework": "tensorflow", "hyperparameters": {"epochs": 5}}}

    def test_warnings_go_beside_and_follow_waits_for_the_new_job(
        self, server: FakeServer, trainshed: Trainshed
    ) -> None:
        server.on(f"POST /v1/jobs/{JOB}/clone", httpx.Response(201, json=job(OTHER_JOB, warnings=["on the CPU"])))
        server.on(f"GET /v1/jobs/{OTHER_JOB}/events", stream(state(1, "queued"), state(2, "failed")))
        server.on(f"GET /v1/jobs/{OTHER_JOB}", job(OTHER_JOB, state="failed"))
        server.on(f"GET /v1/jobs/{OTHER_JOB}/artifacts", listing())
        server.on(f"GET /v1/jobs/{OTHER_JOB}/logs", httpx.Response(200, text=""))
        ran = trainshed("clone", JOB, "--follow")
        assert ran.code == 1
        assert "warning: on the CPU" in ran.err


class TestCheckpoints:
    def test_each_says_which_it_is_and_how_good(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(f"GET /v1/jobs/{JOB}/checkpoints", listing(CHECKPOINT))
        out = trainshed("checkpoints", JOB).out
        assert "best, last" in out
        assert "0.25" in out
        assert "2.0 KiB" in out

    def test_none_is_said_in_words(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(f"GET /v1/jobs/{JOB}/checkpoints", listing())
        assert trainshed("checkpoints", JOB).out == "This job has no checkpoints.\n"

    def test_json_is_the_server_s_own_list(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(f"GET /v1/jobs/{JOB}/checkpoints", listing(CHECKPOINT))
        assert json.loads(trainshed("checkpoints", JOB, "--json").out) == listing(CHECKPOINT)


class TestRm:
    def test_several_jobs_go_one_after_another(self, server: FakeServer, trainshed: Trainshed) -> None:
        for identity in (JOB, OTHER_JOB):
            server.on(f"DELETE /v1/jobs/{identity}", httpx.Response(204))
        assert trainshed("rm", JOB, OTHER_JOB, JOB, "--yes").out == f"{JOB} deleted\n{OTHER_JOB} deleted\n"
        assert [request.method for request in server.requests] == ["DELETE", "DELETE"]

    def test_without_a_terminal_to_ask_at_nothing_goes(self, server: FakeServer, trainshed: Trainshed) -> None:
        ran = trainshed("rm", JOB, stdin="y\n")
        assert (ran.code, ran.err) == (2, "error: Nothing was deleted. Answer y, or say --yes.\n")
        assert server.requests == []

    def test_a_refusal_tells_why(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(f"DELETE /v1/jobs/{JOB}", problem(409, "job_needed", f"Job {JOB} is needed by {OTHER_JOB}."))
        ran = trainshed("rm", JOB, "--yes")
        assert (ran.code, ran.err) == (2, f"error: Job {JOB} is needed by {OTHER_JOB}.\n")

    def test_json_tells_what_went(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(f"DELETE /v1/jobs/{JOB}", httpx.Response(204))
        assert json.loads(trainshed("rm", JOB, "-y", "--json").out) == {"deleted": [JOB]}
