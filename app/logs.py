"""The log of a server's process: one line per event on standard error, as JSON or as text, without secrets.

Every line has `timestamp` (UTC), `level` and `event`, and of `request_id`, `job_id`, `attempt` and `worker_id` those
that are known: a call names them, or they are bound to its request or thread (`structlog.contextvars`) or to the
process (`bind_process`). What libraries say through the standard logging becomes a line of ours.
"""

import json
import logging
import re
import sys
import threading
from typing import Any, Final, Literal, TextIO

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

Form = Literal["json", "text"]

REDACTED: Final = "[redacted]"
_HEAD: Final = ("timestamp", "level", "event")
_PROCESS: Final[dict[str, object]] = {}
# Loggers that tell at this level what is no news here: each look of an event loop, each request of a client of ours.
_CHATTY: Final = ("asyncio", "httpx", "httpcore")

_SECRET_NAMES: Final = re.compile(r"authorization|password|secret|token|cookie", re.IGNORECASE)
_SECRETS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"\b(bearer|basic) +[\w+/.~=-]{4,}", re.IGNORECASE), rf"\1 {REDACTED}"),
    # A key's first ten characters are public; people tell keys apart by them.
    (re.compile(r"(?<![0-9A-Za-z])(ts_[0-9A-Za-z]{10})[0-9A-Za-z]+"), rf"\1{REDACTED}"),
    # To the last @, since a password that nobody encoded may hold one, or a slash.
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/?#:@]*:\S*@", re.IGNORECASE), rf"\1{REDACTED}@"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/?#@]+@", re.IGNORECASE), rf"\1{REDACTED}@"),
    (
        re.compile(r"([\w-]*(?:password|secret|token|signature|credential)[\w-]*=)[^\s&,;]+", re.IGNORECASE),
        rf"\1{REDACTED}",
    ),
)


def configure(level: str, form: Form, stream: TextIO | None = None) -> None:
    """Set up this process's log; `level` and worse is written, to standard error by default. May be called again."""
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _add_process,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redact,
            _RENDERERS[form],
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(stream or sys.stderr),
    )
    _take_over_standard_logging(number)
    threading.excepthook = _log_dead_thread


def bind_process(**facts: object) -> None:
    """Add facts to every line of this process from now on, such as its `worker_id`; a call's own win."""
    _PROCESS.update(facts)


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Take out what gives access: keys, authorizations, passwords, and whoever stands before the @ of an address."""
    return {name: _without_secret(name, value) for name, value in event.items()}


def _without_secret(name: str, value: object) -> object:
    return REDACTED if _SECRET_NAMES.search(name) else _without_secrets(value)


def without_secrets(text: str) -> str:
    """A text for people without what gives access, as in a line of the log."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def _without_secrets(value: object) -> object:
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {str(name): _without_secret(str(name), part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_without_secrets(part) for part in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return _without_secrets(str(value))


def _add_process(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {**_PROCESS, **event}


def _as_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """RFC 8259, on one line whatever the values hold: a line's end inside a value is escaped."""
    head = {name: event.pop(name) for name in _HEAD if name in event}
    try:
        return orjson.dumps({**head, **event}).decode()
    except orjson.JSONEncodeError:  # half a surrogate pair, as in a file's name that is not UTF-8; a large integer
        return json.dumps({**head, **event}, default=str)


_RENDERERS: Final[dict[Form, Processor]] = {
    "json": _as_json,
    "text": structlog.processors.LogfmtRenderer(key_order=list(_HEAD), bool_as_flag=False),
}


class _ToStructlog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            said: dict[str, Any] = {"logger": record.name}
            if record.exc_info:
                said["exc_info"] = record.exc_info
            structlog.get_logger(record.name).log(record.levelno, record.getMessage(), **said)
        except Exception:  # noqa: BLE001 - as `logging` itself does: a line that cannot be written ends nothing
            self.handleError(record)


def _take_over_standard_logging(level: int) -> None:
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, _ToStructlog):
            root.removeHandler(handler)
    root.addHandler(_ToStructlog())
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    logging.captureWarnings(capture=True)


def _log_dead_thread(dead: threading.ExceptHookArgs) -> None:
    if dead.exc_value is not None and not isinstance(dead.exc_value, SystemExit):
        name = dead.thread.name if dead.thread is not None else None
        structlog.get_logger("process").critical("thread_died", thread=name, exc_info=dead.exc_value)
