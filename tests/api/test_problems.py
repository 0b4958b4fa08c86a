"""Every error is one problem document, whatever raised it."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

import app
from app.api import errors
from app.api.bodies import decode
from app.api.problems import PROBLEMS, document, kind_of, problem_response
from app.errors import NotFound, TrainshedError, Unavailable
from app.jobs.states import JobState
from app.jobs.stops import StateConflict
from app.scheduling.admission import InsufficientDevices
from app.spec import InvalidSpec, SpecProblem
from app.tables import InvalidTable, TableProblem
from tests.api.client import ONE_DATABASE, Api, problem

JSON = {"Content-Type": "application/json"}
# Raised where no request is (while a process starts, or in a worker), or told as a part of another error.
NEVER_ANSWERED = {
    "invalid_settings",
    "internal",
    "device_elsewhere",
    "invalid_requirements",
    "sqlite_one_host",
    "shape_problem",
    "schema_not_current",
}


def error_classes(root: type[TrainshedError] = TrainshedError) -> Iterator[type[TrainshedError]]:
    for found in root.__subclasses__():
        yield found
        yield from error_classes(found)


class TestTable:
    def test_every_error_of_the_server_has_a_kind(self) -> None:
        for module in pkgutil.walk_packages(app.__path__, "app."):
            if not module.name.startswith(("app.cli", "app.migrations")):
                importlib.import_module(module.name)
        missing = {
            f"{found.__module__}.{found.__name__}: {found.code}"
            for found in error_classes()
            if found.__module__.startswith("app.")
            and not found.__module__.startswith("app.cli")
            and found.code not in PROBLEMS.keys() | NEVER_ANSWERED
        }
        assert not missing

    @pytest.mark.parametrize("page", ["errors.md"])
    def test_the_page_of_errors_lists_every_code_with_its_status(self, page: str) -> None:
        text = (Path(app.__file__).parents[1] / "docs" / page).read_text(encoding="utf-8")
        listed = dict(re.findall(r"^\| `(\w+)` \| (\d{3}) \|", text, re.MULTILINE))
        assert listed == {code: str(kind.status) for code, kind in PROBLEMS.items()}

    def test_a_code_that_the_table_does_not_know_is_our_fault(self) -> None:
        class Strange(TrainshedError):
            code = "never_heard_of"

        assert kind_of(Strange("x")) == ("internal", PROBLEMS["internal"])


class TestDocument:
    def test_has_the_members_of_rfc_9457_and_ours(self) -> None:
        assert document(NotFound("job", "job_1"), "req_1") == {
            "type": "/docs/errors#not_found",
            "title": "Not found",
            "status": 404,
            "detail": "There is no job 'job_1' in this project.",
            "code": "not_found",
            "request_id": "req_1",
        }

    def test_shows_each_problem_of_a_spec(self) -> None:
        error = InvalidSpec([SpecProblem("/a~1b", "is wrong.", "c"), SpecProblem("", "is worse.")])
        assert document(error, "")["errors"] == [
            {"pointer": "/a~1b", "message": "is wrong.", "suggestion": "c"},
            {"pointer": "", "message": "is worse.", "suggestion": None},
        ]

    def test_shows_row_and_column_of_a_table(self) -> None:
        error = InvalidTable([TableProblem("is bad.", "mend it", row=3, column="f1")])
        (shown,) = document(error, "")["errors"]
        assert (shown["row"], shown["column"], shown["pointer"]) == (3, "f1", "/file")

    def test_shows_the_field_of_an_error_about_one_field(self) -> None:
        shown = document(InsufficientDevices("/device_count", "too many", "use 2", 2), "")
        assert shown["maximum"] == 2
        assert shown["errors"] == [{"pointer": "/device_count", "message": "too many", "suggestion": "use 2"}]

    def test_shows_the_state_that_was_in_the_way(self) -> None:
        response = problem_response(StateConflict("job_1", JobState.FAILED, "cancel", []), "")
        shown = orjson.loads(response.body)
        assert (response.status_code, shown["state"], shown["legal"]) == (409, "failed", [])

    def test_says_when_to_try_again(self) -> None:
        response = problem_response(Unavailable("down", retry_after_s=7), "")
        assert (response.status_code, response.headers["retry-after"]) == (503, "7")

    def test_ends_the_connection_of_a_body_that_was_not_read(self) -> None:
        assert problem_response(errors.BodyTooLarge(10), "").headers["connection"] == "close"


class TestDecode:
    @pytest.mark.parametrize("raw", [b"{}", b"[1.5]", b'"text"', b" null\n"])
    def test_reads_json(self, raw: bytes) -> None:
        decode(raw)

    @pytest.mark.parametrize("word", [b"NaN", b"Infinity", b"-Infinity"])
    def test_names_a_number_that_is_none(self, word: bytes) -> None:
        with pytest.raises(errors.MalformedJson, match="NaN and infinities"):
            decode(b'{"hyperparameters": {"learning_rate": ' + word + b"}}")

    def test_says_where_it_breaks(self) -> None:
        with pytest.raises(errors.MalformedJson, match="line 2, column 6"):
            decode(b'{"a": 1,\n "b" 2}')

    @pytest.mark.parametrize(
        "raw", [b'{"a": 1, "a": 2}', b'{"b": [{"a": 1, "c": 2, "a": 1}]}', b'{"a": 1, "\\u0061": 1}']
    )
    def test_refuses_a_key_that_is_named_twice(self, raw: bytes) -> None:
        # RFC 8259, 4: what software makes of it is unpredictable; the spec that is kept would not say what was trained.
        with pytest.raises(errors.MalformedJson, match="The key 'a' is named twice"):
            decode(raw)

    def test_the_same_key_in_two_objects_is_fine(self) -> None:
        assert decode(b'{"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}]}') == {"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}]}

    def test_says_that_there_is_nothing(self) -> None:
        with pytest.raises(errors.MalformedJson, match="empty"):
            decode(b" ")

    @pytest.mark.parametrize(
        "raw", [b'{"a": "\xff"}', b'{"a": "\\ud800"}', b"[" * 100_000, b'{"a":' * 100_000, b"\xef\xbb\xbf{}"]
    )
    def test_refuses_what_is_no_json(self, raw: bytes) -> None:
        with pytest.raises(errors.MalformedJson):
            decode(raw)


@ONE_DATABASE
class TestAnswers:
    @pytest.mark.parametrize("raw", [b"{", b"", b"{'a': 1}", b"[" * 9_000, b'{"device_count": NaN}', b"\x00"])
    def test_a_body_that_is_no_json_is_400(self, api: Api, raw: bytes) -> None:
        headers = JSON | ({"Content-Length": "0"} if not raw else {})
        problem(api.post("/v1/jobs", content=raw, headers=headers), 400, "malformed_json")

    @pytest.mark.parametrize("body", [[], "text", 1, None, True])
    def test_json_that_is_no_object_is_422(self, api: Api, body: object) -> None:
        shown = problem(api.post("/v1/jobs", content=orjson.dumps(body), headers=JSON), 422, "invalid_spec")
        assert shown["errors"][0]["pointer"] == ""

    @pytest.mark.parametrize("sent", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
    def test_another_content_type_is_415(self, api: Api, sent: str) -> None:
        answer = api.post("/v1/jobs", content=b"{}", headers={"Content-Type": sent})
        assert "application/json" in problem(answer, 415, "unsupported_media_type")["detail"]

    def test_parameters_of_the_content_type_do_not_matter(self, api: Api) -> None:
        answer = api.post("/v1/jobs", content=b"{}", headers={"Content-Type": "Application/JSON; charset=utf-8"})
        problem(answer, 422, "invalid_spec")

    def test_no_route_is_404(self, api: Api) -> None:
        problem(api.get("/v1/nothing"), 404, "not_found")

    @pytest.mark.parametrize(
        "identity", ["job_", "1", "job_%2e%2e", "JOB_01k0000000000000000000000", "job_01k%00", "ds_x"]
    )
    def test_an_id_that_can_be_none_is_404_as_well(self, api: Api, identity: str) -> None:
        problem(api.get(f"/v1/jobs/{identity}"), 404, "not_found")

    def test_another_method_is_405_and_says_which_are_possible(self, api: Api) -> None:
        answer = api.request("PUT", "/v1/jobs", json={})
        problem(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == "GET, POST"

    def test_a_parameter_that_is_not_known_is_422_with_the_nearest(self, api: Api) -> None:
        (shown,) = problem(api.get("/v1/jobs?limt=5"), 422, "invalid_request")["errors"]
        assert (shown["place"], shown["pointer"], shown["suggestion"]) == ("query", "/limt", "limit")

    @pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "after=job_1", "order=up", "state=done"])
    def test_a_parameter_that_cannot_be_is_422(self, api: Api, query: str) -> None:
        (shown,) = problem(api.get(f"/v1/jobs?{query}"), 422, "invalid_request")["errors"]
        assert shown["pointer"].startswith("/" + query.partition("=")[0])

    @pytest.mark.parametrize("query", ["q=a%00b", "tag=a:%00", "tag=nocolon", "created_after=yesterday"])
    def test_a_filter_that_cannot_be_is_422(self, api: Api, query: str) -> None:
        problem(api.get(f"/v1/jobs?{query}"), 422, "invalid_request")

    @pytest.mark.parametrize(
        "time",
        [
            "0.5",
            "1767225600",
            "2026-01-01",
            "2026-01-01T00:00:00",
            # In UTC these two are outside of what a date can be.
            "9999-12-31T23:59:59-12:00",
            "0001-01-01T00:00:00%2B12:00",
        ],
    )
    @pytest.mark.parametrize("name", ["created_after", "created_before"])
    def test_a_time_that_cannot_be_is_422(self, api: Api, name: str, time: str) -> None:
        (shown,) = problem(api.get(f"/v1/jobs?{name}={time}"), 422, "invalid_request")["errors"]
        assert shown["pointer"] == f"/{name}"

    @pytest.mark.parametrize("time", ["2026-01-01T00:00:00Z", "2026-01-01T02:00:00%2B02:00"])
    def test_a_time_with_its_zone_is_taken(self, api: Api, time: str) -> None:
        assert api.get(f"/v1/jobs?created_after={time}").status_code == 200

    @pytest.mark.parametrize("key", ["", "a b", "é", "x" * 256])
    def test_an_idempotency_key_that_cannot_be_is_422(self, api: Api, key: str) -> None:
        answer = api.post("/v1/jobs", json={}, headers={"Idempotency-Key": key.encode()})
        (shown,) = problem(answer, 422, "invalid_request")["errors"]
        assert (shown["place"], shown["pointer"]) == ("header", "/idempotency-key")
