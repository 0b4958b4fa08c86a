"""A job is seen when it is committed, and is found without anybody announcing it (case C12)."""

import threading

from app.accounts.models import Project
from app.db import Database
from app.scheduling.run import Placed, schedule
from tests.fakes import FakeClock
from tests.jobs.placing import TIMES, effective_spec, make_scene
from tests.rows import add_job


class TestCommitFirst:
    def test_a_pass_during_a_slow_commit_sees_nothing_and_the_next_one_places_it_once(
        self, database: Database, clock: FakeClock
    ) -> None:
        scene = make_scene(database, clock, devices=2)
        scene.place()
        inserted, may_commit = threading.Event(), threading.Event()
        made: list[str] = []

        def slow_submit() -> None:
            with database.write() as session:
                project = session.get_one(Project, scene.project_id)
                made.append(add_job(session, project, effective_spec=effective_spec()).id)
                inserted.set()
                may_commit.wait(20)

        thread = threading.Thread(target=slow_submit)
        thread.start()
        assert inserted.wait(20)
        during: list[Placed] = schedule(database, TIMES)
        may_commit.set()
        thread.join(20)
        assert during == []
        assert [placed.job_id for placed in schedule(database, TIMES)] == made
        assert schedule(database, TIMES) == []

    def test_a_submitter_that_dies_after_its_commit_loses_nothing(self, database: Database, clock: FakeClock) -> None:
        """Nobody rings and nobody publishes; the row is what the pass finds."""
        scene = make_scene(database, clock)
        assert [placed.job_id for placed in schedule(database, TIMES)] == [scene.job_id]
