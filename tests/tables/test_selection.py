"""From a table and a spec to typed columns and labels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.spec import EffectiveSpec, InvalidSpec, parse_job, resolve
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
    return resolve(parse_job(raw), table.schema, "cpu")


def select(path: Path, *, task: str = "auto", **data: Any) -> Columns:
    table = read_table(path, None)
    return features_and_target(table, spec_for(table, task=task, **data))


def listed(found: Columns) -> dict[str, list[Any]]:
    return {name: values.tolist() for name, values in found.features.items()}


class TestFeatures:
    def test_they_come_in_the_order_of_the_spec(self, write: Write) -> None:
        path = write("a,b,c,y\n1,10,100,0\n2,20,200,1\n")
        found = select(path, target="y", features=["c", "a"])
        assert list(listed(found).items()) == [("c", [100, 200]), ("a", [1, 2])]
        assert found.others == ("b", "y")

    def test_all_features_come_in_the_order_of_the_table(self, write: Write) -> None:
        found = select(write("y,b,a\n0,1,2\n1,3,4\n"), target="y")
        assert list(listed(found).items()) == [("b", [1, 3]), ("a", [2, 4])]

    def test_each_keeps_its_type_and_says_how_it_enters_the_model(self, write: Write) -> None:
        found = select(write("flag,name,size,y\ntrue,oak,1.5,0\nFALSE,elm,2.5,1\n"), target="y")
        assert listed(found) == {"flag": [True, False], "name": ["oak", "elm"], "size": [1.5, 2.5]}
        assert [(column.name, column.encoding, column.width) for column in found.inputs] == [
            ("flag", "boolean", 1),
            ("name", "one_hot", 2),
            ("size", "number", 1),
        ]
        assert found.inputs[1].categories == ("elm", "oak")

    def test_arrays_keep_their_shape(self, tmp_path: Path) -> None:
        path = tmp_path / "a.npz"
        x = np.arange(24.0).reshape(4, 3, 2)
        np.savez(path, x=x, y=np.array([0, 1, 0, 1]))
        found = select(path, target="y")
        np.testing.assert_array_equal(found.features["x"], x)
        assert (found.inputs[0].encoding, found.inputs[0].shape) == ("tensor", (3, 2))

    def test_a_regression_target_is_numbers(self, write: Write) -> None:
        found = select(write("x,y\n1,0.5\n2,1.5\n"), target="y")
        assert found.y.dtype == np.float64
        assert found.y.tolist() == [0.5, 1.5]

    def test_digits_are_scikit_learns(self) -> None:
        table = read_table(None, "digits")
        spec = resolve(
            parse_job({"framework": "torch", "model": "mlp", "data": "digits"}), builtin_schema("digits"), "cpu"
        )
        found = features_and_target(table, spec)
        assert (len(found.features), found.y.shape, found.dropped) == (64, (1797,), 0)
        assert found.split is None


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
        assert listed(found) == {"a": [1, 5], "b": [1, 1]}
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
        assert all(np.isfinite(values).all() for values in found.features.values())
        assert found.dropped == 80 - len(complete)

    def test_error_names_columns_counts_and_rows(self, write: Write) -> None:
        # Validation refuses such a job; a trainer that gets one all the same must say the same.
        good = read_table(write("a,b,y\n1,1,0\n2,2,1\n"), None)
        spec = spec_for(good, target="y")
        bad = read_table(write("a,b,y\n1,1,0\n,inf,1\n,,\n3,3,1\n"), None)
        problems = problems_of(lambda: features_and_target(bad, spec))
        assert [(problem.column, problem.row) for problem in problems] == [("a", 3), ("b", 3), ("y", 4)]
        assert [problem.message for problem in problems] == [
            "Column 'a' has 2 missing cells, in rows 3, 4.",
            "Column 'b' has 1 missing and 1 infinite cells, in rows 3, 4.",
            "Column 'y' has 1 missing cell, in row 4.",
        ]
        assert problems[0].suggestion == 'Fill them in, or set data.missing to "drop" or "impute".'

    def test_many_rows_with_gaps_are_counted(self, write: Write) -> None:
        spec = spec_for(read_table(write("a,y\n1,0\n2,1\n"), None), target="y")
        bad = read_table(write("a,y\n" + "NA,0\n" * 8 + "1,1\n"), None)
        problem = only_problem(lambda: features_and_target(bad, spec))
        assert problem.message == "Column 'a' has 8 missing cells, in rows 2, 3, 4, 5, 6 and 3 more."

    def test_validation_names_the_same_columns(self) -> None:
        table = read_table(DATA / "gaps.csv", None)
        with pytest.raises(InvalidSpec) as caught:
            spec_for(table, target="label")
        assert [problem.message.split("'")[1] for problem in caught.value.problems] == ["f1", "f2", "f3", "label"]

    def test_impute_keeps_the_gaps_of_features_and_leaves_out_rows_without_a_target(self, write: Write) -> None:
        path = write("a,b,t,y\n1,1,oak,0\n,inf,,1\n3,1,elm,\n5,1,elm,1\n")
        found = select(path, target="y", missing="impute")
        np.testing.assert_array_equal(found.features["a"], [1, np.nan, 5])
        np.testing.assert_array_equal(found.features["b"], [1, np.inf, 1])
        assert found.features["t"].tolist() == ["oak", None, "elm"]
        assert (found.y.tolist(), found.row_numbers.tolist(), found.dropped) == ([0, 1, 1], [2, 3, 5], 0)
        assert [code for code, _ in found.notices] == ["rows_without_target", "values_imputed"]
        without, filled = (sentence for _, sentence in found.notices)
        assert without == "1 row has no value in column 'y' and is not used: a target is never made up."
        assert filled.startswith("Gaps are filled with the mean or the most frequent value of the training part")
        assert filled.endswith("in columns 'a' (1), 'b' (1), 't' (1).")

    def test_impute_without_a_gap_says_nothing(self, write: Write) -> None:
        assert select(write("a,y\n1,0\n2,1\n"), target="y", missing="impute").notices == ()

    def test_a_gap_inside_an_array_is_a_gap_of_its_row(self, tmp_path: Path) -> None:
        path = tmp_path / "a.npz"
        x = np.ones((4, 2))
        x[1, 1] = np.nan
        np.savez(path, x=x, y=np.array([0, 1, 0, 1]))
        assert select(path, target="y", missing="drop").row_numbers.tolist() == [1, 3, 4]

    def test_no_row_left_is_refused(self, write: Write) -> None:
        # Each column has a value, so the schema cannot tell; only the rows together show it.
        path = write("a,b,y\n1,,0\n,1,1\n2,,0\n,2,1\n")
        assert only_problem(lambda: select(path, target="y", missing="drop")).message.startswith("No row is left")


class TestColumns:
    def test_a_table_without_the_specs_columns_is_refused(self, write: Write) -> None:
        spec = spec_for(read_table(write("a,b,y\n1,1,0\n2,2,1\n"), None), target="y")
        other = read_table(write("a,z\n1,0\n2,1\n"), None)
        assert [problem.column for problem in problems_of(lambda: features_and_target(other, spec))] == ["b", "y"]

    @pytest.mark.parametrize(
        ("cells", "words"),
        [
            (["2030-01-31", "2030-02-01"], "is a date or a time, which cannot be a feature"),
            ([f"name {index}" for index in range(1001)], "is text with more than 1000 different values"),
        ],
    )
    def test_a_column_that_can_be_no_feature_is_refused(self, write: Write, cells: list[str], words: str) -> None:
        spec = spec_for(read_table(write("a,y\n1,0\n2,1\n"), None), target="y")
        other = read_table(write("a,y\n" + "".join(f"{cell},{row % 2}\n" for row, cell in enumerate(cells))), None)
        problem = only_problem(lambda: features_and_target(other, spec))
        assert problem.column == "a"
        assert words in problem.message

    @pytest.mark.parametrize("task", ["classification", "regression"])
    def test_a_date_is_no_target(self, write: Write, task: str) -> None:
        spec = spec_for(read_table(write("a,y\n1,0\n2,1\n"), None), target="y", task=task)
        other = read_table(write("a,y\n1,2030-01-31\n2,2030-02-01\n"), None)
        assert only_problem(lambda: features_and_target(other, spec)).column == "y"

    def test_an_array_is_no_target(self, write: Write, tmp_path: Path) -> None:
        spec = spec_for(read_table(write("a,y\n1,0\n2,1\n"), None), target="y")
        np.savez(tmp_path / "a.npz", a=np.ones(3), y=np.ones((3, 2)))
        other = read_table(tmp_path / "a.npz", None)
        assert "holds arrays" in only_problem(lambda: features_and_target(other, spec)).message

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

    def test_as_features_they_become_floats(self, write: Write) -> None:
        path = write("a,y\n9007199254740993,0\n,1\n9007199254740992,1\n")
        found = select(path, target="y", missing="drop")
        assert found.features["a"].astype(np.float64).tolist() == [2.0**53, 2.0**53]


class TestGivenSplit:
    def test_the_column_names_each_rows_part_in_any_case(self, write: Write) -> None:
        path = write("a,part,y\n1,train,0\n2, TEST ,1\n3,Validation,0\n4,Train,1\n")
        found = select(path, target="y", split={"method": "given", "column": "part"})
        assert found.split is not None
        assert found.split.tolist() == ["train", "test", "validation", "train"]
        assert list(found.features) == ["a"]
        assert found.others == ("part", "y")

    def test_another_word_is_refused_with_its_row(self, write: Write) -> None:
        good = read_table(write("a,part,y\n1,train,0\n2,test,1\n3,train,1\n"), None)
        spec = spec_for(good, target="y", split={"method": "given", "column": "part"})
        bad = read_table(write("a,part,y\n1,train,0\n2,dev,1\n3,val,1\n"), None)
        problem = only_problem(lambda: features_and_target(bad, spec))
        assert problem.message == "Row 3, column 'part': 'dev' is no part of a split (2 rows have other words)."
        assert (problem.row, problem.column) == (3, "part")
        assert problem.suggestion == "Write train, validation or test."

    @pytest.mark.parametrize("missing", ["error", "drop", "impute"])
    def test_a_row_without_a_part_is_refused_whatever_is_done_with_gaps(self, write: Write, missing: str) -> None:
        table = read_table(write("a,part,y\n1,train,0\n2,,1\n3,train,1\n"), None)
        good = read_table(write("a,part,y\n1,train,0\n2,train,1\n"), None)
        spec = spec_for(good, target="y", split={"method": "given", "column": "part"}, missing=missing)
        problem = only_problem(lambda: features_and_target(table, spec))
        assert (problem.row, problem.column) == (3, "part")
        assert problem.suggestion == "Fill them in: the split needs a value in every row."


class TestSplitByTime:
    @pytest.mark.parametrize(
        ("cells", "order"),
        [
            (["2030-01-31", "2029-01-31T23:59:59Z", "2030-01-31T00:00:01"], [1, 0, 2]),
            (["2030-01-31T01:00+02:00", "2030-01-31T00:00Z", "2030-01-30T22:59:59Z"], [2, 0, 1]),
            (["3", "1", "2"], [1, 2, 0]),
            (["0.3", "0.1", "0.2"], [1, 2, 0]),
        ],
    )
    def test_rows_are_ordered_by_dates_times_or_numbers(self, write: Write, cells: list[str], order: list[int]) -> None:
        path = write("a,at,y\n" + "".join(f"{row},{cell},{row % 2}\n" for row, cell in enumerate(cells)))
        found = select(path, target="y", split={"method": "time", "column": "at", "validation": 0.34})
        assert found.split is not None
        assert np.argsort(found.split).tolist() == order

    def test_a_column_of_text_has_no_order(self, write: Write) -> None:
        good = read_table(write("a,at,y\n1,1,0\n2,2,1\n3,3,1\n"), None)
        spec = spec_for(good, target="y", split={"method": "time", "column": "at"})
        bad = read_table(write("a,at,y\n1,monday,0\n2,tuesday,1\n3,friday,1\n"), None)
        problem = only_problem(lambda: features_and_target(bad, spec))
        assert problem.column == "at"
        assert "2030-01-31" in str(problem.suggestion)
