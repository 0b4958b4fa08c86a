"""A hundred repeats of a job on two devices, per framework: none may hang at its end or leave a process behind.

Forked ranks that freed what Gloo had used hung at their very end in 6 of about 50 runs; ours leave by `os._exit`.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.table import Row, show

FRAMEWORKS: Final = ("torch", "tensorflow")
ROOT: Final = Path(__file__).parents[1]
BAR: Final = "every one ends well"


def repeated(framework: str, repeats: int, limit_s: float) -> list[dict[str, Any]]:
    """Run the repeats in a process of their own; those that the limit cuts off are missing."""
    command = [sys.executable, "-m", "benchmarks.harness.rank_repeats", framework, str(repeats)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            lines, _ = process.communicate()
    return [json.loads(line) for line in lines.splitlines()]


def row(framework: str, repeats: int, found: list[dict[str, Any]]) -> Row:
    ends = Counter(each["how"] for each in found)
    seconds = sorted(each["seconds"] for each in found) or [float("nan")]
    ended = ends.pop("status 0", 0)
    others = ", ".join(f"{count} {how}" for how, count in ends.items()) or "no other end"
    print(f"{framework}: {ended} of {repeats} ended well, {others}; longest {seconds[-1]:.2f} s")
    work = f"{framework}: 2 devices, {repeats} times, median s"
    return Row(work, seconds[len(seconds) // 2], None, "none", None, BAR, ended == repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", choices=FRAMEWORKS, action="append")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--limit-s", type=float, default=900.0, help="for all repeats of a framework together")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--peer-python", type=Path, default=None, help="not used: there is no peer to compare with")
    options = parser.parse_args()
    rows = [
        row(framework, options.repeats, repeated(framework, options.repeats, options.limit_s))
        for framework in options.framework or FRAMEWORKS
    ]
    show("Jobs of two devices, again and again", rows, options.json)
    sys.exit(0 if all(each.holds for each in rows) else 1)


if __name__ == "__main__":
    main()
