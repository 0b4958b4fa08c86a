"""`trainshed run` from the folder to the files that came back."""

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Trainshed
from tests.cli.fake_server import AT, JOB, FakeServer, job, listing, log, metric, problem, state, stream

BUNDLE = "bun_01k0000000000000000000000a"
DATA = "ds_01k0000000000000000000000a"
EVENTS = f"GET /v1/jobs/{JOB}/events"
READ = f"GET /v1/jobs/{JOB}"
FILES = f"GET /v1/jobs/{JOB}/artifacts"
WEIGHTS = b"weights"
SCRIPT_JOB: dict[str, Any] = {
    "kind": "script",
    "effective_spec": {"script": {"command": ["python", "train.py"], "bundle": BUNDLE, "data": {}}},
}
RUN = ("run", "--", "python", "train.py")


def bundle(**members: Any) -> dict[str, Any]:
    return {"id": BUNDLE, "object": "bundle", "name": "code", "format": "zip", "size_bytes": 100, **members}


@pytest.fixture(autouse=True)
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the command is typed in."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("import torch\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def ready(server: FakeServer) -> FakeServer:
    """A server without the bundle, on which the job succeeds and leaves a file."""
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    item = {"name": "model.pt", "kind": "output", "size_bytes": 7, "digest": digest, "attempt": 1, "created_at": AT}
    server.on("GET /v1/bundles", listing())
    server.on("POST /v1/bundles", bundle())
    server.on("POST /v1/jobs", job(**SCRIPT_JOB))
    entries = [state(1, "queued", 0), state(2, "running"), log(3, "hello", "\x1b[2J"), metric(4, 1, 0.5)]
    server.on(EVENTS, stream(*entries, state(5, "succeeded")))
    server.on(READ, job(state="succeeded", **SCRIPT_JOB))
    server.on(FILES, listing(item))
    server.on(f"{FILES}/model.pt", httpx.Response(200, content=WEIGHTS))
    return server


def posted(server: FakeServer) -> Any:
    return json.loads(server.asked("POST /v1/jobs")[0].content)


class TestRun:
    def test_code_goes_there_and_files_come_back(self, ready: FakeServer, trainshed: Trainshed, code: Path) -> None:
        ran = trainshed(*RUN)
        assert ran.code == 0, ran.err
        (sent,) = ready.asked("POST /v1/bundles")
        assert (sent.headers["Content-Type"], sent.url.params["name"]) == ("application/zip", "code")
        with zipfile.ZipFile(io.BytesIO(sent.content)) as archive:
            assert archive.namelist() == ["train.py"]
        script = {"command": ["python", "train.py"], "bundle": BUNDLE}
        assert posted(ready) == {"framework": "torch", "script": script, "device_count": 1}
        assert (code / f"{JOB}-output" / "model.pt").read_bytes() == WEIGHTS

    def test_a_person_sees_what_happens(self, ready: FakeServer, trainshed: Trainshed) -> None:
        ran = trainshed(*RUN)
        assert ran.err.splitlines() == [
            f"code {BUNDLE}: 1 file, 13 B; sent {len(ready.asked('POST /v1/bundles')[0].content)} B",
            "framework torch, since train.py imports torch",
        ]
        for part in (f"{JOB} queued", "  | hello", "  | \ufffd[2J", "loss 0.5", "succeeded", "python train.py"):
            assert part in ran.out
        assert ran.out.splitlines()[-1] == f"{JOB}-output/model.pt"

    def test_options_of_the_command_are_its_own_without_dashes_too(
        self, ready: FakeServer, trainshed: Trainshed
    ) -> None:
        assert trainshed("run", "--detach", "python", "train.py", "--json", "--seed", "3").code == 0
        assert posted(ready)["script"]["command"] == ["python", "train.py", "--json", "--seed", "3"]

    def test_a_bundle_that_is_there_is_not_sent_again(self, ready: FakeServer, trainshed: Trainshed) -> None:
        ready.on("GET /v1/bundles", listing(bundle()))
        ran = trainshed(*RUN)
        assert ready.asked("POST /v1/bundles") == []
        assert len(ready.asked("GET /v1/bundles")[0].url.params["digest"]) == 64
        assert "the server has it already" in ran.err

    def test_the_digest_that_is_asked_for_is_that_of_what_is_sent(
        self, ready: FakeServer, trainshed: Trainshed
    ) -> None:
        trainshed(*RUN)
        asked = ready.asked("GET /v1/bundles")[0].url.params["digest"]
        assert asked == hashlib.sha256(ready.asked("POST /v1/bundles")[0].content).hexdigest()

    @pytest.mark.usefixtures("ready")
    def test_an_output_folder_can_be_named(self, trainshed: Trainshed, tmp_path: Path) -> None:
        assert trainshed("run", "--output", str(tmp_path / "here"), "--", "python", "train.py").code == 0
        assert (tmp_path / "here" / "model.pt").exists()

    def test_one_that_is_not_empty_is_refused_before_anything_is_sent(
        self, ready: FakeServer, trainshed: Trainshed, code: Path
    ) -> None:
        ran = trainshed("run", "--output", str(code), "--", "python", "train.py")
        assert (ran.code, ready.requests) == (2, [])

    @pytest.mark.usefixtures("ready")
    def test_what_came_back_is_not_sent_the_next_time(self, trainshed: Trainshed) -> None:
        trainshed(*RUN)
        assert [item["name"] for item in trainshed("run", "--dry-run", "--json", "x").json["files"]] == ["train.py"]

    def test_detached_it_leaves_with_the_id(self, ready: FakeServer, trainshed: Trainshed) -> None:
        ran = trainshed("run", "--detach", "--name", "mine", "--", "python", "train.py")
        assert (ran.code, ran.out) == (0, f"{JOB} queued\n")
        assert ready.asked(EVENTS) == []

    def test_a_job_that_fails_is_one_and_brings_nothing(self, ready: FakeServer, trainshed: Trainshed) -> None:
        failed = job(state="failed", cause="user_code", message="python train.py ended with code 1", **SCRIPT_JOB)
        ready.on(EVENTS, stream(state(1, "running"), log(2, "Traceback"), state(3, "failed", cause="user_code")))
        ready.on(READ, failed)
        ready.on(FILES, listing())
        ran = trainshed(*RUN)
        assert ran.code == 1
        assert ran.out.count("Traceback") == 1

    @pytest.mark.usefixtures("ready")
    def test_a_program_gets_one_document_a_line(self, trainshed: Trainshed) -> None:
        ran = trainshed("run", "--json", "--", "python", "train.py")
        first, *entries, last, files = ran.lines
        assert (first["id"], last["state"]) == (JOB, "succeeded")
        assert [entry["kind"] for entry in entries] == ["state", "state", "log", "metric", "state"]
        assert files == {"job_id": JOB, "output": f"{JOB}-output", "files": ["model.pt"]}

    def test_without_a_bundle_nothing_is_sent(self, ready: FakeServer, trainshed: Trainshed) -> None:
        assert trainshed("run", "--no-bundle", "--detach", "--", "python", "-m", "mine").code == 0
        assert [request.url.path for request in ready.requests] == ["/v1/jobs"]
        assert "bundle" not in posted(ready)["script"]


class TestNeeds:
    def test_data_is_sent_once(self, ready: FakeServer, trainshed: Trainshed, tmp_path: Path) -> None:
        file = tmp_path / "penguins.csv"
        file.write_text("a\n1\n")
        table = {"id": DATA, "name": "penguins.csv", "size_bytes": 4, "state": "ready", "digest": "0" * 64}
        ready.on("GET /v1/datasets", listing(table))
        ready.on("POST /v1/datasets", table)
        ran = trainshed("run", "--detach", "--data", f"train={file}", "--", "python", "train.py")
        assert posted(ready)["script"]["data"] == {"train": DATA}
        assert f"data train {DATA}: {file}; sent 4 B" in ran.err
        ready.on("GET /v1/datasets", listing({**table, "digest": hashlib.sha256(b"a\n1\n").hexdigest()}))
        again = trainshed(
            "run", "--detach", "--data", f"train={file}", "--data", f"more={DATA}", "--", "python", "train.py"
        )
        assert len(ready.asked("POST /v1/datasets")) == 1
        assert "the server has it already" in again.err

    def test_requirements_and_variables_are_the_environment(
        self, ready: FakeServer, trainshed: Trainshed, code: Path
    ) -> None:
        (code / "needs.txt").write_text("rich==14.1.0\n")
        trainshed("run", "--detach", "-r", "needs.txt", "--env", "A=1", "--env", "B", "x", environ={**LOCAL, "B": "2"})
        environment = {"requirements": "needs.txt", "variables": {"A": "1", "B": "2"}}
        assert posted(ready)["script"]["environment"] == environment

    def test_a_framework_that_is_named_is_not_guessed(self, ready: FakeServer, trainshed: Trainshed) -> None:
        ran = trainshed("run", "--detach", "--framework", "python", "--", "python", "train.py")
        assert posted(ready)["framework"] == "python"
        assert "since" not in ran.err

    def test_the_folder_can_be_another(self, ready: FakeServer, trainshed: Trainshed, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        (other / "go.py").write_text("")
        assert trainshed("run", "--detach", "--folder", str(other), "--", "python", "go.py").code == 0
        assert ready.asked("POST /v1/bundles")[0].url.params["name"] == "other"


class TestRefusals:
    def test_what_the_server_takes_no_more_of_names_the_largest(self, ready: FakeServer, trainshed: Trainshed) -> None:
        ready.on("POST /v1/bundles", problem(413, "payload_too_large", "A bundle has at most 10 bytes."))
        ran = trainshed(*RUN)
        assert ran.code == 2
        assert "A bundle has at most 10 bytes. The largest files:" in ran.err
        assert "13 B  train.py" in ran.err

    def test_a_key_without_the_permission_sends_no_data_either(
        self, ready: FakeServer, trainshed: Trainshed, tmp_path: Path
    ) -> None:
        (tmp_path / "a.csv").write_text("a\n1\n")
        ready.on("GET /v1/bundles", problem(403, "code_not_allowed", "This key may not send code."))
        ran = trainshed("run", "--data", f"train={tmp_path / 'a.csv'}", "--", "python", "train.py")
        assert (ran.code, ran.err.splitlines()[0]) == (2, "error: This key may not send code.")
        assert ready.asked("POST /v1/datasets") == []

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (("--timeout", "soon", "x"), "no length of time"),
            (("--max-size", "1", "x"), "more than 1 B"),
            (("--folder", "gone", "x"), "is not a folder"),
            (("--data", "train=gone.csv", "x"), "neither a file here"),
            (("--", "python", "trian.py"), "did you mean train.py"),
        ],
    )
    def test_what_cannot_be_is_said_before_the_server_is_asked(
        self, server: FakeServer, trainshed: Trainshed, arguments: tuple[str, ...], sentence: str
    ) -> None:
        ran = trainshed("run", *arguments)
        assert (ran.code, server.requests) == (2, [])
        assert sentence in ran.err

    def test_errors_for_programs_follow_our_own_option_alone(self, trainshed: Trainshed) -> None:
        assert trainshed("run", "--", "python", "gone.py", "--json").err.startswith("error: ")
        assert json.loads(trainshed("run", "--json", "--", "python", "gone.py").err)["code"] == "usage"


class TestDryRun:
    def test_it_lists_the_files_and_asks_no_server(self, server: FakeServer, trainshed: Trainshed, code: Path) -> None:
        (code / "link").symlink_to("nowhere")
        ran = trainshed("run", "--dry-run", "--", "python", "train.py")
        assert server.requests == []
        *listed, spec = ran.out.splitlines()
        assert [line.strip() for line in listed] == [
            "13 B  train.py",
            "left out  link (a link to nothing)",
            "1 file, 13 B (1 left out)",
            "framework: torch, since train.py imports torch",
        ]
        assert json.loads(spec)["script"]["command"] == ["python", "train.py"]

    def test_without_a_bundle_it_lists_none(self, trainshed: Trainshed) -> None:
        shown = trainshed("run", "--dry-run", "--no-bundle", "--json", "--", "python", "-m", "mine").json
        assert shown == {
            "spec": {"framework": "python", "script": {"command": ["python", "-m", "mine"]}, "device_count": 1},
            "data": {},
        }


class TestInterrupt:
    def interrupted(self, server: FakeServer) -> None:
        def press(_request: httpx.Request) -> httpx.Response:
            raise KeyboardInterrupt

        server.on(EVENTS, press)
        server.on(f"POST /v1/jobs/{JOB}/cancel", job(state="running", stop_requested="cancel"))

    def test_the_job_goes_on(self, ready: FakeServer, trainshed: Trainshed) -> None:
        self.interrupted(ready)
        ran = trainshed(*RUN)
        assert ran.code == 130
        assert f"The job goes on. trainshed follow {JOB}" in ran.err
        assert ready.asked(f"POST /v1/jobs/{JOB}/cancel") == []

    def test_or_is_cancelled_when_that_was_asked_for(self, ready: FakeServer, trainshed: Trainshed) -> None:
        self.interrupted(ready)
        ran = trainshed("run", "--cancel-on-interrupt", "--", "python", "train.py")
        assert ran.code == 130
        assert len(ready.asked(f"POST /v1/jobs/{JOB}/cancel")) == 1
        assert ran.err.splitlines()[-1] == f"{JOB} is asked to stop."
        assert "goes on" not in ran.err


LOCAL = {"TRAINSHED_URL": "http://127.0.0.1:8000", "TRAINSHED_KEY": "ts_test", "PATH": os.environ["PATH"]}
