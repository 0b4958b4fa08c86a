"""The program as a whole: exit codes, errors, what importing it costs, and commands that become another program."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Trainshed
from tests.cli.fake_server import FakeServer, breaks, listing, problem, refuses

# What only the server's processes need.
SERVER_LIBRARIES = {"sqlalchemy", "fastapi", "starlette", "uvicorn", "celery", "redis", "alembic", "pydantic", "numpy"}


class TestExitCodes:
    @pytest.mark.parametrize(
        "arguments", [["--help"], ["-h"], ["--version"], ["submit", "--help"], ["datasets", "--help"]]
    )
    def test_help_is_zero(self, trainshed: Trainshed, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert trainshed(*arguments).code == 0
        assert "trainshed" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "arguments", [["nonsense"], ["show"], ["ls", "--limit", "0"], ["logs", "x", "--tail", "a"]]
    )
    def test_a_wrong_command_line_is_two(
        self, trainshed: Trainshed, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert trainshed(*arguments).code == 2
        assert "Usage" in capsys.readouterr().err

    def test_a_refusal_is_two(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", problem(403, "forbidden", "The key's role is too low."))
        assert trainshed("devices").code == 2

    def test_nobody_there_is_three_with_a_hint(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", refuses)
        ran = trainshed("devices")
        assert ran.code == 3
        assert "Nothing answers at http://127.0.0.1:8000" in ran.err
        assert "trainshed up" in ran.err

    def test_a_failing_server_is_three(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", problem(500, "internal", "The server failed on this request."))
        ran = trainshed("devices")
        assert ran.code == 3
        assert "Request id: req_1" in ran.err

    def test_an_interrupt_is_130(self, server: FakeServer, trainshed: Trainshed) -> None:
        def interrupted(_request: object) -> None:
            raise KeyboardInterrupt

        server.on("GET /v1/devices", interrupted)  # type: ignore[arg-type] # never answers
        assert trainshed("devices").code == 130


class TestErrors:
    def test_a_key_that_does_not_work_says_where_to_get_one(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", problem(401, "unauthenticated", "A working API key is needed."))
        assert "trainshed key create" in trainshed("devices").err

    def test_with_json_the_error_is_json_on_the_error_stream(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", breaks)
        ran = trainshed("devices", "--json")
        assert ran.out == ""
        assert json.loads(ran.err)["code"] == "unreachable"

    def test_without_a_server_known_nothing_is_sent(self, server: FakeServer, trainshed: Trainshed) -> None:
        ran = trainshed("ls", environ={})
        assert (ran.code, server.requests) == (2, [])
        assert "trainshed up" in ran.err

    def test_options_name_another_server(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", listing())
        trainshed("devices", "--url", "http://elsewhere:9", "--key", "ts_other")
        request = server.requests[0]
        assert (request.url.host, request.headers["Authorization"]) == ("elsewhere", "Bearer ts_other")


class TestBecoming:
    @pytest.mark.parametrize(
        ("command", "module"),
        [
            ("up", "app.cli.up"),
            ("api", "app.cli.processes.api"),
            ("control", "app.cli.processes.control"),
            ("worker", "app.cli.processes.worker"),
            ("migrate", "app.cli.processes.migrate"),
            ("key", "app.cli.processes.key"),
        ],
    )
    def test_a_server_command_becomes_its_module_with_all_its_arguments(
        self, trainshed: Trainshed, command: str, module: str
    ) -> None:
        ran = trainshed(command, "--port", "0", "--help", "x")
        assert ran.became == [sys.executable, "-P", "-m", module, "--port", "0", "--help", "x"]

    def test_the_errors_and_the_exit_code_are_then_that_modules_own(self, tmp_path: Path) -> None:
        # `key ls` needs no server; without a migrated database it ends with its own error, not this program's.
        command = [sys.executable, "-P", "-m", "app.cli", "key", "ls"]
        environ = {"TRAINSHED_DATABASE_URL": f"sqlite:///{tmp_path}/new.db", "TRAINSHED_HOME": str(tmp_path)}
        ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)
        assert ended.returncode == 2
        assert "trainshed migrate" in ended.stderr


class TestImport:
    def test_the_client_loads_no_library_of_the_server(self) -> None:
        code = "import app.cli.program, json, sys; print(json.dumps(sorted(sys.modules)))"
        ended = subprocess.run(
            [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        loaded = {name.partition(".")[0] for name in json.loads(ended.stdout)}
        assert loaded & SERVER_LIBRARIES == set()

    def test_a_server_process_loads_none_of_the_client(self) -> None:
        code = "import app.cli.processes.root, json, sys; print(json.dumps(sorted(sys.modules)))"
        ended = subprocess.run(
            [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        loaded = {name.partition(".")[0] for name in json.loads(ended.stdout)}
        assert loaded & {"typer", "httpx"} == set()
