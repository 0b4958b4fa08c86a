"""Which files of a folder are code: all but what .gitignore and .trainshedignore name, and what never is."""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

from app.cli.errors import UsageProblem

IGNORE_FILES: Final = (".gitignore", ".trainshedignore")
"""Both in git's syntax, in any folder; the second can take back what the first leaves out: `!data/small.csv`.

Also out of a folder that is left out as a whole, from which git itself takes nothing back.
"""
_OURS: Final = IGNORE_FILES[1]

NEVER: Final = (
    ".git",
    ".hg/",
    ".svn/",
    ".venv/",
    "venv/",
    "node_modules/",
    "__pycache__/",
    "*.pyc",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".ipynb_checkpoints/",
    ".DS_Store",
    ".env",
)
"""Left out unless an ignore file takes it back: versions, environments, caches, and the usual file of secrets."""

# What `python -m venv` leaves in each environment that it makes, whatever its folder is called.
_ENVIRONMENT: Final = "pyvenv.cfg"


@dataclass(frozen=True)
class Found:
    """Files by their names in the bundle, with where they lie; `left_out` says of links and the like why not."""

    files: dict[str, Path] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Rules:
    """The patterns of one folder; names are tried relative to it. `backs`: the paths that are taken back, by parts."""

    base: str
    spec: GitIgnoreSpec
    backs: tuple[tuple[str, ...], ...] = ()

    def verdict(self, name: str, *, folder: bool) -> bool | None:
        """Whether it is left out; None when no pattern speaks of it."""
        own = name.removeprefix(self.base)
        return self.spec.check_file(f"{own}/" if folder else own).include

    def takes_back_below(self, name: str) -> bool:
        """Whether something in this folder may be taken back, although the folder is left out."""
        parts = name.removeprefix(self.base).split("/")
        return name.startswith(self.base) and any(_leads_to(parts, back) for back in self.backs)


def code_files(folder: Path) -> Found:
    """The files to pack, by name.

    A link to a file inside the folder is packed as that file; any other link, and what is no regular file, is left out
    and named. Ignore files above the folder count up to the repository's root, as they do for git.

    Raises:
        UsageProblem: the folder, or one in it, cannot be read.
    """
    root = folder.resolve()
    above, prefix = _rules_above(root)
    found = Found()
    for entry in _walk(root, "", above, prefix):
        path, name = Path(entry.path), Path(entry.path).relative_to(root).as_posix()
        target = _regular(path, root)
        if isinstance(target, Path):
            found.files[name] = target
        else:
            found.left_out[name] = target
    return Found(dict(sorted(found.files.items())), found.left_out)


def _walk(
    folder: Path, name: str, rules: list[_Rules], prefix: str, *, left_out: bool = False
) -> Iterator[os.DirEntry[str]]:
    """Everything but folders below `folder`; `name` is where that is in the root, `prefix` where the root is above.

    The ignore files in a folder that is left out say nothing.
    """
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise UsageProblem(f"{folder} cannot be read: {error.strerror}.") from error
    rules = rules if left_out else [*rules, *_rules_in(folder, f"{prefix}{name}")]
    for entry in entries:
        is_folder = entry.is_dir(follow_symlinks=False)
        inner = f"{name}{entry.name}"
        full = f"{prefix}{inner}"
        ignored = _ignored(full, rules, folder=is_folder)
        if ignored and not (is_folder and any(each.takes_back_below(full) for each in rules)):
            continue
        if not is_folder:
            yield entry
        elif not Path(entry.path, _ENVIRONMENT).exists():
            yield from _walk(Path(entry.path), f"{inner}/", rules, prefix, left_out=ignored)


def _ignored(name: str, rules: list[_Rules], *, folder: bool) -> bool:
    """The last word is that of the nearest ignore file, and in it of the last pattern."""
    verdicts = (each.verdict(name, folder=folder) for each in reversed(rules))
    return next((verdict for verdict in verdicts if verdict is not None), False)


def _rules_in(folder: Path, base: str) -> list[_Rules]:
    found = []
    for file in IGNORE_FILES:
        try:
            lines = (folder / file).read_text(encoding="utf-8-sig", errors="replace").splitlines()
        except OSError:
            continue
        found.append(_Rules(base, _spec(file, lines), _backs(lines) if file == _OURS else ()))
    return found


def _backs(lines: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """The patterns that take something back and say where: `!data/small.csv`, but not `!*.csv`."""
    found = (line.rstrip().removeprefix("!").strip("/") for line in lines if line.startswith("!"))
    return tuple(tuple(text.split("/")) for text in found if "/" in text and not text.startswith("**"))


def _leads_to(folder: list[str], back: tuple[str, ...]) -> bool:
    for mine, theirs in zip(folder, back, strict=False):
        if any(sign in theirs for sign in "*?[\\"):
            return True
        if mine != theirs:
            return False
    return len(folder) < len(back)


def _rules_above(root: Path) -> tuple[list[_Rules], str]:
    """What never counts, then the ignore files from the repository's root down to the folder above `root`."""
    never = _Rules("", GitIgnoreSpec.from_lines(NEVER))
    repository = next((place for place in (root, *root.parents) if (place / ".git").exists()), root)
    way = [place for place in reversed(root.parents) if place.is_relative_to(repository)]
    rules = [never]
    for place in way:
        base = place.relative_to(repository).as_posix()
        rules += _rules_in(place, "" if base == "." else f"{base}/")
    prefix = root.relative_to(repository).as_posix()
    return rules, "" if prefix == "." else f"{prefix}/"


def _spec(file: str, lines: Iterable[str]) -> GitIgnoreSpec:
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise UsageProblem(f"A pattern in {file} cannot be read: {error}.") from error


def _regular(path: Path, root: Path) -> Path | str:
    """Where the content lies, or why there is none to pack."""
    try:
        target = path.resolve(strict=True)
        mode = target.stat().st_mode
    except (OSError, RuntimeError):
        return "a link to nothing"
    if path.is_symlink() and not target.is_relative_to(root):
        return "a link out of the folder"
    if stat.S_ISDIR(mode):
        return "a link to a folder"
    return target if stat.S_ISREG(mode) else "not a regular file"
