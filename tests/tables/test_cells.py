"""What one cell means."""

import math
from datetime import UTC, date, datetime, timedelta, timezone

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tables.cells import MISSING, booleans, read_cells, times, typed_cells


def read(cell: str | None) -> tuple[str | None, float | None, int | None]:
    cells = read_cells(pl.Series([cell], dtype=pl.String))
    return cells.text[0], cells.number[0], cells.whole[0]


class TestReadCells:
    @pytest.mark.parametrize(
        ("cell", "expected"),
        [
            ("1", ("1", 1.0, 1)),
            (" 1 ", ("1", 1.0, 1)),
            ("1\r", ("1", 1.0, 1)),
            ("1.5", ("1.5", 1.5, None)),
            ("1.0", ("1.0", 1.0, 1)),
            ("1e3", ("1e3", 1000.0, 1000)),
            ("9007199254740993", ("9007199254740993", 2.0**53, 9007199254740993)),
            ("9007199254740993.0", ("9007199254740993.0", 2.0**53, None)),
            ("-7", ("-7", -7.0, -7)),
            ("1e-3", ("1e-3", 0.001, None)),
            ("inf", ("inf", math.inf, None)),
            ("9223372036854775808", ("9223372036854775808", 2.0**63, None)),
            ("oak", ("oak", None, None)),
            ("1_0", ("1_0", None, None)),
            ("0x1", ("0x1", None, None)),
            ("1 0", ("1 0", None, None)),
            ("1,0", ("1,0", None, None)),
            ("\uff11", ("\uff11", None, None)),
            (None, (None, None, None)),
        ],
    )
    def test_text_number_and_whole_number(
        self, cell: str | None, expected: tuple[str | None, float | None, int | None]
    ) -> None:
        assert read(cell) == expected

    @pytest.mark.parametrize("cell", [*MISSING, "  ", "-NaN", "NAN"])
    def test_gaps(self, cell: str) -> None:
        assert read(cell) == (None, None, None)

    @given(st.lists(st.floats(allow_nan=False)))
    def test_floats_are_those_that_python_writes(self, values: list[float]) -> None:
        cells = read_cells(pl.Series([repr(value) for value in values], dtype=pl.String))
        assert cells.number.to_list() == values

    @given(st.lists(st.integers(-(2**63), 2**63 - 1)))
    def test_whole_numbers_are_exact(self, values: list[int]) -> None:
        assert read_cells(pl.Series([str(value) for value in values], dtype=pl.String)).whole.to_list() == values


class TestBooleans:
    def test_any_case_of_true_and_false_and_nothing_else(self) -> None:
        cells = pl.Series(["true", "FALSE", "True", "yes", "1", "t", None])
        assert booleans(cells).to_list() == [True, False, True, None, None, None, None]


def moments(*cells: str | None) -> list[datetime | None]:
    return times(pl.Series(cells, dtype=pl.String)).to_list()


class TestTimes:
    @given(
        st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.none()),  # noqa: DTZ001 - the zone is drawn
        st.integers(-14 * 60, 14 * 60),
        st.sampled_from(["T", " "]),
    )
    def test_what_python_writes_in_any_zone(self, local: datetime, minutes: int, between: str) -> None:
        zoned = local.replace(tzinfo=timezone(timedelta(minutes=minutes)))
        expected = zoned.astimezone(UTC).replace(tzinfo=None)
        assert moments(zoned.isoformat(between)) == [expected]

    @given(st.dates())
    def test_a_date_is_its_midnight(self, day: date) -> None:
        assert moments(day.isoformat()) == [datetime(day.year, day.month, day.day)]  # noqa: DTZ001 - as UTC, without zone

    def test_without_a_zone_it_is_utc(self) -> None:
        assert (
            moments("2030-01-31 08:00", "2030-01-31T08:00:00Z", "2030-01-31t08:00:00.000000z")
            == [
                datetime(2030, 1, 31, 8)  # noqa: DTZ001 - the answer has no zone
            ]
            * 3
        )

    @pytest.mark.parametrize(
        "cell",
        [
            "2030-02-30",
            "2030-13-01",
            "30-01-2030",
            "2030/01/31",
            "2030-01-31T24:00",
            "2030-01-31T08:60",
            "2030-01-31T08:00:61",
            "2030-01-31T08",
            "2030-01-31 ",
            "2030",
            "20300131",
            "",
            "oak",
            None,
        ],
    )
    def test_anything_else_is_none(self, cell: str | None) -> None:
        assert moments(cell) == [None]


class TestTypedCells:
    def test_numbers_keep_their_type_and_nan_is_a_gap(self) -> None:
        read = typed_cells(pl.Series([1.5, 2.0, math.nan, None, math.inf]))
        assert read.number.to_list() == [1.5, 2.0, None, None, math.inf]
        assert read.whole.to_list() == [None, 2, None, None, None]
        assert read.text.is_null().to_list() == [False, False, True, True, False]

    @pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt16, pl.Int64, pl.UInt64])
    def test_whole_numbers_are_exact(self, dtype: pl.DataType) -> None:
        assert typed_cells(pl.Series([1, 120, None], dtype=dtype)).whole.to_list() == [1, 120, None]

    def test_beyond_64_bits_there_is_only_a_number(self) -> None:
        read = typed_cells(pl.Series([2**64 - 1], dtype=pl.UInt64))
        assert (read.number[0], read.whole[0]) == (2.0**64, None)

    def test_text_stays_text_whatever_it_looks_like(self) -> None:
        read = typed_cells(pl.Series(["1", " oak ", "", "NA", None]))
        assert read.text.to_list() == ["1", "oak", None, "NA", None]
        assert read.number.null_count() == read.whole.null_count() == 5

    def test_booleans_are_read_as_such(self) -> None:
        assert booleans(typed_cells(pl.Series([True, False, None])).text).to_list() == [True, False, None]

    @given(st.lists(st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)) | st.none(), min_size=1))  # noqa: DTZ001
    def test_times_come_back_to_the_microsecond(self, values: list[datetime | None]) -> None:
        series = pl.Series(values, dtype=pl.Datetime("us"))
        assert times(typed_cells(series).text).to_list() == values

    def test_dates_too(self) -> None:
        text = typed_cells(pl.Series([date(2030, 1, 31), None])).text
        assert times(text).to_list() == [datetime(2030, 1, 31), None]  # noqa: DTZ001 - the answer has no zone
