"""Which checkpoints of a job are kept, which one counts, and what becomes of the files of the others."""

import orjson
import pytest

from app.checkpoints.repository import (
    KEPT_NEWEST,
    Added,
    CheckpointFacts,
    add,
    choose,
    get_checkpoint,
    list_checkpoints,
    marks,
    newest,
    prefixes,
    steps_of,
    unneeded,
)
from app.checkpoints.schemas import checkpoint_json
from app.db import Database
from app.errors import NotFound
from tests.checkpoints.facts import facts
from tests.fakes import START
from tests.rows import add_job, add_project


@pytest.fixture
def job_id(database: Database) -> str:
    with database.write() as session:
        return add_job(session, add_project(session)).id


def store(database: Database, *checkpoints: CheckpointFacts, keep_periodic: bool = False) -> list[str]:
    """Add them one by one; the keys of files that no row names any more."""
    unnamed: list[str] = []
    for checkpoint in checkpoints:
        with database.write() as session:
            added = add(session, checkpoint, START, keep_periodic=keep_periodic)
        unnamed += added.unnamed if added else []
    return unnamed


def kept(database: Database, job_id: str) -> list[int]:
    with database.read() as session:
        return sorted(row.step for row in list_checkpoints(session, job_id))


class TestRetention:
    def test_the_newest_two_stay_and_the_files_of_the_others_are_told(self, database: Database, job_id: str) -> None:
        unnamed = store(database, *(facts(job_id, step) for step in (10, 20, 30, 40)))
        assert kept(database, job_id) == [30, 40]
        assert unnamed == [
            f"checkpoints/{job_id}/1/{step}/{name}"
            for step in (10, 20)
            for name in ("weights.safetensors", "manifest.json")
        ]

    def test_the_best_stays_until_there_is_a_better_one(self, database: Database, job_id: str) -> None:
        store(database, facts(job_id, 10, best=True), *(facts(job_id, step) for step in (20, 30, 40)))
        assert kept(database, job_id) == [10, 30, 40]
        store(database, facts(job_id, 50, best=True), facts(job_id, 60), facts(job_id, 70))
        assert kept(database, job_id) == [50, 60, 70]

    def test_those_that_were_asked_for_all_stay(self, database: Database, job_id: str) -> None:
        store(database, *(facts(job_id, step) for step in (10, 20, 30, 40)), keep_periodic=True)
        assert kept(database, job_id) == [10, 20, 30, 40]
        # One that only a stop or a better epoch made was not asked for.
        store(database, facts(job_id, 45, reason="best"), facts(job_id, 50), facts(job_id, 60), keep_periodic=True)
        assert kept(database, job_id) == [10, 20, 30, 40, 50, 60]

    def test_the_final_one_stays(self) -> None:
        rows = [facts("job_1", step) for step in (40, 30, 20)] + [facts("job_1", 10, reason="final")]
        assert [row.step for row in unneeded(rows, keep_periodic=False)] == [20]

    @pytest.mark.parametrize("count", range(KEPT_NEWEST + 1))
    def test_of_few_all_stay(self, count: int) -> None:
        assert unneeded([facts("job_1", step) for step in range(count)], keep_periodic=False) == []


class TestSameStep:
    def test_a_later_attempt_replaces_it_and_its_files(self, database: Database, job_id: str) -> None:
        unnamed = store(database, facts(job_id, 10), facts(job_id, 10, attempt=2))
        assert {key.rpartition("/")[0] for key in unnamed} == {f"checkpoints/{job_id}/1/10"}
        with database.read() as session:
            assert get_checkpoint(session, job_id, 10).attempt == 2
            assert prefixes(session, job_id) == {f"checkpoints/{job_id}/2/10"}

    def test_so_does_a_second_one_of_the_same_attempt(self, database: Database, job_id: str) -> None:
        unnamed = store(database, facts(job_id, 10), facts(job_id, 10, again=1, reason="final"))
        assert unnamed[0] == f"checkpoints/{job_id}/1/10/weights.safetensors"
        with database.read() as session:
            assert get_checkpoint(session, job_id, 10).storage_prefix == f"checkpoints/{job_id}/1/10.1"

    def test_a_repeat_after_a_lost_answer_is_known(self, database: Database, job_id: str) -> None:
        store(database, facts(job_id, 10))
        with database.write() as session:
            assert add(session, facts(job_id, 10), START, keep_periodic=False) is None
        with database.write() as session:
            assert add(session, facts(job_id, 20), START, keep_periodic=False) == Added([])


class TestNewest:
    def test_it_is_the_highest_step_of_the_latest_attempt(self, database: Database, job_id: str) -> None:
        # The second attempt went on from 10, because 20 could not be read: it is of another run now.
        store(database, facts(job_id, 10), facts(job_id, 20), facts(job_id, 15, attempt=2), keep_periodic=True)
        with database.read() as session:
            assert [row.step for row in newest(session, job_id)] == [15, 20, 10]
            assert [row.step for row in newest(session, job_id, up_to=15)] == [15, 10]
            last = choose(session, job_id, "last")
        assert last == facts(job_id, 15, attempt=2)

    def test_there_is_an_end_to_falling_back(self, database: Database, job_id: str) -> None:
        store(database, *(facts(job_id, step) for step in range(9)), keep_periodic=True)
        with database.read() as session:
            assert [row.step for row in newest(session, job_id, limit=3)] == [8, 7, 6]
            assert steps_of(session, job_id, limit=2) == [8, 7]

    def test_a_choice_that_is_not_there_is_none(self, database: Database, job_id: str) -> None:
        store(database, facts(job_id, 10))
        with database.read() as session:
            assert choose(session, job_id, "best") is None
            assert choose(session, job_id, 11) is None
            assert choose(session, job_id, 2**80) is None, "no database holds that number"
            assert choose(session, "job_other", "last") is None
            with pytest.raises(NotFound, match="no checkpoint of step '11'"):
                get_checkpoint(session, job_id, 11)


class TestPages:
    @pytest.mark.parametrize("descending", [True, False])
    def test_they_hold_every_step_once(self, database: Database, job_id: str, *, descending: bool) -> None:
        store(database, *(facts(job_id, step) for step in range(7)), keep_periodic=True)
        walked: list[int] = []
        with database.read() as session:
            while rows := list_checkpoints(
                session, job_id, after=walked[-1] if walked else None, limit=3, descending=descending
            ):
                walked += [row.step for row in rows]
        assert walked == sorted(range(7), reverse=descending)


class TestWireForm:
    def test_only_the_newest_best_is_called_best(self, database: Database, job_id: str) -> None:
        best = [facts(job_id, step, best=True, reason="best") for step in (10, 20)]
        store(database, *best, facts(job_id, 30, reason="final"))
        with database.read() as session:
            known = marks(session, job_id)
            rows = [checkpoint_json(row, known) for row in list_checkpoints(session, job_id)]
        shown = {row["step"]: (row["best"], row["last"], row["final"]) for row in rows}
        assert shown == {20: (True, False, False), 30: (False, True, True)}
        assert (rows[0]["size_bytes"], rows[0]["metrics"]) == (110, {"loss": 1 / 31})
        assert "storage_prefix" not in rows[0]
        assert orjson.loads(orjson.dumps(rows[0])) == rows[0]
