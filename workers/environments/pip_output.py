"""What pip says: lines worth a notice while it works, and one sentence for why it failed."""

import itertools
import re
from collections.abc import Sequence
from typing import Final

_NOTABLE_MB: Final = 20.0
_LONGEST: Final = 300
_MOST_NAMES: Final = 8
_DOWNLOAD: Final = re.compile(r"^\s*Downloading (\S+) \(([\d.]+) ([kMG]B)\)")
_INSTALLING: Final = re.compile(r"^Installing collected packages: (.+)$")
_MB: Final = {"kB": 1e-3, "MB": 1.0, "GB": 1e3}

_NO_VERSION: Final = re.compile(r"satisfies the requirement ([^\s;(]+).*\(from versions: (.*)\)")
_REASONS: Final[Sequence[tuple[str, str]]] = (
    ("THESE PACKAGES DO NOT MATCH THE HASHES", "A package is not the one that the hashes were made of."),
    (
        "all requirements must have their versions pinned|Hashes are required in --require-hashes mode",
        "Where one requirement has hashes, all must, also those that others bring along.",
    ),
    ("No space left on device", "The disk of the worker was full."),
    ("401 Error|403 Error|User for ", "The package index asks for a password, or refuses the one that is set."),
    ("CERTIFICATE_VERIFY_FAILED|SSLError", "The worker does not trust the certificate of the package index."),
    ("requires a different Python|Requires-Python", "No version of a package is for the Python of the job."),
    (
        "metadata-generation-failed|Failed building wheel|subprocess-exited-with-error",
        "A package could not be built from its sources.",
    ),
)
_UNREACHABLE: Final = re.compile(
    r"Failed to establish a new connection|Temporary failure in name resolution|NameResolutionError|ProxyError"
    r"|Could not fetch URL|connection broken by|ConnectTimeout|Network is unreachable"
)
_ORIGIN: Final = re.compile(r" \(from -r requirements\.txt \(line \d+\)\)|->-r requirements\.txt \(line \d+\)")


def shown(line: str) -> str:
    """A line without the name of a file that the user has never seen."""
    return _ORIGIN.sub("", line)


def notice_of(line: str) -> str | None:
    """A sentence for the user where a line tells of something that takes a while."""
    download = _DOWNLOAD.match(line)
    if download and float(download[2]) * _MB[download[3]] >= _NOTABLE_MB:
        return f"Downloading {download[1]} ({download[2]} {download[3]})."
    installing = _INSTALLING.match(line)
    if installing:
        names = installing[1].split(", ")
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"Installing {', '.join(names[:_MOST_NAMES])}{more}."
    return None


def reason_of(lines: Sequence[str], python: str, *, source_builds: bool) -> str:
    """Why pip failed, in plain words, from its last lines; with what can be done where that is known."""
    text = "\n".join(lines)
    unreachable = _UNREACHABLE.search(text) is not None
    missing = _NO_VERSION.search(text)
    if unreachable and (missing is None or missing[2] == "none"):
        return "The package index cannot be reached from the worker; its operator sets where packages come from."
    if missing:
        return _missing(missing[1], missing[2], python, source_builds=source_builds)
    if "The conflict is caused by" in text:
        return f"They do not go together: {_conflict(lines)}."
    known = next((sentence for pattern, sentence in _REASONS if re.search(pattern, text)), None)
    return known or f"pip said: {_last_error(lines)}"


def _missing(requirement: str, versions: str, python: str, *, source_builds: bool) -> str:
    if versions != "none":
        return f"There is no '{requirement}' for Python {python} where packages come from; there are {_last(versions)}."
    kind = "package" if source_builds else "wheel"
    return f"No {kind} '{requirement}' for Python {python} was found where packages come from: is the name right?" + (
        "" if source_builds else " (Packages that have to be built from their sources are not taken here.)"
    )


def _last(versions: str) -> str:
    found = versions.split(", ")
    return ("among others " if len(found) > _MOST_NAMES else "") + ", ".join(found[-_MOST_NAMES:])


def _conflict(lines: Sequence[str]) -> str:
    """The lines of pip that say who wants what."""
    start = next(index for index, line in enumerate(lines) if "The conflict is caused by" in line)
    told = itertools.takewhile(lambda line: line.startswith("    "), lines[start + 1 :])
    parts = [line.strip().replace("The user requested (constraint)", "this host keeps") for line in told]
    return "; ".join(part.replace("The user requested", "the requirements ask for") for part in parts)[:_LONGEST]


def _last_error(lines: Sequence[str]) -> str:
    errors = [line for line in lines if line.startswith("ERROR:")]
    said = [line for line in (errors or list(lines)) if line.strip()]
    return (said[-1].removeprefix("ERROR:").strip() if said else "nothing")[:_LONGEST]
