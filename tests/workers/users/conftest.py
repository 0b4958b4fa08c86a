"""Scenarios run once, each in a folder that other users may pass through, as pytest's own may not."""

import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.workers.users.confined import GROUP, confined


@contextmanager
def open_folder() -> Iterator[Path]:
    """The worker's: of root, and of the group that the worker has in its container."""
    path = Path(tempfile.mkdtemp(prefix="trainshed-users-"))
    try:
        if os.geteuid() == 0:
            os.chown(path, 0, GROUP)
            path.chmod(0o2711)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def scenario() -> Iterator[Callable[[str], Any]]:
    """What a scenario found, by its name."""
    with ExitStack() as stack:
        yield functools.cache(lambda name: confined(name, stack.enter_context(open_folder())))
