"""The process that makes the files of one format, or, with `--check`, loads them and compares.

Prints one JSON line per file, `{"name", "media_type", "kind"}`, or one `{"error": "a sentence"}` and exits with 1.
Everything else that is printed on the way, by whatever library, goes to stderr.
"""

import argparse
import importlib
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from app.errors import TrainshedError
from workers.confinement import confine, end_with
from workers.exports.request import Request

MAKERS: Final[Mapping[str, str]] = {
    "report": "workers.exports.report.make",
    "tensorboard": "workers.exports.tensorboard_file",
    "onnx": "workers.exports.onnx_file.make",
    "keras": "workers.exports.keras_file.make",
}
"""Modules by format, loaded late: each has `make(request) -> list[Made]`, and needs packages that others do not."""

CHECKS: Final[Mapping[str, str]] = {
    "onnx": "workers.exports.onnx_file.check",
    "keras": "workers.exports.keras_file.check",
}
"""Modules with `check(request) -> None`, which load the file as another program would."""


def main(arguments: Sequence[str]) -> int:
    """Confine the process, then do what it was asked for; gives the exit status."""
    options = _parse(arguments)
    end_with(options.parent)
    confine(options.memory)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library that prints cannot be taken for an answer
    request = Request(options.model, options.output, options.series, options.evaluation)
    try:
        lines = _do(options.format, request, check=options.check)
        status = 0
    except Exception as error:  # noqa: BLE001 - every error becomes one sentence, with its traceback on stderr
        traceback.print_exc()
        lines = [{"error": _sentence(error, options.memory)}]
        status = 1
    with answers:
        answers.writelines(f"{json.dumps(line)}\n" for line in lines)
    return status


def _do(format: str, request: Request, *, check: bool) -> list[dict[str, str]]:  # noqa: A002 - the word that users write
    if check:
        importlib.import_module(CHECKS[format]).check(request)
        return []
    return [vars(made) for made in importlib.import_module(MAKERS[format]).make(request)]


def _sentence(error: Exception, memory: int) -> str:
    if isinstance(error, TrainshedError):
        return str(error)
    if isinstance(error, MemoryError):
        return f"It needs more than {memory / 1024**3:.1f} GiB of memory."
    if isinstance(error, ModuleNotFoundError):
        return (
            f"The package '{error.name}' is not installed in {sys.prefix}. Install trainshed with the extra 'worker'."
        )
    return f"{type(error).__name__}: {error}"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m workers.exports")
    parser.add_argument("--format", required=True, choices=sorted(MAKERS))
    parser.add_argument("--model", required=True, type=Path)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--series", type=Path)
    parser.add_argument("--evaluation", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--memory", required=True, type=int)
    parser.add_argument("--parent", required=True, type=int)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
