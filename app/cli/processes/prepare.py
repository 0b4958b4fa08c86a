"""What `trainshed up` needs of the database before its children start: the newest schema, and a first key.

Prints `{"key": "ts_…"}` when it made the first key, else `{"key": null}`: through a pipe, so that the key is in no
process list and in no log. With `--code` the first key, or the one that is stored in the home, may bring code along.
"""

import json
import sys

from sqlalchemy.orm import Session

from app.accounts.service import CODE, authenticate, first_key, permit_key
from app.cli.connection import read_client_file
from app.cli.processes.root import run
from app.clock import SystemClock
from app.db import Database
from app.migrations_runner import upgrade
from app.settings import Settings


def main(settings: Settings, *, code: bool = False) -> None:
    url = settings.effective_database_url
    upgrade(url)
    database = Database(url, synchronous=settings.sqlite_synchronous)
    try:
        with database.write() as session:
            key = first_key(session, SystemClock().now(), [CODE] if code else [])
            if code and key is None:
                _permit_stored(session, settings)
    finally:
        database.dispose()
    print(json.dumps({"key": key}), flush=True)


def with_code(settings: Settings) -> None:
    main(settings, code=True)


def _permit_stored(session: Session, settings: Settings) -> None:
    stored = read_client_file(settings.home / "client.json")
    principal = authenticate(session, stored.key, SystemClock().now()) if stored is not None else None
    if principal is not None:
        permit_key(session, principal.key_id, {*principal.permissions, CODE})


if __name__ == "__main__":
    sys.exit(run(with_code, []) if sys.argv[1:] == ["--code"] else run(main))
