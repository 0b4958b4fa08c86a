"""`make gpu-test`: what only a real card can show; SKIPPED with the reason where there is none.

It needs pytest and one framework in the environment that runs it, so the one of a framework alone will do:
`/opt/frameworks/torch/bin/python scripts/gpu_test.py`. What is written behind it goes to pytest: `-k memory`.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.gpu.cards import MIB, NoCard, cards, slices  # noqa: E402 - a script is not installed: it says where we are

_FRAMEWORKS: Final = ("torch", "tensorflow")
_NOTHING_RAN: Final = 5
"""pytest's exit code when it found no test, as with a `-k` that fits none."""


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 when all went well or nothing could be tried, else pytest's."""
    try:
        found = cards()
    except NoCard as reason:
        print(f"SKIPPED: no card: {reason}.")
        return 0
    frameworks = [name for name in _FRAMEWORKS if importlib.util.find_spec(name)]
    if not frameworks:
        print(f"SKIPPED: neither torch nor tensorflow is installed for {sys.executable}.")
        return 0
    if importlib.util.find_spec("pytest") is None:
        print(f"pytest is missing: {sys.executable} -m pip install pytest")
        return 2
    for card in found:
        kind = "sliced" if card.sliced else f"{card.memory_bytes // MIB} MiB"
        print(f"{card.id}  {card.name}  {kind}  {card.pci_bus_id}")
    print(f"{len(slices())} slices; frameworks here: {', '.join(frameworks)}", flush=True)
    folder = ROOT / "tests" / "gpu"
    command = [sys.executable, "-m", "pytest", "-c", str(folder / "pytest.ini"), str(folder), *arguments]
    code = subprocess.run(command, cwd=ROOT, check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}).returncode
    return 2 if code == _NOTHING_RAN else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
