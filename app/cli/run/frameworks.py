"""Which framework a command needs, told by what its code imports; nothing of it is run."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from app.cli.errors import UsageProblem

_OF: Final[Mapping[str, str]] = {
    "torch": "torch",
    "torchvision": "torch",
    "torchaudio": "torch",
    "lightning": "torch",
    "pytorch_lightning": "torch",
    "transformers": "torch",
    "accelerate": "torch",
    "diffusers": "torch",
    "timm": "torch",
    "tensorflow": "tensorflow",
    "tf_keras": "tensorflow",
    "keras": "tensorflow",
}
"""By the name that is imported. Keras is TensorFlow's here unless KERAS_BACKEND says that it computes with PyTorch."""

NONE: Final = "python"
_INTERPRETERS: Final = ("python", "python3")


@dataclass(frozen=True)
class Guess:
    """A framework, and a sentence that says why."""

    framework: str
    why: str


def guess_framework(command: Sequence[str], files: Mapping[str, Path], variables: Mapping[str, str]) -> Guess:
    """Follow the imports from the command's script through the bundle; without a script of ours, look at every file.

    Raises:
        UsageProblem: both frameworks are imported.
    """
    start = script_of(command, files)
    reached = _reached(start, files) if start else [name for name in files if name.endswith(".py")]
    seen: dict[str, tuple[str, str]] = {}
    for name in reached:
        for imported in _imports(name, files):
            framework = _framework_of(imported.partition(".")[0], variables)
            if framework:
                seen.setdefault(framework, (name, imported.partition(".")[0]))
    if len(seen) > 1:
        told = " and ".join(f"{name} imports {imported}" for name, imported in seen.values())
        raise UsageProblem(f"{told}: say which framework the worker must have, for example --framework torch")
    for framework, (name, imported) in seen.items():
        return Guess(framework, f"{framework}, since {name} imports {imported}")
    return Guess(NONE, f"{NONE}, since nothing imports PyTorch or TensorFlow")


def script_of(command: Sequence[str], files: Mapping[str, Path]) -> str | None:
    """The file of the bundle that `python FILE` or `python -m MODULE` runs; None when there is none."""
    words = list(command[1:]) if command and PurePosixPath(command[0]).name in _INTERPRETERS else []
    while words and words[0].startswith("-") and words[0] != "-m":
        words.pop(0)
    if words[:1] == ["-m"]:
        return next(iter(_files_of(words[1], files, PurePosixPath())), None) if len(words) > 1 else None
    wanted = words[0].removeprefix("./") if words else ""
    return wanted if wanted in files else None


def _reached(start: str, files: Mapping[str, Path]) -> list[str]:
    """The script, and what it imports of the bundle, however far."""
    reached, waiting = [start], [start]
    # Python looks for modules beside the script, and in the working folder, which is on PYTHONPATH.
    places = dict.fromkeys((PurePosixPath(start).parent, PurePosixPath()))
    while waiting:
        for module in _imports(waiting.pop(), files):
            found = [name for place in places for name in _files_of(module, files, place)]
            fresh = [name for name in dict.fromkeys(found) if name not in reached]
            reached += fresh
            waiting += fresh
    return reached


def _files_of(module: str, files: Mapping[str, Path], beside: PurePosixPath) -> list[str]:
    """The bundle's files that importing `module` would run; the first is the module itself, its packages follow."""
    parts = module.split(".")
    found = []
    for count in range(len(parts), 0, -1):
        stem = beside.joinpath(*parts[:count])
        names = (f"{stem}.py", str(stem / "__main__.py"), str(stem / "__init__.py"))
        found += [name for name in names if name in files]
    return found


def _imports(name: str, files: Mapping[str, Path]) -> Iterator[str]:
    """The names of imported modules, wherever in the file; none of a file that is no Python."""
    try:
        tree = ast.parse(files[name].read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = PurePosixPath(name).parts[: -node.level] if node.level else ()
            module = ".".join((*package, *([node.module] if node.module else [])))
            yield from (".".join(part for part in (module, alias.name) if part) for alias in node.names)


def _framework_of(package: str, variables: Mapping[str, str]) -> str | None:
    backend = variables.get("KERAS_BACKEND")
    if package == "keras" and backend is not None:
        return {"torch": "torch", "tensorflow": "tensorflow"}.get(backend)
    return _OF.get(package)
