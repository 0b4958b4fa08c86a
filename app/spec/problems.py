"""Problems of a posted spec, and the error that carries all of them at once.

InvalidSpec
 +- NotEnabled    the spec asks for a reserved kind that this installation does not run
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.errors import TrainshedError


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """One problem: where in the posted body (RFC 6901), what is wrong in plain words, and what to write instead.

    `suggestion` is ready to be copied: a key (`learning_rate`), the dotted path of a key that stands in the wrong place
    (`hyperparameters.learning_rate`), a word (`torch`), or another value as JSON (`0.001`, `["f1", "f2"]`).
    """

    pointer: str
    message: str
    suggestion: str | None = None


class InvalidSpec(TrainshedError):
    """The spec cannot be accepted; `problems` holds every problem found, in the order of the body."""

    code = "invalid_spec"

    def __init__(self, problems: Sequence[SpecProblem]) -> None:
        self.problems: list[SpecProblem] = list(problems)
        lines = [f"{problem.pointer or '(the whole body)'}: {problem.message}" for problem in self.problems]
        super().__init__("The spec cannot be accepted. " + " ".join(lines))

    def within(self, body: object) -> "InvalidSpec":
        """Return the same error with pointers cut back to what `body` has.

        Strings are sugar: `{"data": "digits"}` has no `/data/target`, so a problem there is shown at `/data`.
        """
        return type(self)([replace(problem, pointer=clip(problem.pointer, body)) for problem in self.problems])


class NotEnabled(InvalidSpec):
    """The spec asks for a kind that is reserved and not run here."""

    code = "not_enabled"


def pointer(parts: Sequence[str | int]) -> str:
    r"""Write an RFC 6901 pointer: `~` becomes `~0`, `/` becomes `~1`; no parts = the whole body.

    Half characters, which JSON can spell but UTF-8 cannot carry, are written as `\udXXX`.
    """
    text = "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)
    return text.encode("utf-8", "backslashreplace").decode()


def parts_of(text: str) -> list[str]:
    """Read an RFC 6901 pointer back into its parts."""
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def clip(text: str, body: object) -> str:
    """Cut a pointer so that all of it, except perhaps a missing last key of an object, exists in `body`."""
    kept: list[str] = []
    here = body
    for part in parts_of(text):
        if isinstance(here, dict):
            kept.append(part)
            if part not in here:
                break
            here = here[part]
        elif isinstance(here, list) and part.isdecimal() and int(part) < len(here):
            kept.append(part)
            here = here[int(part)]
        else:
            break
    return pointer(kept)
