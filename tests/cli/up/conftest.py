"""Stand-ins for the service's children: small real processes."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.cli.up.child import Child, Program
from app.cli.up.signals import Signals
from app.cli.up.supervisor import Supervisor

Script = Callable[..., Program]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A `Program` that runs Python code."""

    def make(name: str, code: str, grace_s: float = 20.0) -> Program:
        command = (sys.executable, "-c", code)
        return Program(name, command, {"PATH": os.environ["PATH"]}, tmp_path / f"{name}.log", grace_s)

    return make


@pytest.fixture
def signals() -> Iterator[Signals]:
    with Signals() as held:
        yield held


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def supervisor(signals: Signals, told: list[str]) -> Iterator[Supervisor]:
    """A supervisor whose children end with the test."""
    made = Supervisor(signals, told.append, lambda: None)
    yield made
    children: list[Child] = list(made.children.values())
    for child in children:
        child.kill()
