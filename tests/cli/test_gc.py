"""`trainshed gc`: what it says, and that the dry run changes nothing."""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.processes import gc
from app.cli.processes.direct import run_program
from app.ids import new_id
from app.storage import LocalStorage
from app.storage.keys import artifact_key
from tests.fakes import START
from tests.retention.history import History


@pytest.fixture
def history(database_url: str, database: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    monkeypatch.setenv("TRAINSHED_DATABASE_URL", database_url)
    monkeypatch.setenv("TRAINSHED_HOME", str(tmp_path))
    return History(database, LocalStorage(tmp_path / "storage"), tmp_path)  # type: ignore[arg-type]


def before_start(days_ago: float) -> float:
    """So many days ago by the real clock, which the command goes by, told from the tests' own time."""
    return days_ago - (datetime.now(UTC) - START) / timedelta(days=1)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(gc.program, arguments)
    assert result.exit_code == 0, result.output
    return str(result.output)


class TestCollect:
    def test_without_settings_it_keeps_jobs_and_says_what_would_change_that(self, history: History) -> None:
        job = history.job(ended_days_ago=4000)
        said = run().splitlines()
        assert said[0] == "deleted 0 files that nobody names"
        assert "TRAINSHED_KEEP_JOBS_DAYS" in said[1]
        assert history.jobs() == {job}

    def test_the_dry_run_tells_what_the_real_one_does(self, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRAINSHED_KEEP_JOBS_DAYS", "30")
        monkeypatch.setenv("TRAINSHED_KEEP_CHECKPOINTS_DAYS", "7")
        old = history.job(ended_days_ago=before_start(90))
        fresh = history.job(ended_days_ago=before_start(8))
        left = history.put(artifact_key(new_id("job"), 1, "x"))
        told = run("--dry-run")
        assert history.jobs() == {old, fresh}
        assert told == (
            f"would delete 1 jobs that ended more than 30 days ago\n  {old}\n"
            f"would delete 1 checkpoints of jobs that ended more than 7 days ago\n  {fresh} step 10\n"
            f"would delete 1 files that nobody names\n  {left}\n"
        )
        done = json.loads(run("--json"))
        assert (done["jobs"], done["files"], done["dry_run"]) == ([old], [left], False)
        assert done["checkpoints"] == [{"job_id": fresh, "step": 10}]
        assert history.jobs() == {fresh}

    def test_long_lists_are_cut(self, history: History) -> None:
        gone = new_id("job")
        for number in range(25):
            history.put(artifact_key(gone, 1, f"file-{number:02}"))
        said = run("--dry-run").splitlines()
        assert said[0] == "would delete 25 files that nobody names"
        assert said[21] == "  and 5 more"


class TestRefusals:
    def test_an_old_database_is_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TRAINSHED_DATABASE_URL", f"sqlite:///{tmp_path}/new.db")
        monkeypatch.setattr(sys, "argv", ["gc"])
        assert run_program(gc.program, "trainshed gc") == 2
        assert capsys.readouterr().err.startswith("error: The database has not the newest schema;")

    def test_a_database_that_does_not_answer_says_why_as_its_driver_does(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TRAINSHED_DATABASE_URL", f"postgresql+psycopg://u:hidden@/x?host={tmp_path}")
        monkeypatch.setattr(sys, "argv", ["gc"])
        assert run_program(gc.program, "trainshed gc") == 2
        said = capsys.readouterr().err
        assert said.startswith("error: The database does not answer; try again. (connection ")
        assert "hidden" not in said

    def test_a_file_that_is_no_database_is_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "no.db").write_bytes(b"no database" * 1000)
        monkeypatch.setenv("TRAINSHED_DATABASE_URL", f"sqlite:///{tmp_path}/no.db")
        monkeypatch.setattr(sys, "argv", ["gc"])
        assert run_program(gc.program, "trainshed gc") == 2
        said = "error: The database cannot be used; see `trainshed doctor`. (file is not a database)\n"
        assert capsys.readouterr().err == said
