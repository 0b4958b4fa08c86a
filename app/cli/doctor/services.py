"""What the service talks to: database and its clock, broker, storage, the API's port, and the server itself."""

import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy.exc import DBAPIError

from app.cli.connection import URL_VARIABLE, Connection, client_file, read_client_file
from app.cli.doctor.findings import Finding, fault, skipped, warning, well
from app.cli.doctor.folders import SQLITE
from app.cli.doctor.place import Place
from app.cli.processes.direct import driver_says
from app.cli.up.home import Home
from app.cli.up.redis_server import find_server, socket_path
from app.db import Database, DatabaseDown
from app.errors import TrainshedError
from app.migrations_runner import SchemaState, schema_state
from app.storage import configured_storage

_ASK_S: Final = 3.0
_SKEW_WARNING_S: Final = 2.0
_SKEW_FAULT_S: Final = 30.0
_OF_A_SERVER: Final = "Start it, and check the address and the password in TRAINSHED_DATABASE_URL."
_OF_A_FILE: Final = "See that it is a file, that this user may read and write it, and that its disk has room."
_DAMAGED: Final = "Take it away and restore a backup (docs/operations.md, Restore), or correct TRAINSHED_DATABASE_URL."
_PROBE: Final = b"written by trainshed doctor"


def check_database(place: Place) -> Iterator[Finding]:
    """Whether it answers, whether its schema is this version's, and how far its clock is from ours."""
    url = place.settings.effective_database_url
    path = Path(url.removeprefix(SQLITE))
    if url.startswith(SQLITE) and not path.exists():
        yield skipped("database", f"There is none yet at {path}; `trainshed up` or `trainshed migrate` makes it.")
        return
    database = Database(url)
    try:
        with database.read() as session:
            state = schema_state(session)
            before = place.now()
            skew = database.now(session).timestamp() - (before + place.now()) / 2
    except DatabaseDown as error:
        advice = _OF_A_FILE if database.is_sqlite else _OF_A_SERVER
        yield fault("database", f"{url} does not answer: {driver_says(error)}", advice)
        return
    except DBAPIError as error:
        yield fault("database", f"{url} cannot be used: {driver_says(error)}", _DAMAGED)
        return
    finally:
        database.dispose()
    yield well("database", f"{url} answers.")
    yield _schema(state)
    if not database.is_sqlite:
        yield _skew(skew)


def _schema(state: SchemaState) -> Finding:
    if state is SchemaState.CURRENT:
        return well("schema", state.message)
    sentence, _, advice = state.message.partition("; ")
    return fault("schema", f"{sentence} ({state.value}).", f"{advice[:1].upper()}{advice[1:]}")


def _skew(skew: float) -> Finding:
    told = f"This host's clock is {abs(skew):.1f} s {'behind' if skew > 0 else 'ahead of'} the database's"
    advice = "Let both follow a time server (chrony, systemd-timesyncd)."
    if abs(skew) > _SKEW_FAULT_S:
        return fault("clock.skew", f"{told}: keys and holds end at wrong times, and logs do not fit together.", advice)
    if abs(skew) > _SKEW_WARNING_S:
        return warning("clock.skew", f"{told}.", advice)
    return well("clock.skew", f"{told}.")


def check_clock(place: Place) -> Iterator[Finding]:
    """A clock that stands in the past, as after an empty battery, and one that follows no time server."""
    installed = Path(__file__).stat().st_mtime
    if place.now() < installed - 86_400:
        yield fault(
            "clock", "This host's clock is behind the day on which Trainshed was installed.", "Set it: `timedatectl`."
        )
    elif place.synchronised() is False:
        yield warning(
            "clock", "This host's clock follows no time server.", "Start chrony or systemd-timesyncd on the host."
        )
    else:
        yield well("clock", "It is plausible.")


def check_broker(place: Place) -> Iterator[Finding]:
    """Redis: the one that is named, or the one that `up` starts."""
    url = place.settings.broker_url
    if not url:
        path = socket_path(Home(place.settings.home, place.settings.effective_run_dir))
        if not path.exists():
            yield well("broker", f"`trainshed up` starts {find_server(place.environ)}.")
            return
        url = f"unix://{path}"
    try:
        _ping(url)
    except ValueError:
        # Its own sentence has a piece of the password, when that has a slash.
        yield fault(
            "broker",
            f"{url} is no address of a Redis.",
            "Correct TRAINSHED_BROKER_URL; in a password write / as %2F, @ as %40, : as %3A, % as %25.",
        )
    except (redis.RedisError, OSError) as error:
        yield fault(
            "broker",
            f"{url} does not answer: {error}",
            "Start Redis, and check the address and the password in TRAINSHED_BROKER_URL.",
        )
    else:
        yield well("broker", f"{url} answers.")


def _ping(url: str) -> None:
    client = redis.Redis.from_url(
        url, socket_connect_timeout=_ASK_S, socket_timeout=_ASK_S, protocol=2, retry=Retry(NoBackoff(), 0)
    )
    try:
        client.ping()
    finally:
        client.close()


def check_storage(place: Place) -> Iterator[Finding]:
    """Write a small file, read it back, delete it."""
    url = place.settings.effective_storage_url
    key = f"doctor/{secrets.token_hex(8)}"
    try:
        storage = configured_storage(place.settings)
        with tempfile.TemporaryDirectory() as folder:
            source, copy = Path(folder) / "source", Path(folder) / "copy"
            source.write_bytes(_PROBE)
            storage.put(key, source)
            storage.get(key, copy)
            same = copy.read_bytes() == _PROBE
            storage.delete(key)
    except (OSError, TrainshedError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        yield fault(
            "storage",
            f"{url} cannot be written, read and deleted from by user {os.geteuid()}: {reason}",
            "Mount it, free space, give this user the right to write, or correct TRAINSHED_STORAGE_URL.",
        )
        return
    if same:
        yield well("storage", f"{url} can be written, read and deleted from.")
    else:
        yield fault("storage", f"{url} answers with other bytes than were stored.", "Check its disk and memory.")


def check_port(place: Place) -> Iterator[Finding]:
    """Whether the API can listen where it should, or does so already."""
    host, port = place.settings.host, place.settings.port
    if not port:
        yield skipped("port", "TRAINSHED_PORT is not set: the API takes a free one.")
        return
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as error:
        if _is_ours(_local_url(host, port)):
            yield well("port", f"A Trainshed answers on port {port}.")
            return
        yield fault(
            "port",
            f"The API cannot listen on {host} port {port}: {error.strerror or error}.",
            f"Find who has it (`ss -ltnp sport = :{port}`), or set TRAINSHED_PORT or TRAINSHED_HOST to others.",
        )
    else:
        yield well("port", f"{host} port {port} is free.")


def _local_url(host: str, port: int) -> str:
    reached = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{reached}:{port}"


def _is_ours(url: str) -> bool:
    try:
        answer = httpx.get(f"{url}/livez", timeout=_ASK_S, trust_env=False)
        return bool(answer.json()["status"] == "ok")
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return False


def check_server(place: Place) -> Iterator[Finding]:
    """What a running server says of itself; that none runs is no fault."""
    stored = read_client_file(client_file(place.environ))
    url = place.environ.get(URL_VARIABLE) or (stored.url if stored else "")
    if not url and place.settings.port:
        url = _local_url(place.settings.host, place.settings.port)
    if not url:
        yield skipped("server", "None is known here.")
        return
    url = url.rstrip("/")
    # From afar by the proxy and the authorities that the client commands go by; on this host by neither.
    outside = not Connection(url, "").is_local
    try:
        checks = httpx.get(f"{url}/readyz?verbose=1", timeout=_ASK_S, trust_env=outside).json()["checks"].items()
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
        yield skipped("server", f"None answers at {url}.")
        return
    yield well("server", f"It answers at {url}.")
    for name, check in checks:
        if check["status"] != "ok":
            told = fault if check["status"] == "down" else warning
            yield told(f"server.{name}", f"The server says: {check['message']}", "docs/operations.md, Trouble.")
