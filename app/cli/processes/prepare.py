"""What `trainshed up` needs of the database before its children start: the newest schema, and a first key.

Prints `{"key": "ts_…"}` when it made the first key, else `{"key": null}`: through a pipe, so that the key is in no
process list and in no log.
"""

import json
import sys

from app.accounts.service import first_key
from app.cli.processes.root import run
from app.clock import SystemClock
from app.db import Database
from app.migrations_runner import upgrade
from app.settings import Settings


def main(settings: Settings) -> None:
    url = settings.effective_database_url
    upgrade(url)
    database = Database(url, synchronous=settings.sqlite_synchronous)
    try:
        with database.write() as session:
            key = first_key(session, SystemClock().now())
    finally:
        database.dispose()
    print(json.dumps({"key": key}), flush=True)


if __name__ == "__main__":
    sys.exit(run(main))
