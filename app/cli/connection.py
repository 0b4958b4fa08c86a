"""Where the server is and which key to show it: options, the environment, what `login` stored, what `up` stored."""

import ipaddress
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from app.cli.errors import UsageProblem

URL_VARIABLE: Final = "TRAINSHED_URL"
KEY_VARIABLE: Final = "TRAINSHED_KEY"


@dataclass(frozen=True)
class Connection:
    """A server's address and the key for it; `source` says for messages where the address comes from."""

    url: str
    key: str
    source: str = ""

    @property
    def is_local(self) -> bool:
        """Whether the server is on this host; a proxy set for the outside world must not be asked then."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def __repr__(self) -> str:
        return f"Connection({self.url})"


def client_file(environ: Mapping[str, str]) -> Path:
    """The file in which `up` stores address and key: in its home, which is the same for both."""
    home = environ.get("TRAINSHED_HOME", "")
    return (Path(home) if home else Path.home() / ".trainshed") / "client.json"


def login_file(environ: Mapping[str, str]) -> Path:
    """The file in which `login` stores the same; apart, so that `logout` leaves what belongs to an `up` here."""
    return client_file(environ).with_name("login.json")


def find_connection(url: str | None, key: str | None, environ: Mapping[str, str]) -> Connection:
    """The first that says it wins, for address and key apart.

    A stored key is only ever shown to the server it was stored with: `--url` elsewhere does not hand it out.

    Raises:
        UsageProblem: there is no address or no key, or the address is none.
    """
    stored = [found for file in (login_file(environ), client_file(environ)) if (found := read_client_file(file))]
    chosen = url or environ.get(URL_VARIABLE) or (stored[0].url if stored else "")
    if not chosen:
        raise UsageProblem(
            f"No server is known. Start one with `trainshed up`, or name one with `trainshed login URL`, --url or "
            f"{URL_VARIABLE}, for example --url http://127.0.0.1:8000"
        )
    address = checked_url(chosen)
    own = next((found.key for found in stored if found.url == address), "")
    secret = key or environ.get(KEY_VARIABLE) or own
    if not secret:
        raise UsageProblem(
            f"No API key for {address}. Give one with `trainshed login`, --key or {KEY_VARIABLE}; on the server's host "
            "`trainshed key create` makes one."
        )
    source = "--url" if url else URL_VARIABLE if environ.get(URL_VARIABLE) else stored[0].source
    return Connection(address, checked_key(secret), source)


def checked_key(key: str) -> str:
    """The key, if it can be one.

    Raises:
        UsageProblem: no key has such characters.
    """
    if not key.isascii() or not key.isprintable():
        raise UsageProblem("The API key has characters that no key has; keys look like ts_…")
    return key


def read_client_file(path: Path) -> Connection | None:
    """What is stored; None when there is nothing readable."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Connection(str(content["url"]), str(content["key"]), str(path))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_client_file(path: Path, url: str, key: str) -> None:
    """Store address and key for this user alone, whole or not at all."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"url": url, "key": key}, file)
        file.write("\n")
    fresh.replace(path)


def checked_url(url: str) -> str:
    """The address as it is compared and stored.

    Raises:
        UsageProblem: it is none.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        usable = usable and "@" not in parts.netloc
    except ValueError:
        usable = False
    if not usable:
        raise UsageProblem(f"'{url}' is not a server's address; one looks like http://127.0.0.1:8000")
    # In one spelling: what is compared and what decides whether a key may go there must not hang on a capital letter.
    scheme, _, rest = url.rstrip("/").partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme.lower()}://{host.lower()}{slash}{path}"
