"""How a followed job is shown: bars on a terminal, lines anywhere else."""

from collections.abc import Iterable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from app.cli.figures import clock_time, harmless
from app.cli.follow import JournalEntry
from app.cli.view import JobView, sentence_of


class Display(Protocol):
    """Used as a context manager round the time of following."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def entry(self, entry: JournalEntry, view: JobView) -> None:
        """An entry came; `view` knows it already."""
        ...

    def log(self, lines: Iterable[str]) -> None:
        """Lines that the job wrote."""
        ...

    def note(self, text: str) -> None:
        """Something that is not in the journal: why it waits, or that the connection was lost."""
        ...


def open_display(console: Console) -> Display:
    return Bars(console) if console.is_terminal else Lines(console)


class Lines:
    """One line for each state, notice and epoch: fit for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: tuple[int, str] = (0, "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def entry(self, entry: JournalEntry, view: JobView) -> None:
        sentence = sentence_of(entry)
        at = clock_time(entry.get("at"))
        if sentence is not None:
            self._console.print(f"{at} {sentence}")
        elif entry.get("kind") == "metric" and (view.attempt, view.place) != self._shown:
            self._shown = (view.attempt, view.place)
            self._console.print(f"{at} {view.progress_sentence}")

    def log(self, lines: Iterable[str]) -> None:
        _print_log(self._console, lines)

    def note(self, text: str) -> None:
        self._console.print(text)


class Bars:
    """Two bars, the newest metrics below them, and the news above."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description:>8}"), BarColumn(bar_width=40), TextColumn("{task.fields[text]}"))
        self._progress = Progress(*columns, console=console)
        self._training = self._progress.add_task("training", total=1.0, text="", visible=False)
        self._epoch = self._progress.add_task("epoch", total=1.0, text="", visible=False)
        self._below = Text()
        self._live = Live(Group(self._progress, self._below), console=console, transient=True, refresh_per_second=8)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def entry(self, entry: JournalEntry, view: JobView) -> None:
        sentence = sentence_of(entry)
        if sentence is not None:
            self._console.print(f"{clock_time(entry.get('at'))} {sentence}")
        if entry.get("kind") == "state":
            self._below.plain = ""
        if entry.get("kind") == "metric":
            self._show(view)

    def log(self, lines: Iterable[str]) -> None:
        _print_log(self._console, lines)

    def note(self, text: str) -> None:
        # A reason to wait is asked for again and again: only the newest one is of interest.
        self._below.plain = text

    def _show(self, view: JobView) -> None:
        # A script need not say how long it will be; then there is no bar, but how far it has come.
        epochs = view.progress.get("epochs")
        self._progress.update(self._training, completed=view.fraction, text=view.pace, visible=view.fraction > 0)
        text = f"{view.epoch} of {epochs}"
        self._progress.update(self._epoch, completed=view.fraction_of_epoch, text=text, visible=bool(epochs))
        self._below.plain = "  ".join(part for part in ("" if epochs else view.place, view.quality) if part)


def _print_log(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(f"  | {harmless(line)}")
