"""What a follower knows of a job, made up from its journal, entry by entry."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from app.cli.figures import duration, harmless, number, on_host
from app.cli.follow import JournalEntry

_QUOTES = " Its last output:"
# Metrics that say how fast it goes, not how well; they are shown elsewhere.
_NOT_QUALITY = frozenset({"samples_per_s", "learning_rate", "step_loss"})


@dataclass
class JobView:
    """The newest of everything; `sentence_of` turns an entry into a line for people."""

    state: str = "queued"
    attempt: int = 0
    progress: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)

    def apply(self, entry: JournalEntry) -> None:
        kind = entry.get("kind")
        if entry.get("attempt", 0) != self.attempt:
            # Another try begins: what the last one had reached is not its progress.
            self.attempt = entry.get("attempt", 0)
            self.progress, self.metrics = {}, {}
        if kind == "state":
            self.state = entry["state"]
        elif kind == "metric":
            self.progress = entry.get("progress") or self.progress
            self.metrics.update({name: points["value"][-1] for name, points in entry.get("points", {}).items()})

    @property
    def epoch(self) -> int:
        return int(self.progress.get("epoch") or 0)

    @property
    def fraction(self) -> float:
        return float(self.progress.get("fraction") or 0.0)

    @property
    def fraction_of_epoch(self) -> float:
        """How far the current epoch is, from 0 to 1."""
        steps, epochs = self.progress.get("steps") or 0, self.progress.get("epochs") or 0
        if not steps or not epochs:
            return 0.0
        in_epochs = float(self.progress["step"]) / (steps / epochs)
        return min(max(in_epochs - (self.epoch - 1), 0.0), 1.0)

    @property
    def quality(self) -> str:
        """The newest metrics in one line."""
        shown = [(name, value) for name, value in sorted(self.metrics.items()) if name not in _NOT_QUALITY]
        return "  ".join(f"{harmless(name)} {number(value)}" for name, value in shown)

    @property
    def pace(self) -> str:
        """Rate and remaining time, as far as known."""
        parts = []
        if isinstance(self.progress.get("samples_per_s"), int | float):
            parts.append(f"{number(self.progress['samples_per_s'])} samples/s")
        if isinstance(self.progress.get("eta_s"), int | float):
            parts.append(f"{duration(self.progress['eta_s'])} left")
        return ", ".join(parts)

    @property
    def progress_sentence(self) -> str:
        fraction = f"{self.fraction:.0%}" if self.fraction else ""
        parts = [self.place, fraction, self.quality, self.pace]
        return "  ".join(part for part in parts if part)

    @property
    def place(self) -> str:
        """How far it is: by epochs, else by steps. A script need not say how many there will be, nor either of them."""
        for name in ("epoch", "step"):
            reached, all_of_them = self.progress.get(name), self.progress.get(f"{name}s")
            if reached:
                return f"{name} {reached:g}/{all_of_them:g}" if all_of_them else f"{name} {reached:g}"
        return ""


def sentence_of(entry: JournalEntry) -> str | None:
    """A line about a state or a notice; None for entries that are not news of that kind."""
    if entry.get("kind") == "notice":
        return f"note: {harmless(entry.get('message', ''))}"
    if entry.get("kind") != "state":
        return None
    words = [entry["state"]]
    if entry.get("worker"):
        words.append(f"on {harmless(entry['worker'])}")
    if entry.get("devices"):
        # `starting` names devices by their ids, `running` by what they are: two alike are counted.
        alike = Counter(on_host(device) for device in entry["devices"])
        words.append(f"({', '.join(name if count == 1 else f'{count} × {name}' for name, count in alike.items())})")
    if entry.get("attempt", 0) > 1:
        words.append(f"[attempt {entry['attempt']}]")
    line = " ".join(words)
    # Of a message that has a program's last lines, the sentence: the lines are in the log.
    parts = (str(entry[name]).partition("\n")[0] for name in ("cause", "message") if entry.get(name))
    reason = ": ".join(harmless(part.removesuffix(_QUOTES)) for part in parts)
    return f"{line}: {reason}" if reason else line
