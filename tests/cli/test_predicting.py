"""predict, export."""

import json
from pathlib import Path
from typing import Any

import httpx

from tests.cli.conftest import Trainshed
from tests.cli.fake_server import JOB, FakeServer, problem

TASK = "task_01k0000000000000000000000a"
PREDICT = f"POST /v1/jobs/{JOB}/predict"
UNSEEN = {"row": 1, "column": "island", "message": "Row 1, column 'island': 'Atlantis' is new."}
LABELS = {
    "labels": ["cat", "dog"],
    "probabilities": [{"cat": 0.9, "dog": 0.1}, {"cat": 0.2, "dog": 0.8}],
    "warnings": [],
}


def posted(server: FakeServer) -> Any:
    return json.loads(server.asked(PREDICT)[0].content)


def task(state: str, **members: Any) -> dict[str, Any]:
    return {"id": TASK, "object": "prediction", "state": state, **members}


class TestRows:
    def test_a_csv_file_goes_as_it_is(self, server: FakeServer, trainshed: Trainshed, tmp_path: Path) -> None:
        (tmp_path / "new.csv").write_text("age,name\n41,Ada\n,Bob\n")
        server.on(PREDICT, LABELS)
        assert trainshed("predict", JOB, str(tmp_path / "new.csv"), "--timeout", "5").code == 0
        (request,) = server.asked(PREDICT)
        assert request.content == b"age,name\n41,Ada\n,Bob\n"
        assert request.headers["Content-Type"] == "text/csv"
        assert request.url.params["timeout_s"] == "5.0"

    def test_rows_on_the_command_line_are_objects(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(PREDICT, LABELS)
        trainshed("predict", JOB, "--row", '{"age": 41}', "--row", '{"age": 42}')
        assert posted(server)["rows"] == [{"age": 41}, {"age": 42}]

    def test_a_json_file_may_hold_one_row_or_many(
        self, server: FakeServer, trainshed: Trainshed, tmp_path: Path
    ) -> None:
        (tmp_path / "new.json").write_text('{"age": 41}')
        server.on(PREDICT, LABELS)
        trainshed("predict", JOB, str(tmp_path / "new.json"))
        assert posted(server)["rows"] == [{"age": 41}]

    def test_nothing_to_predict_from_is_said_with_an_example(self, trainshed: Trainshed) -> None:
        ran = trainshed("predict", JOB)
        assert ran.code == 2
        assert "--row '{\"age\": 41}'" in ran.err

    def test_an_empty_file_is_refused_before_it_is_sent(
        self, server: FakeServer, trainshed: Trainshed, tmp_path: Path
    ) -> None:
        (tmp_path / "new.csv").write_text("\n")
        ran = trainshed("predict", JOB, str(tmp_path / "new.csv"))
        assert (ran.code, server.requests) == (2, [])
        assert "is empty; it needs a header and at least one row" in ran.err

    def test_a_row_that_is_no_object_is_refused(self, trainshed: Trainshed) -> None:
        assert "is not an object" in trainshed("predict", JOB, "--row", "[1]").err


class TestAnswer:
    def test_labels_with_the_likeliest_first(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(PREDICT, LABELS)
        out = trainshed("predict", JOB, "--row", "{}").out
        assert "cat 0.9, dog 0.1" in out
        assert "dog 0.8, cat 0.2" in out

    def test_values_of_a_regression(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(PREDICT, {"labels": None, "values": [151.25], "warnings": [UNSEEN]})
        ran = trainshed("predict", JOB, "--row", "{}")
        assert "151.2" in ran.out
        assert ran.err == "warning: Row 1, column 'island': 'Atlantis' is new.\n"

    def test_one_that_takes_longer_is_waited_for(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(PREDICT, httpx.Response(202, json=task("queued")))
        server.on(f"GET /v1/predictions/{TASK}", task("running"), task("succeeded", **LABELS))
        ran = trainshed("predict", JOB, "--row", "{}")
        assert ran.code == 0
        assert "cat 0.9" in ran.out

    def test_one_that_failed_is_an_error_with_its_reasons(self, server: FakeServer, trainshed: Trainshed) -> None:
        error = {"code": "invalid_rows", "message": "1 row is bad.", "errors": [{"message": "Row 1: no column 'age'."}]}
        server.on(PREDICT, httpx.Response(202, json=task("queued")))
        server.on(f"GET /v1/predictions/{TASK}", task("failed", error=error))
        ran = trainshed("predict", JOB, "--row", "{}")
        assert (ran.code, ran.err) == (2, "error: 1 row is bad.\n  Row 1: no column 'age'.\n")

    def test_a_job_without_a_model_is_the_server_s_refusal(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(PREDICT, problem(409, "no_model", "Job x is running; it has no model yet."))
        assert trainshed("predict", JOB, "--row", "{}").err == "error: Job x is running; it has no model yet.\n"


class TestExport:
    def test_says_how_to_download_what_was_made(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(
            f"POST /v1/jobs/{JOB}/exports",
            httpx.Response(202, json=task("queued")),
        )
        server.on(f"GET /v1/predictions/{TASK}", task("succeeded", artifacts=[{"name": "model.onnx"}]))
        ran = trainshed("export", JOB, "onnx")
        assert ran.out == f"model.onnx: trainshed artifacts {JOB} --download model.onnx\n"
        assert json.loads(server.asked(f"POST /v1/jobs/{JOB}/exports")[0].content) == {"format": "onnx"}
