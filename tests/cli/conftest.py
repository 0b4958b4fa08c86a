"""Fixtures of the command line's tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.fake_server import FakeServer, Ran, run

Trainshed = Callable[..., Ran]


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def trainshed(server: FakeServer, tmp_path: Path) -> Trainshed:
    """Runs `trainshed ARGUMENT…` against `server`."""

    def call(*arguments: str, **options: object) -> Ran:
        return run(server, tmp_path / "home", *arguments, **options)  # type: ignore[arg-type] # run checks them itself

    return call
