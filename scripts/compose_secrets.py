"""Write the secrets that docker-compose.yml mounts, once: what is there stays as it is.

The folder is closed to others; the files in it are readable, because inside a container another user reads them.
"""

import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


def contents(postgres_password: str, redis_password: str) -> Mapping[str, str]:
    """Every secret file by name; the passwords must need no escaping in a URL."""
    return {
        "postgres_password": postgres_password,
        "database_url": f"postgresql+psycopg://trainshed:{postgres_password}@postgres:5432/trainshed",
        "redis_conf": f"requirepass {redis_password}",
        "broker_url": f"redis://:{redis_password}@redis:6379/0",
    }


def write(folder: Path) -> list[str]:
    """Write all files or none, and name those written. The folder is its own ignore list."""
    wanted = contents(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    present = [name for name in wanted if (folder / name).exists()]
    if present:
        missing = sorted(set(wanted) - set(present))
        if missing:
            raise FileNotFoundError(
                f"{folder} lacks {', '.join(missing)}: they belong together, so delete the rest too"
            )
        return []
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    for name, text in wanted.items():
        path = folder / name
        path.write_text(f"{text}\n", encoding="utf-8")
        path.chmod(0o444)
    return list(wanted)


def main(folder: Path = ROOT / "secrets") -> int:
    written = write(folder)
    print(f"{folder}: {'wrote ' + ', '.join(written) if written else 'already complete'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
