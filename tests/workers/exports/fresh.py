"""Run in a fresh process: what an export's process does, for many models in one, since TensorFlow starts in seconds.

`python fresh.py make|check FORMAT FOLDER…`: makes the file into each model's folder, or loads and compares it there.
"""

import importlib
import sys
from pathlib import Path

from workers.exports.__main__ import CHECKS, MAKERS
from workers.exports.request import Request


def main(act: str, name: str, folders: list[Path]) -> None:
    module = importlib.import_module((MAKERS if act == "make" else CHECKS)[name])
    for folder in folders:
        getattr(module, act)(Request(folder, folder))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [Path(folder) for folder in sys.argv[3:]])
