"""What a spec of code says about the files of its bundle, held against their names."""

import difflib
from collections.abc import Collection, Sequence
from typing import Final

from app.spec.problems import SpecProblem, pointer

_CUTOFF: Final = 0.6
_MOST_COMPARED: Final = 1000  # names; a bundle may have thousands, and each comparison takes some microseconds
_SHOWN: Final = 5
_PYTHON: Final = ("python", "python3")
_WITH_VALUE: Final = ("-W", "-X")
_SUFFIX: Final = ".py"
_MODULES: Final = (".py", "/__init__.py", ".so", ".pyd")


def check_script(command: Sequence[str], names: Collection[str]) -> list[SpecProblem]:
    """Say when the file that Python is to run is not among a bundle's files.

    Only what is surely meant as one is looked for: `x.py` after `python` and its options. A module (`-m`), a program
    text (`-c`) and a path from `/` on may be anywhere.
    """
    position = _script_at(command)
    if position is None:
        return []
    asked = command[position]
    name = asked.removeprefix("./")
    if name in names or not name.endswith(_SUFFIX) or name.startswith("/"):
        return []
    where = pointer(("script", "command", position))
    return [missing_file(where, name, names)]


def missing_file(where: str, name: str, names: Collection[str]) -> SpecProblem:
    """Say that a file is not in the bundle, and which one was probably meant."""
    nearest = nearest_file(name, names)
    advice = f"did you mean '{nearest}'?" if nearest else f"it has {_some(names)}."
    return SpecProblem(where, f"There is no file '{name[:200]}' in the bundle; {advice}", nearest)


def has_module(module: str, names: Collection[str]) -> bool:
    """Tell whether a bundle has a module, as a file, a package or a compiled one."""
    path = module.replace(".", "/")
    known = any(path + ending in names for ending in _MODULES)
    # A compiled module has the version in its name: `fast.cpython-312-x86_64-linux-gnu.so`.
    return known or any(name.startswith(f"{path}.") and name.endswith(_MODULES[2:]) for name in names)


def nearest_file(name: str, names: Collection[str]) -> str | None:
    """Return the file that was probably meant: one of the same name in another folder, else one spelt like it."""
    last = name.rpartition("/")[2]
    same = [known for known in names if known.rpartition("/")[2] == last]
    if same:
        return min(same, key=lambda path: (len(path), path))
    alike = [known for known in names if known.rpartition(".")[2] == name.rpartition(".")[2]]
    by_length = sorted(alike, key=lambda known: (abs(len(known) - len(name)), known))[:_MOST_COMPARED]
    close = difflib.get_close_matches(name, by_length, n=1, cutoff=_CUTOFF)
    return close[0] if close else None


def _some(names: Collection[str]) -> str:
    shown = sorted(names)[:_SHOWN]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _script_at(command: Sequence[str]) -> int | None:
    """Return where the file to run stands in a call of Python, if there is one."""
    if command[0] not in _PYTHON:
        return None
    position = 1
    while position < len(command) and command[position].startswith("-"):
        option = command[position]
        if option.startswith(("-m", "-c")) or option == "-":
            return None
        position += 2 if option in _WITH_VALUE else 1
    return position if position < len(command) else None
