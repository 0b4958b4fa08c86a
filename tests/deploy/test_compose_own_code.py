"""Code of users in the compose test: the probe that runs as a script, the verdict on it, what each step objects to."""

import json
import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from scripts.compose_test import own_code, own_code_probe
from scripts.compose_test.commands import Shell
from scripts.compose_test.engine import Engine
from scripts.compose_test.jobs import Drill
from scripts.compose_test.own_code import PROBE, judge
from scripts.compose_test.service import UnexpectedAnswer
from scripts.compose_test.stack import Stack
from scripts.compose_test.standing import NotAsPromised, measurements
from tests.deploy.programs import Programs, service_that_answers

FOUND: dict[str, Any] = {
    "uid": 20003,
    "groups": [],
    "capabilities": 0,
    "no_new_privileges": True,
    "reached": [],
    "refused": ["[Errno 1] Operation not permitted"],
    "read": [],
    "signalled": [],
    "strangers": 3,
    "temporary": True,
    "secrets": [],
    "framework": "2.9",
    "required": own_code.ANSWER,
}
REFUSAL = "This host cannot shut off the network of a job that needs the loopback device"
DOCKER = """
case $1 in
ps) echo c1;;
exec) echo "made a key"; echo ts_second;;
inspect) echo '[{"NetworkSettings": {"Networks": {"data": {"IPAddress": "172.18.0.2"}}}}]';;
esac"""


def job(state: str, cause: str | None = None, detail: str | None = None, **metrics: float) -> dict[str, Any]:
    attempts = [{"cause": cause, "message": "The environment failed.", "detail": detail}]
    shown = {"state": state, "cause": cause, "message": None, "attempts": attempts}
    return {"id": "job_1", "metrics": {"last": metrics}, **shown}


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    made = Programs(tmp_path / "bin")
    made.add("docker", DOCKER)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the probe's job may leave files."""
    (tmp_path / "outputs").mkdir()
    return tmp_path


def drill(programs: Programs, tmp_path: Path, answers: dict[str, Any]) -> Drill:
    shell = Shell(programs.environ(), tmp_path / "log", tmp_path)
    stack = Stack(Engine(shell, ("docker-compose",), "0", ours=False), tmp_path, "p", {}, tmp_path / "override.json")
    known = {"POST /v1/jobs": {"id": "job_1"}, "POST /v1/bundles": {"id": "bun_1"}, "POST /v1/datasets": {"id": "ds_1"}}
    kept = {"probe": "bun_1", "code key": "ts_second"}
    return Drill(stack, service_that_answers(known | answers), tmp_path, "ts_first", kept=kept)


class TestVerdict:
    def test_nothing_is_wrong_with_a_script_that_is_kept_apart(self) -> None:
        assert judge(FOUND, "torch") == []
        assert judge({**FOUND, "framework": None, "groups": [20003]}, "python") == []

    @pytest.mark.parametrize(
        ("changed", "fault"),
        [
            ({"reached": ["172.18.0.2:6379"]}, "it reached 172.18.0.2:6379"),
            ({"read": ["/run/secrets/broker_url"]}, "it read /run/secrets/broker_url"),
            ({"signalled": [7]}, "it may signal process 7"),
            ({"secrets": ["TRAINSHED_DATABASE_URL_FILE"]}, "it was told TRAINSHED_DATABASE_URL_FILE"),
            ({"uid": 0}, "it ran as uid 0"),
            ({"uid": 20256}, "it ran as uid 20256"),
            ({"groups": [10001]}, "it was in groups [10001]"),
            ({"capabilities": 0x20}, "it had capabilities 0x20, or could gain privileges"),
            ({"no_new_privileges": False}, "it had capabilities 0x0, or could gain privileges"),
            ({"temporary": False}, "it could not write where temporary files go"),
            ({"strangers": 0}, "it saw no process of another user, so what it could do to one says nothing"),
            ({"required": 41}, "the required package said 41"),
            ({"framework": None}, "it did not find torch"),
        ],
    )
    def test_each_fault_is_told(self, changed: dict[str, Any], fault: str) -> None:
        assert judge({**FOUND, **changed}, "torch") == [fault]


class TestProbe:
    def test_address_where_somebody_listens_is_reached_and_a_closed_one_is_not(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
            assert own_code_probe.reaches(address) is None
        assert "refused" in str(own_code_probe.reaches(address))

    def test_file_and_folder_open_or_not(self, tmp_path: Path) -> None:
        assert own_code_probe.opens(str(tmp_path))
        assert own_code_probe.opens(__file__)
        assert not own_code_probe.opens(str(tmp_path / "none"))

    def test_folder_for_temporary_files_must_lie_in_the_home(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        monkeypatch.setenv("HOME", str(tmp_path))
        assert own_code_probe.takes_a_file()
        monkeypatch.setenv("HOME", str(tmp_path / "other"))
        assert not own_code_probe.takes_a_file()

    def test_strangers_are_processes_of_others(self) -> None:
        assert os.getpid() not in own_code_probe.strangers()
        assert own_code_probe.heeds(os.getpid())

    def test_runs_by_itself_with_a_required_wheel(self, folder: Path) -> None:
        wheel = own_code.write_wheel(folder / "wheels")
        (folder / "framework.py").write_text("__version__ = '2.9'\n")
        closed = folder / "closed"
        command = [sys.executable, "-S", str(PROBE), "framework", "127.0.0.1:1", "--", str(closed), str(folder)]
        given = {
            "PYTHONPATH": f"{wheel}{os.pathsep}{folder}",
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "TRAINSHED_OUTPUT_DIR": str(folder / "outputs"),
            "TRAINSHED_BROKER_URL_FILE": "x",
            "TRAINSHED_JOB_ID": "job_1",
        }
        subprocess.run(command, env=given, check=True)
        found = json.loads((folder / "outputs/found.json").read_text())
        assert found.keys() == FOUND.keys()
        assert (found["uid"], found["required"], found["framework"]) == (os.getuid(), own_code.ANSWER, "2.9")
        assert found["secrets"] == ["TRAINSHED_BROKER_URL_FILE"]
        assert (found["reached"], found["temporary"]) == ([], True)
        assert str(folder) in found["read"]
        assert str(closed) not in found["read"]


class TestWheel:
    def test_is_one_that_everybody_can_read(self, tmp_path: Path) -> None:
        path = own_code.write_wheel(tmp_path / "wheels")
        assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o755, 0o644)
        with zipfile.ZipFile(path) as archive:
            recorded = [line.split(",")[0] for line in archive.read(archive.namelist()[-1]).decode().splitlines()]
            assert recorded == archive.namelist()


class TestKey:
    def test_is_made_after_the_first_one_was_refused(self, programs: Programs, tmp_path: Path) -> None:
        refused = httpx.Response(403, json={"code": "code_not_allowed"})
        answered = drill(programs, tmp_path, {"POST /v1/bundles": [refused, {"id": "bun_1"}]})
        own_code.key_for_code(answered)
        assert answered.kept["code key"] == "ts_second"
        (made,) = programs.called("docker exec")
        assert made.endswith("trainshed key create --name code --permission code")

    def test_first_key_that_is_taken_is_a_failure(self, programs: Programs, tmp_path: Path) -> None:
        with pytest.raises(UnexpectedAnswer, match="without the permission"):
            own_code.key_for_code(drill(programs, tmp_path, {"POST /v1/bundles": {"id": "bun_1"}}))


class TestScripts:
    def answers(self, **found: Any) -> dict[str, Any]:
        ended = {"GET /v1/jobs/job_1": job("succeeded")}
        return {**ended, "GET /v1/jobs/job_1/artifacts/found.json": {**FOUND, **found}}

    def test_what_a_good_one_found_is_shown(self, programs: Programs, tmp_path: Path) -> None:
        said = own_code.run_script(drill(programs, tmp_path, self.answers()), "torch")
        assert said.startswith("torch 2.9 as uid 20003, no capability; 3 addresses out of reach")

    def test_one_that_reached_somebody_is_a_failure(self, programs: Programs, tmp_path: Path) -> None:
        with pytest.raises(NotAsPromised, match="it reached"):
            own_code.run_script(drill(programs, tmp_path, self.answers(reached=["172.18.0.2:6379"])), "torch")


class TestRanks:
    def run(self, programs: Programs, tmp_path: Path, **ended: Any) -> str:
        return own_code.run_ranks(drill(programs, tmp_path, {"GET /v1/jobs/job_1": job(**ended)}))

    def test_refused_with_the_sentence_or_running_is_as_promised(self, programs: Programs, tmp_path: Path) -> None:
        said = self.run(programs, tmp_path, state="failed", cause="environment_failed", detail=REFUSAL)
        assert said.startswith("environment_failed")
        assert self.run(programs, tmp_path, state="succeeded").startswith("works")

    @pytest.mark.parametrize(("cause", "detail"), [("user_code", REFUSAL), ("environment_failed", "no pip")])
    def test_another_end_is_a_failure(self, programs: Programs, tmp_path: Path, cause: str, detail: str) -> None:
        with pytest.raises(UnexpectedAnswer, match=cause):
            self.run(programs, tmp_path, state="failed", cause=cause, detail=detail)


class TestOwnModel:
    def train(self, programs: Programs, tmp_path: Path, accuracy: float, labels: list[str]) -> str:
        ended = {"GET /v1/jobs/job_1": job("succeeded", test_accuracy=accuracy)}
        answers = {**ended, "POST /v1/jobs/job_1/predict": {"labels": labels}}
        return own_code.train_own_model(drill(programs, tmp_path, answers))

    def test_right_answers_are_counted(self, programs: Programs, tmp_path: Path) -> None:
        kinds = [line.rpartition(",")[2] for line in measurements().decode().splitlines()[1 : own_code.ROWS + 1]]
        assert self.train(programs, tmp_path, 1.0, kinds) == "test_accuracy 1.000; 20 of 20 rows answered rightly"

    def test_model_that_did_not_learn_is_a_failure(self, programs: Programs, tmp_path: Path) -> None:
        with pytest.raises(UnexpectedAnswer, match=r"test_accuracy is 0\.5"):
            self.train(programs, tmp_path, 0.5, [])

    def test_wrong_answers_are_a_failure(self, programs: Programs, tmp_path: Path) -> None:
        with pytest.raises(UnexpectedAnswer, match="of 20 rows 7 were answered rightly"):
            self.train(programs, tmp_path, 1.0, ["a"] * own_code.ROWS)
