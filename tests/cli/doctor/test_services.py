"""Faults of database, broker, storage, port and server, planted one at a time."""

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from app.cli.connection import write_client_file
from app.cli.doctor.findings import Status
from app.db import Database
from app.migrations_runner import upgrade
from tests.cli.doctor.planting import Host
from tests.servers import PostgresServer, RedisServer

ONLY_POSTGRES = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


class TestDatabase:
    def test_one_that_answers_with_the_newest_schema(self, host: Host, database_url: str) -> None:
        host.environ["TRAINSHED_DATABASE_URL"] = database_url
        found = host.examine()
        assert [found[name].status for name in ("database", "schema")] == [Status.OK, Status.OK]

    def test_a_file_that_is_none(self, host: Host, tmp_path: Path) -> None:
        (tmp_path / "no.db").write_bytes(b"no database" * 1000)
        host.environ["TRAINSHED_DATABASE_URL"] = f"sqlite:///{tmp_path / 'no.db'}"
        found = host.examine()["database"]
        assert found.message.endswith("cannot be used: file is not a database")
        assert "restore a backup" in found.advice

    def test_one_that_does_not_answer(self, host: Host, tmp_path: Path) -> None:
        host.environ["TRAINSHED_DATABASE_URL"] = f"postgresql+psycopg://trainshed:hidden@/x?host={tmp_path}"
        message = host.faults()["database"]
        assert "does not answer" in message
        assert "hidden" not in message

    def test_one_that_refuses_the_user(self, host: Host, postgres: PostgresServer) -> None:
        host.environ["TRAINSHED_DATABASE_URL"] = postgres.url("nowhere")
        assert 'database "nowhere" does not exist' in host.faults()["database"]

    def test_one_whose_schema_a_newer_version_made(self, host: Host) -> None:
        upgrade(url := f"sqlite:///{host.home / 'trainshed.db'}")
        database = Database(url)
        with database.write() as session:
            session.connection().exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        database.dispose()
        assert "newer than this version" in host.faults()["schema"]

    def test_one_without_a_schema(self, host: Host, postgres: PostgresServer) -> None:
        postgres.execute("DROP DATABASE IF EXISTS without_schema")
        postgres.execute("CREATE DATABASE without_schema")
        host.environ["TRAINSHED_DATABASE_URL"] = postgres.url("without_schema")
        assert host.examine()["schema"].advice == "Run `trainshed migrate`."

    def test_a_file_that_is_not_there_yet_is_no_fault_and_is_not_made(self, host: Host) -> None:
        assert host.examine()["database"].status is Status.SKIPPED
        assert not (host.home / "trainshed.db").exists()

    @ONLY_POSTGRES
    @pytest.mark.parametrize(("skew", "status"), [(0.0, Status.OK), (-10.0, Status.WARNING), (90.0, Status.FAULT)])
    def test_a_clock_that_is_not_the_database_s(
        self, host: Host, database_url: str, skew: float, status: Status
    ) -> None:
        host.environ["TRAINSHED_DATABASE_URL"] = database_url
        host.seconds = time.time() + skew
        found = host.examine()["clock.skew"]
        assert found.status is status
        assert skew == 0.0 or ("behind" if skew < 0 else "ahead of") in found.message


class TestBroker:
    def test_none_is_named_and_up_would_start_one(self, host: Host) -> None:
        assert "`trainshed up` starts" in host.examine()["broker"].message

    def test_one_that_answers(self, host: Host, redis_url: str) -> None:
        host.environ["TRAINSHED_BROKER_URL"] = redis_url
        assert host.examine()["broker"].message.endswith(" answers.")

    def test_one_that_is_not_there(self, host: Host, tmp_path: Path) -> None:
        host.environ["TRAINSHED_BROKER_URL"] = f"unix://{tmp_path}/none.sock"
        assert "does not answer" in host.faults()["broker"]

    def test_one_that_wants_a_password(self, host: Host, shared_redis: RedisServer) -> None:
        client = shared_redis.client()
        client.config_set("requirepass", "right")
        try:
            host.environ["TRAINSHED_BROKER_URL"] = f"unix://:wrong@{shared_redis.socket}"
            message = host.faults()["broker"]
        finally:
            client.auth("right")
            client.config_set("requirepass", "")
            client.close()
        assert "invalid username-password pair" in message
        assert "wrong" not in message.replace("WRONGPASS", "")

    def test_no_address_is_shown_with_its_password(self, host: Host) -> None:
        # Neither of the two is where urlsplit looks for a password.
        host.environ["TRAINSHED_BROKER_URL"] = "redis://:hid/den@127.0.0.1:1/0"
        host.environ["TRAINSHED_DATABASE_URL"] = "postgresql+psycopg://u@127.0.0.1:1/db?password=hidden"
        found = host.examine()
        assert {found["broker"].status, found["database"].status} == {Status.FAULT}
        assert "hid" not in "".join(found[name].message + found[name].advice for name in ("broker", "database"))


class TestStorage:
    def test_a_folder_that_cannot_be_made(self, host: Host) -> None:
        host.environ["TRAINSHED_STORAGE_URL"] = "file:///proc/storage"
        assert "file:///proc/storage cannot be written" in host.faults()["storage"]

    def test_a_scheme_that_does_not_exist(self, host: Host) -> None:
        host.environ["TRAINSHED_STORAGE_URL"] = "ftp://files/x"
        assert "TRAINSHED_STORAGE_URL must be" in host.faults()["storage"]

    def test_the_probe_is_taken_away_again(self, host: Host) -> None:
        assert host.faults() == {}
        assert [path for path in (host.home / "storage").rglob("*") if path.is_file()] == []


class Answers(BaseHTTPRequestHandler):
    """A server that says that it lives, and that its broker does not."""

    def do_GET(self) -> None:
        checks = {
            "database": {"status": "ok", "message": "Answers."},
            "broker": {"status": "degraded", "message": "Redis does not answer."},
        }
        text = json.dumps({"status": "ok", "checks": checks}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> object:
    with HTTPServer(("127.0.0.1", 0), Answers) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made.server_address[1]
        made.shutdown()
        thread.join()


class TestPort:
    def test_a_free_one(self, host: Host) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        host.environ["TRAINSHED_PORT"] = str(port)
        assert host.examine()["port"].message.endswith("is free.")

    def test_one_at_which_the_service_answers_already(self, host: Host, server: int) -> None:
        host.environ["TRAINSHED_PORT"] = str(server)
        assert host.examine()["port"].message == f"A Trainshed answers on port {server}."

    def test_an_address_that_this_host_does_not_have(self, host: Host) -> None:
        # TEST-NET-1 (RFC 5737) is nobody's.
        host.environ |= {"TRAINSHED_HOST": "192.0.2.1", "TRAINSHED_PORT": "1", "TRAINSHED_ALLOWED_HOSTS": "x"}
        assert "The API cannot listen on 192.0.2.1" in host.faults()["port"]


class TestServer:
    def test_what_it_says_of_itself_is_told(self, host: Host, server: int) -> None:
        write_client_file(host.home / "client.json", f"http://127.0.0.1:{server}", "ts_x")
        found = host.examine()
        assert found["server"].status is Status.OK
        assert found["server.broker"].message == "The server says: Redis does not answer."

    def test_one_that_is_down_is_no_fault(self, host: Host) -> None:
        host.environ["TRAINSHED_URL"] = "http://127.0.0.1:1"
        assert host.examine()["server"].status is Status.SKIPPED
