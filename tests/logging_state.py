"""Undo what setting up a process's log does to the process, which here is the test runner's."""

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator

import structlog

from app import logs


@contextlib.contextmanager
def logging_as_before() -> Iterator[None]:
    """What `logs.configure` and `logs.bind_process` change in the block is as before afterwards."""
    root = logging.getLogger()
    handlers, level, hook, show = list(root.handlers), root.level, threading.excepthook, warnings.showwarning
    levels = {name: logging.getLogger(name).level for name in logs._CHATTY}
    facts = dict(logs._PROCESS)
    try:
        yield
    finally:
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()
        logging.captureWarnings(capture=False)
        warnings.showwarning = show
        root.handlers[:] = handlers
        root.setLevel(level)
        threading.excepthook = hook
        for name, former in levels.items():
            logging.getLogger(name).setLevel(former)
        logs._PROCESS.clear()
        logs._PROCESS.update(facts)
