"""What the command line tells a person when it cannot do what was asked, and with which exit code.

CliError
 +- UsageProblem      2  asked for something impossible
 +- Refused           2  the server said no, with a problem document
 +- NotTrainshed      2  something else answers there
 +- ServerFailed      3  the server could not answer (5xx)
 +- Unreachable       3  nothing answers
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from app.errors import TrainshedError

OK: Final = 0
NOT_SUCCEEDED: Final = 1
REFUSED: Final = 2
NO_SERVER: Final = 3
INTERRUPTED: Final = 130


class CliError(TrainshedError):
    """Ends a command; `lines` are shown below the sentence."""

    code: ClassVar[str] = "cli"
    exit_code: ClassVar[int] = REFUSED

    @property
    def lines(self) -> list[str]:
        return []

    @property
    def document(self) -> Mapping[str, Any]:
        """The same for machines."""
        return {"code": self.code, "detail": str(self)}


class UsageProblem(CliError):
    code = "usage"


class Refused(CliError):
    """The server's problem document (RFC 9457), as sentences."""

    code = "refused"

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        # With single problems the detail only repeats them.
        names = ("title", "detail") if content.get("errors") else ("detail", "title")
        said = next((content[name] for name in names if content.get(name)), "The server refused the request")
        super().__init__(str(said))

    @property
    def lines(self) -> list[str]:
        lines = []
        for problem in self.content.get("errors") or []:
            place = _place(problem)
            message = str(problem.get("message", ""))
            lines.append(f"{place}: {message}" if place else message)
            if problem.get("suggestion"):
                lines.append(f"    try: {problem['suggestion']}")
        if self.content.get("status") == 401:  # noqa: PLR2004 - HTTP's own number
            lines.append("The key is not known to this server, or was revoked; `trainshed key create` makes another.")
        return lines

    @property
    def document(self) -> Mapping[str, Any]:
        return self.content


class ServerFailed(Refused):
    exit_code = NO_SERVER

    @property
    def lines(self) -> list[str]:
        request = self.content.get("request_id")
        return [*super().lines, f"Request id: {request}"] if request else super().lines


class NotTrainshed(CliError):
    """An answer that no Trainshed gives: a proxy, or another program on that port."""

    code = "not_trainshed"

    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"What answers at {url} is not a Trainshed (status {status}). Check --url.")


class Unreachable(CliError):
    code = "unreachable"
    exit_code = NO_SERVER

    def __init__(self, url: str, reason: str, *, after_connecting: bool = False) -> None:
        self.url = url
        self.after_connecting = after_connecting
        what = f"The connection to {url} was lost" if after_connecting else f"Nothing answers at {url}"
        super().__init__(f"{what} ({reason}).")

    @property
    def lines(self) -> list[str]:
        return ["Start a server here with `trainshed up`, or name another with --url or TRAINSHED_URL."]


def _place(problem: Mapping[str, Any]) -> str:
    """Where in the request the problem is: the pointer, or row and column of a table."""
    if problem.get("pointer") is not None:
        return str(problem["pointer"]) or "the whole body"
    parts = [f"{name} {problem[name]}" for name in ("row", "column") if problem.get(name) is not None]
    return ", ".join(parts)
