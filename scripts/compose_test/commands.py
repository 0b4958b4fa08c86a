"""Running programs: everything they say goes into one log file, and a failure carries its last lines."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

_TAIL_LINES: Final = 15
_SHORT: Final = 6


class CommandFailed(Exception):
    """A program ended with another code than 0, or not in time."""

    def __init__(self, command: Sequence[str], how: str, said: str) -> None:
        tail = "\n".join(said.strip().splitlines()[-_TAIL_LINES:])
        # The beginning of a call of Compose is the same each time: what it was to do stands at the end.
        short = command if len(command) <= _SHORT else [command[0], "…", *command[-4:]]
        super().__init__(f"`{' '.join(short)}` {how}: {tail or 'it said nothing'}")
        self.said = said


@dataclass(frozen=True)
class Shell:
    """One environment for all programs, and the log that they share."""

    environ: Mapping[str, str]
    log: Path
    folder: Path

    def run(
        self, *command: str, stdin: Path | bytes | None = None, into: Path | None = None, limit_s: float = 120.0
    ) -> str:
        """What the program wrote to its standard output; with `into` that goes to this file instead, at once.

        Raises:
            CommandFailed: another code than 0, or not within `limit_s`.
        """
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(self.log.open("ab"))
            log.write(f"\n$ {' '.join(command)}\n".encode())
            log.flush()
            begins = log.tell()
            out = stack.enter_context(_sink(into))
            source = stack.enter_context(_source(stdin))
            code = self._run(command, source, out, log, limit_s)
            out.seek(0)
            said = out.read() if into is None else b""
            log.write(said)
        if code != 0:
            raise CommandFailed(command, f"ended with {code}", self._since(begins))
        return said.decode(errors="replace")

    def succeeds(self, *command: str, limit_s: float = 30.0) -> bool:
        try:
            self.run(*command, limit_s=limit_s)
        except CommandFailed:
            return False
        return True

    def _run(self, command: Sequence[str], source: IO[bytes], out: IO[bytes], log: IO[bytes], limit_s: float) -> int:
        try:
            return subprocess.run(
                command,
                stdin=source,
                stdout=out,
                stderr=log,
                env=dict(self.environ),
                cwd=self.folder,
                timeout=limit_s,
                check=False,
            ).returncode
        except FileNotFoundError as error:
            raise CommandFailed(command, "is not installed", str(error)) from error
        except subprocess.TimeoutExpired as error:
            raise CommandFailed(command, f"was not done in {limit_s:g} s", "") from error

    def _since(self, position: int) -> str:
        with self.log.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace")


@contextlib.contextmanager
def _sink(into: Path | None) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() if into is None else into.open("w+b") as file:
        yield file


@contextlib.contextmanager
def _source(given: Path | bytes | None) -> Iterator[IO[bytes]]:
    """Never the terminal: a question would wait for ever."""
    if isinstance(given, bytes):
        with tempfile.TemporaryFile() as file:
            file.write(given)
            file.seek(0)
            yield file
    else:
        with Path(given or os.devnull).open("rb") as file:
            yield file
