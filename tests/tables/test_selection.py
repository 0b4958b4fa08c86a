"""From a table and a spec to numbers and labels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.spec import EffectiveSpec, InvalidSpec, parse_spec, resolve
from app.tables import Columns, Table, builtin_schema, features_and_target, read_table
from tests.tables.files import DATA, only_problem, problems_of

Write = Callable[[bytes | str], Path]


def spec_for(table: Table, *, task: str = "auto", **data: Any) -> EffectiveSpec:
    raw = {
        "framework": "torch",
        "model": "linear",
        "data": {"source": "ds_x", **data},
        "task": task,
    }
    return resolve(parse_spec(raw), table.schema, "cpu")


def select(path: Path, *, task: str = "auto", **data: Any) -> Columns:
    table = read_table(path, None)
    return features_and_target(table, spec_for(table, task=task, **data))


class TestNumbers:
    def test_features_come_in_the_order_of_the_spec(self, write: Write) -> None:
        path = write("a,b,c,y\n1,10,100,0\n2,20,200,1\n")
        found = select(path, target="y", features=["c", "a"])
        assert found.x.dtype == np.float64
        assert found.x.tolist() == [[100, 1], [200, 2]]

    def test_all_features_come_in_the_order_of_the_table(self, write: Write) -> None:
        found = select(write("y,b,a\n0,1,2\n1,3,4\n"), target="y")
        assert found.x.tolist() == [[1, 2], [3, 4]]

    def test_true_is_one_and_false_is_zero(self, write: Write) -> None:
        assert select(write("flag,y\ntrue,0\nFALSE,1\n"), target="y").x.tolist() == [[1], [0]]

    def test_a_regression_target_is_numbers(self, write: Write) -> None:
        found = select(write("x,y\n1,0.5\n2,1.5\n"), target="y")
        assert found.y.dtype == np.float64
        assert found.y.tolist() == [0.5, 1.5]

    def test_digits_are_scikit_learns(self) -> None:
        table = read_table(None, "digits")
        spec = resolve(
            parse_spec({"framework": "torch", "model": "mlp", "data": "digits"}), builtin_schema("digits"), "cpu"
        )
        found = features_and_target(table, spec)
        assert (found.x.shape, found.y.shape, found.dropped) == ((1797, 64), (1797,), 0)


class TestLabels:
    @pytest.mark.parametrize(
        ("name", "labels"),
        [
            ("labels_from_one.csv", {1, 2, 3}),
            ("labels_sparse_negative.csv", {-1, 2, 4}),
            ("mixed_types.csv", {0, 1}),
        ],
    )
    def test_whole_numbers_stay_as_they_are_in_the_file(self, name: str, labels: set[int]) -> None:
        found = select(DATA / name, target="label", features=["f1"])
        assert set(found.y.tolist()) == labels
        assert {type(label) for label in found.y.tolist()} == {int}

    def test_text_keeps_its_blanks_inside(self) -> None:
        assert set(select(DATA / "text_labels.csv", target="species").y.tolist()) == {"birch", "oak", "pine tree"}

    def test_true_and_false_are_python_values(self, write: Write) -> None:
        assert select(write("x,y\n1,True\n2,false\n"), target="y").y.tolist() == [True, False]

    def test_whole_numbers_stay_whole_when_rows_with_gaps_are_dropped(self, write: Write) -> None:
        found = select(write("x,y\n1,0\n2,\n3,1\n"), target="y", missing="drop")
        assert found.y.tolist() == [0, 1]
        assert {type(label) for label in found.y.tolist()} == {int}


class TestGaps:
    def test_drop_leaves_out_every_row_with_a_gap_or_an_infinity(self, write: Write) -> None:
        path = write("a,b,y\n1,1,0\n,1,1\n3,inf,0\n4,1,\n5,1,1\n")
        found = select(path, target="y", missing="drop")
        assert found.x.tolist() == [[1, 1], [5, 1]]
        assert found.y.tolist() == [0, 1]
        assert (found.row_numbers.tolist(), found.dropped) == ([2, 6], 3)

    def test_drop_looks_only_at_the_columns_that_are_used(self, write: Write) -> None:
        path = write("a,b,y\n1,,0\n2,,1\n")
        assert select(path, target="y", features=["a"]).dropped == 0

    def test_the_reported_file_keeps_rows_that_are_complete(self) -> None:
        # 9 + 7 + 1 + 2 gaps in 80 rows; the rows left are those that Python's csv finds complete.
        lines = (DATA / "gaps.csv").read_text(encoding="utf-8").splitlines()[1:]
        complete = [
            number for number, line in enumerate(lines, start=2) if not {"", "NaN", "inf"} & set(line.split(","))
        ]
        found = select(DATA / "gaps.csv", target="label", missing="drop")
        assert found.row_numbers.tolist() == complete
        assert np.isfinite(found.x).all()
        assert found.dropped == 80 - len(complete)

    def test_error_names_columns_counts_and_rows(self, write: Write) -> None:
        # Validation refuses such a job; a trainer that gets one all the same must say the same.
        good = read_table(write("a,b,y\n1,1,0\n2,2,1\n"), None)
        spec = spec_for(good, target="y")
        bad = read_table(write("a,b,y\n1,1,0\n,inf,1\n,2,\n3,3,1\n"), None)
        problems = problems_of(lambda: features_and_target(bad, spec))
        assert [(problem.column, problem.row) for problem in problems] == [("a", 3), ("b", 3), ("y", 4)]
        assert problems[0].message == "Column 'a' has 2 missing or infinite cells, the first in row 3."

    def test_validation_names_the_same_columns(self) -> None:
        table = read_table(DATA / "gaps.csv", None)
        with pytest.raises(InvalidSpec) as caught:
            spec_for(table, target="label")
        assert [problem.message.split("'")[1] for problem in caught.value.problems] == ["f1", "f2", "f3", "label"]

    def test_no_row_left_is_refused(self, write: Write) -> None:
        # Each column has a value, so the schema cannot tell; only the rows together show it.
        path = write("a,b,y\n1,,0\n,1,1\n2,,0\n,2,1\n")
        assert only_problem(lambda: select(path, target="y", missing="drop")).message.startswith("No row is left")


class TestColumns:
    def test_a_table_without_the_specs_columns_is_refused(self, write: Write) -> None:
        spec = spec_for(read_table(write("a,b,y\n1,1,0\n2,2,1\n"), None), target="y")
        other = read_table(write("a,z\n1,0\n2,1\n"), None)
        assert [problem.column for problem in problems_of(lambda: features_and_target(other, spec))] == ["b", "y"]

    def test_text_where_numbers_are_needed_is_refused_with_its_row(self, write: Write) -> None:
        spec = spec_for(read_table(write("a,y\n1,0\n2,1\n"), None), target="y")
        other = read_table(write("a,y\n1,0\nx,1\n"), None)
        problem = only_problem(lambda: features_and_target(other, spec))
        assert (problem.column, problem.row) == ("a", 3)

    def test_a_text_target_is_refused_for_regression(self, write: Write) -> None:
        spec = spec_for(read_table(write("a,y\n1,0.5\n2,1.5\n"), None), target="y")
        other = read_table(write("a,y\n1,0.5\n2,x\n"), None)
        assert only_problem(lambda: features_and_target(other, spec)).column == "y"


class TestClassesThatRemain:
    def test_one_class_that_gaps_leave_over_is_refused(self, write: Write) -> None:
        # The schema knows of two classes; every row of one of them has a gap. Accuracy would be 1, and mean nothing.
        path = write("a,y\n1,cat\n2,cat\n,dog\n,dog\n")
        problem = only_problem(lambda: select(path, target="y", missing="drop"))
        assert problem.message == (
            "Column 'y' has one class only ('cat') once the 2 rows with gaps are left out; "
            "classification needs at least two."
        )
        assert problem.column == "y"

    def test_two_that_remain_are_fine(self, write: Write) -> None:
        found = select(write("a,y\n1,cat\n2,dog\n,dog\n"), target="y", missing="drop")
        assert found.y.tolist() == ["cat", "dog"]


class TestLongNumbers:
    """Ids above 2**53: as floats, 9007199254740993 and 9007199254740992 would be one class."""

    def test_classes_stay_apart_when_the_column_has_gaps(self, write: Write) -> None:
        path = write("a,y\n1,9007199254740993\n2,9007199254740992\n3,\n")
        found = select(path, target="y", task="classification", missing="drop")
        assert found.y.tolist() == [9007199254740993, 9007199254740992]
        assert found.dropped == 1

    def test_infinity_among_them_is_a_gap(self, write: Write) -> None:
        path = write("a,y\n1,9007199254740993\n2,9007199254740992\n3,inf\n")
        found = select(path, target="y", task="classification", missing="drop")
        assert found.row_numbers.tolist() == [2, 3]

    def test_as_features_they_are_floats(self, write: Write) -> None:
        path = write("a,y\n9007199254740993,0\n,1\n9007199254740992,1\n")
        found = select(path, target="y", missing="drop")
        assert found.x.dtype == np.float64
        assert found.x.tolist() == [[2.0**53], [2.0**53]]
