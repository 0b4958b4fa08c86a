"""Lines of a process's log: one JSON object each, with the ids that are known, and without secrets."""

import io
import json
import logging
import threading
import warnings
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import structlog

from app import logs
from app.accounts.keys import new_key
from tests.logging_state import logging_as_before

log = structlog.get_logger("test")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with logging_as_before():
        yield


class Said:
    """What was written since it was last asked: each line as JSON."""

    def __init__(self, form: logs.Form = "json") -> None:
        self._stream = io.StringIO()
        self._form = form
        self.set_up()

    def set_up(self) -> None:
        logs.configure("info", self._form, self._stream)

    def text(self) -> str:
        text = self._stream.getvalue()
        self._stream.seek(0)
        self._stream.truncate()
        return text

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]

    def line(self) -> dict[str, Any]:
        (line,) = self.lines()
        return line


@pytest.fixture
def said() -> Said:
    return Said()


def fail(error: Exception) -> None:
    raise error


class TestJson:
    def test_a_line_is_an_object_that_begins_with_time_level_and_event(self, said: Said) -> None:
        log.info("placed", job_id="job_1", attempt=2)
        line = said.line()
        assert list(line)[:3] == ["timestamp", "level", "event"]
        assert datetime.fromisoformat(line.pop("timestamp")).tzinfo is not None
        assert line == {"level": "info", "event": "placed", "job_id": "job_1", "attempt": 2}

    def test_ids_of_the_request_the_thread_and_the_process_are_in_every_line(self, said: Said) -> None:
        logs.bind_process(worker_id="wrk_1")
        with structlog.contextvars.bound_contextvars(job_id="job_1", attempt=1):
            log.warning("slow")
            log.warning("other", attempt=2)
        log.warning("idle")
        first, second, third = said.lines()
        assert (first["worker_id"], first["job_id"], first["attempt"]) == ("wrk_1", "job_1", 1)
        assert second["attempt"] == 2, "what the call says wins"
        assert "job_id" not in third

    def test_an_exception_is_part_of_its_line(self, said: Said) -> None:
        try:
            fail(RuntimeError("two\nlines"))
        except RuntimeError:
            log.exception("failed")
        line = said.line()
        assert line["level"] == "error"
        assert "RuntimeError: two\nlines" in line["exception"]

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (Path("/run"), "/run"),
            ({"a": {1}}, {"a": [1]}),
            (("x", None, True, 0.5), ["x", None, True, 0.5]),
            ("half a pair: \udc80", "half a pair: \udc80"),
            (2**80, 2**80),
        ],
        ids=["path", "nested", "tuple", "surrogate", "large"],
    )
    def test_any_value_can_be_said(self, said: Said, value: object, shown: object) -> None:
        log.info("x", value=value)
        assert said.line()["value"] == shown

    def test_a_lower_level_is_not_written(self, said: Said) -> None:
        log.debug("detail")
        assert said.text() == ""


class TestText:
    def test_is_name_and_value_for_people(self) -> None:
        said = Said("text")
        log.info("started", port=80, text="two words")
        text = said.text()
        assert text.startswith("timestamp=20")
        assert text.endswith(' level=info event=started port=80 text="two words"\n')

    def test_has_no_secrets_either(self) -> None:
        said = Said("text")
        log.info("x", url="redis://:hunter2@redis:6379/0")
        assert "hunter2" not in said.text()


class TestSecrets:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("Authorization: Bearer abc.def-123", "Authorization: Bearer [redacted]"),
            ("basic dXNlcjpwYXNz", "basic [redacted]"),
            ("postgresql+psycopg://trainshed:secret@db/trainshed", "postgresql+psycopg://[redacted]@db/trainshed"),
            ("redis://:p/w@d@redis:6379/0 is away", "redis://[redacted]@redis:6379/0 is away"),
            ("https://token@host/x", "https://[redacted]@host/x"),
            ("GET /a?X-Amz-Signature=f00&x=1", "GET /a?X-Amz-Signature=[redacted]&x=1"),
            ("password=hunter2, retries=3", "password=[redacted], retries=3"),
            ("http://host/v1/jobs?owner=a@b", "http://host/v1/jobs?owner=a@b"),
            ("mail ana@example.org about root://scans/a.csv", "mail ana@example.org about root://scans/a.csv"),
            ("its basis is basic", "its basis is basic"),
        ],
    )
    def test_are_taken_out_of_texts_and_the_rest_stays(self, said: Said, text: str, shown: str) -> None:
        log.info(text, again=text, deep={"list": [text]})
        line = said.line()
        assert (line["event"], line["again"], line["deep"]) == (shown, shown, {"list": [shown]})

    def test_of_a_key_only_its_public_beginning_is_left(self, said: Said) -> None:
        key = new_key()
        event = f"key {key.text} was refused"
        log.info(event, attempted=[key.text])
        line = said.line()
        assert line["event"] == f"key {key.hint}[redacted] was refused"
        assert line["attempted"] == [f"{key.hint}[redacted]"]

    def test_are_taken_out_of_a_traceback(self, said: Said) -> None:
        secret = new_key().text
        try:
            fail(ValueError(f"{secret} at redis://u:pw@h"))
        except ValueError:
            log.exception("failed")
        text = said.text()
        assert secret not in text
        assert "pw" not in text

    @pytest.mark.parametrize("name", ["authorization", "Authorization", "db_password", "s3_secret_access_key", "token"])
    def test_a_field_that_is_named_like_one_is_not_shown(self, said: Said, name: str) -> None:
        log.info("x", **{name: 12345}, headers={name: "plain"})
        line = said.line()
        assert (line[name], line["headers"][name]) == (logs.REDACTED, logs.REDACTED)


class TestLibraries:
    def test_what_they_say_becomes_a_line_that_names_them(self, said: Said) -> None:
        logging.getLogger("celery.worker").warning("connected to %s", "redis://:pw@redis:6379/0")
        line = said.line()
        assert (line["logger"], line["level"]) == ("celery.worker", "warning")
        assert line["event"] == "connected to redis://[redacted]@redis:6379/0"

    def test_their_exceptions_come_along(self, said: Said) -> None:
        try:
            fail(OSError("gone"))
        except OSError:
            logging.getLogger("uvicorn.error").exception("lost")
        assert "OSError: gone" in said.line()["exception"]

    def test_a_line_that_they_got_wrong_ends_nothing(self, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(logging, "raiseExceptions", False)
        logging.getLogger("x").warning("%d", "no number")
        assert said.text() == ""

    def test_chatter_is_left_out(self, said: Said) -> None:
        logging.getLogger("httpx").info("HTTP Request: GET …")
        assert said.text() == ""

    def test_twice_set_up_still_writes_once(self, said: Said) -> None:
        said.set_up()
        logging.getLogger("x").warning("once")
        assert len(said.lines()) == 1

    def test_warnings_are_lines_too(self, said: Said) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(capture=False)
            said.set_up()
            warnings.warn("old", DeprecationWarning, stacklevel=1)
        line = said.line()
        assert line["logger"] == "py.warnings"
        assert "DeprecationWarning: old" in line["event"]


class TestDeadThread:
    def test_is_a_line_with_its_name_and_its_error(self, said: Said) -> None:
        thread = threading.Thread(target=fail, args=[RuntimeError("unforeseen")], name="heartbeat")
        thread.start()
        thread.join()
        line = said.line()
        assert (line["event"], line["thread"], line["level"]) == ("thread_died", "heartbeat", "critical")
        assert "RuntimeError: unforeseen" in line["exception"]
