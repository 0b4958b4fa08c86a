"""Writes the secrets of docker-compose.yml at the first start, into one volume for each who reads them.

Nothing there has a default password, and nobody has to make one. What exists stays as it is, so a start after the first
changes nothing; what is missing is made from what is there, so a lost volume of one reader is healed from another's.
"""

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

SERVICE: Final = "service"
POSTGRES: Final = "postgres"
REDIS: Final = "redis"
GRAFANA: Final = "grafana"

_FOR_GROUP: Final = (0o750, 0o440)
# Official images run under user ids of their own; here the mount alone decides who reads.
_FOR_WHOEVER_MOUNTS_IT: Final = (0o755, 0o444)
MODES: Final = {
    SERVICE: _FOR_GROUP,
    POSTGRES: _FOR_WHOEVER_MOUNTS_IT,
    REDIS: _FOR_WHOEVER_MOUNTS_IT,
    GRAFANA: _FOR_WHOEVER_MOUNTS_IT,
}
"""By reader: the modes of its folder and of the files in it. The first is readable to the group of API and worker."""
_REQUIREPASS: Final = "requirepass "


@dataclass(frozen=True)
class Passwords:
    postgres: str
    redis: str
    grafana: str


def contents(passwords: Passwords) -> Mapping[str, Mapping[str, str]]:
    """Every file by its reader and name; the passwords must need no escaping in a URL."""
    return {
        SERVICE: {
            "database_url": f"postgresql+psycopg://trainshed:{passwords.postgres}@postgres:5432/trainshed",
            "broker_url": f"redis://:{passwords.redis}@redis:6379/0",
        },
        POSTGRES: {"postgres_password": passwords.postgres},
        # The whole configuration of the server; what else it is told stands in its command.
        REDIS: {"redis_conf": f"{_REQUIREPASS}{passwords.redis}"},
        GRAFANA: {"grafana_password": passwords.grafana},
    }


def known(root: Path) -> Passwords:
    """The passwords that some file there already holds, and new ones for the rest."""
    postgres = _text(root / POSTGRES / "postgres_password") or _password_in(root / SERVICE / "database_url")
    redis = _text(root / REDIS / "redis_conf").removeprefix(_REQUIREPASS) or _password_in(root / SERVICE / "broker_url")
    return Passwords(
        postgres=postgres or secrets.token_urlsafe(32),
        redis=redis or secrets.token_urlsafe(32),
        grafana=_text(root / GRAFANA / "grafana_password") or secrets.token_urlsafe(24),
    )


def write(root: Path) -> list[str]:
    """Write what is missing below `root`, and name it. The group of the files is this process's own."""
    written = []
    for reader, files in contents(known(root)).items():
        folder_mode, file_mode = MODES[reader]
        folder = root / reader
        folder.mkdir(exist_ok=True)
        os.chown(folder, -1, os.getegid())
        folder.chmod(folder_mode)
        for name, text in files.items():
            if not (folder / name).exists():
                _write_at_once(folder / name, f"{text}\n", file_mode)
                written.append(f"{reader}/{name}")
    return written


def _write_at_once(path: Path, text: str, mode: int) -> None:
    """Whole or not at all: half a password would be kept for ever."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), mode)
    unfinished.replace(path)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def _password_in(path: Path) -> str:
    """The password of a URL in a file, if it is one of ours: another server's is not this one's to copy."""
    url = urlsplit(_text(path))
    return url.password or "" if url.hostname in {POSTGRES, REDIS} else ""


def main(arguments: Sequence[str] | None = None) -> int:
    (root,) = sys.argv[1:] if arguments is None else arguments
    written = write(Path(root))
    print(f"wrote {', '.join(written)}" if written else "all secrets are there already")
    return 0


if __name__ == "__main__":
    sys.exit(main())
