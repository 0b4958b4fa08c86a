"""The faults and moves of the compose test: what they do to the stack, and what they do not let pass."""

from pathlib import Path
from typing import Any

import pytest

from scripts.compose_test import faults, moves, trainers
from scripts.compose_test.commands import Shell
from scripts.compose_test.engine import Engine
from scripts.compose_test.jobs import Drill, begin
from scripts.compose_test.service import UnexpectedAnswer
from scripts.compose_test.stack import Stack
from scripts.compose_test.standing import NotAsPromised
from tests.deploy.programs import Programs, service_that_answers

JOB = "/v1/jobs/job_1"
JOURNAL = {"data": [{"seq": 1}, {"seq": 2}], "has_more": False, "next_after": 2}
READY = {"checks": {"database": {"status": "ok"}}}
WORKERS = {"data": [{"online": True, "version": "1.2+next", "devices": [], "frameworks": []}]}
FILES = {"data": [{"name": "model.safetensors", "size_bytes": 4}, {"name": "report.html", "size_bytes": 2}]}
EPOCHS = {"data": [{"step": [10, 20, 30, 40], "attempt": [1, 1, 2, 2], "epoch": [1, 2, 3, 4]}]}


def job(*causes: str | None, resumed: int | None = 20, **changes: Any) -> dict[str, Any]:
    attempts = [
        {
            "number": number,
            "cause": cause,
            "resumed_from_step": None if number == 1 else resumed,
            "workers": [{"pid": 9}],
        }
        for number, cause in enumerate(causes, 1)
    ]
    made = {"id": "job_1", "state": "succeeded", "cause": None, "message": None, "attempts": attempts}
    counted = {"losses": 0, "failures": 0, "effective_spec": {"hyperparameters": {"epochs": 4}}}
    return {**made, **counted, **changes}


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    made = Programs(tmp_path / "bin")
    made.add("docker", 'case $1 in ps) echo c1;; exec) echo "a backup";; esac')
    made.add("docker-compose")
    return made


def drill(programs: Programs, tmp_path: Path, answers: dict[str, Any]) -> Drill:
    shell = Shell(programs.environ(), tmp_path / "log", tmp_path)
    stack = Stack(Engine(shell, ("docker-compose",), "0", ours=False), tmp_path, "p", {}, tmp_path / "override.json")
    known = {
        "POST /v1/jobs": {"id": "job_1"},
        f"GET {JOB}/checkpoints": {"data": [{"step": 20, "reason": "stop"}]},
        f"GET {JOB}/metrics": EPOCHS,
        f"GET {JOB}/events": JOURNAL,
        "GET /readyz": READY,
        "GET /v1/workers": WORKERS,
        "GET /openapi.json": {"info": {"version": "1.2+next"}},
    }
    rates = {"torch": 1000.0, "tensorflow": 1000.0}
    return Drill(stack, service_that_answers(known | answers), tmp_path, "ts_key", rates)


def whole() -> dict[str, Any]:
    return {"data": [{"step": [10, 20, 30, 40], "attempt": [1] * 4, "epoch": [1, 2, 3, 4]}]}


class TestBegin:
    def test_waits_for_the_first_checkpoint(self, programs: Programs, tmp_path: Path) -> None:
        pages = [{"data": []}, {"data": [{"step": 5}]}]
        at = drill(programs, tmp_path, {f"GET {JOB}/checkpoints": pages})
        assert begin(at, "torch") == "job_1"
        assert at.service.checkpoints("job_1") == [{"step": 5}]


class TestFaults:
    def test_redis_is_restarted_under_the_job(self, programs: Programs, tmp_path: Path) -> None:
        at = drill(programs, tmp_path, {f"GET {JOB}": job(None), f"GET {JOB}/metrics": whole()})
        assert faults.restart_redis(at) == "one attempt, 4 epochs, each told once"
        assert [call.split()[-2:] for call in programs.called("docker-compose")] == [["restart", "redis"]]

    def test_second_attempt_after_redis_is_a_failure(self, programs: Programs, tmp_path: Path) -> None:
        at = drill(programs, tmp_path, {f"GET {JOB}": job("worker_lost", None)})
        with pytest.raises(UnexpectedAnswer, match="worker_lost"):
            faults.restart_redis(at)

    def test_idle_worker_must_take_the_next_job(self, programs: Programs, tmp_path: Path) -> None:
        answers = {f"GET {JOB}": job(None), f"GET {JOB}/metrics": whole()}
        assert "succeeded" in faults.restart_redis_twice(drill(programs, tmp_path, answers))
        assert len(programs.called("docker-compose")) == 2

    def test_postgres_is_restarted_under_the_job(self, programs: Programs, tmp_path: Path) -> None:
        at = drill(programs, tmp_path, {f"GET {JOB}": job(None), f"GET {JOB}/metrics": whole()})
        faults.restart_postgres(at)
        assert programs.called("docker-compose")[0].endswith("restart postgres")

    def test_orderly_stop_costs_nothing_and_no_step(self, programs: Programs, tmp_path: Path) -> None:
        at = drill(programs, tmp_path, {f"GET {JOB}": job("drained", None)})
        assert faults.restart_worker(at, "torch") == "saved, stopped and went on at step 20; no budget spent"

    def test_orderly_stop_that_spends_a_budget_is_a_failure(self, programs: Programs, tmp_path: Path) -> None:
        at = drill(programs, tmp_path, {f"GET {JOB}": job("drained", None, losses=1)})
        with pytest.raises(UnexpectedAnswer, match="1 losses"):
            faults.restart_worker(at, "torch")

    def test_orderly_stop_that_begins_anew_is_a_failure(self, programs: Programs, tmp_path: Path) -> None:
        at = drill(programs, tmp_path, {f"GET {JOB}": job("drained", None, resumed=None)})
        with pytest.raises(UnexpectedAnswer, match="went on at None"):
            faults.restart_worker(at, "torch")

    def test_killed_worker_costs_one_loss(self, programs: Programs, tmp_path: Path) -> None:
        # Each look at the container tells another time of start.
        told = """echo "[{\\"State\\": {\\"StartedAt\\": \\"$(grep -c x looks)\\"}}]\""""
        look = f"cd {tmp_path}; echo x >> looks; case $1 in ps) echo c1;; inspect) {told};; esac"
        programs.add("docker", look)
        at = drill(programs, tmp_path, {f"GET {JOB}": job("worker_lost", None, losses=1)})
        assert "one loss spent" in faults.kill_worker(at)
        (call,) = programs.called("docker exec")
        assert "exec --user 0 c1 python -c" in call


class TestTrainer:
    def test_user_of_the_worker_is_a_failure(self, programs: Programs, tmp_path: Path) -> None:
        person = '{"uid": 0, "gid": 0, "groups": [], "capabilities": 0, "no_new_privileges": true}'
        people = f'{{"trainer": {person}, "worker": {person}, "secrets": ["/run/secrets/x"]'
        people = f'{people}, "own": true, "read": [], "written": [], "signalled": false}}'
        programs.add("docker", f"case $1 in ps) echo c1;; exec) echo '{people}';; esac")
        answers = {f"GET {JOB}": job(None, state="cancelled"), f"POST {JOB}/cancel": {}}
        with pytest.raises(NotAsPromised, match="the trainer runs as uid 0"):
            trainers.what_a_trainer_reaches(drill(programs, tmp_path, answers))


class TestUpgrade:
    def test_both_sides_tell_the_new_version(self, programs: Programs, tmp_path: Path) -> None:
        at = drill(programs, tmp_path, {f"GET {JOB}": job("drained", None)})
        told = moves.upgrade(at, at.stack, "1.2+next")
        assert told == "worker and API tell 1.2+next; the job went on at step 20"
        assert "up --detach --no-build" in programs.called("docker-compose")[0]

    def test_side_that_stayed_behind_is_a_failure(self, programs: Programs, tmp_path: Path) -> None:
        at = drill(programs, tmp_path, {"GET /openapi.json": {"info": {"version": "1.2"}}})
        with pytest.raises(UnexpectedAnswer, match=r"'API': '1\.2'"):
            moves.upgrade(at, at.stack, "1.2+next")


class TestBackup:
    def restored(self, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> str:
        monkeypatch.setattr(moves, "bring_up", lambda _stack: "")
        healthy = '[{"State": {"Status": "running", "Health": {"Status": "healthy"}}}]'
        programs.add("docker", f"case $1 in ps) echo c1;; exec) echo 'a backup';; inspect) echo '{healthy}';; esac")
        answers = {f"GET {JOB}": job("drained", None), "GET /v1/datasets/ds_1": {}}
        answers |= {f"GET {JOB}/artifacts": FILES, f"GET {JOB}/artifacts/model.safetensors": {"weights": 1}}
        at = drill(programs, tmp_path, answers | changes)
        at.kept = {"torch": "job_1", "tensorflow": "job_1", "dataset": "ds_1"}
        return moves.back_up_and_restore(at)

    def test_file_leaves_before_everything_is_deleted_and_comes_back_after(
        self, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = self.restored(programs, tmp_path, monkeypatch)
        assert told.endswith("the running job went on at step 20")
        assert (tmp_path / "backup.tar").read_text() == "a backup\n"
        whole = [call for call in programs.called() if not call.startswith(("docker ps", "docker inspect"))]
        words = ["backup -", "down --volumes", "up --detach --no-build postgres", "run --rm -T --no-deps api restore -"]
        assert [word in call for word, call in zip(words, whole, strict=True)] == [True] * 4, whole

    def test_job_that_began_anew_is_a_failure(
        self, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(UnexpectedAnswer, match="began anew"):
            self.restored(programs, tmp_path, monkeypatch, **{f"GET {JOB}": job("drained", None, resumed=None)})

    def test_model_that_changed_is_a_failure(
        self, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = f"GET {JOB}/artifacts/model.safetensors"
        with pytest.raises(UnexpectedAnswer, match="not what they were"):
            self.restored(programs, tmp_path, monkeypatch, **{model: [{"weights": 1}, {"weights": 2}]})


class TestStop:
    def stopped(self, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> str:
        monkeypatch.setattr(moves, "bring_up", lambda _stack: "")
        state = f'[{{"State": {{"ExitCode": {code}}}}}]'
        programs.add("docker", f"case $1 in ps) echo c1;; inspect) echo '{state}';; esac")
        return moves.stop_and_start(drill(programs, tmp_path, {f"GET {JOB}": job("drained", None)}))

    def test_job_goes_on_where_it_stopped(
        self, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = self.stopped(programs, tmp_path, monkeypatch, 0)
        assert told == "every exit code was 0; the job went on at step 20"
        assert programs.called("docker-compose")[0].endswith(" stop")

    def test_one_that_had_to_be_killed_is_a_failure(
        self, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(UnexpectedAnswer, match="'worker': 137"):
            self.stopped(programs, tmp_path, monkeypatch, 137)
