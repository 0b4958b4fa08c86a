"""What a job requires to be installed: the lines of a requirements file, or a list of them, checked and put in order.

Taken are names with versions, extras and markers (PEP 508), comments, continued lines, and hashes. Where packages come
from is the operator's to say, so no line may name an index, an address, a repository, or a path.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidName, canonicalize_name

from app.errors import TrainshedError

EXAMPLE: Final = "rich==14.1.0"
MOST_BYTES: Final = 1024 * 1024
MOST_LINES: Final = 2_000
_SHOWN: Final = 80
_COMMENT: Final = re.compile(r"(^|\s+)#.*$")
_HASH_OPTION: Final = re.compile(r"\s+--hash(?:=|\s+)(\S+)")
_HASH: Final = re.compile(r"(sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})")
_ADDRESS: Final = re.compile(r"^(?:[a-z][a-z0-9+.-]*)://|^(?:git|hg|svn|bzr)\+", re.IGNORECASE)
_FILE: Final = re.compile(r"[/\\]|\.(?:whl|zip|tar\.gz|tgz|tar\.bz2)$", re.IGNORECASE)
_TABLE: Final = re.compile(r"^(?:\[+[\w.\"-]+\]+|[\w-]+\s*=[^=].*|[\w-]+:(?:\s.*)?)$")
_REQUIRE_HASHES: Final = "--require-hashes"

_SOURCES: Final = "which packages are installed from where is set by the operator of the service"
_OPTIONS: Final[dict[str, str]] = {
    "-e": "editable installs are not taken; put the code into the bundle",
    "--editable": "editable installs are not taken; put the code into the bundle",
    "-r": "another file is not read; write its lines here",
    "--requirement": "another file is not read; write its lines here",
    "-c": "a file of constraints is not read; write the versions here",
    "--constraint": "a file of constraints is not read; write the versions here",
    "-i": _SOURCES,
    "--index-url": _SOURCES,
    "--extra-index-url": _SOURCES,
    "--no-index": _SOURCES,
    "-f": _SOURCES,
    "--find-links": _SOURCES,
    "--trusted-host": _SOURCES,
    "--pre": "options are not taken; name the version, for example 'rich==14.1.0rc1'",
    "-": "this looks like a list in YAML, as conda has it; write one requirement on each line, without '-'",
}


class InvalidRequirements(TrainshedError):
    """A line of the requirements cannot be taken; lines count from 1, in a list they are its entries."""

    code: ClassVar[str] = "invalid_requirements"

    def __init__(self, line: int, reason: str, example: str = EXAMPLE) -> None:
        super().__init__(f"Line {line} of the requirements cannot be taken: {reason}. A valid line is '{example}'.")
        self.line = line
        self.reason = reason
        self.example = example


@dataclass(frozen=True, slots=True)
class Requirements:
    """`lines` as pip reads them, one requirement each with its hashes, in alphabetical order and without repeats.

    `hashes`: each has some, so nothing else may be installed. `digest`: of the lines (SHA-256, hex), so that two texts
    that ask for the same have the same.
    """

    lines: tuple[str, ...]
    hashes: bool
    digest: str

    @property
    def parsed(self) -> tuple[Requirement, ...]:
        """The requirements without their hashes."""
        return tuple(Requirement(line.partition(" --hash")[0]) for line in self.lines)


def parse_requirements(text: str | Sequence[str]) -> Requirements:
    """Read the text of a requirements file, or a list with one requirement in each entry.

    Raises:
        InvalidRequirements: names the first line that cannot be taken, and why.
    """
    found = dict(_entry(number, line) for number, line in _lines_of(text) if line != _REQUIRE_HASHES)
    asked = next((number for number, line in _lines_of(text) if line == _REQUIRE_HASHES), None)
    hashes = asked is not None or any(" --hash=" in line for line in found)
    if hashes:
        _check_hashes(found)
    lines = tuple(sorted(found))
    return Requirements(lines, hashes, hashlib.sha256("\n".join(lines).encode()).hexdigest())


def _lines_of(text: str | Sequence[str]) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers; a continued one has the number of its first."""
    if isinstance(text, str):
        if len(text) > MOST_BYTES:
            raise InvalidRequirements(1, f"the text is longer than {MOST_BYTES} characters")
        lines = list(_joined(text.removeprefix("\ufeff")))
    else:
        broken = next((number for number, line in enumerate(text, 1) if len(line.splitlines()) > 1), None)
        if broken is not None:
            raise InvalidRequirements(
                broken, "each entry of the list is one requirement, and this one has several lines"
            )
        lines = list(enumerate(text, 1))
    said = [(number, _COMMENT.sub("", line).strip()) for number, line in lines]
    said = [(number, line) for number, line in said if line]
    if len(said) > MOST_LINES:
        raise InvalidRequirements(said[MOST_LINES][0], f"there are more than {MOST_LINES} requirements")
    yield from said


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines with those that a backslash continues joined to them; a comment ends what was continued."""
    first, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        comment = line.lstrip().startswith("#")
        parts.append("" if comment and len(parts) else line.removesuffix("\\"))
        if not line.endswith("\\") or comment:
            yield first, "".join(parts)
            first, parts = 0, []
    if parts:
        yield first, "".join(parts)


def _entry(number: int, line: str) -> tuple[str, int]:
    """The line as pip is to read it, and its number."""
    if line.startswith("-"):
        option = re.split(r"[=\s]", line, maxsplit=1)[0]
        raise InvalidRequirements(
            number, _OPTIONS.get(option, f"'{option[:_SHOWN]}' is not taken: only requirements are")
        )
    hashes = sorted(set(_HASH_OPTION.findall(line)))
    for value in hashes:
        if not _HASH.fullmatch(value):
            raise InvalidRequirements(number, f"'{value[:_SHOWN]}' is no hash: write sha256: and 64 hexadecimal digits")
    requirement = _requirement(number, _HASH_OPTION.sub("", line).strip())
    return " ".join([str(requirement), *(f"--hash={value}" for value in hashes)]), number


def _requirement(number: int, line: str) -> Requirement:
    shown = line[:_SHOWN]
    if _ADDRESS.match(line):
        raise InvalidRequirements(number, f"'{shown}' is an address; packages are named, and {_SOURCES}")
    try:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name, validate=True)
    except (InvalidName, InvalidRequirement) as error:
        raise InvalidRequirements(number, _why_none(line, error)) from error
    if requirement.url is not None:
        raise InvalidRequirements(number, f"'{shown}' names an address; write its version, and {_SOURCES}")
    if _FILE.search(requirement.name):
        raise InvalidRequirements(number, _path(shown))
    requirement.name = name
    return requirement


def _why_none(line: str, error: ValueError) -> str:
    shown = line[:_SHOWN]
    if _FILE.search(line.partition(";")[0].strip()):
        return _path(shown)
    if " --" in line:
        return f"'{shown}' has an option; only --hash is taken"
    if _TABLE.match(line):
        return f"'{shown}' is of another format; lock files are not taken, export them as requirements"
    return f"'{shown}' is no requirement ({str(error).splitlines()[0].strip().rstrip('.')})"


def _path(shown: str) -> str:
    return f"'{shown}' is a path; put the code into the bundle, or name a package"


def _check_hashes(found: dict[str, int]) -> None:
    """With a hash anywhere, pip wants one everywhere, and a version that is fixed."""
    for line, number in found.items():
        text, mark, _ = line.partition(" --hash")
        example = f"{EXAMPLE} --hash=sha256:{'0' * 64}"
        if not mark:
            raise InvalidRequirements(number, f"'{text}' has no hash, and where one line has some, all must", example)
        pinned = [clause for clause in Requirement(text).specifier if clause.operator in ("==", "===")]
        if len(pinned) != 1 or pinned[0].version.endswith("*"):
            raise InvalidRequirements(number, f"'{text}' has a hash, so it must name one version with ==", example)
