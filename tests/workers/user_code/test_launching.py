"""Starting processes for the code of python models: names, limits, and what is left when it does not come to it."""

from pathlib import Path
from typing import Any

import pytest

from app.db import Database
from app.jobs.models import Job
from tests.rows import add_job, add_project
from tests.workers.training_jobs import effective
from tests.workers.user_code.conftest import code_of, launch_in
from tests.workers.user_code.models import BUNDLE, write_python_model
from workers import user_launch
from workers.launch_port import LaunchFailed, LaunchRequest
from workers.user_launch import UserLaunch, user_code
from workers.user_process import NotStarted

PYTHON = {"type": "python", "bundle": BUNDLE, "entrypoint": "net:build"}


class Refusing:
    """A launcher that keeps what it was asked, and starts nothing."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked: list[LaunchRequest] = []

    def start(self, request: LaunchRequest) -> Any:
        self.asked.append(request)
        raise self.error


def never() -> bool:
    return False


@pytest.fixture
def launch(tmp_path: Path) -> UserLaunch:
    return launch_in(tmp_path)


class TestStart:
    @pytest.mark.parametrize(
        "error", [LaunchFailed(Path("/opt/python"), "no such file"), PermissionError(13, "Permission denied")]
    )
    def test_what_does_not_start_leaves_nothing(self, tmp_path: Path, error: Exception) -> None:
        saved = write_python_model(tmp_path / "model")
        launcher = Refusing(error)
        launch = UserLaunch(launcher, {"torch": Path("/opt/python")}, tmp_path / "run", launch_in(tmp_path).clock, {})
        before = len(user_launch._NUMBERS.free)

        with pytest.raises(NotStarted, match="could not be started"):
            launch.start(code_of(), saved.folder, 10.0, never)

        assert list((tmp_path / "run" / "work").iterdir()) == []
        assert len(user_launch._NUMBERS.free) == before

    def test_it_has_no_devices_no_network_and_the_hosts_limits(self, tmp_path: Path) -> None:
        saved = write_python_model(tmp_path / "model")
        launcher, real = Refusing(OSError()), launch_in(tmp_path)
        launch = UserLaunch(launcher, {"torch": Path("/opt/python")}, tmp_path / "run", real.clock, {}, real.terms)

        with pytest.raises(NotStarted):
            launch.start(code_of(), saved.folder, 10.0, never)

        (request,) = launcher.asked
        assert request.sandbox is not None
        assert (request.sandbox.network, request.sandbox.needs_loopback) == (False, False)
        assert request.sandbox.max_file_bytes == real.terms.max_file_bytes
        assert request.sandbox.max_processes == real.terms.max_processes
        assert request.environment["CUDA_VISIBLE_DEVICES"] == ""
        assert 0 < request.until_boot_ns - real.clock.boot_ns() < 10_000_000_000

    def test_another_python_loads_onnx_and_runs_no_code(self, tmp_path: Path) -> None:
        saved = write_python_model(tmp_path / "model")
        launcher, real = Refusing(OSError()), launch_in(tmp_path)
        launch = UserLaunch(
            launcher, {"torch": Path("/opt/torch")}, tmp_path / "run", real.clock, {}, onnx=Path("/opt/worker")
        )
        made = tmp_path / "model.onnx"
        made.write_bytes(b"onnx")

        for task in ("predict", "make", "check"):
            with pytest.raises(NotStarted):
                launch.start(code_of(), saved.folder, 10.0, never, task=task, file=made if task == "check" else None)

        assert [(str(asked.interpreter), asked.entry.split(":")[0]) for asked in launcher.asked] == [
            ("/opt/torch", "workers.user_predictor"),
            ("/opt/torch", "workers.user_export"),
            ("/opt/worker", "workers.user_export_check"),
        ]

    def test_only_the_models_own_files_are_copied(self, tmp_path: Path) -> None:
        saved = write_python_model(tmp_path / "model")
        (saved.folder / "evaluation.json").write_text("{}")
        (saved.folder / "passwords.txt").write_text("secret")

        folder = user_launch._copied(saved.folder, tmp_path / "work", None)

        names = {path.name for path in folder.iterdir()}
        expected = {"code.zip", "evaluation.json", "model.json", "model.safetensors", "probe.safetensors"}
        assert names == expected


class TestUserCode:
    def test_it_is_read_from_the_database(self, database: Database) -> None:
        spec = effective("iris", "torch", model=PYTHON | {"environment": {"variables": {"A": "1"}}})
        with database.write() as session:
            job_id = add_job(session, add_project(session), effective_spec=spec.model_dump(mode="json")).id
        with database.read() as session:
            found = user_code(session, job_id)
        assert found is not None
        assert (found.framework, found.code.bundle, found.code.place) == ("torch", BUNDLE, "model")
        assert found.code.environment.variables == {"A": "1"}

    def test_a_job_that_has_none_or_is_gone(self, database: Database) -> None:
        with database.write() as session:
            job_id = add_job(session, add_project(session), effective_spec=effective().model_dump(mode="json")).id
        with database.read() as session:
            assert user_code(session, job_id) is None
            assert session.get(Job, "job_gone") is None
            assert user_code(session, "job_gone") is None
