"""The one reader of tables: validation and training see the same rows, types and problems."""

from app.tables.builtin import BUILTIN, Builtin, builtin_schema
from app.tables.problems import InvalidTable, TableProblem
from app.tables.profile import profile_csv
from app.tables.selection import Columns, features_and_target
from app.tables.table import Table, read_table

__all__ = [
    "BUILTIN",
    "Builtin",
    "Columns",
    "InvalidTable",
    "Table",
    "TableProblem",
    "builtin_schema",
    "features_and_target",
    "profile_csv",
    "read_table",
]
