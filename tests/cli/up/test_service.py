"""What `trainshed up` tells its children beyond what it was told itself."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli.up.child import Program
from app.cli.up.service import Service
from app.cli.up.signals import Signals
from app.settings import Settings, load_settings

Environment = Callable[[str], dict[str, str]]


def environment(tmp_path: Path, **given: str) -> Environment:
    """Answers the environment of a child by its name."""
    environ = {"TRAINSHED_HOME": str(tmp_path), **given}
    settings: Settings = load_settings(environ)
    service = Service(settings, environ, Signals(), print)
    return lambda name: dict(service._program(name).environment)


class TestLog:
    @pytest.mark.parametrize("name", ["prepare", "api", "control", "worker"])
    def test_is_for_people_unless_somebody_wants_json(self, tmp_path: Path, name: str) -> None:
        assert environment(tmp_path)(name)["TRAINSHED_LOG_FORMAT"] == "text"
        assert environment(tmp_path, TRAINSHED_LOG_FORMAT="json")(name)["TRAINSHED_LOG_FORMAT"] == "json"


class TestCode:
    @pytest.mark.parametrize(("code", "last"), [(False, "app.cli.processes.prepare"), (True, "--code")])
    def test_only_the_preparation_is_told(self, tmp_path: Path, code: bool, last: str) -> None:  # noqa: FBT001 - a case
        environ = {"TRAINSHED_HOME": str(tmp_path)}
        service = Service(load_settings(environ), environ, Signals(), print, code=code)
        ran: list[Program] = []

        class Once:
            def run_once(self, program: Program) -> str:
                ran.append(program)
                return '{"key": "ts_a"}'

        service._supervisor = Once()  # type: ignore[assignment] # the one method that is called
        assert service._prepare() == "ts_a"
        assert ran[0].command[-1] == last
        assert "--code" not in service._program("api").command


class TestMetrics:
    def test_children_of_one_host_do_not_fight_for_one_port(self, tmp_path: Path) -> None:
        of = environment(tmp_path, TRAINSHED_METRICS_PORT="9464")
        ports = [of(name)["TRAINSHED_METRICS_PORT"] for name in ("api", "control", "worker")]
        assert ports == ["9464", "9465", "9466"]

    def test_without_one_there_is_none(self, tmp_path: Path) -> None:
        assert "TRAINSHED_METRICS_PORT" not in environment(tmp_path)("worker")
