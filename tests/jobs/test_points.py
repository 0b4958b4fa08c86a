"""Every point of a job, page by page: the same points as its series has, whatever attempts came and went."""

from collections import defaultdict
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.db import Database
from app.jobs import journal
from app.jobs.journal import Entry
from app.jobs.metrics import series
from app.jobs.models import Job
from app.jobs.points import Point, cut_of, points
from tests.api.client import ONE_DATABASE
from tests.fakes import START
from tests.rows import add_attempt, add_job, add_project

Report = dict[str, list[int]]


def new_job(database: Database) -> str:
    """A running job; each has a project of its own, since a test may make many."""
    with database.write() as session:
        project = add_project(session, f"project-{session.query(Job).count()}")
        return add_job(session, project, state="running", attempt=1).id


def entry(reported: Report) -> Entry:
    columns = {
        name: {"step": steps, "epoch": [0] * len(steps), "value": [step / 2 for step in steps]}
        for name, steps in reported.items()
    }
    return Entry("metric", {"points": columns})


def play(database: Database, job_id: str, attempts: list[tuple[int | None, list[Report]]]) -> None:
    """Attempts one after the other: from which step each goes on, and what it reports."""
    for number, (resumed, reports) in enumerate(attempts, start=1):
        with database.write() as session:
            add_attempt(session, session.get_one(Job, job_id), number=number, resumed_from_step=resumed)
            journal.append(session, job_id, number - 1 or 1, [], START, raise_fence_to=number)
            entries = [entry(report) for report in reports]
            if entries:
                assert journal.append(session, job_id, number, entries, START) is not None


def every_point(database: Database, job_id: str, names: frozenset[str] | None = None) -> list[Point]:
    with database.read() as session:
        cut = cut_of(session, job_id)
    return [point for page in points(database, job_id, cut, names) for point in page]


def by_name(found: list[Point]) -> dict[str, list[tuple[Any, ...]]]:
    grouped = defaultdict(list)
    for point in found:
        grouped[point.name].append(tuple(point[1:]))
    return dict(sorted(grouped.items()))


def expected(database: Database, job_id: str) -> dict[str, list[tuple[Any, ...]]]:
    with database.read() as session:
        found = series(session, job_id, None, 10**9)
    return {name: list(zip(one.step, one.epoch, one.value, one.attempt, strict=True)) for name, one in found.items()}


class TestPoints:
    def test_they_come_in_the_order_of_their_reports(self, database: Database) -> None:
        job_id = new_job(database)
        play(database, job_id, [(None, [{"loss": [1, 2], "accuracy": [2]}, {"loss": [3]}])])
        assert every_point(database, job_id) == [
            Point("loss", 1, 0, 0.5, 1),
            Point("loss", 2, 0, 1.0, 1),
            Point("accuracy", 2, 0, 1.0, 1),
            Point("loss", 3, 0, 1.5, 1),
        ]
        assert [point.step for point in every_point(database, job_id, frozenset({"accuracy"}))] == [2]

    def test_later_attempts_hide_what_they_repeat(self, database: Database) -> None:
        job_id = new_job(database)
        play(database, job_id, [(None, [{"loss": [10, 20, 30]}]), (20, [{"loss": [25, 35]}]), (10, [{"loss": [20]}])])
        assert [(point.step, point.attempt) for point in every_point(database, job_id)] == [(10, 1), (20, 3)]

    def test_a_step_that_is_reported_again_counts_once(self, database: Database) -> None:
        # The checkpoint of a stop can be older than the values of its own step: each attempt that goes on says them.
        job_id = new_job(database)
        play(database, job_id, [(None, [{"loss": [5]}]), (10, [{"loss": [10]}]), (10, [{"loss": [10, 20]}])])
        assert [(point.step, point.attempt) for point in every_point(database, job_id)] == [(5, 1), (10, 3), (20, 3)]
        assert [(row[0], row[3]) for row in expected(database, job_id)["loss"]] == [(5, 1), (10, 3), (20, 3)]

    def test_one_that_reported_nothing_yet_hides_nothing(self, database: Database) -> None:
        job_id = new_job(database)
        play(database, job_id, [(None, [{"loss": [10, 20]}]), (None, [])])
        assert [point.step for point in every_point(database, job_id)] == [10, 20]

    def test_many_reports_come_in_pages(self, database: Database) -> None:
        job_id = new_job(database)
        play(database, job_id, [(None, [{"loss": [step]} for step in range(250)])])
        with database.read() as session:
            cut = cut_of(session, job_id)
        pages = list(points(database, job_id, cut, None))
        assert [len(page) for page in pages] == [100, 100, 50]
        assert [point.step for page in pages for point in page] == list(range(250))

    def test_what_is_reported_meanwhile_is_not_part_of_it(self, database: Database) -> None:
        job_id = new_job(database)
        play(database, job_id, [(None, [{"loss": [1]}])])
        with database.read() as session:
            cut = cut_of(session, job_id)
        with database.write() as session:
            journal.append(session, job_id, 1, [entry({"loss": [2]})], START)
        assert [point.step for page in points(database, job_id, cut, None) for point in page] == [1]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int | None, list[Report]]]:
    """Attempts that each go on from a step that some earlier one has reached, or anew, and report ascending steps.

    What goes on from a step may report values of that very step again.
    """
    attempts: list[tuple[int | None, list[Report]]] = []
    for _ in range(draw(st.integers(1, 4))):
        resumed = draw(st.none() | st.integers(0, 12)) if attempts else None
        first = 1 if resumed is None else resumed + draw(st.integers(0, 1))
        steps = sorted(draw(st.sets(st.integers(first, first + 12), max_size=6)))
        cuts = draw(st.integers(0, len(steps)))
        parts = [part for part in (steps[:cuts], steps[cuts:]) if part]
        attempts.append((resumed, [{"loss": part, "rate": part[:1]} for part in parts]))
    return attempts


@ONE_DATABASE
class TestSeries:
    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(histories())
    def test_they_are_those_of_the_series(
        self, database: Database, history: list[tuple[int | None, list[Report]]]
    ) -> None:
        job_id = new_job(database)
        play(database, job_id, history)
        assert by_name(every_point(database, job_id)) == expected(database, job_id)
