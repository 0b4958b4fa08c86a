"""Which version of its framework a script runs with, without importing it."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_PACKAGES: Final = {"torch": ("torch",), "tensorflow": ("tensorflow", "tensorflow_cpu")}


def framework_version(framework: str, path: Sequence[str] | None = None) -> str:
    """The version of an installed framework, from the folders of `path` (this interpreter's); Python's for `python`."""
    if framework not in _PACKAGES:
        return ".".join(map(str, sys.version_info[:3]))
    names = "|".join(_PACKAGES[framework])
    described = re.compile(rf"(?:{names})-([^-]+)\.dist-info")
    for folder in sys.path if path is None else path:
        try:
            found = [match[1] for file in Path(folder).iterdir() if (match := described.fullmatch(file.name))]
        except OSError:
            continue
        if found:
            return found[0]
    return "unknown"
