"""The doorbell never blocks and never raises, whatever Redis does (case C13)."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import redis

from app.broker import Bell, Listener, Publisher, celery_app, celery_url, queue_of
from tests.servers import redis_server


class Heard:
    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        self.message = threading.Event()
        self.subscribed = threading.Event()

    def callback(self, channel: str, text: str) -> None:
        self.messages.append((channel, text))
        self.message.set()


@contextmanager
def listening(url: str, heard: Heard) -> Iterator[None]:
    listener = Listener(url, ["a", "b"], heard.callback, heard.subscribed.set)
    listener.start()
    try:
        yield
    finally:
        listener.stop()


@contextmanager
def bell_at(url: str | None) -> Iterator[Bell]:
    bell = Bell(url)
    bell.start()
    try:
        yield bell
    finally:
        bell.stop()


def wait_until(condition: threading.Event) -> None:
    assert condition.wait(20)


def settled(bell: Bell) -> bool | None:
    """Whether the bell's first ring arrived; it is sent by a thread."""
    deadline = time.monotonic() + 20
    while bell.healthy is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return bell.healthy


class TestRinging:
    def test_a_ring_is_heard_on_its_channel(self, redis_url: str) -> None:
        heard = Heard()
        with listening(redis_url, heard), bell_at(redis_url) as bell:
            wait_until(heard.subscribed)
            bell.ring("b", "job_1")
            wait_until(heard.message)
            assert heard.messages == [("b", "job_1")]
            assert settled(bell) is True

    def test_without_redis_it_is_silent_and_harmless(self) -> None:
        with bell_at(None) as bell:
            bell.ring("a", "x")
            assert bell.healthy is None

    def test_the_listener_comes_back_and_says_that_it_may_have_missed_something(self) -> None:
        heard = Heard()
        with redis_server() as first:
            url, path = first.url, first.socket
            with listening(url, heard):
                wait_until(heard.subscribed)
                heard.subscribed.clear()
                with first.client() as client:
                    client.client_kill_filter(_type="pubsub")
                wait_until(heard.subscribed)
                with bell_at(url) as bell:
                    bell.ring("a", "again")
                    wait_until(heard.message)
        assert path.name.endswith(".sock")

    def test_a_message_that_is_no_text_does_not_make_it_deaf(self, redis_url: str) -> None:
        heard = Heard()
        with listening(redis_url, heard), bell_at(redis_url) as bell:
            wait_until(heard.subscribed)
            heard.subscribed.clear()
            with closing(redis.Redis.from_url(redis_url)) as forger:
                forger.publish("a", b"\xff\xfe")
            wait_until(heard.subscribed)
            bell.ring("a", "job_1")
            wait_until(heard.message)
            assert heard.messages == [("a", "job_1")]


class TestDeadRedis:
    def test_ringing_never_blocks_the_caller(self, tmp_path: Path) -> None:
        with bell_at(f"unix://{tmp_path}/nobody.sock") as bell:
            for _ in range(1000):
                bell.ring("a", "x")
            assert settled(bell) is False

    def test_nor_does_a_redis_that_accepts_and_never_answers(self, tmp_path: Path) -> None:
        path = tmp_path / "silent.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
            silent.bind(str(path))
            silent.listen()
            with bell_at(f"unix://{path}") as bell:
                bell.ring("a", "x")
                assert settled(bell) is False


class TestHealth:
    def test_it_is_known_without_a_ring_and_follows_redis_down_and_up_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("app.broker._RETRY_S", 0.01)
        monkeypatch.setattr("app.broker._PROBE_S", 0.01)

        def becomes(*, healthy: bool) -> bool:
            deadline = time.monotonic() + 20
            while bell.healthy is not healthy and time.monotonic() < deadline:
                time.sleep(0.005)
            return bell.healthy is healthy

        path = tmp_path / "r.sock"
        with bell_at(f"unix://{path}") as bell:
            assert becomes(healthy=False)
            with redis_server(path):
                assert becomes(healthy=True)
            assert becomes(healthy=False)


class TestPublisher:
    def test_what_waits_during_an_outage_is_dropped_not_replayed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("app.broker._RETRY_S", 0.01)
        sent: list[str] = []
        arrived = threading.Event()
        broken = threading.Event()

        def send(item: str) -> None:
            if item == "bad":
                broken.wait(10)
                raise OSError("down")
            sent.append(item)
            arrived.set()

        publisher = Publisher("test", send)
        publisher.start()
        publisher.hand_in("bad")
        publisher.hand_in("stale")
        broken.set()
        deadline = time.monotonic() + 10
        while publisher.healthy is None and time.monotonic() < deadline:
            time.sleep(0.001)
        while not arrived.is_set() and time.monotonic() < deadline:
            publisher.hand_in("fresh")
            arrived.wait(0.05)
        publisher.stop()
        assert sent
        assert "stale" not in sent


class TestAddresses:
    def test_only_the_unix_scheme_is_spelt_differently_for_celery(self) -> None:
        assert celery_url("unix:///run/r.sock") == "redis+socket:///run/r.sock?virtual_host=0"
        assert celery_url("redis://cache:6379/0") == "redis://cache:6379/0"
        assert queue_of("wrk_1") == "worker.wrk_1"

    def test_celery_is_told_to_be_a_doorbell(self) -> None:
        conf = celery_app("redis://cache:6379/0").conf
        assert conf.accept_content == ["json"]
        assert conf.task_acks_late is False
        assert conf.worker_disable_prefetch is True
        assert conf.worker_enable_remote_control is False
        assert conf.result_backend is None
        assert conf.broker_transport_options["socket_timeout"] == 5
