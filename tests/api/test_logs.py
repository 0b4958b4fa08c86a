"""The text log of a job over HTTP: all of it, its end, or as it grows."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from app.api import logs as log_routes
from app.db import Database
from app.jobs.states import JobState
from tests.api.client import ONE_DATABASE, Api, Tenant, problem
from tests.api.journals import Writer


@pytest.fixture
def writer(database: Database, tenant: Tenant) -> Writer:
    return Writer(database, tenant.project_id)


class TestLogs:
    def test_answers_the_lines_as_they_were_printed(self, api: Api, writer: Writer) -> None:
        writer.lines("one", "two")
        writer.metrics(3)
        writer.lines("<script>alert(1)</script>", "", "ünï \x1b[31mred\x1b[0m")
        answer = api.get(f"/v1/jobs/{writer.job_id}/logs")
        assert answer.text == "one\ntwo\n<script>alert(1)</script>\n\nünï \x1b[31mred\x1b[0m\n"
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert answer.headers["x-content-type-options"] == "nosniff"

    def test_a_long_log_comes_whole(self, api: Api, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log_routes, "_PAGE", 7)
        lines = [f"line {number}" for number in range(100)]
        for start in range(0, 100, 4):
            writer.lines(*lines[start : start + 4])
        assert api.get(f"/v1/jobs/{writer.job_id}/logs").text.splitlines() == lines

    @pytest.mark.parametrize(("tail", "wanted"), [(1, ["5"]), (3, ["3", "4", "5"]), (100, ["1", "2", "3", "4", "5"])])
    def test_only_the_end_when_that_is_asked_for(self, api: Api, writer: Writer, tail: int, wanted: list[str]) -> None:
        writer.lines("1", "2")
        writer.lines("3", "4", "5")
        writer.metrics(1)
        assert api.get(f"/v1/jobs/{writer.job_id}/logs?tail={tail}").text.splitlines() == wanted

    @ONE_DATABASE
    def test_a_job_that_printed_nothing_has_an_empty_log(self, api: Api, writer: Writer) -> None:
        for query in ("", "?tail=5"):
            answer = api.get(f"/v1/jobs/{writer.job_id}/logs{query}")
            assert (answer.status_code, answer.text) == (200, "")

    @ONE_DATABASE
    @pytest.mark.parametrize("query", ["tail=0", "tail=100001", "tail=x", "follow=perhaps", "after=3"])
    def test_a_parameter_that_cannot_be_is_refused(self, api: Api, writer: Writer, query: str) -> None:
        problem(api.get(f"/v1/jobs/{writer.job_id}/logs?{query}"), 422, "invalid_request")


@contextmanager
def growing_log(url: str, writer: Writer, tenant: Tenant, query: str = "") -> Iterator[Iterator[str]]:
    """The lines of a log that is followed."""
    path = f"{url}/v1/jobs/{writer.job_id}/logs?follow=true{query}"
    headers = {"Authorization": f"Bearer {tenant.viewer}"}
    with httpx.Client(timeout=20) as client, client.stream("GET", path, headers=headers) as response:
        assert response.headers["x-accel-buffering"] == "no"
        yield response.iter_lines()


class TestFollow:
    def test_sends_what_is_there_then_what_comes_to_the_end_of_the_job(
        self, url: str, writer: Writer, tenant: Tenant
    ) -> None:
        writer.lines("before")
        with growing_log(url, writer, tenant) as lines:
            assert next(lines) == "before"
            writer.metrics(2)
            writer.lines("while", "it runs")
            assert [next(lines), next(lines)] == ["while", "it runs"]
            writer.finish(JobState.FAILED)
            assert list(lines) == []

    @ONE_DATABASE
    def test_begins_with_so_many_lines_and_repeats_none(self, url: str, writer: Writer, tenant: Tenant) -> None:
        writer.lines("1", "2", "3")
        with growing_log(url, writer, tenant, "&tail=2") as lines:
            assert [next(lines), next(lines)] == ["2", "3"]
            writer.lines("4")
            writer.finish()
            assert list(lines) == ["4"]

    @ONE_DATABASE
    @pytest.mark.parametrize("query", ["", "&tail=5"])
    def test_of_a_finished_job_it_is_just_the_log(self, api: Api, writer: Writer, query: str) -> None:
        writer.lines("1", "2")
        writer.finish()
        assert api.get(f"/v1/jobs/{writer.job_id}/logs?follow=true{query}").text == "1\n2\n"
