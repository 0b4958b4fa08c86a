"""Rows for a prediction: what is taken, and what is refused with row, column and reason."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.spec.data import Preprocess
from app.spec.inputs import InputColumn
from app.tables import InvalidTable
from workers.data import rows as reading
from workers.data.encoding import Encoder, InvalidRows, RowNote

INPUTS = [
    InputColumn("size", "number", 1),
    InputColumn("wild", "boolean", 1),
    InputColumn("tree", "one_hot", 2, ("oak", "pine tree")),
]
GOOD = {"size": 1.5, "wild": True, "tree": "oak"}
IMAGE = InputColumn("image", "tensor", 4, shape=(2, 2))


def objects(values: list[Any]) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def encoder(*, impute: bool = False) -> Encoder:
    columns = {"size": np.array([1.0, 2.0]), "wild": objects([True, False]), "tree": objects(["oak", "pine tree"])}
    return Encoder.fit(columns, np.arange(2), INPUTS, Preprocess(), impute=impute, others=["species", "id"])


def of_images() -> Encoder:
    return Encoder.fit({"image": np.zeros((2, 2, 2))}, np.arange(2), [IMAGE], Preprocess())


def refused(rows: Sequence[object], *, impute: bool = False, by: Encoder | None = None) -> list[RowNote]:
    with pytest.raises(InvalidRows) as caught:
        (by or encoder(impute=impute)).read_rows(rows)
    assert caught.value.code == "invalid_rows"
    return caught.value.problems


class TestRows:
    def test_raw_values_come_by_column(self) -> None:
        read = encoder().read_rows([GOOD, {"size": 2, "wild": False, "tree": " pine tree "}])

        assert read.columns["size"].tolist() == [1.5, 2.0]
        assert read.columns["wild"].tolist() == [True, False]
        assert read.columns["tree"].tolist() == ["oak", "pine tree"]
        assert (len(read), read.row_numbers.tolist(), read.warnings) == (2, [1, 2], ())
        assert encoder().apply(read.columns).tolist() == [[0, 1, 1, 0], [1, 0, 0, 1]]

    def test_other_columns_of_the_table_are_not_looked_at(self) -> None:
        assert len(encoder().read_rows([GOOD | {"species": 3, "id": None}])) == 1

    def test_arrays_are_nested_lists(self) -> None:
        read = of_images().read_rows([{"image": [[1, 2], [3, 4.5]]}])

        assert read.columns["image"].tolist() == [[[1, 2], [3, 4.5]]]


class TestRefused:
    @pytest.mark.parametrize(
        ("row", "column", "words"),
        [
            ({**GOOD, "size": "1.5"}, "size", "Row 2, column 'size': '1.5' is not a number."),
            ({**GOOD, "size": True}, "size", "'True' is not a number"),
            ({**GOOD, "size": [1]}, "size", "'[1]' is not a number"),
            ({**GOOD, "size": math.nan}, "size", "is not a finite number"),
            ({**GOOD, "size": -math.inf}, "size", "is not a finite number"),
            ({**GOOD, "size": 10**400}, "size", "is not a finite number"),
            ({**GOOD, "wild": 1}, "wild", "'1' is not true or false"),
            ({**GOOD, "wild": "true"}, "wild", "'true' is not true or false"),
            ({**GOOD, "tree": 5}, "tree", "'5' is not text"),
            ({**GOOD, "size": None}, "size", "Row 2: column 'size' is empty."),
            ({**GOOD, "tree": " "}, "tree", "Row 2: column 'tree' is empty."),
            ({"wild": True, "tree": "oak"}, "size", "Row 2: column 'size' is missing."),
            ({**GOOD, "sise": 1.5}, "sise", "Row 2: There is no column 'sise'; did you mean 'size'?"),
            ({**GOOD, "zzz": 1.5}, "zzz", "the model takes size, wild, tree."),
            ([1, 2], None, "Row 2 is not an object"),
            ("size", None, "Row 2 is not an object"),
        ],
    )
    def test_each_problem_has_row_column_and_reason(self, row: object, column: str | None, words: str) -> None:
        (problem,) = refused([GOOD, row, GOOD])

        assert (problem.row, problem.column) == (2, column)
        assert words in problem.message

    def test_all_problems_are_told_at_once(self) -> None:
        problems = refused([{**GOOD, "size": "a"}, {**GOOD, "wild": 2, "tree": 3}])

        assert [(problem.row, problem.column) for problem in problems] == [(1, "size"), (2, "wild"), (2, "tree")]

    def test_twenty_are_told_and_the_others_counted(self) -> None:
        with pytest.raises(InvalidRows, match="And 30 more") as caught:
            encoder().read_rows([{**GOOD, "size": "x"}] * 50)

        assert (len(caught.value.problems), caught.value.count) == (20, 50)

    def test_the_nearest_name_is_looked_for_in_those_that_are_told_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looked_for: list[str] = []
        monkeypatch.setattr(reading, "nearest_word", lambda name, _: looked_for.append(name))
        with pytest.raises(InvalidRows) as caught:
            encoder().read_rows([{f"column {number}": 1 for number in range(1000)}])
        assert caught.value.count == 1000
        assert len(looked_for) == 20

    def test_no_rows(self) -> None:
        assert refused([])[0].message == "There is no row to predict."

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            ([1, 2, 3, 4], "The array is 4, not 2 x 2."),
            ([[1, 2], [3]], "different lengths"),
            ([[1, 2], ["3", 4]], "not an array of numbers"),
            ([[True, False], [True, True]], "not an array of numbers"),
            ([[1, 2], [3, None]], "not an array of numbers"),
            ([[1, 2], [3, math.inf]], "not finite"),
            (7, "The array is one number, not 2 x 2."),
            ([], "not 2 x 2"),
        ],
    )
    def test_an_array_of_another_shape_or_type(self, value: object, words: str) -> None:
        (problem,) = refused([{"image": value}], by=of_images())

        assert (problem.row, problem.column) == (1, "image")
        assert words in problem.message
        assert problem.suggestion == "Send nested lists of 2 x 2 numbers."

    @given(
        st.lists(
            st.dictionaries(
                st.sampled_from(["size", "wild", "tree", "other"]),
                st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()),
            )
            | st.integers(),
            max_size=5,
        )
    )
    def test_any_json_is_read_or_refused_and_nothing_else(self, rows: list[object]) -> None:
        for reader in (encoder(), encoder(impute=True), of_images()):
            try:
                read = reader.read_rows(rows)
            except InvalidRows as error:
                assert error.problems  # noqa: PT017 - both outcomes are fine
            else:
                assert np.isfinite(reader.apply(read.columns)).all()


class TestGaps:
    @pytest.mark.parametrize("row", [{}, {"size": None, "wild": None, "tree": None}, {"tree": "", "wild": None}])
    def test_are_taken_by_a_model_that_was_trained_with_them(self, row: dict[str, object]) -> None:
        reader = encoder(impute=True)

        # The mean of 1 and 2 is 0 after scaling; of equals, false and the first category.
        assert reader.apply(reader.read_rows([row]).columns).tolist() == [[0, 0, 1, 0]]

    def test_are_taken_in_a_file_too_even_a_whole_column(self) -> None:
        reader = encoder(impute=True)

        read = reader.read_csv(b"size,tree\n,oak\n3,NA\n")

        assert reader.apply(read.columns).tolist() == [[0, 0, 1, 0], [3, 0, 1, 0]]


class TestUnknownCategories:
    def test_are_zeros_with_a_warning_each(self) -> None:
        rows = [{**GOOD, "tree": name} for name in ("elm", "oak", "elm", "ash")]

        read = encoder().read_rows(rows)

        assert [(note.row, note.column) for note in read.warnings] == [(1, "tree"), (4, "tree")]
        assert read.warnings[0].message == (
            "Column 'tree': the model was not trained with 'elm' (row 1 and 1 more); "
            "it counts as none of the categories."
        )
        assert encoder().apply(read.columns)[0].tolist()[2:] == [0, 0]


class TestCsv:
    def test_columns_are_found_by_name_in_any_order(self) -> None:
        read = encoder().read_csv(b'tree,id,size,wild\n"pine tree",7,2.5,TRUE\noak,8,1,false\n')

        assert read.columns["size"].tolist() == [2.5, 1.0]
        assert read.columns["wild"].tolist() == [True, False]
        assert read.columns["tree"].tolist() == ["pine tree", "oak"]
        assert read.row_numbers.tolist() == [2, 3]

    def test_tabs_are_told_by_the_header(self) -> None:
        assert encoder().read_csv(b"size\twild\ttree\n1\ttrue\toak\n").columns["tree"].tolist() == ["oak"]

    def test_one_feature_is_enough(self) -> None:
        reader = Encoder.fit({"n": np.array([1.0, 2.0])}, np.arange(2), [InputColumn("n", "number", 1)], Preprocess())

        assert reader.read_csv(b"n\n1\n2\n").columns["n"].tolist() == [1.0, 2.0]

    @pytest.mark.parametrize(
        ("content", "row", "column", "words"),
        [
            (
                b"size,wild,tree\n1,true,oak\nx,true,oak\n",
                3,
                "size",
                "Row 3, column 'size': 'x' is not a finite number.",
            ),
            (b"size,wild,tree\ninf,true,oak\n", 2, "size", "'inf' is not a finite number"),
            (b"size,wild,tree\n1,yes,oak\n", 2, "wild", "'yes' is not true or false"),
            (b"size,wild,tree\n1,true,\n", 2, "tree", "Row 2: column 'tree' is empty."),
            (b"size,tree\n1,oak\n", None, "wild", "Column 'wild' is missing."),
            (b"size,wild,tree,sice\n1,true,oak,2\n", None, "sice", "did you mean 'size'?"),
        ],
    )
    def test_each_problem_has_row_column_and_reason(
        self, content: bytes, row: int | None, column: str, words: str
    ) -> None:
        with pytest.raises(InvalidRows) as caught:
            encoder().read_csv(content)

        (problem,) = caught.value.problems
        assert (problem.row, problem.column) == (row, column)
        assert words in problem.message

    @pytest.mark.parametrize("content", [b"", b"size,wild,tree\n", b"size,wild,tree\n1\n", b"\xff\xfe", b"PK\x03\x04"])
    def test_what_is_no_table_is_refused_as_an_upload_is(self, content: bytes) -> None:
        with pytest.raises(InvalidTable):
            encoder().read_csv(content)

    @pytest.mark.parametrize("impute", [False, True])
    def test_words_for_nothing_are_text_where_the_model_knows_them(self, impute: bool) -> None:  # noqa: FBT001 - a case
        # Parquet and NPZ can hold them: Namibia is NA. A gap instead would be refused, or filled without a word.
        column = InputColumn("country", "one_hot", 3, ("DE", "NA", "nan"))
        values = {"country": objects(["DE", "DE", "NA", "nan"])}
        fitted = Encoder.fit(values, np.arange(4), [column], Preprocess(), impute=impute, others=["y"])
        content = b"country,y\nNA,1\n nan ,1\nDE,1\n"
        read = fitted.read_csv(content)
        assert read.columns["country"].tolist() == ["NA", "nan", "DE"]
        assert fitted.apply(read.columns).tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
        assert read.warnings == ()

    def test_other_words_for_nothing_stay_gaps(self) -> None:
        with pytest.raises(InvalidRows) as caught:
            encoder().read_csv(b"size,wild,tree\n1,true,NA\n")
        assert [(problem.row, problem.column) for problem in caught.value.problems] == [(2, "tree")]

    def test_a_model_of_arrays_takes_no_file(self) -> None:
        with pytest.raises(InvalidRows, match="is an array, which no CSV cell can hold"):
            of_images().read_csv(b"image\n1\n")

    def test_the_same_rows_in_json_and_csv_are_the_same(self) -> None:
        reader = encoder()
        rows = [GOOD, {"size": -0.1, "wild": False, "tree": "pine tree"}]

        from_csv = reader.read_csv(b"size,wild,tree\n1.5,true,oak\n-0.1,false,pine tree\n")

        np.testing.assert_array_equal(reader.apply(from_csv.columns), reader.apply(reader.read_rows(rows).columns))
