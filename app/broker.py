"""Redis as a doorbell: nothing that matters is in a message, so a lost, repeated, late or forged one does no harm.

`Bell` rings from a thread of its own with a breaker, since one publish to a dead Redis was measured to block for 6 s.
`Listener` turns rings into calls, and calls `on_resubscribe` whenever something may have been missed.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import redis
from celery import Celery
from redis.backoff import NoBackoff
from redis.retry import Retry

CHANNEL_WANTED: Final = "trainshed.wanted"
CHANNEL_JOURNAL: Final = "trainshed.journal"
CHANNEL_TASKS: Final = "trainshed.tasks"
"""A prediction or an export waits for a worker."""
CHANNEL_ANSWERS: Final = "trainshed.answers"
"""One of them has ended; the message is its id."""
WAKE_TASK: Final = "trainshed.wake"

_CONNECT_S: Final = 1.0
_ANSWER_S: Final = 2.0
_RETRY_S: Final = 1.0
_PROBE_S: Final = 5.0
_PENDING: Final = 10_000


def celery_url(url: str) -> str:
    """The address as Celery wants it; only the name of the Unix-socket scheme differs."""
    if url.startswith("unix://"):
        return f"redis+socket://{url.removeprefix('unix://')}?virtual_host=0"
    return url


def queue_of(worker_id: str) -> str:
    return f"worker.{worker_id}"


def celery_app(url: str) -> Celery:
    """Celery as a doorbell: JSON only, early acknowledgement, nothing prefetched, no result, no remote control.

    Every setting that makes Redis redeliver trades a lost job for a doubled one; jobs live in the database instead.
    """
    app = Celery("trainshed", broker=celery_url(url), set_as_current=False)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_acks_late=False,
        task_publish_retry=False,
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_max_retries=None,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "socket_timeout": 5,
            "socket_connect_timeout": 2,
            "socket_keepalive": True,
            "health_check_interval": 5,
        },
    )
    return app


class Publisher:
    """A thread that sends, in order, what others hand in; handing in never blocks and never raises.

    While the broker is down, what waits is dropped: the receivers look into the database by themselves. `probe`, when
    given, is called at the start, when nothing was handed in for a while, and each second while the broker is down, so
    that `healthy` tells the present and not how the last message fared.
    """

    def __init__(self, name: str, send: Callable[[Any], None], probe: Callable[[], object] | None = None) -> None:
        self._send = send
        self._probe = probe
        self._queue: queue.Queue[Any] = queue.Queue(maxsize=_PENDING)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.healthy: bool | None = None

    def start(self) -> None:
        self._thread.start()

    def hand_in(self, item: Any) -> None:  # noqa: ANN401 - whatever `send` takes
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(item)

    def stop(self) -> None:
        self._stop.set()
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        if self._thread.is_alive():
            self._thread.join(timeout=_CONNECT_S + _ANSWER_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            work = self._next()
            try:
                work()
                self.healthy = True
            except Exception:  # noqa: BLE001 - any failure of a doorbell means the same: it did not ring
                self.healthy = False
                self._stop.wait(_RETRY_S)
                self._forget()

    def _next(self) -> Callable[[], object]:
        if self._probe is None:
            wait_s = None
        elif self.healthy is None:
            wait_s = 0.0
        else:
            wait_s = _PROBE_S if self.healthy else _RETRY_S
        try:
            item = self._queue.get(timeout=wait_s) if wait_s != 0.0 else self._queue.get_nowait()
        except queue.Empty:
            return self._probe or _nothing
        return _nothing if item is None else lambda: self._send(item)

    def _forget(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._queue.get_nowait()


def _nothing() -> None:
    """The work of an item that only wakes the thread."""


class Bell:
    """Rings Redis channels. Without a URL it stays silent, and everything still works by looking each second."""

    def __init__(self, url: str | None) -> None:
        self._client = _client(url) if url else None
        self._publisher = Publisher("bell", self._publish, self._client.ping if self._client is not None else None)

    def start(self) -> None:
        if self._client is not None:
            self._publisher.start()

    def ring(self, channel: str, message: str = "") -> None:
        if self._client is not None:
            self._publisher.hand_in((channel, message))

    @property
    def healthy(self) -> bool | None:
        """Whether Redis answers, not older than some seconds; None before the first try, and without a URL."""
        return self._publisher.healthy

    def stop(self) -> None:
        self._publisher.stop()
        if self._client is not None:
            self._client.close()

    def _publish(self, item: tuple[str, str]) -> None:
        if self._client is not None:
            self._client.publish(*item)


class Listener:
    """A thread that hears channels and survives any loss of Redis."""

    def __init__(
        self,
        url: str,
        channels: Sequence[str],
        callback: Callable[[str, str], None],
        on_resubscribe: Callable[[], None],
    ) -> None:
        self._client = _client(url)
        self._channels = list(channels)
        self._callback = callback
        self._on_resubscribe = on_resubscribe
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        self._client.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with self._client.pubsub() as subscription:  # type: ignore[no-untyped-call] # redis-py leaves it untyped
                    subscription.subscribe(*self._channels)
                    self._hear(subscription)
            except Exception:  # noqa: BLE001 - also a message that is no text: a forged one must not end the thread
                self._stop.wait(_RETRY_S)

    def _hear(self, subscription: Any) -> None:  # noqa: ANN401 - redis-py's PubSub is generic over its client
        # Only what is published after Redis confirmed the last channel is certain to arrive here.
        unconfirmed = set(self._channels)
        while not self._stop.is_set():
            message = subscription.get_message(timeout=0.5)
            if message is None:
                continue
            if message["type"] == "subscribe":
                unconfirmed.discard(message["channel"])
                if not unconfirmed:
                    self._on_resubscribe()
            elif message["type"] == "message":
                self._callback(message["channel"], message["data"])


def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url,  # redis://host:6379/0 or unix:///run/redis.sock
        decode_responses=True,
        socket_connect_timeout=_CONNECT_S,
        socket_timeout=_ANSWER_S,
        health_check_interval=5,
        protocol=2,
        retry=Retry(NoBackoff(), 0),
    )
