"""The real trainer behind the real launcher, with each framework, on its own, from its first to its last word."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from app.spec import EffectiveSpec, parse_job, resolve
from app.tables import builtin_schema
from tests.workers.launcher.attempt import FAR_NS, ROOT, Attempt, assignment, boot_ns, simulated
from workers.launch import ColdLauncher, LaunchRequest, trainer_environment
from workers.protocol import Device, Stop

pytestmark = pytest.mark.slow

FRAMEWORKS = ("torch", "tensorflow")
CPU = Device(id="cpu-0@host", kind="cpu", name="CPU")
SIMULATED = simulated("GPU-0")
SERVER = ("sqlalchemy", "celery", "redis", "fastapi")
OTHER = {"torch": ("tensorflow", "keras"), "tensorflow": ("torch",)}
ALLOWED = {"torch": {"torch"}, "tensorflow": {"keras", "tensorflow"}}
LONG = 1_000_000

Train = Callable[..., Attempt]


def spec(framework: str, epochs: int) -> EffectiveSpec:
    raw = {
        "framework": framework,
        "model": {"type": "mlp", "hidden": [16]},
        "data": "iris",
        "device_count": 1,
        "hyperparameters": {"epochs": epochs, "batch_size": 32},
    }
    return resolve(parse_job(raw), builtin_schema("iris"), "cpu")


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Train]:
    """Start a training where nothing can be imported but its framework: what else is asked for raises."""
    with ExitStack() as stack:

        def begin(
            framework: str, device: Device = SIMULATED, epochs: int = 2, blocked: tuple[str, ...] = (), code: str = ""
        ) -> Attempt:
            stubs = tmp_path / "stubs"
            for name in (*SERVER, *OTHER[framework], *blocked):
                (stubs / name).mkdir(parents=True)
                refuse = f"raise ImportError('{name} must not be imported here')\n"
                (stubs / name / "__init__.py").write_text(code if code and name in blocked else refuse)
            job = assignment(tmp_path / "work", [device])
            job = job.model_copy(
                update={"spec": spec(framework, epochs), "table": job.table.model_copy(update={"builtin": "iris"})}
            )
            environment = trainer_environment([device], 1, tmp_path / "work", os.environ)
            request = LaunchRequest(
                interpreter=Path(sys.executable),
                environment={**environment, "PYTHONPATH": f"{stubs}:{ROOT}"},
                assignment=job,
                lock_dir=tmp_path / "locks",
                until_boot_ns=boot_ns() + FAR_NS,
            )
            run = ColdLauncher().start(request)
            stack.callback(run.close)
            return Attempt(run, request)

        yield begin


def until(attempt: Attempt, *types: str) -> list[dict[str, Any]]:
    """All messages up to the first of these types."""
    said = [attempt.line()]
    while said[-1]["type"] not in types:
        said.append(attempt.line())
    return said


@pytest.mark.parametrize("framework", FRAMEWORKS)
class TestTraining:
    def test_it_trains_with_everything_else_blocked(self, train: Train, framework: str) -> None:
        attempt = train(framework)
        said = until(attempt, "done", "failed")
        types = [message["type"] for message in said]

        assert types[0] == "started"
        assert {"report", "artifact", "done"} <= set(types), said[-1]
        assert types.count("done") == 1
        assert framework in said[-1]["modules"]
        assert set(said[-1]["modules"]) <= ALLOWED[framework]
        assert "loss" in {
            point["name"] for message in said if message["type"] == "report" for point in message["points"]
        }
        assert attempt.ended().code == 0

    def test_every_artifact_is_a_file_in_the_work_directory(self, train: Train, framework: str, tmp_path: Path) -> None:
        said = until(train(framework), "done", "failed")
        paths = [tmp_path / "work" / message["path"] for message in said if message["type"] == "artifact"]

        assert paths
        assert all(path.is_file() and path.is_relative_to(tmp_path / "work") for path in paths)

    def test_environment_was_right_at_exec(self, train: Train, framework: str) -> None:
        attempt = train(framework)
        started = until(attempt, "started", "failed")[-1]

        assert started["environment"]["CUDA_VISIBLE_DEVICES"] == "GPU-0"
        assert started["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert ("TF_FORCE_GPU_ALLOW_GROWTH" in started["environment"]) == (framework == "tensorflow")
        assert (started["simulated"], started["device_kind"], len(started["devices"])) == (True, "cpu", 1)
        assert started["pid"] == started["pgid"] == attempt.started().pid

    def test_cpu_job_sees_an_empty_list_of_devices(self, train: Train, framework: str) -> None:
        started = until(train(framework, CPU), "started", "failed")[-1]

        assert started["environment"]["CUDA_VISIBLE_DEVICES"] == ""
        assert (started["simulated"], started["device_kind"]) == (False, "cpu")

    def test_card_that_is_not_there_fails_and_is_not_replaced_by_the_cpu(self, train: Train, framework: str) -> None:
        card = Device(id="GPU-aaaaaaaa-0000-0000-0000-000000000001", kind="cuda", name="Card")
        attempt = train(framework, card)
        said = until(attempt, "started", "failed")

        assert [message["type"] for message in said] == ["failed"]
        assert said[0]["cause"] == "device_unavailable"
        assert attempt.ended().code == 1

    def test_log_tells_the_training(self, train: Train, framework: str) -> None:
        attempt = train(framework)
        until(attempt, "done", "failed")
        log = attempt.all_output().decode()

        assert f"{framework} " in log
        assert "computes on the CPU in place of the simulated Simulated, 1 thread." in log
        assert "Data: iris, 4 features" in log
        assert "epoch 2/2: loss " in log
        files = "probe.safetensors, split.safetensors, evaluation.json, environment.json"
        assert f"files: model.safetensors, model.json, {files}." in log

    def test_stop_message_ends_it_at_a_safe_point(self, train: Train, framework: str) -> None:
        attempt = train(framework, epochs=LONG)
        until(attempt, "report", "failed")
        attempt.run.send(Stop(reason="cancel"))
        done = until(attempt, "done", "failed")[-1]

        assert done["stopped"] == "stop"
        assert attempt.ended().code == 0

    def test_term_ends_it_at_a_safe_point(self, train: Train, framework: str) -> None:
        attempt = train(framework, epochs=LONG)
        until(attempt, "report", "failed")
        attempt.run.stop(signal.SIGTERM)
        done = until(attempt, "done", "failed")[-1]

        assert done["stopped"] == "stop"
        assert attempt.ended().code == 0


class TestStopWhileTheFrameworkIsImported:
    def test_term_ends_it_at_once(self, train: Train) -> None:
        # Nothing is lost, and an import takes longer than people like to wait for a cancel.
        attempt = train(
            "torch", blocked=("torch",), code="import signal\nprint('imports', flush=True)\nsignal.pause()\n"
        )
        attempt.written(b"imports")
        attempt.run.stop(signal.SIGTERM)

        assert attempt.ended().signal == signal.SIGTERM


class TestInterpreterWithoutTheFramework:
    def test_worker_learns_what_is_missing(self, train: Train) -> None:
        attempt = train("torch", blocked=("torch",))
        failed = until(attempt, "started", "failed")[-1]

        assert failed["cause"] == "device_unavailable"
        assert failed["message"] == "ImportError: torch must not be imported here"
        assert attempt.ended().code == 1
