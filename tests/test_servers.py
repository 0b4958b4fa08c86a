"""The servers that the other tests stand on: they are ours, and they are gone afterwards."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from tests.servers import PostgresServer, RedisServer, ServerDidNotStart, postgres_server, redis_server

_START_BOTH_AND_WAIT = """
import sys
from tests.servers import postgres_server, redis_server
with postgres_server() as postgres, redis_server() as redis:
    print(postgres.pid, redis.pid, flush=True)
    sys.stdin.read()
"""


def _wait_until_gone(pids: list[int]) -> None:
    until = time.monotonic() + 20
    while any(psutil.pid_exists(pid) for pid in pids):
        assert time.monotonic() < until, "a server outlived its parent"
        time.sleep(0.01)


def _start_both_and_kill_the_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _START_BOTH_AND_WAIT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    ) as run:
        assert run.stdout is not None
        pids = [int(pid) for pid in run.stdout.readline().split()]
        assert len(pids) == 2
        run.kill()
    _wait_until_gone(pids)


class TestServers:
    def test_postgres_is_our_child_and_gone_afterwards(self) -> None:
        with postgres_server() as server:
            assert psutil.Process(server.pid).ppid() == os.getpid()
            assert psutil.Process(server.pid).uids().real != 0
        assert not psutil.pid_exists(server.pid)
        assert not server.folder.exists()

    def test_redis_is_our_child_and_gone_afterwards(self) -> None:
        with redis_server() as server:
            assert psutil.Process(server.pid).ppid() == os.getpid()
        assert not psutil.pid_exists(server.pid)
        assert not server.socket.exists()

    def test_a_redis_comes_back_at_the_same_address(self) -> None:
        with redis_server() as first:
            os.kill(first.pid, signal.SIGKILL)
            with redis_server(first.socket) as second:
                assert second.url == first.url
                assert second.pid != first.pid

    def test_a_server_that_cannot_start_shows_its_own_words(self, tmp_path: Path) -> None:
        with pytest.raises(ServerDidNotStart, match="No such file"), redis_server(tmp_path / "missing" / "r.sock"):
            pass

    def test_a_killed_test_run_leaves_no_server(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with tempfile.TemporaryDirectory(prefix="ts-", dir="/tmp") as folder:
            Path(folder).chmod(0o711)
            monkeypatch.setenv("TMPDIR", folder)
            _start_both_and_kill_the_parent()


class TestSharedServers:
    def test_another_server_is_not_taken_for_ours(self, shared_redis: RedisServer) -> None:
        assert shared_redis.answers()
        assert not RedisServer(shared_redis.socket, shared_redis.pid + 1).answers()

    @pytest.mark.parametrize("turn", [1, 2])
    def test_redis_is_empty_for_every_test(self, redis_url: str, shared_redis: RedisServer, turn: int) -> None:
        client = shared_redis.client()
        assert client.dbsize() == 0, f"turn {turn}"
        client.set("left behind", 1)
        client.close()
        assert redis_url == shared_redis.url

    def test_postgres_needs_no_port(self, postgres: PostgresServer) -> None:
        connections = psutil.Process(postgres.pid).net_connections(kind="inet")
        assert connections == []
