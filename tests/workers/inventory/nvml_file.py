"""The stand-in for NVML in a worker's own process: cards out of a JSON file that is read at each look.

    {"driver": null, "cards": [{"uuid": "GPU-a", "pci": "…", "compute": [{"pid": 4711, "memory": 1}], "mig": null}]}

The keys of a card are the fields of `nvml_stand_in.Card`.
"""

import importlib
import json
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from app.cli.processes.root import run
from tests.workers.inventory.nvml_stand_in import Card, NvmlStandIn, Process

FILE = "NVML_STAND_IN"
ROOT = Path(__file__).parents[3]
PROGRAM = ("-c", "from tests.workers.inventory.nvml_file import main; main()")


class FileNvml(NvmlStandIn):
    """Initialising it reads the file; what was handed out before stays what it was."""

    __hash__ = object.__hash__  # as a module has it

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def nvmlInit(self) -> None:  # noqa: N802 - the library's own name
        content = json.loads(self._path.read_text())
        self.driver = content.get("driver")
        self.cards = [card_of(found) for found in content["cards"]]
        super().nvmlInit()


def card_of(found: dict[str, Any]) -> Card:
    fields = dict(found)
    for kind in ("compute", "graphics"):
        fields[kind] = [Process(one["pid"], one.get("memory")) for one in found.get(kind, [])]
    if found.get("mig") is not None:
        fields["mig"] = [card_of(part) for part in found["mig"]]
    fields["remapped"] = tuple(found.get("remapped", (0, 0, 0, 0)))
    return Card(**fields)


def write(path: Path, *cards: dict[str, Any], driver: str | None = None) -> None:
    """Replace the file, whole at any moment."""
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps({"driver": driver, "cards": cards}))
    unfinished.replace(path)


def environment(path: Path) -> dict[str, str]:
    """What `PROGRAM` needs besides a worker's settings."""
    return {FILE: str(path), "PYTHONPATH": str(ROOT)}


def main() -> None:
    """`trainshed worker`, to which this module is pynvml."""
    stand_in = FileNvml(Path(os.environ[FILE]))
    stand_in.__spec__ = ModuleSpec("pynvml", None)  # type: ignore[attr-defined] # so that it is found as a module is
    sys.modules["pynvml"] = stand_in  # type: ignore[assignment] # it stands in for one
    # Only now, since it imports pynvml.
    sys.exit(run(importlib.import_module("workers.celery_app").main))
