"""Case C75: whoever can write to the broker runs no code by it, and stops nothing."""

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import redis

from app.broker import queue_of
from tests.e2e.specs import quick
from tests.e2e.stack import Stack


class Harm:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def message(task: str, content_type: str, body: bytes) -> str:
    """As Celery's protocol 2 writes one: https://docs.celeryq.dev/en/stable/internals/protocol.html."""
    return json.dumps(
        {
            "body": base64.b64encode(body).decode(),
            "content-type": content_type,
            "content-encoding": "binary" if "python" in content_type else "utf-8",
            "headers": {"task": task, "id": "forged", "lang": "py", "root_id": "forged", "argsrepr": "()"},
            "properties": {
                "body_encoding": "base64",
                "correlation_id": "forged",
                "delivery_mode": 2,
                "delivery_tag": "forged",
                "delivery_info": {"exchange": "", "routing_key": "celery"},
                "priority": 0,
            },
        }
    )


class TestForgedMessages:
    def test_neither_a_pickle_nor_an_unknown_task_does_anything(self, stack: Stack, tmp_path: Path) -> None:
        marker, worker = tmp_path / "marker", stack.pid("worker")
        (registered,) = stack.client.get("/v1/workers").json()["data"]
        queue = queue_of(registered["id"])
        harm = pickle.dumps(Harm(marker))
        with redis.Redis(unix_socket_path=str(stack.home.run / "redis.sock")) as broker:
            broker.lpush(queue, message("trainshed.wake", "application/x-python-serialize", harm))
            broker.lpush(queue, message("os.system", "application/json", b'[["true"], {}, {}]'))
            stack.until(lambda: broker.llen(queue) == 0 or None, "both messages are taken")

        assert stack.wait(stack.submit(quick()))["state"] == "succeeded"
        log = stack.log("worker")
        assert "untrusted content of type pickle" in log
        assert "unregistered task of type 'os.system'" in log
        assert stack.pid("worker") == worker
        assert not marker.exists()

    def test_the_marker_would_be_there_if_it_were_unpickled(self, tmp_path: Path) -> None:
        pickle.loads(pickle.dumps(Harm(tmp_path / "marker")))  # noqa: S301 - what the worker must not do

        assert (tmp_path / "marker").exists()
