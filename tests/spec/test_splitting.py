"""Splits that look at a column: by the parts written there, or by time."""

from typing import Any

import pytest

from app.spec import (
    CellAt,
    Column,
    EffectiveSpec,
    InvalidSpec,
    SpecProblem,
    TableSchema,
    parse_job,
    resolve,
    summarise,
)
from tests.spec.bodies import UPLOADED, body, integer, number, problem_at, table, text

WHEN = Column(name="when", kind="time", missing=0, distinct=100)


def part(labels: list[str] | None = None, **more: Any) -> Column:
    labels = ["test", "train", "validation"] if labels is None else labels
    return text("part", labels=labels, distinct=len(labels), **more)


def schema_with(column: Column) -> TableSchema:
    return table(number("x"), column, integer("y", 2))


def resolved(column: Column, method: str = "given", **data: Any) -> EffectiveSpec:
    split = {"method": method, "column": column.name}
    raw = {"framework": "torch", "model": "linear", "data": {"source": UPLOADED, "target": "y", "split": split, **data}}
    return resolve(parse_job(raw), schema_with(column), "cpu")


def refused(column: Column, method: str = "given", **data: Any) -> SpecProblem:
    with pytest.raises(InvalidSpec) as caught:
        resolved(column, method, **data)
    (problem,) = caught.value.problems
    return problem


class TestWritten:
    @pytest.mark.parametrize(
        "split", [{"method": "given"}, {"method": "time"}, {"column": "when"}, {"method": "random", "column": "when"}]
    )
    def test_a_column_goes_with_given_and_time_alone(self, split: dict[str, Any]) -> None:
        problem = problem_at(body(data={"source": "digits", "split": split}), "/data/split")
        assert problem.message == (
            "data.split must name a column for the methods given and time, and for these alone, for example "
            '{"method": "time", "column": "date"}.'
        )


class TestGiven:
    @pytest.mark.parametrize("labels", [["train"], ["TRAIN", "Test", " validation"], ["test", "train"]])
    def test_the_column_is_kept_and_is_no_feature(self, labels: list[str]) -> None:
        found = resolved(part(labels)).data
        assert (found.split.method, found.split.column) == ("given", "part")
        assert found.features == ["x"]

    @pytest.mark.parametrize(
        ("labels", "said"),
        [
            (["train", "te\u017ft"], "holds 'te\u017ft', which is no part of a split; write test instead."),
            (["train", "val"], "holds 'val', which is no part of a split; write validation instead."),
            (["test", "training"], "holds 'training', which is no part of a split; write train instead."),
            (["train", "zzz"], "holds 'zzz', which is no part of a split; only train, validation and test are known."),
            (["test", "validation"], "has no row with train; nothing is left to train on."),
        ],
    )
    def test_a_label_that_is_no_part_is_named(self, labels: list[str], said: str) -> None:
        problem = refused(part(labels))
        assert (problem.pointer, problem.message) == ("/data/split/column", f"Column 'part' {said}")

    def test_numbers_are_no_parts(self) -> None:
        assert refused(integer("part", 3)).message == (
            "Column 'part' must hold train, validation or test in every row."
        )

    @pytest.mark.parametrize("missing", ["error", "drop", "impute"])
    def test_a_row_without_a_part_is_refused_whatever_is_done_about_gaps(self, missing: str) -> None:
        problem = refused(part(missing=3), missing=missing)
        assert problem.message == "Column 'part' has 3 missing values; the split needs a value in every row."

    def test_rows_of_each_part_are_exact_when_the_table_counts_labels(self) -> None:
        column = part(["Test", "test", "train", "validation"], counts=[5, 7, 70, 18])
        found = summarise(resolved(column), schema_with(column))
        assert (found.train_rows, found.validation_rows, found.test_rows) == (70, 18, 12)

    def test_without_counts_every_row_might_train(self) -> None:
        found = summarise(resolved(part()), schema_with(part()))
        assert (found.train_rows, found.validation_rows, found.test_rows) == (100, 0, 0)


class TestTime:
    @pytest.mark.parametrize("column", [WHEN, number("when"), integer("when", 50)])
    def test_times_and_numbers_order_rows(self, column: Column) -> None:
        found = resolved(column, "time").data
        assert (found.split.method, found.split.column, found.features) == ("time", "when", ["x"])

    def test_shares_say_how_many_rows_each_part_gets(self) -> None:
        found = summarise(resolved(WHEN, "time"), schema_with(WHEN))
        assert (found.train_rows, found.validation_rows, found.test_rows) == (80, 20, 0)

    def test_text_orders_nothing_and_its_first_cell_is_shown(self) -> None:
        column = text("when", first_text=CellAt(row=7, value="last week"))
        assert refused(column, "time").message == (
            "Column 'when' cannot order the rows in time: it must hold numbers, dates or ISO times, and holds other "
            "values, for example 'last week' in row 7."
        )

    def test_true_and_false_order_nothing(self) -> None:
        column = Column(name="when", kind="boolean", missing=0, distinct=2, labels=["false", "true"])
        assert "and holds true and false." in refused(column, "time").message

    def test_one_gap_is_one_too_many(self) -> None:
        column = WHEN.model_copy(update={"missing": 1})
        assert "has 1 missing value;" in refused(column, "time").message


class TestColumn:
    def test_the_target_cannot_divide_the_rows(self) -> None:
        raw = {"source": UPLOADED, "target": "y", "split": {"method": "time", "column": "y"}}
        with pytest.raises(InvalidSpec) as caught:
            resolve(parse_job(body(data=raw)), schema_with(WHEN), "cpu")
        assert "'y' is the target; it cannot divide the rows too" in str(caught.value)

    def test_a_misspelt_column_is_recognised(self) -> None:
        raw = {"source": UPLOADED, "target": "y", "split": {"method": "time", "column": "whn"}, "features": ["x"]}
        with pytest.raises(InvalidSpec) as caught:
            resolve(parse_job(body(data=raw)), schema_with(WHEN), "cpu")
        assert caught.value.problems == [
            SpecProblem("/data/split/column", "There is no column 'whn'; did you mean 'when'?", "when")
        ]

    def test_it_cannot_be_a_feature_too(self) -> None:
        problem = refused(WHEN, "time", features=["x", "when"])
        assert problem == SpecProblem("/data/features/1", "Column 'when' divides the rows; it cannot be a feature too.")
