"""A real S3 server for tests: moto's, a process of its own that is spoken to over HTTP on a port of this host."""

import contextlib
import re
import secrets
import signal
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.storage import S3Access
from app.storage.access import S3Place
from tests.servers import as_user, running, short_folder, wait_until

_LISTENS = re.compile(r"Running on http://127\.0\.0\.1:(\d+)")


@dataclass(frozen=True)
class S3Server:
    """A running server, empty; it takes any credentials."""

    url: str
    pid: int

    @property
    def access(self) -> S3Access:
        return S3Access(self.url, "us-east-1", "tester", "a secret")

    def new_bucket(self, prefix: str = "") -> S3Place:
        name = f"bucket-{secrets.token_hex(6)}"
        self.ask("PUT", name)
        return S3Place(name, prefix)

    def ask(self, method: str, path: str) -> str:
        request = urllib.request.Request(f"{self.url}/{path}", method=method)  # noqa: S310 - of this server
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return str(answer.read().decode())

    def settings(self, place: S3Place) -> dict[str, str]:
        """What makes a process of ours keep its files there."""
        return {
            "TRAINSHED_STORAGE_URL": f"s3://{place.bucket}/{place.prefix}",
            "TRAINSHED_S3_ENDPOINT": self.url,
            "TRAINSHED_S3_REGION": self.access.region,
            "TRAINSHED_S3_ACCESS_KEY_ID": self.access.access_key_id,
            "TRAINSHED_S3_SECRET_ACCESS_KEY": self.access.secret_access_key,
        }


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """A fresh server, stopped at the end; the port is one that was free."""
    with short_folder("ts-s3-") as folder:
        command = [sys.executable, "-P", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        with running(as_user(command, signal.SIGKILL), folder, stop=signal.SIGKILL) as process:
            wait_until(lambda: _port(folder) is not None, process, folder)
            yield S3Server(f"http://127.0.0.1:{_port(folder)}", process.pid)


def _port(folder: Path) -> int | None:
    found = _LISTENS.search((folder / "output").read_text(errors="replace"))
    return int(found[1]) if found else None
