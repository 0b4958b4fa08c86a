"""What commands share that work straight in the database, with or without a running server."""

import contextlib
import signal
import sys
from collections.abc import Iterator

import typer
from sqlalchemy.exc import DBAPIError

from app.db import Database, DatabaseDown
from app.errors import TrainshedError
from app.logs import without_secrets
from app.migrations_runner import is_current
from app.settings import Settings


class SchemaNotCurrent(TrainshedError):
    code = "schema_not_current"

    def __init__(self) -> None:
        super().__init__("The database has not the newest schema; run `trainshed migrate` first.")


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[Database]:
    """The database of the settings.

    Raises:
        SchemaNotCurrent: it is new or old.
    """
    database = Database(settings.effective_database_url, synchronous=settings.sqlite_synchronous)
    try:
        with database.read() as session:
            if not is_current(session):
                raise SchemaNotCurrent
        yield database
    finally:
        database.dispose()


def run_program(program: typer.Typer, name: str) -> int:
    """Run it on the process's arguments; the exit code. What it refuses is one line, not a traceback.

    SIGTERM ends it as an error does, so that temporary files go.
    """
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        program(prog_name=name)
    except (DatabaseDown, DBAPIError) as error:
        what = str(error) if isinstance(error, DatabaseDown) else "The database cannot be used; see `trainshed doctor`."
        print(f"error: {what} ({without_secrets(driver_says(error))})", file=sys.stderr)
        return 2
    except TrainshedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def driver_says(error: DatabaseDown | DBAPIError) -> str:
    """The driver's own sentence, which a client must not see and an operator needs: a disk that is full, say."""
    cause = error if isinstance(error, DBAPIError) else error.__cause__
    below = getattr(cause, "orig", None) or error
    return (str(below).strip() or type(below).__name__).splitlines()[0]
