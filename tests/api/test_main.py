"""The composition root: a process that serves, says where, and leaves when told; and what importing it costs."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from app.accounts.service import Role, create_key
from app.db import Database
from app.main import listen, url_of
from tests.api.client import ONE_DATABASE, SPEC, new_tenant
from tests.api.journals import Writer
from tests.api.serve import open_events
from tests.fakes import START
from tests.ports import free_ports

ROOT = Path(__file__).parents[2]


@contextmanager
def process(home: Path, database_url: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """The API as a process of its own; killed at the end if it is still there."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("TRAINSHED_")}
    environment |= {"TRAINSHED_HOME": str(home), "TRAINSHED_DATABASE_URL": database_url}
    environment |= {f"TRAINSHED_{name.upper()}": text for name, text in settings.items()}
    command = [sys.executable, "-m", "app.cli.processes.api"]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def address(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line.startswith("listening on http://"), line
    return line.removeprefix("listening on ").strip()


@ONE_DATABASE
class TestProcess:
    def test_port_0_is_chosen_and_told_and_the_file_goes_with_the_process(
        self, tmp_path: Path, database_url: str, database: Database
    ) -> None:
        with process(tmp_path / "home", database_url) as child:
            url = address(child)
            url_file = tmp_path / "home" / "run" / "api.url"
            assert url_file.read_text() == url
            assert httpx.get(f"{url}/livez").json() == {"status": "ok"}
            with database.write() as session:
                _, secret = create_key(session, project="p", user="u", name="n", role=Role.USER, now=START)
            job = httpx.post(f"{url}/v1/jobs", json=SPEC, headers={"Authorization": f"Bearer {secret}"})
            assert job.status_code == 201
            child.send_signal(signal.SIGTERM)
            assert child.wait(20) == 0
            assert not url_file.exists()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_an_open_stream_does_not_keep_it_from_leaving(
        self, tmp_path: Path, database_url: str, database: Database, number: signal.Signals
    ) -> None:
        tenant = new_tenant(database, "birds")
        writer = Writer(database, tenant.project_id)
        writer.metrics(1)
        with process(tmp_path / "home", database_url) as child:
            url = address(child)
            with open_events(url, writer.job_id, tenant.viewer) as stream:
                events = iter(stream)
                assert next(events).id == "1"
                child.send_signal(number)
                # It ends in good order: not cut off, which would raise, and long before the net of five seconds.
                assert list(events) == []
            assert child.wait(20) == 0

    def test_its_log_is_lines_with_the_request_id(self, tmp_path: Path, database_url: str, database: Database) -> None:
        with database.write() as session:
            _, secret = create_key(session, project="p", user="u", name="n", role=Role.USER, now=START)
            session.connection().exec_driver_sql("DROP TABLE job_tags")
        with process(tmp_path / "home", database_url) as child:
            url = address(child)
            headers = {"Authorization": f"Bearer {secret}", "X-Request-Id": "find-me-42"}
            answer = httpx.get(f"{url}/v1/jobs?tag=a:b", headers=headers)
            assert answer.status_code == 500
            assert answer.json()["request_id"] == "find-me-42"
            # The connection lives on after an unforeseen error.
            with httpx.Client(headers=headers) as client:
                statuses = [client.get(f"{url}/v1/jobs{query}").status_code for query in ("?tag=a:b", "", "?tag=a:b")]
            assert statuses == [500, 200, 500]
            child.send_signal(signal.SIGTERM)
            printed, said = child.communicate(timeout=20)
        assert secret not in printed + said
        lines = [json.loads(line) for line in said.splitlines()]
        assert all(line["timestamp"] and line["level"] and line["event"] for line in lines)
        assert "uvicorn.error" in {line.get("logger") for line in lines}, "also what the server's library says"
        first, *_ = [line for line in lines if line["event"] == "request failed"]
        assert first["request_id"] == "find-me-42"
        assert "no such table" in first["exception"]

    def test_its_metrics_can_be_had_without_a_key_where_it_is_told_to_listen(
        self, tmp_path: Path, database_url: str
    ) -> None:
        port = free_ports(1)
        with process(tmp_path / "home", database_url, metrics_port=str(port), revision="0a1b2c") as child:
            url = address(child)
            assert httpx.get(f"{url}/metrics").status_code == 401
            answer = httpx.get(f"http://127.0.0.1:{port}/metrics")
            child.send_signal(signal.SIGTERM)
            assert child.wait(20) == 0
        assert answer.status_code == 200
        assert 'revision="0a1b2c"' in answer.text
        assert 'trainshed_http_requests_total{method="GET",route="other",status="401"} 1.0' in answer.text

    def test_a_port_for_metrics_that_is_taken_ends_it_with_a_sentence(self, tmp_path: Path, database_url: str) -> None:
        with listen("127.0.0.1", 0) as taken:
            taken.listen()
            port = str(taken.getsockname()[1])
            with process(tmp_path / "home", database_url, metrics_port=port) as child:
                _, said = child.communicate(timeout=20)
        assert child.returncode == 2
        assert f"error: TRAINSHED_METRICS_PORT: nothing can listen on 127.0.0.1:{port}" in said


class TestImport:
    """The API validates specs of frameworks that it never loads: with both replaced by stubs that raise, it starts."""

    CHECK = """
import sys
import app.main
from app.spec import parse_spec
parse_spec({"framework": "tensorflow", "model": "mlp", "data": "iris"})
never = {"torch", "tensorflow", "keras", "sklearn", "workers"}
print(sorted(name for name in sys.modules if name.partition(".")[0] in never))
"""

    def test_no_framework_is_loaded_and_none_is_needed(self, tmp_path: Path) -> None:
        for name in ("torch", "tensorflow", "keras"):
            (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} must not be imported here')")
        environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
        done = subprocess.run(
            [sys.executable, "-c", self.CHECK],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")


class TestListen:
    def test_says_where_it_can_be_reached(self) -> None:
        with listen("127.0.0.1", 0) as listening:
            assert url_of(listening) == f"http://127.0.0.1:{listening.getsockname()[1]}"

    def test_one_that_listens_everywhere_is_reached_at_the_loopback(self) -> None:
        with listen("0.0.0.0", 0) as listening:  # noqa: S104 - closed again at once
            assert url_of(listening).startswith("http://127.0.0.1:")

    def test_a_client_that_takes_nothing_or_is_gone_is_given_up(self) -> None:
        with listen("127.0.0.1", 0) as listening:
            listening.listen()
            with socket.create_connection(listening.getsockname()[:2]), listening.accept()[0] as accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                stalled_ms = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                assert stalled_ms >= 1000 * accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) > 0

    def test_a_port_can_be_taken_again_at_once(self) -> None:
        with listen("127.0.0.1", 0) as first:
            port = first.getsockname()[1]
        with listen("127.0.0.1", port) as second:
            assert second.getsockname()[1] == port
