"""The course of the demo against a fake server; tests/e2e runs the real one."""

import io
import json
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from app.cli.connection import Connection
from app.cli.demo import command, mishap
from app.cli.demo.command import run_trials
from app.cli.demo.plan import PENGUINS, penguins_file
from app.cli.demo.stage import ServiceFailed, environment, service
from app.cli.edge import Edge
from app.cli.options import Session
from tests.cli.conftest import Trainshed
from tests.cli.fake_server import KEY, URL, FakeServer, job, listing, refuses

TRUTH = [truth for truth, _row in PENGUINS]
GOOD = {"last": {"test_accuracy": 0.97, "test_r2": 0.5}, "best": None}


DEVICE = {"id": "cpu-0@x", "kind": "cpu", "state": "free"}
PID = 2**22 + 1  # beyond what Linux gives out


class Training(FakeServer):
    """Gives each submitted job an id, lets it run for two looks and then succeed; all seem to have been resumed."""

    def __init__(self, metrics: Mapping[str, object] = GOOD, labels: Sequence[str] = TRUTH) -> None:
        super().__init__()
        self.metrics = metrics
        self.labels = labels
        self.on("GET /v1/devices", listing(DEVICE, DEVICE))
        self.on("POST /v1/datasets", {"id": "ds_1"})
        self.on("POST /v1/jobs", self.submit)

    def submit(self, request: httpx.Request) -> httpx.Response:
        name = f"job_{len(self.asked('POST /v1/jobs'))}"
        spec = json.loads(request.content)
        made = {"framework": spec["framework"], "effective_spec": {"data": {"source": spec["data"]["source"]}}}
        attempts = [attempt(None), attempt(900)]
        running = job(name, "running", **made, attempt=1, attempts=attempts[:1])
        done = job(name, "succeeded", metrics=self.metrics, attempt=2, attempts=attempts, **made)
        self.on(f"GET /v1/jobs/{name}", running, running, done)
        self.on(f"GET /v1/jobs/{name}/checkpoints", listing({"step": 900}))
        shares = [{label: 0.9} for label in self.labels]
        self.on(f"POST /v1/jobs/{name}/predict", {"labels": self.labels, "probabilities": shares})
        self.on(f"GET /v1/jobs/{name}/artifacts", listing({"name": "model.safetensors", "kind": "model"}))
        return httpx.Response(201, json=job(name, **made))


def attempt(resumed_from: int | None) -> dict[str, Any]:
    workers = [{"worker_id": "wrk_1", "pid": PID, "pgid": PID, "devices": []}]
    return {"devices": [], "workers": workers, "resumed_from_step": resumed_from}


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What was killed, as (pid, signal): nothing really is."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr("app.cli.demo.mishap.os.kill", lambda pid, number: found.append((pid, number)))
    return found


@pytest.fixture
def training(killed: list[tuple[int, int]]) -> Training:
    del killed  # no test of the course may really kill
    return Training()


def edge(out: io.StringIO, pauses: list[float]) -> Edge:
    return Edge(environ={}, out=Console(file=out, width=200), pause=pauses.append)


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The service of the demo is the fake server."""

    @contextmanager
    def ready(_environ: Mapping[str, str], *, keep: bool) -> Iterator[tuple[Connection, Path]]:
        del keep
        yield Connection(URL, KEY), tmp_path

    monkeypatch.setattr(command, "service", ready)


class TestRunTrials:
    def test_all_are_submitted_before_any_is_waited_for(self, training: Training) -> None:
        out, pauses = io.StringIO(), list[float]()
        outcomes = run_trials(Session(training.client(), edge(out, pauses), as_json=False), penguins_file())
        routes = [f"{request.method} {request.url.path}" for request in training.requests]
        assert routes[:14] == ["POST /v1/datasets", "GET /v1/devices", *["POST /v1/jobs"] * 12]
        assert len(pauses) == 4, "one to kill, then three looks until the last has ended"
        assert all(outcome.passed for outcome in outcomes)
        assert out.getvalue().splitlines()[0] == "digits-killed torch: succeeded"

    def test_each_has_an_idempotency_key_of_its_own(self, training: Training) -> None:
        run_trials(Session(training.client(), edge(io.StringIO(), []), as_json=True), None)
        keys = {request.headers["Idempotency-Key"] for request in training.asked("POST /v1/jobs")}
        assert len(keys) == 10

    def test_one_trainer_of_each_framework_is_killed_once(
        self, training: Training, killed: list[tuple[int, int]]
    ) -> None:
        run_trials(Session(training.client(), edge(io.StringIO(), []), as_json=True), None)
        assert killed == [(PID, signal.SIGKILL)] * 2

    def test_a_job_without_a_checkpoint_yet_is_spared(self, killed: list[tuple[int, int]]) -> None:
        server = FakeServer()
        server.on("GET /v1/jobs/job_1/checkpoints", listing())
        assert not mishap.kill_once(server.client(), job("job_1", "running", attempt=1, attempts=[attempt(None)]))
        assert killed == []

    def test_without_a_second_device_those_trials_are_left_out(self, training: Training) -> None:
        training.on("GET /v1/devices", listing(DEVICE, {**DEVICE, "state": "unusable"}))
        outcomes = run_trials(Session(training.client(), edge(io.StringIO(), []), as_json=True), None)
        assert not [o.trial.name for o in outcomes if "two" in o.trial.name]
        assert len(outcomes) == 8


@pytest.mark.usefixtures("staged")
class TestDemo:
    @pytest.fixture
    def server(self, training: Training) -> FakeServer:
        return training

    def test_zero_when_every_bar_holds(self, trainshed: Trainshed) -> None:
        ran = trainshed("demo")
        assert ran.code == 0
        assert "Every bar holds" in ran.out
        assert "which is gone now; --keep keeps it" in ran.out

    def test_one_when_a_bar_is_missed(self, training: Training, trainshed: Trainshed) -> None:
        training.metrics = {"last": {"test_accuracy": 0.97, "test_r2": 0.2}}
        ran = trainshed("demo")
        assert ran.code == 1
        assert "NOT every bar holds" in ran.out

    def test_one_when_a_prediction_is_wrong(self, training: Training, trainshed: Trainshed) -> None:
        training.labels = ["Adelie", "Adelie", "Chinstrap"]
        ran = trainshed("demo")
        assert ran.code == 1
        assert "Adelie ✗" in ran.out

    def test_json_is_one_document(self, trainshed: Trainshed) -> None:
        content = trainshed("demo", "--json").json
        assert content["passed"] is True
        assert [row["passed"] for row in content["jobs"]] == [True] * 12
        assert [row["label"] for row in content["predictions"]] == TRUTH * 2
        assert content["home"] is None

    def test_kept_models_are_where_it_says(self, trainshed: Trainshed, tmp_path: Path) -> None:
        assert f"The models are stored in {tmp_path / 'storage'}." in trainshed("demo", "--keep").out

    def test_without_the_penguins_it_says_so_and_cannot_pass(
        self, training: Training, trainshed: Trainshed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(command, "penguins_file", lambda: None)
        ran = trainshed("demo")
        assert ran.code == 1
        assert "pip install palmerpenguins" in ran.err
        assert len(training.asked("POST /v1/jobs")) == 10

    def test_a_server_that_goes_away_ends_it(self, training: Training, trainshed: Trainshed) -> None:
        training.on("POST /v1/jobs", refuses)
        assert trainshed("demo").code == 3


class TestStage:
    def test_nothing_of_the_callers_service_reaches_the_demos(self, tmp_path: Path) -> None:
        theirs = {
            "TRAINSHED_DATABASE_URL": "postgresql+psycopg://real",
            "TRAINSHED_STORAGE_URL_FILE": "/run/secrets/x",
            "TRAINSHED_BROKER_URL": "redis://real",
            "TRAINSHED_URL": "http://real",
            "TRAINSHED_KEY": "ts_real",
            "TRAINSHED_HOME": "/srv/real",
            "TRAINSHED_CPU_SLOTS": "3",
            "PATH": "/bin",
        }
        ours = {"TRAINSHED_CPU_SLOTS": "3", "PATH": "/bin", "TRAINSHED_HOME": str(tmp_path)}
        assert environment(theirs, tmp_path) == ours

    def test_there_are_two_cpu_devices_unless_the_caller_says_otherwise(self, tmp_path: Path) -> None:
        assert environment({}, tmp_path)["TRAINSHED_CPU_SLOTS"] == "2"

    def test_a_service_that_cannot_start_is_explained_and_leaves_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        environ = {"TRAINSHED_HEARTBEAT_S": "never", "PATH": "/bin"}
        with pytest.raises(ServiceFailed) as caught, service(environ, keep=False):
            pass
        assert "TRAINSHED_HEARTBEAT_S" in "\n".join(caught.value.lines)
        assert list(tmp_path.iterdir()) == []
