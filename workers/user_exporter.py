"""The worker's side of an export of a python model: one process makes the file, a second, without its code, checks it.

Only the formats that take the model itself run the user's code; the others are made as for any model.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from app.predictions.files import CODE_FORMATS
from workers import user_answer
from workers.exporting import Export
from workers.exports import ExportedFile, ExportFailed, Format, Limits
from workers.exports.python_model import MADE
from workers.ownership import remove_tree, take_folder
from workers.predictor_handle import PredictionRefused
from workers.user_launch import Task, UserCode
from workers.user_process import NotStarted, UserCodeEnded, UserProcess

_MOST_BYTES: Final = 64 * 1024
_SLACK_S: Final = 30.0


class Starts(Protocol):
    """`workers.user_launch.UserLaunch`, as it is used here."""

    def start(
        self,
        code: UserCode,
        model: Path,
        within_s: float,
        cancelled: Callable[[], bool],
        *,
        task: Task = "predict",
        file: Path | None = None,
    ) -> UserProcess: ...


@dataclass(frozen=True)
class UserExporter:
    """Makes the files of one job; `plain` makes those that need no code of the user's. See `workers.exports.run`."""

    launch: Starts
    code: UserCode
    plain: Export
    most_bytes: int = 2**63

    def __call__(
        self,
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

        Raises:
            ExportFailed: with the reason, one sentence for the user.
        """
        if format not in CODE_FORMATS:
            return self.plain(format, model, output, interpreter=interpreter, series=series, evaluation=evaluation)
        until = time.monotonic() + (limits or Limits()).timeout_s
        try:
            made = self._made(model, output, until)
            self._check(model, made, until)
        except (PredictionRefused, UserCodeEnded, user_answer.NoAnswer, NotStarted) as error:
            raise ExportFailed(format, str(error)) from error
        except OSError as error:
            raise ExportFailed(format, f"Its file cannot be taken: {error.strerror or error}.") from error
        return [ExportedFile(made.name, made, "application/octet-stream", "model")]

    def _made(self, model: Path, output: Path, until: float) -> Path:
        """Have the file made, and take it out of its maker's reach."""
        process = self._started(model, until, "make", None)
        taken = process.work_dir.with_name(f"{process.work_dir.name}.{MADE}")
        try:
            name = user_answer.read_made(process.ask(b"{}", until - time.monotonic(), _MOST_BYTES))
            process.finish()
            take_folder(process.work_dir, MADE, taken)
            size = (taken / name).stat().st_size
            if size > self.most_bytes:
                raise UserCodeEnded(f"Its file has {size} bytes; at most {self.most_bytes} are stored.")
            output.mkdir(parents=True, exist_ok=True)
            (taken / name).replace(output / name)
        finally:
            process.close()
            remove_tree(taken)
        return output / name

    def _check(self, model: Path, made: Path, until: float) -> None:
        process = self._started(model, until, "check", made)
        try:
            user_answer.read_ready(process.ask(b"{}", until - time.monotonic(), _MOST_BYTES))
        finally:
            process.close()

    def _started(self, model: Path, until: float, task: Task, file: Path | None) -> UserProcess:
        def late() -> bool:
            return time.monotonic() > until

        left_s = until - time.monotonic()
        return self.launch.start(self.code, model, left_s + _SLACK_S, late, task=task, file=file)
