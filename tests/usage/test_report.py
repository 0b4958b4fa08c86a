"""Sums over a span of time; each expected number is devices times seconds, counted by hand."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.db import Database
from app.holds.models import Hold
from app.ids import new_id
from app.usage.report import By, Interval, Report, report, summed
from tests.fakes import START
from tests.rows import add_attempt, add_job, add_project, add_worker

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MIDNIGHT = START.replace(hour=0) + DAY


def interval(start: datetime, end: datetime, **changes: Any) -> Interval:
    values: dict[str, Any] = {
        "holder": "job_1",
        "project": "birds",
        "owner": "ana",
        "kind": "cuda",
        "devices": 1,
        "start": start,
        "end": end,
        "energy_j": None,
    }
    return Interval(**(values | changes))


def keys(found: Report) -> list[str]:
    return [line.key for line in found.lines]


class TestSummed:
    def test_only_what_lies_in_the_span_counts_and_energy_by_its_share(self) -> None:
        # Two cards from 12 to 16 o'clock with 8 kJ; asked for 15 to 18: one hour of four.
        whole = interval(START, START + 4 * HOUR, devices=2, energy_j=8000.0)
        found = summed([whole], START + 3 * HOUR, START + 6 * HOUR, "owner")
        (line,) = found.lines
        assert (line.cuda_device_s, line.cpu_device_s, line.energy_j) == (2 * 3600.0, 0.0, 2000.0)
        assert found.total.cuda_device_s == line.cuda_device_s

    @pytest.mark.parametrize("shift", [-4 * HOUR, 6 * HOUR])
    def test_what_touches_the_span_from_outside_does_not_count(self, shift: timedelta) -> None:
        outside = interval(START + shift, START + shift + 4 * HOUR)
        assert summed([outside], START, START + 6 * HOUR, "owner").lines == []

    def test_days_are_cut_at_midnight_in_utc(self) -> None:
        night = interval(MIDNIGHT - 2 * HOUR, MIDNIGHT + 3 * HOUR, energy_j=5000.0)
        found = summed([night], MIDNIGHT - DAY, MIDNIGHT + DAY, "day")
        assert [(line.key, line.cuda_device_s, line.energy_j, line.jobs) for line in found.lines] == [
            ("2026-01-31", 2 * 3600.0, 2000.0, 1),
            ("2026-02-01", 3 * 3600.0, 3000.0, 1),
        ]
        assert (found.total.jobs, found.total.cuda_device_s) == (1, 5 * 3600.0), "one job, though on two days"

    def test_kinds_of_device_are_not_mixed_and_holders_counted_once(self) -> None:
        parts = [
            interval(START, START + HOUR),
            interval(START + HOUR, START + 2 * HOUR),  # another attempt of the same job
            interval(START, START + HOUR, kind="cpu", holder="job_2"),
            interval(START, START + HOUR, holder="hold_1"),
        ]
        (line,) = summed(parts, START, START + DAY, "owner").lines
        assert (line.jobs, line.holds, line.cuda_device_s, line.cpu_device_s) == (2, 1, 3 * 3600.0, 3600.0)
        assert line.energy_j is None

    @pytest.mark.parametrize(
        ("by", "expected"), [("owner", ["bob", "ana"]), ("project", ["whales", "birds"]), ("job", ["job_2", "job_1"])]
    )
    def test_the_largest_comes_first(self, by: By, expected: list[str]) -> None:
        small = interval(START, START + HOUR)
        large = interval(START, START + 2 * HOUR, owner="bob", project="whales", holder="job_2")
        assert keys(summed([small, large], START, START + DAY, by)) == expected

    @given(
        spans=st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 10_000), st.integers(1, 4)), max_size=6),
        cut=st.integers(1, 19_999),
    )
    def test_two_spans_that_meet_sum_up_to_the_whole(self, spans: list[tuple[int, int, int]], cut: int) -> None:
        def at(minutes: int) -> datetime:
            return START + timedelta(minutes=minutes)

        parts = [interval(at(a), at(a + n), devices=count, energy_j=60.0 * n) for a, n, count in spans]
        whole = summed(parts, START, at(20_000), "day")
        left, right = summed(parts, START, at(cut), "day"), summed(parts, at(cut), at(20_000), "day")
        expected = sum(60.0 * n * count for _, n, count in spans)
        assert whole.total.cuda_device_s == pytest.approx(expected)
        assert left.total.cuda_device_s + right.total.cuda_device_s == pytest.approx(expected)
        assert sum(line.cuda_device_s for line in whole.lines) == pytest.approx(expected)
        assert (whole.total.energy_j or 0.0) == pytest.approx(sum(60.0 * n for _, n, _ in spans))


def line_json(key: str, **values: float) -> dict[str, Any]:
    empty = {"jobs": 0, "holds": 0, "cuda_device_s": 0.0, "cpu_device_s": 0.0, "energy_j": None}
    return {"key": key, **empty, **values}


class TestReport:
    def test_reads_attempts_and_holds_of_the_project(self, database: Database) -> None:
        now = START + 10 * HOUR
        with database.write() as session:
            birds, whales = add_project(session, "birds"), add_project(session, "whales")
            worker = add_worker(session, devices=2)
            mine = add_job(session, birds, device_count=2)
            # Freed after two hours, though files were stored for another one.
            add_attempt(
                session,
                mine,
                claimed_at=START,
                ended_at=START + 3 * HOUR,
                device_s=2 * 2 * 3600.0,
                energy_j=100.0,
            )
            runs = add_job(session, birds, device_type="cpu", owner="bob")
            add_attempt(session, runs, claimed_at=START + 9 * HOUR)
            add_attempt(session, add_job(session, birds))  # placed, and never taken
            old = add_job(session, birds)
            add_attempt(session, old, claimed_at=START, ended_at=START + HOUR)  # from before device_s was kept
            theirs = add_job(session, whales)
            add_attempt(session, theirs, claimed_at=START, ended_at=START + HOUR, device_s=3600.0)
            hold = Hold(
                id=new_id("hold"),
                project_id=birds.id,
                owner="ana",
                key_id="key_1",
                worker_id=worker.id,
                devices=[{"id": "host-a-0", "kind": "cuda"}],
                created_at=START,
                until=START + 8 * HOUR,
                ended_at=START + HOUR,
                energy_j=50.0,
            )
            session.add(hold)
            project_id = birds.id
        with database.read() as session:
            found = report(session, project_id, START, now + DAY, "owner", now)
            everybody = report(session, None, START, now + DAY, "project", now)
            nobody = report(session, project_id, START - DAY, START, "owner", now)
        lines = {line.key: line.as_json() for line in found.lines}
        assert lines == {
            "ada": line_json("ada", jobs=1, cuda_device_s=14_400.0, energy_j=100.0),
            "ana": line_json("ana", holds=1, cuda_device_s=3600.0, energy_j=50.0),
            "bob": line_json("bob", jobs=1, cpu_device_s=3600.0),
        }
        assert {line.key: line.cuda_device_s for line in everybody.lines} == {"birds": 18_000.0, "whales": 3600.0}
        assert nobody.lines == []
