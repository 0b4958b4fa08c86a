"""Lists: keyset pages that stay stable while jobs arrive, filters, and the wire form."""

from datetime import timedelta

import orjson
import pytest

from app.accounts.models import Project
from app.db import Database
from app.errors import NotFound
from app.jobs.models import Attempt, JobTag
from app.jobs.repository import JobFilter, attempts_of, get_job, list_jobs
from app.jobs.schemas import attempt_json, job_json
from app.jobs.states import JobState
from tests.fakes import START, FakeClock
from tests.jobs.placing import make_scene
from tests.rows import add_job, add_project


@pytest.fixture
def project(database: Database) -> Project:
    with database.write() as session:
        return add_project(session)


def add_many(database: Database, project: Project, count: int, **changes: object) -> list[str]:
    with database.write() as session:
        return [add_job(session, project, **changes).id for _ in range(count)]


class TestPages:
    def test_pages_meet_without_gap_or_repeat_while_jobs_arrive(self, database: Database, project: Project) -> None:
        made = add_many(database, project, 7)
        seen: list[str] = []
        after: str | None = None
        while True:
            with database.read() as session:
                page = list_jobs(session, project.id, JobFilter(), after=after, limit=3)
            if not page:
                break
            seen += [row.id for row in page]
            after = page[-1].id
            add_many(database, project, 1)
        assert seen == made[::-1]

    def test_ascending_is_the_other_way_round(self, database: Database, project: Project) -> None:
        made = add_many(database, project, 4)
        with database.read() as session:
            rows = list_jobs(session, project.id, JobFilter(), after=made[0], limit=2, descending=False)
        assert [row.id for row in rows] == made[1:3]

    @pytest.mark.parametrize("descending", [True, False])
    @pytest.mark.parametrize("states", [(), (JobState.QUEUED,), (JobState.QUEUED, JobState.PAUSED)], ids=len)
    def test_jobs_of_one_moment_are_each_on_one_page(
        self, database: Database, project: Project, states: tuple[JobState, ...], *, descending: bool
    ) -> None:
        """105 jobs with the same time, pages of 10, filtered by state or not."""
        made = add_many(database, project, 100) + add_many(database, project, 5, state="paused")
        wanted = sorted(made if len(states) != 1 else made[:100], reverse=descending)
        walks = []
        for _ in range(2):
            pages: list[list[str]] = []
            after: str | None = None
            with database.read() as session:
                while page := list_jobs(
                    session, project.id, JobFilter(states=states), after=after, limit=10, descending=descending
                ):
                    pages.append([row.id for row in page])
                    after = pages[-1][-1]
            walks.append([job_id for page_of_ids in pages for job_id in page_of_ids])
            assert len(pages) == -(-len(wanted) // 10)
        assert walks == [wanted, wanted], "each once, and the same order twice"

    def test_two_states_are_merged_in_order(self, database: Database, project: Project) -> None:
        queued = add_many(database, project, 2)
        failed = add_many(database, project, 2, state="failed")
        add_many(database, project, 2, state="running")
        queued += add_many(database, project, 1)
        wanted = JobFilter(states=(JobState.QUEUED, JobState.FAILED))
        with database.read() as session:
            rows = list_jobs(session, project.id, wanted, after=None, limit=4)
        assert [row.id for row in rows] == sorted(queued + failed, reverse=True)[:4]


class TestFilters:
    def test_each_narrows(self, database: Database, project: Project) -> None:
        (plain,) = add_many(database, project, 1)
        (named,) = add_many(database, project, 1, name="Penguins_100%", framework="tensorflow")
        (late,) = add_many(database, project, 1, created_at=START + timedelta(days=2))
        with database.write() as session:
            session.add(JobTag(job_id=plain, key="team", value="birds"))

        def found(wanted: JobFilter) -> set[str]:
            with database.read() as session:
                return {row.id for row in list_jobs(session, project.id, wanted, after=None, limit=10)}

        day = START + timedelta(days=1)
        assert found(JobFilter(framework="tensorflow")) == {named}
        assert found(JobFilter(q="penguins")) == {named}
        assert found(JobFilter(q="s_1")) == {named}, "an underscore is no wildcard"
        assert found(JobFilter(q="n%s")) == set(), "a per cent sign is no wildcard"
        assert found(JobFilter(tag=("team", "birds"))) == {plain}
        assert found(JobFilter(q="\x00")) == found(JobFilter(tag=("team", "\x00"))) == set(), "PostgreSQL takes no NUL"
        assert found(JobFilter(created_after=day)) == {late}
        assert found(JobFilter(created_before=day)) == {plain, named}

    def test_another_project_sees_nothing(self, database: Database, project: Project) -> None:
        (job_id,) = add_many(database, project, 1)
        with database.write() as session:
            other = add_project(session, "other").id
        with database.read() as session:
            assert list_jobs(session, other, JobFilter(), after=None, limit=10) == []
            with pytest.raises(NotFound, match="no job"):
                get_job(session, other, job_id)


class TestWireForm:
    def test_a_running_job_with_its_attempt(self, database: Database, clock: FakeClock) -> None:
        scene = make_scene(database, clock)
        scene.run()
        with database.read() as session:
            row = get_job(session, scene.project_id, scene.job_id)
            body = orjson.loads(orjson.dumps(job_json(row, attempts_of(session, scene.job_id))))
        assert body["object"] == "job"
        assert body["state"] == "running"
        assert body["effective_spec"]["framework"] == "torch"
        assert body["started_at"] == "2026-01-31T12:00:00.000000Z"
        (attempt,) = body["attempts"]
        assert attempt["devices"][0]["id"] == "host-a-0"
        assert attempt["devices"][0]["pci_bus_id"] == "0000:00:00.0"
        assert attempt["device_kind"] == "cuda"
        assert attempt["workers"][0]["pid"] == 4242

    def test_of_the_environment_it_shows_what_pins_and_no_path(self, database: Database, clock: FakeClock) -> None:
        scene = make_scene(database, clock)
        scene.run()
        with database.write() as session:
            pinned = {"CUDA_VISIBLE_DEVICES": "GPU-1", "OMP_NUM_THREADS": "1"}
            private = {"PATH": "/opt/bin", "HOME": "/srv/work/job_1", "TRAINSHED_LAUNCH": "f00"}
            session.get_one(Attempt, (scene.job_id, 1)).facts = {"environment": pinned | private}
        with database.read() as session:
            ((attempt, nodes),) = attempts_of(session, scene.job_id)
        assert attempt_json(attempt, nodes)["environment"] == pinned

    def test_an_attempt_that_was_never_claimed(self, database: Database, clock: FakeClock) -> None:
        scene = make_scene(database, clock)
        scene.place()
        with database.read() as session:
            ((attempt, nodes),) = attempts_of(session, scene.job_id)
        body = attempt_json(attempt, nodes)
        assert (body["claimed_at"], body["device_kind"], body["message"]) == (None, None, None)
