"""`trainshed migrate`: bring the database to the newest schema."""

import sys

from app.cli.processes.root import run
from app.migrations_runner import upgrade
from app.settings import Settings


def main(settings: Settings) -> None:
    """Migrate; safe to repeat, and to run from several hosts at once."""
    upgrade(settings.effective_database_url)
    print("The database has the newest schema.")


if __name__ == "__main__":
    sys.exit(run(main))
