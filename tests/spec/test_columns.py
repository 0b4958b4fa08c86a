"""Target, features and gaps: which columns a job can use, and what is said about the others."""

import json

import pytest

from app.spec import CellAt, Column, SpecProblem
from tests.spec.bodies import integer, number, only, refused, resolved, spec_of, table, text


class TestTarget:
    def test_a_missing_target_lists_the_columns(self) -> None:
        problem = only(spec_of({"target": None}))
        assert problem.pointer == "/data/target"
        assert "'bill', 'wing', 'year', 'species'" in problem.message
        assert problem.suggestion == "species"

    @pytest.mark.parametrize("wrong", ["Species", "speces", " species", "SPECIES"])
    def test_an_unknown_target_names_the_nearest_column(self, wrong: str) -> None:
        problem = only(spec_of({"target": wrong}))
        assert problem == SpecProblem(
            "/data/target", f"There is no column '{wrong}'; did you mean 'species'?", "species"
        )

    def test_a_target_like_no_column_lists_some(self) -> None:
        problem = only(spec_of({"target": "zzzz"}), table(*(number(f"f{i}") for i in range(20))))
        assert "the columns are 'f0'" in problem.message
        assert "and 12 more" in problem.message
        assert problem.suggestion is None

    def test_wrong_features_are_told_beside_a_wrong_target(self) -> None:
        problems = refused(spec_of({"target": "speces", "features": ["bil", "wing", "speces"]}))
        assert [problem.pointer for problem in problems] == [
            "/data/target",
            "/data/features/0",
            "/data/features/2",
        ]


class TestFeatures:
    def test_the_target_cannot_be_a_feature(self) -> None:
        problem = only(spec_of({"features": ["bill", "species"]}))
        assert problem == SpecProblem("/data/features/1", "Column 'species' is the target; it cannot be a feature too.")

    def test_an_unknown_feature_names_the_nearest_column(self) -> None:
        problem = only(spec_of({"features": ["bill", "wings"]}))
        assert (problem.pointer, problem.suggestion) == ("/data/features/1", "wing")

    def test_text_is_a_feature(self) -> None:
        schema = table(number("bill"), text("island"), text("species"))
        assert resolved(spec_of(), schema).data.features == ["bill", "island"]

    def test_text_of_a_thousand_different_values_is_and_more_is_not(self) -> None:
        fits = text("street", distinct=1000, labels=[f"s{number}" for number in range(1000)], texts=5000)
        assert resolved(spec_of(), table(fits, text("species"), rows=5000)).data.features == ["street"]
        schema = table(number("bill"), text("name", distinct=1001, labels=None, texts=5000), text("species"), rows=5000)
        problem = only(spec_of({"features": ["bill", "name"]}), schema)
        assert problem.pointer == "/data/features/1"
        assert "'name' is text with more than 1,000 different values" in problem.message
        assert json.loads(problem.suggestion or "") == ["bill"]

    def test_long_text_is_no_category(self) -> None:
        problem = only(spec_of(), table(number("x"), text("comment", distinct=50, labels=None), text("species")))
        assert problem.message == "Column 'comment' is text too long for categories; leave it out of the features."

    def test_numbers_with_a_bad_cell_are_not_taken_for_categories(self) -> None:
        f2 = text("f2", distinct=90, texts=1, first_text=CellAt(row=59, value="unknown"))
        f3 = text("f3", distinct=90, texts=1, first_text=CellAt(row=95, value="1 234"))
        problems = refused(spec_of({"target": "y"}), table(number("f1"), f2, f3, integer("y", 2)))
        assert [(problem.pointer, problem.suggestion) for problem in problems] == [("/data/features", '["f1"]')] * 2
        assert problems[0].message.startswith("Row 59, column 'f2': 'unknown' is not a number. Correct the file")
        assert "Row 95, column 'f3': '1 234' is not a number." in problems[1].message

    def test_several_bad_cells_are_counted(self) -> None:
        f2 = text("f2", distinct=90, texts=3, first_text=CellAt(row=59, value="unknown"))
        problem = only(spec_of({"features": ["f2"]}), table(f2, text("species")))
        assert "'unknown' is not a number (3 of its cells are not)." in problem.message
        assert problem.suggestion is None

    def test_a_table_of_hundreds_of_unfit_columns_gets_twenty_messages(self) -> None:
        unfit = (text(f"t{index}", distinct=1001, labels=None) for index in range(300))
        schema = table(*unfit, number("x"), integer("y", 2))
        problems = refused(spec_of({"target": "y"}), schema)
        assert len(problems) == 20
        assert {problem.suggestion for problem in problems} == {'["x"]'}

    def test_a_list_of_hundreds_of_unknown_features_gets_twenty_messages(self) -> None:
        schema = table(*(number(f"column {index:04}") for index in range(3000)), integer("y", 2))
        wrong = [f"colunm {index:04}" for index in range(300)]
        problems = refused(spec_of({"target": "y", "features": wrong}), schema)
        assert len(problems) == 20
        assert problems[19].suggestion == "column 0019"

    def test_a_column_whose_bad_cell_is_not_known_is_named_all_the_same(self) -> None:
        schema = table(number("x"), text("f2", distinct=90, texts=0, first_text=None), integer("y", 2))
        problem = only(spec_of({"target": "y"}), schema)
        assert problem.message.startswith("Column 'f2' is not a number. Correct the file")

    def test_dates_are_no_features(self) -> None:
        when = Column(name="when", kind="time", missing=0, distinct=100)
        problem = only(spec_of(), table(number("x"), when, text("species")))
        assert (problem.pointer, problem.suggestion) == ("/data/features", '["x"]')
        assert "'when' holds dates or times" in problem.message

    def test_a_column_of_arrays_must_be_the_only_feature(self) -> None:
        pixels = number("x", shape=[8, 8])
        assert resolved(spec_of({"features": ["x"]}), table(pixels, number("z"), text("species"))).data.features == [
            "x"
        ]
        for features in ("all", ["z", "x"]):
            problem = only(spec_of({"features": features}), table(pixels, number("z"), text("species")))
            assert "'x' holds arrays of shape [8, 8], so it must be the only feature; leave out 'z'" in problem.message
            assert problem.suggestion == '["x"]'

    def test_a_table_with_the_target_alone_is_refused(self) -> None:
        assert only(spec_of(), table(text("species"))).pointer == "/data/features"

    def test_true_and_false_are_features(self) -> None:
        flag = Column(name="flag", kind="boolean", missing=0, distinct=2, labels=["false", "true"])
        assert resolved(spec_of(), table(flag, text("species"))).data.features == ["flag"]


class TestGaps:
    HOLED = table(
        number("f1", missing=9),
        number("f2", infinite=1, first_infinite=CellAt(row=42, value="inf")),
        number("f3"),
        integer("label", 2, missing=2),
        rows=80,
    )

    def test_error_names_every_used_column_with_its_gaps(self) -> None:
        problems = refused(spec_of({"target": "label"}), self.HOLED)
        assert [(problem.pointer, problem.suggestion) for problem in problems] == [("/data/missing", "drop")] * 3
        assert "Column 'f1' has 9 missing values" in problems[0].message
        assert "Column 'f2' has 1 infinite value, the first in row 42" in problems[1].message
        assert "Column 'label' has 2 missing values" in problems[2].message

    def test_of_hundreds_of_columns_with_gaps_the_rest_is_counted(self) -> None:
        schema = table(*(number(f"c{index}", missing=1) for index in range(300)), integer("y", 2))
        *told, rest = refused(spec_of({"target": "y"}), schema)
        assert len(told) == 20
        assert rest == SpecProblem("/data/missing", "280 more of the columns have gaps.", "drop")

    def test_drop_accepts_them(self) -> None:
        assert resolved(spec_of({"target": "label", "missing": "drop"}), self.HOLED).data.missing == "drop"

    def test_gaps_in_columns_that_are_not_used_do_not_matter(self) -> None:
        schema = table(number("f1", missing=9), number("f3"), integer("label", 2), rows=80)
        assert resolved(spec_of({"target": "label", "features": ["f3"]}), schema).data.features == ["f3"]

    def test_drop_that_leaves_no_row_is_refused(self) -> None:
        schema = table(number("f1", missing=80, distinct=0), integer("label", 2), rows=80)
        problem = only(spec_of({"target": "label", "missing": "drop"}), schema)
        assert problem.pointer == "/data/split"
        assert "0 usable rows" in problem.message
