"""Tables on a terminal that has little room."""

import io
from typing import Any

import pytest
from rich.console import Console

from app.cli.tables import artifacts_table, attempts_table, checkpoints_table, jobs_table
from tests.cli.fake_server import JOB, job

ARTIFACT: dict[str, Any] = {
    "name": "events.out.tfevents.trainshed",
    "kind": "report",
    "size_bytes": 8192,
    "attempt": 1,
    "digest": "ab",
}
ATTEMPT = {
    "number": 1,
    "devices": [{"id": "cpu-0@3d1219c7"}, {"id": "cpu-1@3d1219c7"}],
    "started_at": "2026-01-31T12:00:09.825308Z",
    "ended_at": None,
}


def printed(table: object, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue()


class TestNarrowTables:
    def test_ids_and_files_stay_whole_to_be_copied(self) -> None:
        assert JOB in printed(jobs_table([job(name="a long name of a job " * 5)]), 80)
        assert ARTIFACT["name"] in printed(artifacts_table([ARTIFACT]), 60)

    def test_an_attempt_fits_a_line(self) -> None:
        (line,) = [line for line in printed(attempts_table([ATTEMPT]), 80).splitlines() if "cpu-0" in line]
        assert line.split() == ["1", "cpu-0,", "cpu-1", "2026-01-31T12:00:09Z", "–", "open"]


class TestCheckpoints:
    @pytest.mark.parametrize(
        ("metrics", "shown"),
        [
            ({"val_loss": 0.25, "loss": 0.5}, "0.25"),
            ({"loss": 0.5, "score": 3}, "0.5"),
            ({"score": -16.0}, "score -16"),
            ({"a\x1b": 1, "b": 2, "c": 3}, "a\ufffd 1  b 2"),
            ({}, "–"),
        ],
    )
    def test_value_is_the_loss_or_what_a_script_reports(self, metrics: dict[str, Any], shown: str) -> None:
        found = {"step": 7, "epoch": 1, "best": True, "metrics": metrics, "size_bytes": 1, "attempt": 1}
        table = printed(checkpoints_table([{**found, "created_at": "2026-01-31T12:00:09Z"}]), 120)
        (line,) = [line for line in table.splitlines() if "best" in line]
        assert f"best    {shown} " in line
