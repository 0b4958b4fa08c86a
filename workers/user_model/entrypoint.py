"""The user's function: its module imported from the bundle, the function found and called.

The bundle's folder stands behind Python's own library and before installed packages, so that a file of the user's
called `random.py` does not replace what a framework imports later. Names of the frameworks and of our own packages are
refused in a bundle: whichever of the two came first, the other one's importer would get the wrong module.
"""

import difflib
import importlib
import inspect
import sys
import sysconfig
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from app.spec.layers import Shape
from workers.user_model.errors import UserCodeFailed

PROTECTED: Final = frozenset(
    {"app", "keras", "numpy", "pydantic", "safetensors", "tensorflow", "torch", "trainshed", "workers"}
)
"""Modules that a bundle cannot have at its top."""

_SHOWN: Final = 8

_PLACED: Final[set[str]] = set()
"""The folder that this process has on its path for a bundle: one at a time."""

Known = Callable[[BaseException], object]
"""Tells the framework's own errors, a full device for one: those are passed on as they are."""


def load_entrypoint(
    folder: str | None,
    entrypoint: str,
    parameters: Mapping[str, Any],
    input_shape: Shape,
    output_units: int,
    known: Known = lambda _: None,
) -> object:
    """Import the module, call its function with the parameters, and return what it gives.

    `input_shape` and `output_units` are passed too where the function has such arguments (or takes any). `known`: which
    errors of the call are not the user's.

    Raises:
        UserCodeFailed: no such module or function, or its import, its arguments or itself fail.
    """
    function = find(folder, entrypoint)
    given = _arguments(function, entrypoint, parameters, {"input_shape": input_shape, "output_units": output_units})
    try:
        return function(**given)
    except BaseException as error:  # also what ends a process: SystemExit, KeyboardInterrupt
        if isinstance(error, MemoryError) or known(error) is not None:
            raise
        raise UserCodeFailed.of(error, f"The model's function '{entrypoint}' failed", folder) from error


def find(folder: str | None, entrypoint: str) -> Callable[..., object]:
    """Import the module of `package.module:function` and return the function.

    Raises:
        UserCodeFailed: there is none, or the module cannot be imported.
    """
    name, _, path = entrypoint.partition(":")
    if folder is not None:
        _put_on_path(Path(folder), name)
    found: Any = _imported(folder, name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise UserCodeFailed(_no_function(found, name, part))
        found = getattr(found, part)
    if not callable(found):
        raise UserCodeFailed(f"'{path}' in '{name}' is not a function but {_kind(found)}; model.entrypoint names one.")
    function: Callable[..., object] = found
    return function


def _put_on_path(folder: Path, name: str) -> None:
    tops = top_modules(folder)
    shadowing = sorted(tops & PROTECTED)
    if shadowing:
        raise UserCodeFailed(
            f"The bundle has '{shadowing[0]}' at its top, which is the name of a package that training itself needs. "
            f"Rename it, for example to 'my_{shadowing[0]}'."
        )
    top = name.split(".", maxsplit=1)[0]
    if top in sys.stdlib_module_names:
        raise UserCodeFailed(
            f"The module '{name}' of model.entrypoint has the name of one of Python's own, which comes first. "
            f"Rename it, for example to 'my_{top}'."
        )
    _forget_others(folder, tops)
    sys.path.insert(_before_packages(), str(folder))
    importlib.invalidate_caches()


def _forget_others(folder: Path, tops: set[str]) -> None:
    """Leave nothing of another bundle that this process had: its folder, and its modules of the same names."""
    sys.path[:] = [entry for entry in sys.path if entry not in _PLACED and entry != str(folder)]
    _PLACED.clear()
    _PLACED.add(str(folder))
    for name, module in list(sys.modules.items()):
        if name.split(".", maxsplit=1)[0] in tops and not _lies_in(module, folder):
            del sys.modules[name]


def _lies_in(module: types.ModuleType, folder: Path) -> bool:
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
    return any(place is not None and Path(place).is_relative_to(folder) for place in places)


def top_modules(folder: Path) -> set[str]:
    """Name what can be imported from a folder: its modules, and its folders with Python in them."""
    found = {path.name.split(".")[0] for path in folder.iterdir() if path.suffix in {".py", ".so"} and path.is_file()}
    return found | {path.name for path in folder.iterdir() if path.is_dir() and next(path.rglob("*.py"), None)}


def _before_packages() -> int:
    """Return the place in `sys.path` behind Python's own library, and so before what is installed."""
    own = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    places = [place for place, entry in enumerate(sys.path) if entry in own or entry.endswith(("lib-dynload", ".zip"))]
    return max(places, default=-1) + 1


def _imported(folder: str | None, name: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserCodeFailed(_no_module(folder, name)) from None
        raise UserCodeFailed(
            f"The module '{name}' needs '{error.name}', which is not installed: add the package that has it to "
            "model.environment.requirements, or its code to the bundle."
        ) from error
    except MemoryError:
        raise
    except BaseException as error:
        raise UserCodeFailed.of(error, f"The module '{name}' cannot be imported", folder) from error


def _no_module(folder: str | None, name: str) -> str:
    if folder is None:
        return (
            f"There is no module '{name}' in the worker's environment. Put it into a bundle, and the bundle's id into "
            "model.bundle."
        )
    root = Path(folder)
    every = sorted(module_name(path.relative_to(root)) for path in root.rglob("*.py"))
    near = difflib.get_close_matches(name, every, 1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"The bundle has no module '{name}'.{hint} It has: {_listed(every)}."


def module_name(path: Path) -> str:
    """Write the path of a Python file in a bundle as the name of its module: `a/b.py` is `a.b`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _no_function(owner: object, name: str, part: str) -> str:
    every = sorted(each for each in dir(owner) if not each.startswith("_") and _own_callable(owner, each))
    near = difflib.get_close_matches(part, every, 1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"The module '{name}' has no '{part}'.{hint} Its functions and classes: {_listed(every)}."


def _own_callable(owner: object, name: str) -> bool:
    value = getattr(owner, name)
    return callable(value) and getattr(value, "__module__", None) == getattr(owner, "__name__", None)


def _arguments(
    function: Callable[..., object], entrypoint: str, parameters: Mapping[str, Any], ours: Mapping[str, object]
) -> dict[str, Any]:
    """Join the parameters with what the function wants of ours; a parameter of the same name counts.

    Raises:
        UserCodeFailed: the function has no such argument, or needs one that is not given.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C, for one: the call itself will say
        return dict(parameters)
    arguments = signature.parameters.values()
    taken = {each.name for each in arguments if each.kind in {each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY}}
    given = {name: value for name, value in ours.items() if name in taken} | dict(parameters)
    try:
        signature.bind(**given)
    except TypeError as error:
        raise UserCodeFailed(
            f"The function '{entrypoint}' cannot be called with model.parameters: {error}. It takes {signature}."
        ) from None
    return given


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN]) or "none"
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _kind(value: object) -> str:
    return f"of type {type(value).__module__}.{type(value).__qualname__}"
