"""Makes checkpoints of what a script writes into its checkpoint folder: chosen, packed, described, ready to announce.

    staged/ckpt-3/files.zip        the script's files under their own names
    staged/ckpt-3/manifest.json    written last, as of every checkpoint: size and SHA-256 of files.zip

Nothing that the script does to the folder meanwhile may spoil one: a file that changes while it is packed, or that was
cut off, spoils that try.
"""

import contextlib
import json
import shutil
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from workers.scripts.best import Best
from workers.scripts.formats import is_cut_off
from workers.scripts.metrics import Standing
from workers.scripts.packing import FILES_NAME, Packed, pack, packable
from workers.scripts.stillness import QUIET_S, Watched, is_wanted
from workers.scripts.tree import Changed, Entry, TooMany, opened, scan

MANIFEST_NAME: Final = "manifest.json"
MOST_FILES: Final = 10_000
"""Files and folders in the checkpoint folder; a checkpoint is for going on, not for a data set."""
WAITING_LIMIT: Final = 3
"""Checkpoints that are announced and not yet taken away by the worker; a further one would only fill the disk."""
_FORMAT: Final = "trainshed-checkpoint/1"
_SHOWN: Final = 120

Say = Callable[[str, str], None]


@dataclass(frozen=True)
class Made:
    """A checkpoint that is complete; `path` is below the work directory."""

    path: str
    step: int
    epoch: int
    metrics: dict[str, float]
    best: bool


@dataclass
class CheckpointFolder:
    """The checkpoint folder of one attempt. `say` takes the code and the sentence of a notice; not for several threads.

    `step`: that of the newest checkpoint, at first the one that the attempt goes on from.
    """

    folder: Path
    staged: Path
    say: Say
    best: Best
    max_bytes: int
    step: int = 0
    watched: Watched = field(default_factory=Watched)
    _said: set[str] = field(default_factory=set)
    _number: int = 0
    _made: bool = False

    @property
    def has_made(self) -> bool:
        """Whether it has made a checkpoint."""
        return self._made

    def begin(self, standing: Standing) -> None:
        """Take what is there before the script starts as known: it came from a checkpoint."""
        if (entries := self._entries()) is not None:
            self.watched.look(entries, 0.0, standing)
            self.watched.taken(entries)

    def announce(self, entry: str, standing: Standing) -> None:
        """The script says that an entry is complete: by its name, or by a path that begins with it."""
        path = PurePosixPath(entry)
        with contextlib.suppress(ValueError):
            path = path.relative_to(self.folder)
        with contextlib.suppress(ValueError):
            path = path.relative_to(self.folder.name)
        if path.parts:
            self.watched.announce(path.parts[0], standing)

    def look(
        self,
        now_s: float,
        standing: Standing,
        *,
        all_of_them: bool = False,
        only_look: bool = False,
        last: bool = False,
    ) -> Made | None:
        """Look at the folder, and make a checkpoint when something new in it is complete.

        `last`: the script has ended; `all_of_them`: in order, so everything is complete.
        """
        entries = self._entries()
        if entries is None:
            return None
        self.watched.look(entries, now_s, standing)
        self._tell_restless(now_s)
        if only_look or not (names := self.watched.ripe(now_s, all_of_them=all_of_them)):
            return None
        if self._waiting() >= WAITING_LIMIT and not last:
            return None
        return self._make(names) if (names := self._sound(names)) else None

    def _entries(self) -> dict[str, Entry] | None:
        try:
            return scan(self.folder, MOST_FILES, is_wanted)
        except TooMany as error:
            self._once(
                "checkpoint_too_large",
                f"There are more than {MOST_FILES:,} files in the checkpoint folder (seen in {_shown(error.name)}): "
                "no checkpoint is made.",
            )
        except OSError as error:
            reason = error.strerror or type(error).__name__
            self._once(
                "checkpoint_folder_lost", f"The checkpoint folder cannot be read ({reason}): no checkpoint is made."
            )
        return None

    def _tell_restless(self, now_s: float) -> None:
        if (name := self.watched.restless(now_s)) is not None:
            self._once(
                "checkpoint_restless",
                f"{_shown(name)} in the checkpoint folder changes so often that it is never seen complete: save it "
                f'less often than every {QUIET_S:g} s, or print {{"checkpoint": {json.dumps(name[:_SHOWN])}}} on a '
                "line of its own after each save.",
            )

    def _sound(self, names: Sequence[str]) -> list[str]:
        """The entries without those that hold a file that was cut off, or that are too large; these are passed over."""
        sound: list[str] = []
        for name in names:
            entry = self.watched.entry(name)
            try:
                problem = self._problem_of(entry)
            except Changed:
                continue
            if problem is None:
                sound.append(name)
                continue
            self._once(*problem)
            self.watched.taken([name])
        return sound

    def _problem_of(self, entry: Entry) -> tuple[str, str] | None:
        if entry.size > self.max_bytes:
            sizes = f"{entry.size:,} bytes, over the limit of {self.max_bytes:,}"
            return "checkpoint_too_large", f"{_shown(entry.name)} in the checkpoint folder has {sizes}: it is not kept."
        if cut_off := cut_off_files(self.folder, [entry]):
            where = f"{_shown(cut_off[0])} in the checkpoint folder"
            return "checkpoint_cut_off", f"{where} was cut off while it was written: it is not kept."
        return None

    def _make(self, names: Sequence[str]) -> Made | None:
        standing = self.watched.standing_of(names)
        entries = [self.watched.entry(name) for name in (*names, *self.watched.companions(set(names)))]
        while len(entries) > len(names) and sum(entry.size for entry in entries) > self.max_bytes:
            entries.pop()
        self._number += 1
        step = max(standing.step, self.step + 1)
        destination = self.staged / f"ckpt-{self._number}"
        better = self.best.is_better(standing.metrics)
        try:
            destination.mkdir(mode=0o700)
            packed = self._pack(entries, destination / FILES_NAME, self.best.after(standing.metrics))
            _write_manifest(destination, step, standing.epoch, packed)
        except Changed:
            shutil.rmtree(destination, ignore_errors=True)
            return None  # the next look sees what it has become
        except OSError as error:
            shutil.rmtree(destination, ignore_errors=True)
            reason = error.strerror or type(error).__name__
            self._once("checkpoint_not_stored", f"A checkpoint could not be packed: {reason}.")
            return None
        self.watched.taken(names)
        self.best.take(standing.metrics)
        self.step, self._made = step, True
        path = f"{self.staged.name}/{destination.name}"
        return Made(path, step, standing.epoch, standing.metrics, better)

    def _pack(self, entries: Iterable[Entry], destination: Path, best: float | None) -> Packed:
        files, unfit = packable((file.name, file) for entry in entries for file in entry.files)
        skipped = [*unfit, *(name for entry in entries for name in entry.skipped)]
        if skipped:
            self._once(
                "checkpoint_file_skipped",
                f"{_shown(skipped[0])} in the checkpoint folder is no plain file, or has a name that cannot be kept: "
                "it is not part of a checkpoint.",
            )
        comment = b"" if best is None else json.dumps({"best": best}).encode()
        return pack(self.folder, files, destination, comment)

    def _waiting(self) -> int:
        with contextlib.suppress(OSError):
            return sum(1 for path in self.staged.iterdir() if path.name.startswith("ckpt-"))
        return 0

    def _once(self, code: str, sentence: str) -> None:
        if sentence not in self._said and len(self._said) < _NOTICES_LIMIT:
            self._said.add(sentence)
            self.say(code, sentence)


_NOTICES_LIMIT: Final = 20
"""Different notices of one attempt: a script that spoils every checkpoint must not fill the journal."""


def cut_off_files(folder: Path, entries: Iterable[Entry]) -> list[str]:
    """The files of a known format that end too early.

    Raises:
        Changed: a file is being written.
    """
    found: list[str] = []
    for entry in entries:
        for file in entry.files:
            with opened(folder, file) as descriptor:
                if is_cut_off(descriptor, file.name, file.size):
                    found.append(file.name)
    return found


def best_so_far(resume: Path) -> float | None:
    """The best value of the monitored metric up to a checkpoint, as it was packed with it."""
    try:
        with zipfile.ZipFile(resume / FILES_NAME) as archive:
            return float(json.loads(archive.comment)["best"])
    except (OSError, ValueError, TypeError, LookupError, zipfile.BadZipFile):
        return None


def _write_manifest(folder: Path, step: int, epoch: int, packed: Packed) -> None:
    file = {"name": FILES_NAME, "size_bytes": packed.size_bytes, "sha256": packed.sha256}
    manifest = {"format": _FORMAT, "step": step, "epoch": epoch, "files": [file]}
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _shown(name: str) -> str:
    return ascii(name[:_SHOWN])
