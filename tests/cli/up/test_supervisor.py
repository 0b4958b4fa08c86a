"""The supervisor: starting, restarting, stopping in order. Its children are small real processes."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.cli.up.child import Program
from app.cli.up.signals import Signals
from app.cli.up.supervisor import ChildFailed, NotReadyInTime, StopAsked, Supervisor
from tests.cli.up.conftest import Script
from tests.cli.up.waiting import has_text, is_gone, own_pid_code, until

SLEEP = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)


def ask_to_stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def stopped_once(fact: Callable[[], bool]) -> Iterator[None]:
    """Asks to stop as soon as `fact` holds, while the block runs."""

    def wait_and_ask() -> None:
        until(fact, "the fact to stop at")
        ask_to_stop()

    thread = threading.Thread(target=wait_and_ask)
    thread.start()
    yield
    thread.join()


class TestStarting:
    def test_a_probe_that_answers_is_passed_on(self, supervisor: Supervisor, script: Script, tmp_path: Path) -> None:
        supervisor.start(script("a", f"{own_pid_code(tmp_path / 'pid')}; {SLEEP}"))
        there = tmp_path / "pid"
        assert (
            supervisor.wait_for(lambda: there.read_text() if has_text(there, "\n") else None, "a", 30).strip().isdigit()
        )

    def test_a_child_that_dies_meanwhile_is_named_with_its_last_words(
        self, supervisor: Supervisor, script: Script
    ) -> None:
        supervisor.start(script("a", "import sys; sys.exit('port 80 is taken')"))
        with pytest.raises(ChildFailed, match=r"a ended with exit code 1 at the start .*a\.log\).*\nport 80 is taken"):
            supervisor.wait_for(lambda: None, "a", 30)

    def test_what_never_comes_is_named(self, supervisor: Supervisor) -> None:
        with pytest.raises(NotReadyInTime, match=r"the API was not ready after 0\.05 s"):
            supervisor.wait_for(lambda: None, "the API", 0.05)

    def test_a_stop_meanwhile_ends_the_waiting(self, supervisor: Supervisor) -> None:
        ask_to_stop()
        with pytest.raises(StopAsked):
            supervisor.wait_for(lambda: None, "the API", 30)

    def test_each_start_is_announced(self, signals: Signals, script: Script) -> None:
        seen: list[list[str]] = []
        supervisor = Supervisor(signals, print, lambda: seen.append(list(supervisor.children)))
        for name in ("a", "b"):
            supervisor.start(script(name, SLEEP))
        supervisor.stop()
        assert seen == [["a"], ["a", "b"]]


class TestRunOnce:
    def test_it_answers_what_was_printed(self, supervisor: Supervisor, script: Script) -> None:
        assert supervisor.run_once(script("once", "print(42)")) == b"42\n"
        assert supervisor.children == {}

    def test_a_failure_is_named_with_its_last_words(self, supervisor: Supervisor, script: Script) -> None:
        with pytest.raises(ChildFailed, match=r"once ended with exit code 2.*\nno such database"):
            supervisor.run_once(script("once", "import sys; print('no such database', file=sys.stderr); sys.exit(2)"))

    def test_a_stop_ends_the_program(self, supervisor: Supervisor, script: Script, tmp_path: Path) -> None:
        pid_file = tmp_path / "pid"
        with stopped_once(lambda: has_text(pid_file, "\n")), pytest.raises(StopAsked):
            supervisor.run_once(script("once", f"{own_pid_code(pid_file)}; {SLEEP}"))
        assert is_gone(int(pid_file.read_text()))


class TestRun:
    def test_a_child_that_dies_is_started_again_and_it_is_said(
        self, supervisor: Supervisor, script: Script, told: list[str], tmp_path: Path
    ) -> None:
        starts = tmp_path / "starts"
        code = f"open({str(starts)!r}, 'a').write('x')"
        supervisor.start(script("a", f"{code}; import os; os._exit(7)"))
        with stopped_once(lambda: has_text(starts, "xxx")):
            supervisor.run()
        assert told[0] == f"a ended with exit code 7; starting it again in 0.2 s. Log: {tmp_path / 'a.log'}"
        assert told[1].startswith("a ended with exit code 7; starting it again in 0.5 s.")

    def test_the_others_are_left_alone(self, supervisor: Supervisor, script: Script, told: list[str]) -> None:
        steady = supervisor.start(script("steady", SLEEP))
        dying = supervisor.start(script("dying", SLEEP))
        os.kill(dying.pid, signal.SIGKILL)
        with stopped_once(lambda: supervisor.children["dying"] is not dying):
            supervisor.run()
        assert supervisor.children["steady"] is steady
        assert len(told) == 1
        assert "dying was ended by SIGKILL" in told[0]

    def test_the_next_start_may_run_another_program(
        self, supervisor: Supervisor, script: Script, tmp_path: Path
    ) -> None:
        supervisor.start(script("a", ""))
        replacement = script("a", f"{own_pid_code(tmp_path / 'pid')}; {SLEEP}")
        supervisor.replace(replacement)
        with stopped_once(lambda: has_text(tmp_path / "pid", "\n")):
            supervisor.run()
        assert supervisor.children["a"].program is replacement


class TestStop:
    def order_code(self, name: str, path: Path) -> str:
        return (
            "import signal, sys, time\n"
            f"def leave(*_): open({str(path)!r}, 'a').write({name!r}); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, leave)\n"
            "print('ready', flush=True)\n"
            "while True: time.sleep(600)"
        )

    def start_ready(self, supervisor: Supervisor, program: Program) -> None:
        supervisor.start(program)
        until(lambda: has_text(program.log, "ready"), f"{program.name} is ready")

    def test_the_last_started_ends_first(self, supervisor: Supervisor, script: Script, tmp_path: Path) -> None:
        for name in ("a", "b", "c"):
            self.start_ready(supervisor, script(name, self.order_code(name, tmp_path / "order")))
        supervisor.stop()
        assert (tmp_path / "order").read_text() == "cba"

    def test_one_that_does_not_end_is_killed_after_its_grace(
        self, supervisor: Supervisor, script: Script, told: list[str]
    ) -> None:
        self.start_ready(supervisor, script("stubborn", STUBBORN, grace_s=0.2))
        pid = supervisor.children["stubborn"].pid
        supervisor.stop()
        assert is_gone(pid)
        assert told == ["stubborn did not end by itself and was killed."]

    def test_a_second_request_ends_the_patience_with_all(
        self, supervisor: Supervisor, signals: Signals, script: Script, told: list[str]
    ) -> None:
        for name in ("a", "b"):
            self.start_ready(supervisor, script(name, STUBBORN, grace_s=600))
        signals.stops_asked = 1
        ask_to_stop()
        supervisor.stop()
        assert [text.split()[0] for text in told] == ["b", "a"]

    def test_a_frozen_child_does_not_stop_the_stop(self, supervisor: Supervisor, script: Script) -> None:
        child = supervisor.start(script("frozen", SLEEP, grace_s=0.2))
        os.kill(child.pid, signal.SIGSTOP)
        supervisor.stop()
        assert is_gone(child.pid)
