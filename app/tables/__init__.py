"""The one reader of tables: validation and training see the same rows, types and problems."""

from app.tables.builtin import BUILTIN, Builtin, builtin_schema
from app.tables.formats import FORMATS, TableFormat, detect, format_of
from app.tables.notes import column_notes
from app.tables.preview import Preview, preview
from app.tables.problems import InvalidTable, TableProblem
from app.tables.profile import profile, profile_csv
from app.tables.selection import Columns, features_and_target
from app.tables.table import Table, read_table

__all__ = [
    "BUILTIN",
    "FORMATS",
    "Builtin",
    "Columns",
    "InvalidTable",
    "Preview",
    "Table",
    "TableFormat",
    "TableProblem",
    "builtin_schema",
    "column_notes",
    "detect",
    "features_and_target",
    "format_of",
    "preview",
    "profile",
    "profile_csv",
    "read_table",
]
