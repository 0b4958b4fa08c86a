"""docs/errors.md has every code that can reach a user, and none that the source does not know.

Statuses and causes are compared with their tables where these are tested (tests/api, tests/jobs).
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/errors.md").read_text(encoding="utf-8")

# Always told as something else: the trainer's errors as causes, the others as a part of another error.
NEVER_TOLD: Final = {
    "cli": "the base class of what the command line says",
    "refused": "stands for the server's own document",
    "protocol_error": "in the worker's log",
    "launch_failed": "the cause says it",
    "rank_failed": "the cause says it",
    "training_failed": "the cause says it",
    "shape_problem": "invalid_spec",
    "invalid_requirements": "invalid_spec, or the cause environment_failed",
    "environment_cancelled": "the job's own end says why",
}

# How the code of a notice is written down: as an argument, as a pair with its sentence, in an entry of the journal.
NOTICE: Final = re.compile(
    r'(?:\bnotice\(|\b_?say\(|\b_once\(|\bappend\(\()\s*(?:session, job, )?"([a-z_]+)",'
    r'|\b(?:yield|return) \(?\s*"([a-z_]+)",\s+f?"[A-Z{]'
    r'|\{"code": "([a-z_]+)", "message"'
)
NOTICES_ARE_IN: Final = ("app/cli/backup", "app/jobs", "app/tables/selection.py", "workers")
WAITING: Final = re.compile(r'\bWaiting\("([a-z_]+)"')


def sources(*places: str) -> Iterator[str]:
    for place in places:
        for path in sorted((ROOT / place).rglob("*.py")) or [ROOT / place]:
            yield path.read_text(encoding="utf-8")


def codes_of_classes(source: str) -> Iterator[str]:
    """The text of `code = "…"` in the body of each class."""
    for found in ast.walk(ast.parse(source)):
        for line in found.body if isinstance(found, ast.ClassDef) else []:
            match line:
                case (
                    ast.Assign(targets=[ast.Name(id="code")], value=ast.Constant(value=str(code)))
                    | ast.AnnAssign(target=ast.Name(id="code"), value=ast.Constant(value=str(code)))
                ):
                    yield code


def matches(pattern: re.Pattern[str], *places: str) -> set[str]:
    found = [match for source in sources(*places) for match in pattern.findall(source)]
    return {"".join(match) for match in found}


def listed(heading: str) -> set[str]:
    """The codes of the table below a heading of the page."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE))


class TestErrorPage:
    def test_every_error_class_has_its_code_there(self) -> None:
        codes = {code for source in sources("app", "workers") for code in codes_of_classes(source)}
        assert {"invalid_spec", "queue_full", "worker_running", *NEVER_TOLD} <= codes
        told = codes - NEVER_TOLD.keys()
        assert told - set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set()

    def test_every_notice_is_there_and_no_other(self) -> None:
        assert listed("Notices") == matches(NOTICE, *NOTICES_ARE_IN)

    def test_every_reason_to_wait_is_there_and_no_other(self) -> None:
        assert listed("Why a job waits") == matches(WAITING, "app/scheduling")

    @pytest.mark.parametrize("heading", ["The command line", "Starting a server"])
    def test_what_never_comes_over_http_exists(self, heading: str) -> None:
        codes = {code for source in sources("app", "workers") for code in codes_of_classes(source)}
        assert listed(heading)
        assert listed(heading) <= codes

    def test_every_table_says_what_to_do_but_that_of_notices(self) -> None:
        for row in re.findall(r"^\| `\w+` \|.*$", PAGE.split("\n## Notices\n")[0], re.MULTILINE):
            assert re.search(r"\| [A-Z`][^|]+[.] \|$", row), row
