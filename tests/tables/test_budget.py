"""A description of a table repeats only so much of it."""

from pathlib import Path

import polars as pl
import pytest

from app.spec.table import Column
from app.tables import budget, profile
from app.tables.budget import within_budget
from tests.tables.files import only_problem


def column(name: str, kind: str, labels: list[str]) -> Column:
    return Column.model_validate(
        {
            "name": name,
            "kind": kind,
            "missing": 0,
            "distinct": len(labels),
            "labels": labels,
            "counts": [1] * len(labels),
        }
    )


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MOST_CHARACTERS", 100)  # each label counts 8 besides its characters


class TestBudget:
    def test_a_small_table_keeps_all(self) -> None:
        columns = [column("a", "integer", ["1", "2"]), column("b", "text", ["oak", "fir"])]
        assert within_budget(columns) == columns

    def test_whole_numbers_give_up_theirs_first_the_most_of_them_first(self) -> None:
        few, many = column("y", "integer", ["1", "2"]), column("id", "integer", [str(n) for n in range(10)])
        text = column("b", "text", ["oak", "fir"])
        kept = within_budget([few, many, text])
        assert [each.labels for each in kept] == [["1", "2"], None, ["oak", "fir"]]
        assert (kept[1].counts, kept[1].distinct) == (None, 10)

    def test_text_alone_over_it_is_refused_with_the_largest_column(self) -> None:
        columns = [column("b", "text", ["oak"]), column("note", "text", ["x" * 50, "y" * 50])]
        problem = only_problem(lambda: within_budget(columns))
        assert problem.message == "The different values of the text columns have more than 100 characters together."
        assert "'note'" in str(problem.suggestion)

    def test_holds_for_a_packed_file(self, tmp_path: Path) -> None:
        # 3.5 MB of Parquet made a description of 370 MB.
        frame = pl.DataFrame({f"c{column}": [f"{row}" + "x" * 240 for row in range(20)] for column in range(5)})
        frame.write_parquet(tmp_path / "table")
        assert "text columns" in only_problem(lambda: profile(tmp_path / "table")).message
