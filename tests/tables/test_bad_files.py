"""Files that are no tables: each is refused with where it goes wrong and what to do."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.tables import InvalidTable, profile_csv, read_table
from tests.tables.files import DATA, only_problem, problems_of

Write = Callable[[bytes | str], Path]


class TestEmpty:
    @pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
    def test_nothing_in_the_file(self, write: Write, content: bytes) -> None:
        assert only_problem(lambda: profile_csv(write(content))).message == "The file is empty."

    @pytest.mark.parametrize("content", ["\n", "\r\n\r\n", "\n\n\n\n"])
    def test_empty_lines_alone(self, write: Write, content: str) -> None:
        assert only_problem(lambda: profile_csv(write(content))).message == "The file has only empty lines."

    @pytest.mark.parametrize("content", ["a,b", "a,b\n", "a,b\r\n", "a,b\n\n\n"])
    def test_a_header_without_rows(self, write: Write, content: str) -> None:
        problem = only_problem(lambda: profile_csv(write(content)))
        assert problem.message == "The file has a header but no rows."
        assert problem.suggestion is not None
        assert problem.pointer == "/file"


class TestRagged:
    def test_each_row_with_a_wrong_number_of_cells_is_named(self, write: Write) -> None:
        problems = problems_of(lambda: profile_csv(write("a,b,c\n1,2\n1,2,3\n1,2,3,4\n\n1\n1,2,3\n")))
        assert [(problem.row, problem.message) for problem in problems] == [
            (2, "Row 2 has 2 cells, but the header has 3."),
            (4, "Row 4 has 4 cells, but the header has 3."),
            (6, "Row 6 has 1 cell, but the header has 3."),
        ]

    def test_a_short_last_row_looks_like_a_file_that_was_cut_off(self, write: Write) -> None:
        problem = only_problem(lambda: profile_csv(write("a,b\n1,2\n3")))
        assert problem.row == 3
        assert "the file seems to be cut off" in problem.message
        assert problem.suggestion == "Upload the whole file."

    def test_no_more_than_ten_rows_are_told(self, write: Write) -> None:
        problems = problems_of(lambda: profile_csv(write("a,b\n" + "1\n" * 500)))
        assert [problem.row for problem in problems] == list(range(2, 12))

    def test_a_comma_in_quotes_is_no_separator(self, write: Write) -> None:
        assert profile_csv(write('a,b\n"1,5",2\n')).rows == 1

    def test_rows_are_found_in_any_block(self, write: Write) -> None:
        path = write("a,b\n" + "1,2\n" * 1000 + "1\n" + "1,2\n" * 1000)
        assert only_problem(lambda: profile_csv(path, block_bytes=64)).row == 1002


class TestQuotes:
    def test_a_quote_that_is_never_closed_names_the_row_where_it_opens(self, write: Write) -> None:
        problem = only_problem(lambda: profile_csv(write('a,b\n1,2\n3,"4\n5,6\n7,8\n')))
        assert problem.row == 3
        assert problem.message.startswith("A quotation mark that opens in row 3 is never closed")

    def test_the_same_in_a_file_of_many_blocks(self, write: Write) -> None:
        path = write('a,b\n1,2\n3,"4\n' + "5,6\n" * 1000)
        assert only_problem(lambda: profile_csv(path, block_bytes=64)).row == 3

    def test_a_quote_in_the_header_that_is_never_closed(self, write: Write) -> None:
        assert only_problem(lambda: profile_csv(write('"a,b\n1,2\n'))).row == 1

    @pytest.mark.parametrize("cell", ['5" pipe', '"5"" pipe" x', 'x"5"', '"5"x', ' "5"', '"a""b'])
    def test_a_quote_in_the_middle_of_a_cell_is_refused(self, write: Write, cell: str) -> None:
        problem = only_problem(lambda: profile_csv(write(f'a,b\n1,2\n{cell},"x"\n4,5\n')))
        assert problem.row == 3
        assert "quotation mark" in problem.message

    def test_a_row_longer_than_a_block_is_refused(self, write: Write) -> None:
        path = write("a,b\n" + "1" * 1000 + ",2\n3,4\n")
        assert only_problem(lambda: profile_csv(path, block_bytes=100)).message.startswith("Row 2 is too long")


class TestEncoding:
    def test_windows_1252_is_refused_with_byte_row_and_reading(self) -> None:
        # The file's header is "ville,f1,f2,résultat"; é is 0xe9 in Windows-1252, at byte 13.
        problem = only_problem(lambda: profile_csv(DATA / "cp1252.csv"))
        assert problem.message == (
            "The file is not UTF-8: byte 13 (0xe9), in row 1, is no part of a character "
            "(in Windows-1252 it would be 'é')."
        )
        assert problem.row == 1
        assert problem.suggestion is not None
        assert "UTF-8" in problem.suggestion

    @pytest.mark.parametrize("block_bytes", [16, 1024])
    def test_the_byte_is_counted_from_the_start_of_the_file(self, write: Write, block_bytes: int) -> None:
        content = b"\xef\xbb\xbfa,b\n" + b"1,2\n" * 20 + b"1,\xff\n"
        problem = only_problem(lambda: profile_csv(write(content), block_bytes=block_bytes))
        assert f"byte {content.index(0xFF)} (0xff), in row 22" in problem.message

    def test_a_zero_byte_is_named_with_its_row(self, write: Write) -> None:
        problem = only_problem(lambda: profile_csv(write(b"a,b\n1,2\n3,\x004\n")))
        assert problem.message.startswith("Byte 10, in row 3, is 0")
        assert problem.row == 3

    @pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
    def test_utf16_is_named(self, write: Write, codec: str) -> None:
        problem = only_problem(lambda: profile_csv(write("a,b\n1,2\n".encode(codec))))
        assert "UTF-16" in f"{problem.message} {problem.suggestion}"

    @pytest.mark.parametrize(
        ("start", "kind"),
        [
            (b"PK\x03\x04", "an Excel workbook or a ZIP archive"),
            (b"\xd0\xcf\x11\xe0\xa1\xb1", "an old Excel workbook"),
            (b"\x1f\x8b\x08", "a gzip archive"),
            (b"PAR1", "a Parquet file"),
            (b"%PDF-1.7", "a PDF document"),
            (b"PK\x05\x06", "an empty ZIP archive"),
            (b"\x93NUMPY", "a single NumPy array"),
            (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
            (b"ARROW1", "an Arrow file"),
            (b"\x80\x04\x95", "a Python pickle, which is never loaded"),
        ],
    )
    def test_files_of_other_kinds_are_recognised(self, write: Write, start: bytes, kind: str) -> None:
        assert only_problem(lambda: profile_csv(write(start + b"\n1,2"))).message == (
            f"The file is {kind}, not a table."
        )

    def test_random_bytes_are_refused_without_an_exception_of_a_library(self, write: Write) -> None:
        random = np.random.default_rng(0)
        for _ in range(50):
            path = write(random.bytes(300))
            with pytest.raises(InvalidTable):
                profile_csv(path)

    def test_old_mac_line_ends_are_named(self, write: Write) -> None:
        assert "old Macs" in only_problem(lambda: profile_csv(write("a,b\r1,2\r3,4\r"))).message


class TestHeader:
    def test_repeated_names_are_told_once_each(self, write: Write) -> None:
        problems = problems_of(lambda: profile_csv(write("a,b,a,b,a\n1,2,3,4,5\n")))
        assert [(problem.row, problem.column, problem.message) for problem in problems] == [
            (1, "a", "3 columns are named 'a'."),
            (1, "b", "2 columns are named 'b'."),
        ]

    def test_names_that_differ_only_in_blanks_around_them_are_the_same(self, write: Write) -> None:
        assert only_problem(lambda: profile_csv(write("a, a\n1,2\n"))).message == "2 columns are named 'a'."

    def test_a_blank_name_is_told_with_its_place(self, write: Write) -> None:
        problems = problems_of(lambda: profile_csv(write("a,, ,d\n1,2,3,4\n")))
        assert [problem.message for problem in problems] == ["Column 2 has no name.", "Column 3 has no name."]
        assert problems[0].suggestion == "Name it, for example column_2, or remove it."

    def test_semicolons_are_recognised(self) -> None:
        problem = only_problem(lambda: profile_csv(DATA / "semicolons.csv"))
        assert problem.message == "Only one column was found; the file seems to be separated by semicolons."
        assert problem.suggestion is not None
        assert "f1,f2,f3,label" in problem.suggestion

    @pytest.mark.parametrize(("separator", "word"), [("\t", "tabs"), ("|", "vertical bars")])
    def test_other_separators_are_recognised(self, write: Write, separator: str, word: str) -> None:
        content = "a,b\n1,2\n".replace(",", separator)
        assert f"separated by {word}" in only_problem(lambda: profile_csv(write(content))).message

    def test_a_single_column_is_no_table(self, write: Write) -> None:
        assert "Only one column was found ('a')" in only_problem(lambda: profile_csv(write("a\n1\n"))).message

    def test_a_file_without_header_is_recognised(self, write: Write) -> None:
        problem = only_problem(lambda: profile_csv(write("5.1,3.5,1.4,0\n4.9,3.0,1.4,0\n")))
        assert problem.message.startswith("The first row holds only numbers (5.1, 3.5, 1.4, …)")

    def test_some_numbers_among_the_names_are_fine(self, write: Write) -> None:
        assert [column.name for column in profile_csv(write("400,410,label\n1,2,0\n")).columns] == [
            "400",
            "410",
            "label",
        ]

    @pytest.mark.parametrize("name", ['"a\nb"', "a\u202eb", "a\x07b", "x" * 257])
    def test_names_that_a_spec_could_not_write_are_refused(self, write: Write, name: str) -> None:
        assert only_problem(lambda: profile_csv(write(f"{name},y\n1,2\n"))).message.startswith("The name of column 1")

    def test_too_many_columns_are_refused(self, write: Write) -> None:
        header = ",".join(f"f{index}" for index in range(16_385))
        assert "16,385 columns" in only_problem(lambda: profile_csv(write(f"{header}\n1\n"))).message


class TestError:
    def test_it_reads_as_sentences(self, write: Write) -> None:
        with pytest.raises(InvalidTable, match=r"^The table cannot be used\. Row 2 has 1 cell, .* Row 3 has 3 cells, "):
            profile_csv(write("a,b\n1\n1,2,3\n4,5\n"))

    @pytest.mark.parametrize("content", ["", "a,b\n1\n", 'a,b\n1,"2\n', "a;b\n1;2\n", "a,a\n1,2\n"])
    def test_reading_refuses_what_profiling_refuses(self, write: Write, content: str) -> None:
        path = write(content)
        assert problems_of(lambda: read_table(path, None)) == problems_of(lambda: profile_csv(path))


class TestHeaderNames:
    def test_names_that_python_would_read_as_numbers_are_names(self, write: Write) -> None:
        # float("2020_01") is 202001.0, and float("nan") is a number too.
        schema = profile_csv(write("2020_01,2020_02,nan\n1,2,3\n"))
        assert [column.name for column in schema.columns] == ["2020_01", "2020_02", "nan"]

    @pytest.mark.parametrize("note", ["sep=,", "SEP=;", "sep=\t,x"])
    def test_a_note_for_spreadsheets_is_named(self, write: Write, note: str) -> None:
        problem = only_problem(lambda: profile_csv(write(f"{note}\na,b\n1,2\n")))
        assert problem.message == "The first row is a note for spreadsheets (sep=…), not the names of the columns."
        assert problem.row == 1
