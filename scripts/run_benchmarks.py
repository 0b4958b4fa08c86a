"""Run every `benchmarks/*.py`; each prints one table and writes its rows to a JSON file.

A benchmark is started as `python -m benchmarks.latency --json FILE --peer-python PATH`: the second interpreter has the
peers (Ray, MLflow), which must not share an environment with us.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


def modules(root: Path, only: Sequence[str]) -> list[str]:
    """The benchmarks in the order of their names; `only` keeps those whose name contains one of its words."""
    names = sorted(path.stem for path in (root / "benchmarks").glob("[!_]*.py"))
    return [name for name in names if not only or any(word in name for word in only)]


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """The exit code: 1 when a benchmark failed or none was found."""
    parser = argparse.ArgumentParser(description="Run the benchmarks.")
    parser.add_argument("--peer-python", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("only", nargs="*", help="words: run only the benchmarks that have one in their name")
    options = parser.parse_args(arguments)
    names = modules(root, options.only)
    if not names:
        print(f"No benchmark in {root / 'benchmarks'} has {' or '.join(options.only) or 'any name'}.")
        return 1
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in names:
        target = ["--json", str(output / f"{name}.json"), "--peer-python", str(options.peer_python.absolute())]
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *target], cwd=root, check=False).returncode:
            failed.append(name)
    print(f"{len(names) - len(failed)} of {len(names)} benchmarks ran; rows in {options.output}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
