"""The commands about jobs."""

import json
import uuid
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Trainshed
from tests.cli.fake_server import JOB, FakeServer, breaks, job, listing, log, metric, problem, state, stream

EVENTS = f"GET /v1/jobs/{JOB}/events"
READ = f"GET /v1/jobs/{JOB}"
LOGS = f"GET /v1/jobs/{JOB}/logs"
FILES = f"GET /v1/jobs/{JOB}/artifacts"
SPEC = {"framework": "torch", "model": "mlp", "data": "digits", "device_count": 1}
ARTIFACT = {
    "object": "artifact",
    "name": "model.safetensors",
    "job_id": JOB,
    "attempt": 1,
    "kind": "model",
    "media_type": "application/octet-stream",
    "size_bytes": 36000,
    "digest": "0" * 64,
    "created_at": "2026-01-31T12:00:00.000000Z",
}


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(SPEC))
    return path


def posted(server: FakeServer) -> httpx.Request:
    return server.asked("POST /v1/jobs")[0]


class TestSubmit:
    def test_the_file_is_sent_byte_for_byte_with_a_key_of_its_own(
        self, server: FakeServer, trainshed: Trainshed, tmp_path: Path
    ) -> None:
        path = tmp_path / "job.json"
        path.write_text('{ "framework" : "torch" }\n')
        server.on("POST /v1/jobs", job())
        ran = trainshed("submit", str(path))
        assert ran.code == 0
        assert posted(server).content == b'{ "framework" : "torch" }\n'
        assert uuid.UUID(posted(server).headers["Idempotency-Key"]).version == 4

    def test_the_id_comes_out_and_warnings_go_beside(
        self, server: FakeServer, trainshed: Trainshed, spec_file: Path
    ) -> None:
        server.on("POST /v1/jobs", job(warnings=["no CUDA device"]))
        ran = trainshed("submit", str(spec_file))
        assert ran.out == f"{JOB} queued\n"
        assert ran.err == "warning: no CUDA device\n"

    def test_changes_are_written_into_it(self, server: FakeServer, trainshed: Trainshed, spec_file: Path) -> None:
        server.on("POST /v1/jobs", job())
        trainshed("submit", str(spec_file), "--set", "hyperparameters.epochs=5", "--set", "name=trial")
        assert json.loads(posted(server).content) == {**SPEC, "hyperparameters": {"epochs": 5}, "name": "trial"}

    def test_a_dash_reads_standard_input(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("POST /v1/jobs", job())
        assert trainshed("submit", "-", stdin='{"a": 1}').code == 0
        assert posted(server).content == b'{"a": 1}'

    def test_a_byte_order_mark_is_no_part_of_the_spec(
        self, server: FakeServer, trainshed: Trainshed, tmp_path: Path
    ) -> None:
        path = tmp_path / "job.json"
        path.write_bytes(b"\xef\xbb\xbf{}")
        server.on("POST /v1/jobs", job())
        assert trainshed("submit", str(path)).code == 0
        assert posted(server).content == b"{}"

    @pytest.mark.parametrize(
        ("content", "said"),
        [(b'{"a": 1,\n "b"}', "line 2, column 5"), (b"", "line 1, column 1"), (b"\xff{}", "not UTF-8")],
    )
    def test_what_is_no_json_is_refused_before_anything_is_sent(
        self, server: FakeServer, trainshed: Trainshed, tmp_path: Path, content: bytes, said: str
    ) -> None:
        path = tmp_path / "job.json"
        path.write_bytes(content)
        ran = trainshed("submit", str(path))
        assert (ran.code, server.requests) == (2, [])
        assert said in ran.err

    def test_a_file_that_is_not_there_is_named(self, trainshed: Trainshed) -> None:
        ran = trainshed("submit", "missing.json")
        assert ran.code == 2
        assert "missing.json cannot be read: No such file" in ran.err

    def test_a_refused_spec_is_explained_place_by_place(
        self, server: FakeServer, trainshed: Trainshed, spec_file: Path
    ) -> None:
        errors = [
            {"pointer": "/lerning_rate", "message": "is not a key", "suggestion": "hyperparameters.learning_rate"},
            {"pointer": "", "message": "needs a framework", "suggestion": None},
        ]
        refusal = problem(422, "invalid_spec", "long", errors=errors)
        server.on("POST /v1/jobs", refusal)
        ran = trainshed("submit", str(spec_file))
        assert ran.code == 2
        assert ran.err.splitlines() == [
            "error: invalid_spec",
            "  /lerning_rate: is not a key",
            "      try: hyperparameters.learning_rate",
            "  the whole body: needs a framework",
        ]

    def test_follow_goes_on_to_the_end(self, server: FakeServer, trainshed: Trainshed, spec_file: Path) -> None:
        server.on("POST /v1/jobs", job())
        server.on(EVENTS, stream(state(1, "queued", 0), state(2, "running"), state(3, "succeeded")))
        server.on(READ, job(state="succeeded"))
        server.on(FILES, listing())
        ran = trainshed("submit", str(spec_file), "--follow")
        assert ran.code == 0
        assert "running" in ran.out

    def test_json_and_follow_give_one_document_a_line(
        self, server: FakeServer, trainshed: Trainshed, spec_file: Path
    ) -> None:
        entries = [state(1, "queued", 0), metric(2, 1, "NaN"), state(3, "failed", cause="diverged")]
        server.on("POST /v1/jobs", job())
        server.on(EVENTS, stream(*entries))
        server.on(READ, job(state="failed"))
        ran = trainshed("submit", str(spec_file), "--follow", "--json")
        assert ran.code == 1
        assert ran.lines == [job(), *entries, job(state="failed")]


class TestList:
    def test_a_table_with_whole_ids(self, server: FakeServer, trainshed: Trainshed) -> None:
        progress = {"epoch": 3, "epochs": 20, "fraction": 0.15}
        server.on("GET /v1/jobs", listing(job(name="penguins", state="running", progress=progress)))
        ran = trainshed("ls")
        assert JOB in ran.out
        assert "penguins" in ran.out
        assert "3/20" in ran.out

    def test_filters_become_parameters(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/jobs", listing())
        options = ["--state", "queued", "--state", "running", "--framework", "torch", "--tag", "a:b", "--name", "x"]
        assert trainshed("ls", *options, "-n", "7").out == "No jobs.\n"
        query = server.requests[0].url.params
        assert query.get_list("state") == ["queued", "running"]
        assert (query["framework"], query["tag"], query["q"], query["limit"]) == ("torch", "a:b", "x", "7")

    def test_it_says_when_there_are_more(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/jobs", listing(job(), next_after=JOB))
        assert "There are more" in trainshed("ls", "--limit", "1").out

    def test_json_is_the_list_object(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/jobs", listing(job()))
        assert trainshed("ls", "--json").json == listing(job())

    def test_names_from_elsewhere_cannot_rewrite_the_terminal(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/jobs", listing(job(name="\x1b[2J[red]x[/red]")))
        out = trainshed("ls").out
        assert "\x1b" not in out
        assert "[2J[red]x[/red]" in out


class TestShow:
    def test_why_it_waits_and_at_which_place(self, server: FakeServer, trainshed: Trainshed) -> None:
        waiting = {"code": "waiting_for_devices", "message": "waiting for 1 device, 0 free", "position": 3}
        server.on(READ, job(waiting=waiting, attempts=[]))
        out = trainshed("show", JOB).out
        assert "waiting for 1 device, 0 free" in out
        assert "position   3" in out

    def test_metrics_and_attempts(self, server: FakeServer, trainshed: Trainshed) -> None:
        attempt = {
            "number": 1,
            "devices": [{"id": "GPU-1"}],
            "started_at": None,
            "ended_at": "2026-01-31T12:00:09.000000Z",
            "cause": "trainer_killed",
            "signal": 9,
            "detail": "Killed.",
        }
        metrics = {"last": {"loss": "NaN", "accuracy": 0.5}, "best": {"loss": 0.25, "accuracy": 0.75}}
        server.on(READ, job(state="failed", cause="trainer_killed", attempts=[attempt], metrics=metrics))
        out = trainshed("show", JOB).out
        assert "trainer_killed (signal 9): Killed." in out
        assert [line.split() for line in out.splitlines() if "loss" in line] == [["loss", "NaN", "0.25"]]

    def test_json_is_the_job(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/jobs", listing(job()))
        server.on(READ, job())
        assert trainshed("show", "latest", "--json").json == job()


class TestFollow:
    def test_success_is_zero_and_shows_what_came_out(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(EVENTS, stream(state(1, "running"), metric(2, 4, 0.1), state(3, "succeeded")))
        metrics = {"last": {"test_accuracy": 0.975}, "best": {"test_accuracy": 0.975}}
        server.on(READ, job(state="succeeded", metrics=metrics))
        server.on(FILES, listing(ARTIFACT))
        ran = trainshed("follow", JOB)
        assert ran.code == 0
        assert "epoch 4/4  100%  loss 0.1" in ran.out
        assert "0.975" in ran.out
        assert "35.2 KiB" in ran.out

    @pytest.mark.parametrize("end", ["failed", "cancelled"])
    def test_any_other_end_is_one(self, server: FakeServer, trainshed: Trainshed, end: str) -> None:
        server.on(EVENTS, stream(state(1, end)))
        server.on(READ, job(state=end))
        server.on(FILES, listing())
        server.on(LOGS, httpx.Response(200, text=""))
        assert trainshed("follow", JOB).code == 1

    def test_a_failure_shows_the_end_of_the_log(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(EVENTS, stream(state(1, "failed")))
        server.on(READ, job(state="failed"))
        server.on(FILES, listing())
        server.on(LOGS, httpx.Response(200, text="one\ntwo\x1b[0m\n"))
        ran = trainshed("follow", JOB)
        assert ran.out.splitlines()[-2:] == ["  | one", "  | two\ufffd[0m"]
        assert server.asked(LOGS)[0].url.params["tail"] == "15"

    def test_a_lost_connection_is_mentioned_and_mended(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(EVENTS, stream(state(1, "running"), lost=True), breaks, stream(state(2, "succeeded")))
        server.on(READ, job(state="succeeded"))
        server.on(FILES, listing())
        ran = trainshed("follow", JOB)
        assert (ran.code, ran.pauses) == (0, [0.2, 0.4])
        assert ran.out.count("connecting again") == 2


class TestLogs:
    def test_the_text_as_it_is(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(LOGS, httpx.Response(200, text="a\n\x1b[31mred\n"))
        assert trainshed("logs", JOB, "--tail", "2").out == "a\n\x1b[31mred\n"
        assert server.requests[0].url.params["tail"] == "2"

    def test_a_terminal_is_protected(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(LOGS, httpx.Response(200, text="\x1b[31mred\n"))
        assert trainshed("logs", JOB, terminal=True).out == "\ufffd[31mred\n"

    def test_json(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(LOGS, httpx.Response(200, text="a\nb\n"))
        assert trainshed("logs", JOB, "--json").json == {"job_id": JOB, "lines": ["a", "b"]}

    def test_followed_to_the_end_over_a_lost_connection(self, server: FakeServer, trainshed: Trainshed) -> None:
        first = stream(state(1, "running"), log(2, "a", "b"), lost=True)
        server.on(EVENTS, first, stream(log(3, "c"), state(4, "succeeded")))
        assert trainshed("logs", JOB, "--follow").out == "a\nb\nc\n"

    def test_followed_as_json(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(EVENTS, stream(log(1, "a"), state(2, "succeeded")))
        assert trainshed("logs", JOB, "--follow", "--json").lines == [{"line": "a"}]

    def test_from_the_end_on(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(LOGS, httpx.Response(200, text="y\nz\n"))
        assert trainshed("logs", JOB, "--tail", "1", "--follow").out == "y\nz\n"
        assert dict(server.requests[0].url.params) == {"tail": "1", "follow": "true"}


class TestCancel:
    @pytest.mark.parametrize(("now", "said"), [("cancelled", "cancelled"), ("running", "running, stops at its next")])
    def test_it_says_whether_it_is_done(self, server: FakeServer, trainshed: Trainshed, now: str, said: str) -> None:
        server.on(f"POST /v1/jobs/{JOB}/cancel", job(state=now))
        ran = trainshed("cancel", JOB)
        assert ran.code == 0
        assert ran.out.startswith(f"{JOB} {said}")

    def test_one_that_has_ended_is_refused(self, server: FakeServer, trainshed: Trainshed) -> None:
        refusal = problem(409, "state_conflict", "The job has succeeded; nothing can be cancelled.")
        server.on(f"POST /v1/jobs/{JOB}/cancel", refusal)
        ran = trainshed("cancel", JOB, "--json")
        assert ran.code == 2
        assert json.loads(ran.err)["code"] == "state_conflict"
        assert ran.out == ""
