"""What a spec of code says about the files of its bundle, held against their names."""

import difflib
import json
import re
from collections.abc import Collection, Sequence
from typing import Final

from app.spec.problems import SpecProblem, pointer
from app.spec.requirements import EXAMPLE
from app.spec.script import EXAMPLE_BUNDLE

_CUTOFF: Final = 0.6
_MOST_COMPARED: Final = 1000  # names; a bundle may have thousands, and each comparison takes some microseconds
_SHOWN: Final = 5
_LONGEST_SHOWN: Final = 200
_FILE_NAME: Final = re.compile(r"/|\.[A-Za-z]+$")
_OF_A_SHELL: Final = frozenset({"&&", "||", "|", "&", ">", ">>", "<", "2>", "2>&1"})
_PYTHON: Final = ("python", "python3")
_WITH_VALUE: Final = ("-W", "-X")
_SUFFIX: Final = ".py"
_MODULES: Final = (".py", "/__init__.py", ".so", ".pyd")


def check_script(command: Sequence[str], names: Collection[str] | None) -> list[SpecProblem]:
    """Say when the file that is to run is not among a bundle's files; `names` is None when there is no bundle.

    Only what is surely meant as one is looked for: `x.py` after `python` and its options, or a program with a slash. A
    module (`-m`), a program text (`-c`) and a path from `/` on may be anywhere.
    """
    if command[0] in (names or ()) and "/" not in command[0]:
        return [_no_program(command[0])]
    position = _script_at(command)
    if position is None:
        return []
    asked = command[position]
    name = asked.removeprefix("./")
    if not name.endswith(_SUFFIX if position else "") or name.startswith("/"):
        return []
    if names is None:
        sentence = (
            f"The command's folder is empty without a bundle, so there is no file '{name[:_LONGEST_SHOWN]}' to run: "
            "upload the folder that has it with POST /v1/bundles, and write the bundle's id here."
        )
        return [SpecProblem(pointer(("script", "bundle")), sentence, EXAMPLE_BUNDLE)]
    where = pointer(("script", "command", position))
    return [] if name in names else [missing_file(where, name, names)]


def shell_words(command: Sequence[str]) -> list[str]:
    """Return the words that mean something to a shell alone, such as `&&` or `>`; the program gets them as they are."""
    return [word for word in command[1:] if word in _OF_A_SHELL]


def _no_program(name: str) -> SpecProblem:
    """Explain a file of the bundle as the first word: that is looked up among programs, as a shell does."""
    meant = ["python", name] if name.endswith(_SUFFIX) else [f"./{name}"]
    sentence = f"'{name[:_LONGEST_SHOWN]}' is a file of the bundle and not a program; begin with {json.dumps(meant)}."
    return SpecProblem(pointer(("script", "command")), sentence, json.dumps(meant, ensure_ascii=False))


def missing_requirements(where: str, wanted: str, names: Collection[str] | None) -> SpecProblem:
    """Say that a requirements file is not there; `names` is None when there is no bundle.

    A requirement itself, `rich==14.1.0`, is what people write who mean a list with it.
    """
    meant = json.dumps([EXAMPLE if names is None and _FILE_NAME.search(wanted) else wanted], ensure_ascii=False)
    if names is None:
        sentence = f"'{wanted}' would be a file of the bundle, and there is none; write the requirements as a list."
        return SpecProblem(where, sentence, meant)
    if _FILE_NAME.search(wanted) or nearest_file(wanted, names):
        return missing_file(where, wanted, names)
    sentence = f"There is no file '{wanted}' in the bundle; requirements that are in no file are a list."
    return SpecProblem(where, sentence, meant)


def missing_file(where: str, name: str, names: Collection[str]) -> SpecProblem:
    """Say that a file is not in the bundle, and which one was probably meant."""
    nearest = nearest_file(name, names)
    advice = f"did you mean '{nearest}'?" if nearest else f"it has {_some(names)}."
    return SpecProblem(where, f"There is no file '{name[:_LONGEST_SHOWN]}' in the bundle; {advice}", nearest)


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
    """Return where the file to run stands, if there is one: in a call of Python, or as a program with a slash."""
    if command[0] not in _PYTHON:
        return 0 if "/" in command[0] and ".." not in command[0].split("/") else None
    position = 1
    while position < len(command) and command[position].startswith("-"):
        option = command[position]
        if option.startswith(("-m", "-c")) or option == "-":
            return None
        position += 2 if option in _WITH_VALUE else 1
    return position if position < len(command) else None
