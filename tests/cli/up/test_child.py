"""One child: its session, its log, its end, and its death with its parent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.up import child as child_module
from app.cli.up.child import Child, Program
from app.cli.up.signals import Signals
from tests.cli.up.conftest import Script
from tests.cli.up.waiting import has_text, is_gone, own_pid_code, pid_in, until
from workers.processes import read_stat

SLEEP = "import time; time.sleep(600)"


def ended(child: Child) -> Child:
    until(child.ended, f"the end of {child.program.name}")
    return child


class TestStart:
    def test_it_leads_a_session_of_its_own(self, script: Script) -> None:
        child = Child(script("a", SLEEP))
        try:
            stat = read_stat(child.pid)
            assert stat is not None
            assert (stat.sid, stat.pgid, stat.start_time) == (child.pid, child.pid, child.started)
        finally:
            child.kill()

    def test_the_handlers_of_the_parent_are_not_those_of_the_child(self, script: Script, signals: Signals) -> None:
        del signals
        # SIGINT is left out: Python sets a handler of its own for it.
        code = "import signal as s; print(s.getsignal(s.SIGTERM) == s.SIG_DFL == s.getsignal(s.SIGCHLD))"
        child = ended(Child(script("a", code), keep_output=True))
        assert child.output() == b"True\n"

    def test_its_environment_is_what_was_given_and_nothing_else(self, script: Script) -> None:
        child = ended(Child(script("a", "import os; print(sorted(os.environ))"), keep_output=True))
        # LC_CTYPE is set by Python itself when there is no locale (PEP 538).
        assert set(eval(child.output())) - {"LC_CTYPE"} == {"PATH"}  # noqa: S307 - our own child's list

    def test_it_dies_when_its_parent_is_killed(self, tmp_path: Path) -> None:
        shim = Path(child_module.__file__).with_name("shim.py")
        inner = f"{own_pid_code(tmp_path / 'pid')}; {SLEEP}"
        code = (
            "import os, subprocess, sys; python = sys.executable; "
            f"subprocess.run([python, '-I', '-S', {str(shim)!r}, str(os.getpid()), python, '-c', {inner!r}])"
        )
        parent = subprocess.Popen([sys.executable, "-c", code])
        pid = pid_in(tmp_path / "pid")
        parent.kill()
        parent.wait()
        until(lambda: is_gone(pid), "the child's end")

    def test_a_parent_that_died_before_the_start_is_noticed(self) -> None:
        shim = Path(child_module.__file__).with_name("shim.py")
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        command = [sys.executable, "-I", "-S", str(shim), str(gone.pid), sys.executable, "-c", "print('started')"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", "the parent is gone\n")


class TestEnd:
    @pytest.mark.parametrize(
        ("code", "outcome", "succeeded"),
        [
            ("", "ended with exit code 0", True),
            ("import sys; sys.exit(3)", "ended with exit code 3", False),
            ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "was ended by SIGKILL", False),
        ],
    )
    def test_it_says_how(self, script: Script, code: str, outcome: str, *, succeeded: bool) -> None:
        child = ended(Child(script("a", code)))
        assert (child.outcome, child.succeeded) == (outcome, succeeded)

    def test_while_it_runs_it_has_not_ended(self, script: Script) -> None:
        child = Child(script("a", SLEEP))
        assert not child.ended()
        assert child.outcome == "is running"
        child.kill()
        assert child.outcome == "was ended by SIGKILL"

    def test_a_frozen_one_is_killed_too(self, script: Script) -> None:
        child = Child(script("a", SLEEP))
        os.kill(child.pid, signal.SIGSTOP)
        child.kill()
        assert child.ended()

    def test_a_frozen_one_that_is_asked_to_end_can(self, script: Script) -> None:
        child = Child(script("a", SLEEP))
        os.kill(child.pid, signal.SIGSTOP)
        child.terminate()
        assert ended(child).outcome == "was ended by SIGTERM"

    def test_what_is_left_of_its_group_ends_with_it(self, script: Script, tmp_path: Path) -> None:
        inner = f"{own_pid_code(tmp_path / 'pid')}; {SLEEP}"
        code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {inner!r}]); {SLEEP}"
        child = Child(script("a", code))
        grandchild = pid_in(tmp_path / "pid")
        os.kill(child.pid, signal.SIGKILL)
        ended(child)
        until(lambda: is_gone(grandchild), "the grandchild's end")

    def test_ending_it_twice_is_harmless(self, script: Script) -> None:
        child = ended(Child(script("a", "")))
        child.terminate()
        child.kill()
        assert child.succeeded


class TestOutput:
    def test_both_streams_go_to_the_log_after_a_headline(self, script: Script) -> None:
        child = ended(Child(script("a", "import sys; print('out', flush=True); print('err', file=sys.stderr)")))
        first, *rest = child.program.log.read_text().splitlines()
        assert first.startswith("--- a started 20")
        assert rest == ["out", "err"]

    def test_the_last_lines_are_those_of_this_run(self, script: Script) -> None:
        ended(Child(script("a", "print('from the run before')")))
        child = ended(Child(script("a", "print('\\n'.join(str(n) for n in range(30)))")))
        assert child.last_lines().splitlines() == [str(number) for number in range(10, 30)]

    def test_kept_output_is_not_in_the_log(self, script: Script) -> None:
        child = ended(Child(script("a", "print('secret')"), keep_output=True))
        assert child.output() == b"secret\n"
        assert not has_text(child.program.log, "secret")

    def test_the_first_line_is_there_as_soon_as_it_is_printed(self, script: Script) -> None:
        child = Child(script("a", f"print('ready', flush=True); {SLEEP}"), keep_output=True)
        assert child.first_line() == b"ready\n"
        child.kill()
        assert child.output() == b""

    def test_one_that_ends_without_a_line_has_none(self, script: Script) -> None:
        child = Child(script("a", ""), keep_output=True)
        assert child.first_line() == b""
        ended(child).output()

    def test_a_long_log_keeps_its_end(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        line = b"x" * 99 + b"\n"
        log.write_bytes(line * 50_000 + b"the end\n")
        child = ended(Child(Program("a", ("/bin/true",), {}, log)))
        content = child.program.log.read_bytes()
        assert 1_000_000 < len(content) < 1_100_000
        assert content.startswith(line)
        assert b"the end\n--- a started" in content
