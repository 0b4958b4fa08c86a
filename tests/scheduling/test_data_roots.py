"""A job whose data are read in place goes only where they can be read, and says so while it waits."""

from dataclasses import replace
from datetime import timedelta

from sqlalchemy import update

from app.accounts.models import Project
from app.db import Database
from app.fleet.condition import root_state
from app.fleet.models import Worker
from app.scheduling.explain import explain
from app.scheduling.plan import plan
from app.scheduling.queue import waiting_jobs
from app.scheduling.run import schedule
from tests.fakes import START, FakeClock
from tests.jobs.placing import TIMES, effective_spec, make_scene
from tests.rows import add_dataset, add_job, add_project
from tests.scheduling.fleets import device, host, job

READS = {"roots": {"scans": {"ok": True, "problem": None}}}
CANNOT = {"roots": {"scans": {"ok": False, "problem": "The worker's user 7 cannot read it: Permission denied."}}}
WITHOUT = host("bare", device("d0"))
WITH = host("full", device("e0"), condition=READS)
SHUT = host("shut", device("f0"), condition=CANNOT)
SCANS = job("j", data_root="scans")


class TestPlan:
    def test_it_goes_to_the_host_that_reads_them(self) -> None:
        placements = plan([SCANS], [WITHOUT, SHUT, WITH], START).placements
        assert [(placed.worker_id, placed.device_ids) for placed in placements] == [("wrk_full", ("e0",))]

    def test_without_one_it_waits_and_keeps_nobody_from_other_hosts(self) -> None:
        placements = plan([replace(SCANS, priority=1), job("k")], [WITHOUT, SHUT], START).placements
        assert [placed.job_id for placed in placements] == ["k"]

    def test_data_that_lie_in_none_go_anywhere(self) -> None:
        assert len(plan([job("k"), job("l"), job("m")], [WITHOUT, SHUT, WITH], START).placements) == 3


class TestExplain:
    def test_each_host_says_why_it_cannot(self) -> None:
        waiting = explain(SCANS, [SCANS], [WITHOUT, SHUT], START)
        assert waiting.code == "root_unavailable"
        assert waiting.message == (
            "no worker online can read the data root 'scans' (bare: it does not have it. "
            "shut: the worker's user 7 cannot read it: Permission denied)"
        )

    def test_only_hosts_that_could_run_it_are_named(self) -> None:
        other = replace(WITHOUT, frameworks=frozenset({"tensorflow"}))
        assert explain(SCANS, [SCANS], [other], START).code == "framework_offline"
        assert "bare" not in explain(SCANS, [SCANS], [other, SHUT], START).message

    def test_where_they_can_be_read_the_usual_reasons_follow(self) -> None:
        busy = host("full", device("e0", held_by="job_x"), condition=READS)
        assert explain(SCANS, [SCANS], [WITHOUT, busy], START).code == "waiting_for_devices"
        assert explain(SCANS, [SCANS], [WITHOUT, WITH], START).code == "about_to_start"

    def test_what_a_host_of_another_version_reports_is_read_with_care(self) -> None:
        for stored in (None, {}, {"roots": None}, {"roots": {"scans": "yes"}}, {"roots": ["scans"]}):
            assert not root_state(stored, "scans").ok


class TestQueue:
    def test_a_job_knows_the_root_of_its_data(self, database: Database) -> None:
        with database.write() as session:
            project = add_project(session)
            inside = add_dataset(session, project, storage_key="", uri="root://scans/a/b/c.csv")
            uploaded = add_dataset(session, project)
            jobs = [add_job(session, project, dataset_id=data) for data in (inside.id, uploaded.id, None)]
            found = {waiting.id: waiting.data_root for waiting in waiting_jobs(session, START)}
        assert [found[row.id] for row in jobs] == ["scans", None, None]

    def test_a_long_row_of_jobs_for_one_root_does_not_hide_those_for_another(self, database: Database) -> None:
        with database.write() as session:
            project = add_project(session)
            for number in range(4):
                name = "whales" if number == 3 else "scans"
                data = add_dataset(session, project, storage_key="", uri=f"root://{name}/{number}.csv")
                add_job(session, project, dataset_id=data.id, queued_at=START + timedelta(seconds=number))
            seen = waiting_jobs(session, START + timedelta(minutes=1), depth=2)
        assert sorted(waiting.data_root or "" for waiting in seen) == ["scans", "scans", "whales"]

    def test_a_pass_places_it_as_soon_as_a_host_reports_the_root(self, database: Database, clock: FakeClock) -> None:
        scene = make_scene(database, clock, devices=2)
        with database.write() as session:
            project = session.get_one(Project, scene.project_id)
            data = add_dataset(session, project, storage_key="", uri="root://scans/a.csv")
            made = add_job(session, project, dataset_id=data.id, effective_spec=effective_spec()).id
        scene.place()
        assert schedule(database, TIMES) == []
        with database.write() as session:
            session.execute(update(Worker).values(condition=READS))
        assert [placed.job_id for placed in schedule(database, TIMES)] == [made]
