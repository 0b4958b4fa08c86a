"""A packed file read by a child, with limits."""

import json
import resource
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from app.tables import apart, preview, profile
from app.tables.apart import preview_apart, profile_apart
from tests.tables.files import DATA, only_problem


@pytest.fixture
def path(tmp_path: Path) -> Path:
    frame = pl.DataFrame(
        {
            "n": [0.1, None, float("inf"), 0.1],
            "t": ["oak", "pine tree", "oak", "oak"],
            "at": [datetime(2030, 1, 31, 8)] * 4,  # noqa: DTZ001 - a time without a zone is taken as UTC
            "x": pl.Series(np.ones((4, 2)).tolist(), dtype=pl.Array(pl.Float64, 2)),
        }
    )
    frame.write_parquet(tmp_path / "table")
    return tmp_path / "table"


class TestAnswers:
    def test_are_those_of_a_reader_in_this_process(self, path: Path) -> None:
        assert profile_apart(path, "parquet") == profile(path, "parquet")

    def test_the_first_rows_too(self, path: Path) -> None:
        assert preview_apart(path, "parquet", rows=2) == preview(path, None, "parquet", rows=2)

    def test_what_is_wrong_with_a_file_comes_back_whole(self, path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-5])
        assert only_problem(lambda: profile_apart(path, "parquet")) == only_problem(lambda: profile(path, "parquet"))

    def test_an_archive_of_arrays_is_packed_too(self, tmp_path: Path) -> None:
        path = tmp_path / "table"
        with path.open("wb") as file:
            np.savez_compressed(file, x=np.ones((4, 2)), y=np.arange(4))
        assert profile_apart(path, "npz") == profile(path, "npz")
        assert preview_apart(path, "npz", rows=2) == preview(path, None, "npz", rows=2)

    def test_what_a_library_stumbles_over_is_a_damaged_file(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def stumbles(*_: object) -> None:
            raise SystemError("error return without exception set")

        monkeypatch.setattr(apart, "profile", stumbles)
        monkeypatch.setattr(resource, "setrlimit", lambda *_: None)  # this process is to go on
        assert apart.main(["1", "1", "profile", "parquet", str(path)]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["problems"][0]["message"] == "The file cannot be read: it is damaged."

    def test_text_formats_need_no_child(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apart, "sys", None)  # nothing could be started
        assert profile_apart(DATA / "gaps.csv", "csv") == profile(DATA / "gaps.csv")
        assert preview_apart(DATA / "gaps.csv", "csv", rows=1).names == ["f1", "f2", "f3", "label"]


class TestLimits:
    def test_a_file_that_needs_too_much_memory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # A few kilobytes that unpack to 160 MB, in one page.
        count = 20_000_000
        path = tmp_path / "large"
        pl.DataFrame({"a": pl.repeat(0.5, count, eager=True), "b": pl.repeat(1, count, eager=True)}).write_parquet(
            path, row_group_size=count, data_page_size=2**30
        )
        assert path.stat().st_size < 100_000
        monkeypatch.setattr(apart, "MEMORY_BYTES", 800 * 2**20)
        problem = only_problem(lambda: profile_apart(path, "parquet"))
        assert problem.message == "The Parquet file needs more memory or time to be read than is allowed."
        assert "smaller row groups" in str(problem.suggestion)

    def test_one_that_needs_too_much_time(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apart, "TIME_S", 0)
        assert "more time" in only_problem(lambda: profile_apart(path, "parquet")).message
