"""`make check`: run every static check, go on after a failure, and end with one line for each."""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
BIN: Final = Path(sys.executable).parent

# Programs come from the environment that runs this file, never from PATH.
CHECKS: Final[Mapping[str, Sequence[str]]] = {
    "lint": ("ruff", "check", "."),
    "format": ("ruff", "format", "--check", "."),
    "types": ("mypy",),
    "import law": ("lint-imports", "--no-logo"),
    "house rules": ("python", "scripts/size_bars.py"),
    "schema": ("python", "scripts/schema_drift.py"),
    "Dockerfiles": ("hadolint", "Dockerfile", "Dockerfile.gpu"),
    "compose files": ("python", "scripts/compose_check.py"),
}


def run(name: str, arguments: Sequence[str], *, root: Path = ROOT) -> bool:
    """Run one check with its output on the terminal; whether it passed."""
    print(f"== {name}: {' '.join(arguments)}", flush=True)
    program, *rest = arguments
    return subprocess.run([str(BIN / program), *rest], cwd=root, stdin=subprocess.DEVNULL, check=False).returncode == 0


def main(checks: Mapping[str, Sequence[str]] = CHECKS) -> int:
    """The exit code: 1 when any check failed."""
    summary = []
    failed = False
    for name, arguments in checks.items():
        start = time.monotonic()
        passed = run(name, arguments)
        failed = failed or not passed
        summary.append(f"{'ok  ' if passed else 'FAIL'} {name} ({time.monotonic() - start:.1f} s)")
    print("\n".join(["", *summary]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
