"""Series of a job over HTTP."""

import csv
import io
import math

import pytest

from app.api.views import ListView, SeriesView
from app.db import Database
from app.jobs.journal import Entry
from tests.api.client import ONE_DATABASE, Api, Tenant, problem
from tests.api.journals import Writer, metric


@pytest.fixture
def writer(database: Database, tenant: Tenant) -> Writer:
    return Writer(database, tenant.project_id)


class TestMetrics:
    def test_answers_every_series_by_name(self, api: Api, writer: Writer) -> None:
        writer.write(metric(1, "val_loss", 0.75), metric(1, "loss", 0.5), metric(2, "loss", 0.25, epoch=2))
        answer = api.get(f"/v1/jobs/{writer.job_id}/metrics").json()
        ListView[SeriesView].model_validate(answer)
        loss, val_loss = answer["data"]
        assert loss == {
            "object": "series",
            "name": "loss",
            "step": [1, 2],
            "epoch": [1, 2],
            "value": [0.5, 0.25],
            "attempt": [1, 1],
            "total": 2,
        }
        assert (val_loss["name"], val_loss["value"]) == ("val_loss", [0.75])

    def test_names_narrow_it(self, api: Api, writer: Writer) -> None:
        writer.write(metric(1, "a"), metric(1, "b"), metric(1, "c"))
        path = f"/v1/jobs/{writer.job_id}/metrics"
        names = {
            query: [found["name"] for found in api.get(path, params={"names": query}).json()["data"]]
            for query in ("a", "a,c", " b , c ", "nothing", "")
        }
        assert names == {"a": ["a"], "a,c": ["a", "c"], " b , c ": ["b", "c"], "nothing": [], "": []}

    def test_what_is_no_number_is_told_apart_from_what_is_absent(self, api: Api, writer: Writer) -> None:
        values: list[float | str] = ["NaN", "Infinity", "-Infinity", 1.0]
        writer.write(*[metric(step, value=value) for step, value in enumerate(values)])
        answer = api.get(f"/v1/jobs/{writer.job_id}/metrics")
        (loss,) = answer.json()["data"]
        assert loss["value"] == values
        assert "null" not in answer.text.split('"data"')[1].split('"has_more"')[0]

    def test_a_long_series_is_thinned_and_keeps_its_spike(self, api: Api, writer: Writer) -> None:
        values = [math.sin(step / 100) for step in range(20_000)]
        values[13_579] = 1000.0
        steps = list(range(20_000))
        points = {"loss": {"step": steps, "epoch": [0] * 20_000, "value": values}}
        writer.write(Entry("metric", {"points": points}))
        (loss,) = api.get(f"/v1/jobs/{writer.job_id}/metrics").json()["data"]
        assert len(loss["step"]) <= 1000
        assert loss["total"] == 20_000
        assert (loss["step"][0], loss["step"][-1]) == (0, 19_999)
        assert loss["value"][loss["step"].index(13_579)] == 1000.0
        (all_of_it,) = api.get(f"/v1/jobs/{writer.job_id}/metrics?max_points=20000").json()["data"]
        assert all_of_it["value"] == values

    @ONE_DATABASE
    def test_as_csv_it_has_one_row_a_point(self, api: Api, writer: Writer) -> None:
        writer.write(metric(1, 'a,"b"', 0.5), metric(1, "loss", "NaN"), metric(2, "loss", 1e-300))
        answer = api.get(f"/v1/jobs/{writer.job_id}/metrics?format=csv")
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        assert list(csv.reader(io.StringIO(answer.text))) == [
            ["name", "step", "epoch", "value", "attempt"],
            ['a,"b"', "1", "1", "0.5", "1"],
            ["loss", "1", "1", "NaN", "1"],
            ["loss", "2", "1", "1e-300", "1"],
        ]

    @ONE_DATABASE
    def test_csv_has_every_point_is_quoted_as_rfc_4180_asks_and_comes_in_parts(self, api: Api, writer: Writer) -> None:
        steps = list(range(20_000))
        points = {"loss": {"step": steps, "epoch": [0] * 20_000, "value": [0.1] * 20_000}}
        writer.write(metric(1, 'a\n"b"', "-Infinity"))
        writer.write(Entry("metric", {"points": points}))
        answer = api.get(f"/v1/jobs/{writer.job_id}/metrics?format=csv")
        assert "content-length" not in answer.headers, "it is not known before it is sent"
        assert answer.headers["content-disposition"].endswith(f'filename="{writer.job_id}-metrics.csv"')
        # RFC 4180: lines end in CRLF, also the last; a cell with a quote or a line's end is quoted, a quote doubled.
        assert answer.text.startswith(
            'name,step,epoch,value,attempt\r\n"a\n""b""",1,1,-Infinity,1\r\nloss,0,0,0.1,1\r\n'
        )
        assert answer.text.endswith("loss,19999,0,0.1,1\r\n")
        assert answer.text.count("\r\n") == 20_002
        thinned = api.get(f"/v1/jobs/{writer.job_id}/metrics?format=csv&max_points=100&names=loss")
        assert 2 < thinned.text.count("\r\n") <= 101

    @ONE_DATABASE
    @pytest.mark.parametrize("query", ["max_points=1", "max_points=100001", "format=xml", "name=loss"])
    def test_a_parameter_that_cannot_be_is_refused(self, api: Api, writer: Writer, query: str) -> None:
        problem(api.get(f"/v1/jobs/{writer.job_id}/metrics?{query}"), 422, "invalid_request")

    @ONE_DATABASE
    def test_a_job_without_any_has_an_empty_list(self, api: Api, writer: Writer) -> None:
        assert api.get(f"/v1/jobs/{writer.job_id}/metrics").json()["data"] == []
