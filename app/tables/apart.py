"""Reading a stranger's packed file in a process of its own, with limits on memory and time.

A few kilobytes of Parquet or NPZ unpack to gigabytes, and the libraries that read them can fail in ways that take the
process along. So a server lets a child read such a file. CSV and TSV are as large as they were sent, and are read in
blocks of text; they need no child.

`python -P -m app.tables.apart MEMORY_BYTES TIME_S profile|preview FORMAT PATH [ROWS]` writes one JSON object: `table`,
`preview` or `problems`.
"""

import json
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import polars as pl

from app.spec.table import TableSchema
from app.tables.preview import Preview, preview
from app.tables.problems import InvalidTable, TableProblem
from app.tables.profile import profile

log = logging.getLogger(__name__)

MEMORY_BYTES: Final = 4 * 2**30
"""Address space, of which the reader's own libraries and threads take about one."""

TIME_S: Final = 120

PACKED: Final = ("parquet", "npz")
_WORDS: Final = {"parquet": ("Parquet", "in smaller row groups"), "npz": ("NPZ", "in C order")}
_TAIL: Final = 500

_THREADS: Final = {"POLARS_MAX_THREADS": "2", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_KEPT: Final = ("PYTHONPATH", "LD_LIBRARY_PATH")
"""What a child needs to find its modules; nothing else of the environment is its business."""


def profile_apart(path: Path, table_format: str, *, descriptor: int | None = None) -> TableSchema:
    """Describe a file as `profile` does; a packed one, Parquet or NPZ, in a child.

    `descriptor`: the open file that `path` names, as `/proc/self/fd/7`; the child is given it too.

    Raises:
        InvalidTable: as `profile`, and for a file that needs more memory or time than the child may use.
    """
    if table_format not in PACKED:
        return profile(path, table_format)
    return TableSchema.model_validate(_ask("profile", table_format, [str(path)], descriptor)["table"])


def preview_apart(path: Path, table_format: str, *, rows: int, descriptor: int | None = None) -> Preview:
    """Return the first rows as `preview` does; of a packed file by a child. Takes and raises as `profile_apart`."""
    if table_format not in PACKED:
        return preview(path, None, table_format, rows=rows)
    return Preview(**_ask("preview", table_format, [str(path), str(rows)], descriptor)["preview"])


def _ask(what: str, table_format: str, arguments: Sequence[str], descriptor: int | None) -> Mapping[str, Any]:
    limits = [str(MEMORY_BYTES), str(TIME_S)]
    command = [sys.executable, "-P", "-m", "app.tables.apart", *limits, what, table_format, *arguments]
    environment = _THREADS | {name: os.environ[name] for name in _KEPT if name in os.environ}
    passed = () if descriptor is None else (descriptor,)
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=TIME_S, env=environment, check=False, pass_fds=passed
        )
    except subprocess.TimeoutExpired:
        raise InvalidTable([_too_much("time", table_format)]) from None
    if done.returncode:
        log.warning("a reader of %s ended with %d: %s", table_format, done.returncode, done.stderr[-_TAIL:])
        raise InvalidTable([_too_much("memory or time", table_format)])
    answer: Mapping[str, Any] = json.loads(done.stdout)
    if "problems" in answer:
        raise InvalidTable([TableProblem(**problem) for problem in answer["problems"]])
    return answer


def _too_much(what: str, table_format: str) -> TableProblem:
    kind, smaller = _WORDS[table_format]
    sentence = f"The {kind} file needs more {what} to be read than is allowed."
    return TableProblem(sentence, f"Upload fewer rows or columns, {smaller}, or write it out as CSV.")


def main(arguments: Sequence[str]) -> int:
    """Answer one question on stdout; a death for lack of memory or time is an answer too."""
    memory, time_s, what, table_format, name, *rows = arguments
    for limit, value in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, time_s), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (int(value), int(value)))
    path = Path(name)
    answer: dict[str, Any]
    try:
        if what == "profile":
            answer = {"table": profile(path, table_format).model_dump(mode="json")}
        else:
            answer = {"preview": asdict(preview(path, None, table_format, rows=int(rows[0])))}
    except InvalidTable as error:
        answer = {"problems": [asdict(problem) for problem in error.problems]}
    except MemoryError:
        raise
    except (Exception, pl.exceptions.PanicException):  # a library that stumbles over what a file says
        log.exception("the file cannot be read")
        problem = TableProblem("The file cannot be read: it is damaged.", "Write it again, and upload all of it.")
        answer = {"problems": [asdict(problem)]}
    sys.stdout.write(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
