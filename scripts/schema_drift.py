"""Migrate an empty SQLite database and ask Alembic whether the models say something else than the migrations made."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TRAINSHED_DATABASE_URL": f"sqlite:///{folder}/drift.db"}
        for step in (("upgrade", "head"), ("check",)):
            code = subprocess.run([sys.executable, "-m", "alembic", *step], cwd=ROOT, env=environment, check=False)
            if code.returncode:
                print(f"'alembic {' '.join(step)}' failed: write a migration for what changed in the models.")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
