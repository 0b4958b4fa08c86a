"""The table of the compose test: every step with its outcome, and one that fails does not hide the rest."""

import re
from pathlib import Path

import pytest

from scripts.compose_test import evidence
from scripts.compose_test.commands import Shell
from scripts.compose_test.report import Report
from tests.deploy.programs import Programs


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def report(said: list[str]) -> Report:
    moments = iter(float(second) for second in range(0, 100, 5))
    return Report(said.append, lambda: next(moments))


def fails() -> str:
    raise ValueError("no such thing")


def is_interrupted() -> str:
    raise KeyboardInterrupt


class TestStep:
    def test_that_works_is_told_with_time_and_detail(self, report: Report, said: list[str]) -> None:
        assert report.step("build", lambda: "two images")
        assert said == ["… build", "✓ build (5.0 s) two images"]
        assert report.passed

    def test_that_fails_is_told_and_the_next_goes_on(self, report: Report, said: list[str]) -> None:
        assert not report.step("first", fails)
        assert report.step("second", lambda: "")
        assert said[1] == "✗ first (5.0 s) ValueError: no such thing"
        assert [row.outcome for row in report.rows] == ["FAILED", "ok"]
        assert not report.passed

    def test_interruption_goes_on_upwards(self, report: Report) -> None:
        with pytest.raises(KeyboardInterrupt):
            report.step("long", is_interrupted)

    def test_left_out_has_its_reason_and_is_no_failure(self, report: Report) -> None:
        report.leave_out("edge", "no image")
        assert report.passed
        assert report.rows[0].detail == "no image"


class TestTable:
    def test_is_markdown_with_a_line_a_step(self, report: Report) -> None:
        report.step("one", lambda: "a | b\nc")
        report.step("two", fails)
        assert report.table().splitlines() == [
            "| step | outcome | seconds | detail |",
            "|---|---|---|---|",
            "| one | ok | 5.0 | a / b c |",
            "| two | FAILED | 5.0 | ValueError: no such thing |",
        ]

    def test_cuts_what_is_too_long_for_a_line(self, report: Report) -> None:
        report.step("one", lambda: "x" * 1000)
        (line,) = report.table().splitlines()[2:]
        assert line.endswith("x… |")
        assert len(line) < 450


class TestPage:
    @pytest.fixture
    def programs(self, tmp_path: Path) -> Programs:
        return Programs(tmp_path / "bin")

    def page(self, programs: Programs, report: Report, folder: Path) -> str:
        report.step("one", lambda: "fine")
        return evidence.page(
            report, Shell(programs.environ(), folder / "log", folder), "20.10", "docker-compose 1.29.2"
        )

    def test_tells_commit_machine_and_programs_above_the_table(
        self, programs: Programs, report: Report, tmp_path: Path
    ) -> None:
        programs.add("git", "case $1 in rev-parse) echo abc123;; esac")
        page = self.page(programs, report, tmp_path)
        assert re.search(r"on \d{4}-\d\d-\d\d, at commit\nabc123, on a machine with \d+ cores", page)
        assert "Docker 20.10, docker-compose 1.29.2." in page
        assert page.endswith(f"{report.table()}\n")

    def test_says_when_the_sources_are_not_the_commit_s(
        self, programs: Programs, report: Report, tmp_path: Path
    ) -> None:
        programs.add("git", "case $1 in rev-parse) echo abc123;; status) echo ' M app/db.py';; esac")
        assert "abc123 with changes" in self.page(programs, report, tmp_path)

    def test_outside_of_a_checkout_there_is_no_commit(self, programs: Programs, report: Report, tmp_path: Path) -> None:
        assert "at commit\n?, on" in self.page(programs, report, tmp_path)
