"""What a file is when it is not a UTF-8 table: sentences for the mistakes that people make."""

from app.tables.problems import TableProblem

BOM = b"\xef\xbb\xbf"

_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "an Excel workbook or a ZIP archive", "Open it and save it as CSV (UTF-8)."),
    (b"PK\x05\x06", "an empty ZIP archive", "Upload the table itself."),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook", "Open it and save it as CSV (UTF-8)."),
    (b"\x1f\x8b", "a gzip archive", "Unpack it and upload the CSV file inside."),
    (b"PAR1", "a Parquet file", "Write it out as CSV (UTF-8)."),
    (b"\x93NUMPY", "a single NumPy array", "Write all arrays into one file with numpy.savez."),
    (b"\x89HDF", "an HDF5 file", "Write it out as CSV, Parquet or NPZ."),
    (b"ARROW1", "an Arrow file", "Write it out as Parquet."),
    (b"\x80\x04", "a Python pickle, which is never loaded", "Write it out as CSV, Parquet or NPZ."),
    (b"\x80\x05", "a Python pickle, which is never loaded", "Write it out as CSV, Parquet or NPZ."),
    (b"%PDF", "a PDF document", "Upload the table as CSV (UTF-8)."),
    (b"\xff\xfe", "UTF-16 text", "Save the file as CSV in UTF-8."),
    (b"\xfe\xff", "UTF-16 text", "Save the file as CSV in UTF-8."),
)


DAMAGED_ZIP = TableProblem("The file is a ZIP archive that is damaged or cut off.", "Upload the whole file again.")


def other_kind(start: bytes) -> TableProblem | None:
    """Recognise a file of another kind by its first bytes."""
    for signature, kind, advice in _SIGNATURES:
        if start.startswith(signature):
            return TableProblem(f"The file is {kind}, not a table.", advice)
    return None


def not_utf8(error: UnicodeDecodeError, *, offset: int, row: int) -> TableProblem:
    """Say where UTF-8 ends. `offset`: the file's byte offset of what was decoded; `row`: the row of the bad byte."""
    byte = error.object[error.start]
    at = offset + error.start
    guess = bytes([byte]).decode("cp1252", errors="ignore")
    reading = f" (in Windows-1252 it would be '{guess}')" if guess.isprintable() and guess else ""
    return TableProblem(
        f"The file is not UTF-8: byte {at} (0x{byte:02x}), in row {row}, is no part of a character{reading}.",
        "Save the file as CSV in UTF-8, or convert it: iconv -f WINDOWS-1252 -t UTF-8 in.csv > out.csv",
        row=row,
    )


def zero_byte(offset: int, row: int) -> TableProblem:
    """Say that a byte 0 stands in the file, which no text has."""
    return TableProblem(
        f"Byte {offset}, in row {row}, is 0, which no CSV file has; the file is damaged or is not text.",
        "Write the file again; if it is UTF-16, save it as UTF-8.",
        row=row,
    )
