"""`trainshed up` with its real children: whatever ends it, nothing stays; whatever ends a child, it comes back."""

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.cli.connection import read_client_file
from app.cli.up.child import Child
from tests.e2e.stack import MARK, Stack, end, is_gone, marked_processes, running_stack, start_up

# Runs for hours, so that it is certain to be at work when the service ends.
LONG = {
    "framework": "torch",
    "model": {"type": "mlp", "hidden": [256]},
    "data": "digits",
    "hyperparameters": {"epochs": 100_000, "batch_size": 8},
    "device_count": 1,
}
SHORT = {**LONG, "hyperparameters": {"epochs": 1}}


def until_nothing_is_left(stack: Stack) -> None:
    stack.until(lambda: not stack.processes() or None, "no process is left", detail=lambda: str(stack.processes()))


def command_line(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `trainshed ARGUMENT…` for the service of a home."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("TRAINSHED_")}
    command = [sys.executable, "-P", "-m", "app.cli", *arguments]
    environ = {**ours, "TRAINSHED_HOME": str(home)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)


class TestEnd:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_stop_ends_all_in_order_with_code_zero(self, home: Path, number: signal.Signals) -> None:
        with running_stack(home) as stack:
            stack.up_signal(number)
            stack.until(lambda: stack.up.ended() or None, "the end of up")
            assert stack.up.succeeded
            assert stack.processes() == []
            assert not list(stack.home.run.glob("*.sock")) + list(stack.home.run.glob("up.json"))

    def test_a_stop_drains_the_job_that_runs(self, home: Path) -> None:
        with running_stack(home) as stack:
            job_id = stack.submit(LONG)
            stack.wait(job_id, "running")
            stack.up_signal(signal.SIGTERM)
            stack.until(lambda: stack.up.ended() or None, "the end of up")
            assert stack.up.succeeded
            assert stack.processes() == []
        with running_stack(home) as again:
            assert [entry["state"] for entry in again.events(job_id) if entry["kind"] == "state"][:4] == [
                "queued",
                "starting",
                "running",
                "queued",
            ]
            again.client.post(f"/v1/jobs/{job_id}/cancel")
            assert again.wait(job_id)["state"] == "cancelled"

    def test_killed_with_a_job_at_work_it_leaves_no_process(self, home: Path) -> None:
        with running_stack(home) as stack:
            job_id = stack.submit(LONG)
            stack.wait(job_id, "running")
            assert any("trainer" in text or "launcher" in text for text in stack.processes())
            stack.up_signal(signal.SIGKILL)
            until_nothing_is_left(stack)

    def test_what_stays_frozen_is_swept_by_the_next_one(self, home: Path) -> None:
        with running_stack(home) as stack:
            frozen = stack.kill("control", signal.SIGSTOP)
            stack.up_signal(signal.SIGKILL)
            stack.until(lambda: list(marked_processes(stack.mark, home)) == [frozen] or None, "all others end")
            assert not is_gone(frozen)
            with running_stack(home) as again:
                assert is_gone(frozen)
                assert "control" in again.up.last_lines()


class TestOne:
    def test_a_second_one_says_where_the_first_one_listens(self, stack: Stack) -> None:
        second = start_up(stack.home.root, {"TRAINSHED_DATABASE_URL": stack.database_url}, stack.mark)
        try:
            stack.until(lambda: second.ended() or None, "the second one gives up")
            assert second.outcome == "ended with exit code 2"
            assert f"listens on {stack.url}" in second.last_lines()
        finally:
            end(second)
        assert stack.is_ready()

    def test_address_and_key_are_stored_for_the_client(self, stack: Stack) -> None:
        stored = read_client_file(stack.home.client_file)
        assert stored is not None
        assert (stored.url, stored.key) == (stack.url, stack.key)
        listed = command_line(stack.home.root, "workers", "--json")
        assert [worker["online"] for worker in json.loads(listed.stdout)["data"]] == [True]

    def test_a_later_start_keeps_the_key(self, home: Path) -> None:
        with running_stack(home) as first:
            key = first.key
        with running_stack(home) as second:
            assert second.key == key
            assert second.client.get("/v1/jobs").status_code == 200

    def test_all_it_made_is_for_this_user_alone(self, stack: Stack) -> None:
        shared = [path for path in stack.home.root.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o077]
        assert shared == []


class TestRestart:
    @pytest.mark.parametrize("name", ["redis", "api", "control", "worker"])
    def test_a_killed_child_comes_back_and_jobs_run_again(self, stack: Stack, name: str) -> None:
        others = {other: pid for other, pid in stack.pids().items() if other != name}
        old = stack.kill(name)
        stack.await_successor(name, old)
        assert {other: pid for other, pid in stack.pids().items() if other != name} == others
        assert stack.wait(stack.submit(SHORT))["state"] == "succeeded"

    def test_the_api_comes_back_at_the_same_address(self, stack: Stack) -> None:
        stack.restart("api")
        assert stack.home.api_file.read_text().strip() == stack.url

    def test_without_redis_jobs_are_accepted_and_run(self, stack: Stack) -> None:
        with stack.down("redis"):
            assert stack.wait(stack.submit(SHORT))["state"] == "succeeded"


class TestStartThatFails:
    @contextmanager
    def failing(self, home: Path, *arguments: str, **settings: str) -> Iterator[Child]:
        up = start_up(home, settings, uuid.uuid4().hex, *arguments)
        try:
            assert up.first_line() == b""
            up.wait(60)
            yield up
        finally:
            end(up)

    def test_a_port_that_is_taken_is_shown_and_nothing_stays(self, home: Path) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            with self.failing(home, "--port", str(taken.getsockname()[1])) as up:
                assert up.outcome == "ended with exit code 2"
                assert "api ended with exit code" in up.last_lines()
                assert "in use" in up.last_lines()
        assert marked_processes("no such mark", home) == {}

    def test_a_database_that_is_away_is_shown(self, home: Path) -> None:
        url = "postgres://nobody@127.0.0.1:1/none"
        with self.failing(home, "--postgres", url) as up:
            assert "prepare ended with exit code 2" in up.last_lines()
            assert "database" in up.last_lines()

    def test_a_setting_that_cannot_be_is_named(self, home: Path) -> None:
        with self.failing(home, TRAINSHED_LEASE_S="1") as up:
            assert "TRAINSHED_LEASE_S" in up.last_lines()
        assert not home.exists()


class TestDemo:
    @pytest.mark.slow
    def test_every_bar_holds_and_nothing_is_left(self, tmp_path: Path) -> None:
        mark = uuid.uuid4().hex
        environ = {**os.environ, MARK: mark, "TMPDIR": str(tmp_path), "TRAINSHED_DEVICES": "cpu"}
        command = [sys.executable, "-P", "-m", "app.cli", "demo", "--json"]
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=280)
        content = json.loads(ran.stdout)
        assert ran.returncode == 0, content
        assert [row["state"] for row in content["jobs"]] == ["succeeded"] * 12
        # Both frameworks train the same spec from the same weights on the same batches: the figures agree.
        values = {row["name"]: row["value"] for row in content["jobs"]}
        for data in ("digits", "digits-cnn", "digits-two-devices", "digits-killed", "diabetes", "penguins"):
            assert values[f"{data} torch"] == pytest.approx(values[f"{data} tensorflow"], abs=0.01)
        assert [row["label"] for row in content["predictions"]] == ["Adelie", "Gentoo", "Chinstrap"] * 2
        went_on = [row["name"] for row in content["jobs"] if row["resumed_from_step"]]
        assert went_on == ["digits-killed torch", "digits-killed tensorflow"]
        assert marked_processes(mark, tmp_path) == {}
        assert list(tmp_path.iterdir()) == []
