"""The worker's side of an export: a process that makes the file, and a fresh one that loads and compares it.

May be called from any thread, from several at once. Blocks for seconds: a report takes about 2, `.keras` up to 20.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, get_args

from app.errors import TrainshedError
from workers.environment import framework_environment, trainer_environment

Format = Literal["report", "tensorboard", "onnx", "keras"]
FORMATS: Final[tuple[str, ...]] = get_args(Format)

_CHECKED: Final = frozenset({"onnx", "keras"})
"""Formats that another program loads: a fresh process does so first."""
_FRAMEWORKS: Final[Mapping[str, str]] = {"keras": "tensorflow"}
_ANSWER_LIMIT: Final = 64 * 1024
_TAIL: Final = 2000


class ExportFailed(TrainshedError):
    """A file could not be made, or could not be loaded again with the model's own outputs; nothing of it is left."""

    code: ClassVar[str] = "artifact_unreadable"

    def __init__(self, format: str, reason: str) -> None:  # noqa: A002 - the word that users write
        super().__init__(f"The export '{format}' failed: {reason}")
        self.format = format
        self.reason = reason


@dataclass(frozen=True)
class ExportedFile:
    """A complete, checked file; `name` is what it is stored as, `kind` the artifact's kind."""

    name: str
    path: Path
    media_type: str
    kind: Literal["model", "report"]


@dataclass(frozen=True)
class Limits:
    """What each of the processes may use; over it, the export fails and says so."""

    timeout_s: float = 120.0
    memory_bytes: int = 8 * 1024**3
    threads: int = 1


def run(
    format: Format,  # noqa: A002 - the word that users write
    model: Path,
    output: Path,
    *,
    interpreter: Path | None = None,
    series: Mapping[str, Mapping[str, Any]] | None = None,
    evaluation: Path | None = None,
    limits: Limits | None = None,
) -> list[ExportedFile]:
    """Make the files of one format in the folder `output`, and return them once they were checked.

    `model`: the folder with model.json, model.safetensors and, if there is one, probe.safetensors. `interpreter`: the
    Python that has what the format needs; None is this one, and `keras` needs TensorFlow's. `series`: for `report` and
    `tensorboard`, by name, arrays `step`, `epoch`, `value` of one length (the fields of `app.jobs.metrics.Series`;
    values may be the strings of non-finite numbers). `evaluation`: the file evaluation.json, for `report`.

    Raises:
        ExportFailed: with the reason, one sentence for the user.
    """
    limits = limits or Limits()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=output) as private:
        made, home = Path(private, "made"), Path(private, "home")
        made.mkdir()
        home.mkdir()
        arguments = ["--format", format, "--model", str(model.resolve()), "--output", str(made.resolve())]
        more = [] if evaluation is None else ["--evaluation", str(evaluation.resolve())]
        if series is not None:
            path = home / "series.json"
            path.write_text(json.dumps(series), encoding="utf-8")
            more += ["--series", str(path.resolve())]
        process = _Process(format, interpreter or Path(sys.executable), home, limits)
        lines = process.run([*arguments, *more])
        if format in _CHECKED:
            process.run([*arguments, "--check"])
        return [_taken(ExportedFile(path=made / line["name"], **line), output) for line in lines]


def _taken(file: ExportedFile, output: Path) -> ExportedFile:
    """Move a file that passed to where it belongs."""
    final = output / file.name
    file.path.replace(final)
    return ExportedFile(file.name, final, file.media_type, file.kind)


@dataclass(frozen=True)
class _Process:
    """Starts the processes of one export, one after the other."""

    format: str
    interpreter: Path
    home: Path
    limits: Limits

    def run(self, arguments: list[str]) -> list[dict[str, Any]]:
        """Run one to its end; gives its answers, one per file."""
        with tempfile.TemporaryFile() as log:
            code, output = self._finish(self._start(arguments, log.fileno()))
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
            tail = log.read().decode(errors="replace").strip()
        lines = [json.loads(line) for line in output[:_ANSWER_LIMIT].splitlines()]
        if code == 0:
            return lines
        if lines and "error" in lines[-1]:
            raise ExportFailed(self.format, lines[-1]["error"])
        if code < 0:
            raise ExportFailed(self.format, f"Its process was ended by {_signal(-code)}; perhaps the memory was full.")
        last = tail.splitlines()[-1] if tail else "it said nothing"
        raise ExportFailed(self.format, f"Its process ended with status {code}: {last}")

    def _start(self, arguments: list[str], log: int) -> "subprocess.Popen[bytes]":
        limits = ["--memory", str(self.limits.memory_bytes), "--parent", str(os.getpid())]
        command = [str(self.interpreter), "-P", "-m", "workers.exports", *arguments, *limits]
        environment = trainer_environment([], self.limits.threads, self.home, os.environ)
        environment |= framework_environment(_FRAMEWORKS.get(self.format, ""))
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.home,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            reason = f"The interpreter {self.interpreter} does not start: {error.strerror}."
            raise ExportFailed(self.format, reason) from error

    def _finish(self, process: "subprocess.Popen[bytes]") -> tuple[int, bytes]:
        try:
            output, _ = process.communicate(timeout=self.limits.timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ExportFailed(self.format, f"It took longer than {self.limits.timeout_s:g} s.") from error
        finally:
            if process.returncode is None:  # not reaped: the group's id is still its own
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        return process.returncode, output


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
