"""What a script leaves in its output folder, as artifacts: files as they are, each folder as a ZIP of its own.

To be called when no process of the script is left.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.archives import Contents
from app.errors import Cause
from workers.scripts.assignment import Job
from workers.scripts.checkpoints import cut_off_files
from workers.scripts.folders import Folders
from workers.scripts.media import media_type
from workers.scripts.packing import pack, packable
from workers.scripts.tree import Changed, Entry, File, TooMany, scan

REST: Final = "files"
"""The archive for what has no name that an artifact can have."""
MOST_FILES: Final = 100_000
"""Files and folders that are looked at, in folders too."""
_SHOWN: Final = 120
_FIRST: Final = 3
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")

Say = Callable[[str, str], None]


class UnusableOutputs(Exception):
    """The files that the script left cannot be its artifacts; the sentence is for the user."""

    cause: Final = Cause.ARTIFACT_UNREADABLE


@dataclass(frozen=True)
class Output:
    """An artifact: its name, its file below the work directory, and its media type."""

    name: str
    path: str
    media_type: str


@dataclass(frozen=True)
class _Parts:
    """How entries become artifacts: files under their own names, archives of several, and the rest in one archive."""

    plain: dict[str, File]
    archives: dict[str, list[tuple[str, File]]]


def is_name(text: str) -> bool:
    """Whether an artifact can be called so: `app.storage.keys.is_segment`, which this side does not load."""
    return _NAME.fullmatch(text) is not None and ".." not in text


def collect(job: Job, folders: Folders, unpacked: Contents | None, started_ns: int, say: Say) -> list[Output]:
    """Look through the output folder, or where that is empty through the code folder, and pack what needs packing.

    `unpacked`: the bundle's own files. `started_ns`: when the command was started; what has changed since is new.

    Raises:
        UnusableOutputs: too much or too many, a file of a known format that was cut off, or no room to pack.
    """
    entries = _entries(folders.outputs, MOST_FILES)
    if _files(entries):
        return _kept(job, folders, folders.outputs, entries, say)
    _tell_skipped(entries, say)
    try:
        return _kept_from_code(job, folders, _new_in_code(folders.code, unpacked, started_ns), say)
    except UnusableOutputs as error:  # a data set that was unpacked there, for example: nobody called it an output
        say("outputs_from_code", f"The output folder is empty, and nothing beside the code is kept: {error}")
        return []


def _kept_from_code(job: Job, folders: Folders, entries: list[Entry], say: Say) -> list[Output]:
    files = _files(entries)
    outputs = _kept(job, folders, folders.code, entries, say)
    if files:
        names = ", ".join(_shown(file.name) for file in files[:_FIRST]) + (", …" if len(files) > _FIRST else "")
        say("outputs_from_code", f"The output folder is empty; new files beside the code are kept instead: {names}.")
    return outputs


def _kept(job: Job, folders: Folders, folder: Path, entries: list[Entry], say: Say) -> list[Output]:
    _tell_skipped(entries, say)
    _check(job, folder, entries)
    try:
        return _as_artifacts(folders, folder, _parts(entries, job.max_output_files), say)
    except Changed as error:
        raise UnusableOutputs(f"The output file {_shown(error.name)} was changed while it was kept.") from error
    except OSError as error:
        raise UnusableOutputs(f"The outputs could not be packed: {error.strerror or type(error).__name__}.") from error


def _entries(folder: Path, most: int) -> list[Entry]:
    try:
        return list(scan(folder, most).values())
    except TooMany as error:
        sentence = f"There are more than {most:,} output files, seen in {_shown(error.name)}"
        raise UnusableOutputs(f"{sentence}. Pack them into one file, or write fewer.") from error
    except OSError as error:
        raise UnusableOutputs(
            f"The folder '{folder.name}' cannot be read any more: {error.strerror}. A command writes into it, and "
            "leaves the folder itself in its place."
        ) from error


def _new_in_code(folder: Path, unpacked: Contents | None, started_ns: int) -> list[Entry]:
    sizes = {member.name: member.size for member in unpacked.files} if unpacked is not None else {}
    room = MOST_FILES + len(sizes) + (len(unpacked.folders) if unpacked is not None else 0)

    def is_new(file: File) -> bool:
        parts = file.name.split("/")
        if any(part.startswith(".") or part == "__pycache__" for part in parts) or file.name.endswith(".pyc"):
            return False
        return sizes.get(file.name) != file.size or file.modified_ns > started_ns

    entries = _entries(folder, room)
    return [Entry(entry.name, entry.is_folder, tuple(filter(is_new, entry.files))) for entry in entries]


def _files(entries: Iterable[Entry]) -> list[File]:
    return [file for entry in entries for file in entry.files]


def _tell_skipped(entries: Iterable[Entry], say: Say) -> None:
    skipped = [name for entry in entries for name in entry.skipped]
    if skipped:
        others = f" and {len(skipped) - 1:,} more" if len(skipped) > 1 else ""
        name = _shown(skipped[0])
        say("output_skipped", f"{name}{others} in the outputs is a link or no plain file: it is not kept.")


def _check(job: Job, folder: Path, entries: Sequence[Entry]) -> None:
    total = sum(entry.size for entry in entries)
    if total > job.max_output_bytes:
        largest = max(_files(entries), key=lambda file: file.size)
        sizes = f"{total:,} bytes together, over the limit of {job.max_output_bytes:,}"
        raise UnusableOutputs(
            f"The output files have {sizes}; the largest is {_shown(largest.name)} with {largest.size:,}."
        )
    try:
        cut_off = cut_off_files(folder, entries)
    except Changed as error:
        raise UnusableOutputs(f"The output file {_shown(error.name)} cannot be read.") from error
    if cut_off:
        raise UnusableOutputs(f"The output file {_shown(cut_off[0])} is cut off: it was not written to its end.")


def _parts(entries: Sequence[Entry], most: int) -> _Parts:
    plain = {
        entry.name: entry.files[0] for entry in entries if entry.files and not entry.is_folder and is_name(entry.name)
    }
    archives: dict[str, list[tuple[str, File]]] = {}
    rest: list[tuple[str, File]] = []
    for entry in entries:
        name = f"{entry.name}.zip"
        inside = [(file.name.partition("/")[2], file) for file in entry.files]
        if entry.is_folder and inside and is_name(name) and name not in plain:
            archives[name] = inside
        elif entry.name not in plain:
            rest += [(file.name, file) for file in entry.files]
    if len(plain) + len(archives) + bool(rest) > most:
        plain, archives, rest = {}, {}, [(file.name, file) for file in _files(entries)]
    if rest:
        archives[_free(plain.keys() | archives.keys())] = rest
    return _Parts(plain, archives)


def _free(taken: Iterable[str]) -> str:
    names = (f"{REST}{number}.zip" for number in ("", *(f"-{count}" for count in range(2, 1_000))))
    return next(name for name in names if name not in set(taken))


def _as_artifacts(folders: Folders, folder: Path, parts: _Parts, say: Say) -> list[Output]:
    found = [Output(name, f"{folder.name}/{file.name}", media_type(name)) for name, file in parts.plain.items()]
    packing = folders.staged / "outputs"
    with contextlib.suppress(FileExistsError):
        packing.mkdir(mode=0o700)
    for name, files in parts.archives.items():
        fit, unfit = packable(files)
        if unfit:
            others = f" and {len(unfit) - 1:,} more" if len(unfit) > 1 else ""
            say("output_skipped", f"{_shown(unfit[0])}{others} in the outputs: the name cannot be kept, nor the file.")
        if fit:
            pack(folder, fit, packing / name)
            found.append(Output(name, f"{folders.staged.name}/{packing.name}/{name}", media_type(name)))
    return sorted(found, key=lambda output: output.name)


def _shown(name: str) -> str:
    return ascii(name[:_SHOWN])
