"""The command about usage, and what a job's page says of it."""

from typing import Any

from tests.cli.conftest import Trainshed
from tests.cli.fake_server import AT, JOB, FakeServer, job, listing

LINE: dict[str, Any] = {
    "key": "ana",
    "jobs": 3,
    "holds": 1,
    "cuda_device_s": 9000.0,
    "cpu_device_s": 0.0,
    "energy_j": 7.2e6,
}
REPORT: dict[str, Any] = {
    "object": "usage",
    "by": "owner",
    "since": AT,
    "until": AT,
    "data": [LINE],
    "total": {**LINE, "key": "total", "energy_j": None},
}


def row_with(text: str, out: str) -> list[str]:
    return next(line.split() for line in out.splitlines() if text in line)


class TestUsage:
    def test_in_hours_and_kilowatt_hours(self, server: FakeServer, trainshed: Trainshed) -> None:
        # 9000 s are 2.5 hours, and 7.2 MJ are 2 kWh.
        server.on("GET /v1/usage", REPORT)
        out = trainshed("usage").out
        assert row_with("ana", out) == ["ana", "3", "1", "2.50", "0.00", "2.000"]
        assert row_with("total", out)[-1] == "–", "what was not measured is no zero"

    def test_asks_for_what_was_said(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/usage", REPORT)
        trainshed("usage", "--by", "day", "--since", "2026-01-01", "--until", "2026-02-01T00:00:00Z")
        assert dict(server.requests[0].url.params) == {
            "by": "day",
            "since": "2026-01-01T00:00:00.000000Z",
            "until": "2026-02-01T00:00:00.000000Z",
        }

    def test_nothing_is_said(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/usage", {**REPORT, "data": []})
        assert trainshed("usage").out.startswith("Nothing was used")

    def test_json(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/usage", REPORT)
        assert trainshed("usage", "--json").json == REPORT

    def test_a_time_that_is_none_is_refused_before_the_server_is_asked(
        self, server: FakeServer, trainshed: Trainshed
    ) -> None:
        assert (trainshed("usage", "--since", "lately").code, server.requests) == (2, [])


class TestOfAJob:
    def test_show_says_what_it_used_and_what_bounded_it(self, server: FakeServer, trainshed: Trainshed) -> None:
        used = {"device_s": 7200.0, "energy_j": 36_000.0, "utilization": 0.4, "message": "Its cards were busy."}
        server.on(f"GET /v1/jobs/{JOB}", job(state="running", usage=used, attempts=[]))
        server.on("GET /v1/jobs", listing(job()))
        out = trainshed("show", JOB).out
        assert "2 h 00 min" in out
        assert "10.0 Wh" in out
        assert "Its cards were busy." in out
