"""What to do about an error that scripts often end with: one sentence for its user, or none. Pure."""

import re
import signal
from collections.abc import Collection, Mapping, Sequence
from typing import Final

_LAST_LINES: Final = 12
_NO_MODULE: Final = r"No module named '([\w.]+)'"
_FRAMEWORKS: Final[Mapping[str, str]] = {"torch": "torch", "tensorflow": "tensorflow", "keras": "tensorflow"}
_PACKAGES: Final[Mapping[str, str]] = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "git": "GitPython",
    "PIL": "pillow",
    "pytorch_lightning": "pytorch-lightning",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
}
"""Packages that are not called like their module; under the module's name somebody else's may be found."""
_TOO_LARGE: Final = "A file came over the limit of one file's size on this host."
_HINTS: Final[tuple[tuple[str, str], ...]] = (
    (r"\[Errno 27\]|File too large", _TOO_LARGE),
    (
        r"\[Errno 11\] Resource temporarily unavailable|can't start new thread|fork: retry",
        "It may have had as many processes and threads as a job may have on this host.",
    ),
    (
        r"Temporary failure in name resolution|Network is unreachable|Name or service not known",
        'The job has no network; where the host allows it, "network": true asks for one.',
    ),
    (
        r"FileNotFoundError: .*No such file or directory: '[^/]",
        "A job has its bundle's files, and its data where TRAINSHED_DATA_<NAME> says; see `trainshed run --dry-run`.",
    ),
    (
        r"ImportError: attempted relative import with no known parent package",
        "A file of a package is run as a module: python -m package.module.",
    ),
    (r"EOFError: EOF when reading a line", "A job has nobody to ask: its standard input is empty."),
)


def hint_of(error: Sequence[str], exception: str, number: int | None, files: Collection[str] = ()) -> str:
    """The sentence; empty for an error that says enough.

    `error`: the lines of the last error; `exception`: the line of it that names one. `number`: the signal that ended
    the command. `files`: what the bundle holds.
    """
    if number == signal.SIGXFSZ:
        return _TOO_LARGE
    if number == signal.SIGSEGV:
        return "It crashed in native code, of a library for example."
    if "ModuleNotFoundError" in exception and (found := re.search(_NO_MODULE, exception)):
        return _about_module(found[1], files)
    last = error[-_LAST_LINES:]
    return next((hint for pattern, hint in _HINTS if any(re.search(pattern, line) for line in last)), "")


def _about_module(module: str, files: Collection[str]) -> str:
    name, dot, _ = module.partition(".")
    if dot:
        return (
            f"There is a '{name}' without this part: another version, a package that is missing beside it, or a file "
            f"of yours called {name}.py."
        )
    if name in _FRAMEWORKS:
        framework = _FRAMEWORKS[name]
        return f'Ask for workers that have it: "framework": "{framework}" (`trainshed run --framework {framework}`).'
    if (folder := _folder_with(name, files)) is not None:
        return (
            f"The bundle has it in '{folder}', where Python does not look: make that the job's folder "
            f"(`trainshed run --folder {folder}`), or put it on sys.path."
        )
    package = _PACKAGES.get(name, name)
    return f'Add \'{name}\' to the bundle, or its package to "environment": {{"requirements": ["{package}"]}}.'


def _folder_with(name: str, files: Collection[str]) -> str | None:
    """The folder of the bundle that holds a module; not the bundle's top, where Python looks."""
    ends = (f"/{name}.py", f"/{name}/__init__.py")
    found = (file.removesuffix(end) for file in files for end in ends if file.endswith(end))
    return min(found, key=lambda folder: (len(folder), folder), default=None)
