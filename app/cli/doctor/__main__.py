"""The program: print each finding as it comes; exit 1 when there is a fault."""

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from app.cli.doctor.examination import examine, worst
from app.cli.doctor.findings import Finding, Status
from app.cli.edge import console
from app.cli.figures import harmless

FAULTY: Final = 1
_STYLES: Final = {Status.OK: "green", Status.SKIPPED: "dim", Status.WARNING: "yellow", Status.FAULT: "bold red"}
_NAME: Final = 18

program = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@program.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False) -> None:
    """Look at everything that the service needs on this host, and say what is wrong and what to do.

    Driver, container toolkit, frameworks, shared memory, disk, clock, ports, database, broker, storage, versions and
    rights, by the settings of this environment, whether a server runs or not. Nothing is changed. Exit code 1: a fault.
    """
    out = console()
    found: list[Finding] = []
    for finding in examine(os.environ):
        found.append(finding)
        if not as_json:
            _show(out, finding)
    if as_json:
        print(json.dumps(document(found), ensure_ascii=False))
    else:
        out.print(summary(found))
    if worst(found) is Status.FAULT:
        raise typer.Exit(FAULTY)


def document(found: Iterable[Finding]) -> dict[str, object]:
    found = list(found)
    counts = {status.value: sum(finding.status is status for finding in found) for status in Status}
    checks = [asdict(finding) for finding in found]
    return {"object": "doctor", "status": worst(found).value, "counts": counts, "checks": checks}


def summary(found: Iterable[Finding]) -> str:
    statuses = [finding.status for finding in found]
    faults, warnings = statuses.count(Status.FAULT), statuses.count(Status.WARNING)
    if not faults and not warnings:
        return "All is well."
    return f"{faults} fault{'s' * (faults != 1)}, {warnings} warning{'s' * (warnings != 1)}."


def _show(out: Console, finding: Finding) -> None:
    line = Text(f"{finding.status.value:8}", style=_STYLES[finding.status])
    line.append(f"{finding.name:{_NAME}} {harmless(finding.message)}", style="default")
    out.print(line)
    if finding.advice:
        out.print(Text(f"{'':8}{'':{_NAME}} → {harmless(finding.advice)}"))


if __name__ == "__main__":
    program(prog_name="trainshed doctor")
    sys.exit(0)
