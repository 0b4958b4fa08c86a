"""The table of a run as a page: what it ran on stands above it."""

import os
from datetime import UTC, datetime
from typing import Final

from scripts.compose_test.commands import CommandFailed, Shell
from scripts.compose_test.report import Report

_GIB: Final = 1024**3
_HEAD: Final = """# Compose test

Written by `make compose-test COMPOSE_TEST_ARGS="--write docs/evidence/4-compose.md"` on {day}, at commit
{commit}, on a machine with {cores} cores and {memory:.0f} GiB: Docker {engine}, {compose}.
What it does and why is in [decision 28](../decisions/0028-compose-test-on-a-real-engine.md).

"""


def page(report: Report, shell: Shell, engine: str, compose: str) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    head = _HEAD.format(
        day=datetime.now(UTC).date(),
        commit=commit(shell),
        cores=os.cpu_count(),
        memory=memory,
        engine=engine,
        compose=compose,
    )
    return f"{head}{report.table()}\n"


def commit(shell: Shell) -> str:
    """The commit of the sources, and whether they differ from it; `?` outside of a checkout."""
    try:
        name = shell.run("git", "rev-parse", "--short", "HEAD").strip()
        changed = shell.run("git", "status", "--porcelain").strip()
    except CommandFailed:
        return "?"
    return f"{name} with changes" if changed else name
