"""Several processes of one command, and what they leave behind."""

import errno
import os
import signal
from pathlib import Path

import pytest

from app.errors import Cause
from tests.workers.scripts.hosted import CPUS, hosted, open_descriptors, script, wait_gone
from workers.protocol import Done
from workers.scripts.ranks import NotStarted, Program, start


class TestRanks:
    def test_first_that_fails_names_the_cause_and_ends_the_others(self, tmp_path: Path) -> None:
        text = """
import os, time
if os.environ["RANK"] == "1": raise ValueError("the second")
time.sleep(600)
"""
        failed = script(tmp_path, text, processes="per_device", devices=CPUS).failed

        assert failed.cause is Cause.USER_CODE
        assert failed.message.startswith("Rank 1 of 'python train.py' ended with exit code 1: ValueError: the second.")

    def test_rank_that_ignores_term_is_killed_after_a_grace(self, tmp_path: Path) -> None:
        text = """
import os, pathlib, signal, sys, time
here = pathlib.Path(os.environ["TRAINSHED_OUTPUT_DIR"])
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (here / "ready").touch()
    while True: time.sleep(0.05)
while not (here / "ready").exists(): time.sleep(0.01)
sys.exit(3)
"""
        failed = script(tmp_path, text, processes="per_device", devices=CPUS).failed

        assert "Rank 1 of 'python train.py' ended with exit code 3" in failed.message

    def test_stop_reaches_every_rank(self, tmp_path: Path) -> None:
        text = "import time; print('ready', flush=True); time.sleep(600)"
        with hosted(tmp_path, {"train.py": text}, processes="per_device", devices=CPUS) as host:
            host.until_logged("ready")
            host.until_logged("[1] ready")
            host.stop()

            assert host.finish().done.stopped == "stop"


class TestWhatIsLeftBehind:
    @pytest.mark.parametrize("how", ["child", "daemon"])
    def test_grandchild_that_keeps_the_pipe_open_ends_with_the_command(self, how: str, tmp_path: Path) -> None:
        text = f"""
import os, sys, time, signal
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if {how == "daemon"}:
        os.setsid()
        if os.fork(): os._exit(0)
    print("pid", os.getpid(), flush=True)
    while True:
        print("still here", flush=True)
        time.sleep(0.01)
time.sleep(0.5)
print("the end", flush=True)
"""
        found = script(tmp_path, text, success="exit")

        assert isinstance(found.last, Done)
        assert "the end" in found.log
        wait_gone(int(found.log.partition("pid ")[2].split()[0]))

    def test_closed_output_does_not_end_the_watch(self, tmp_path: Path) -> None:
        text = """
import os, pathlib, time
os.close(1); os.close(2)
time.sleep(0.3)
pathlib.Path(os.environ["TRAINSHED_OUTPUT_DIR"], "late").write_text("x")
"""
        assert list(script(tmp_path, text).outputs) == ["late"]


class TestStart:
    def test_rank_leads_a_group_of_its_own(self, tmp_path: Path) -> None:
        rank = start(0, Program("/bin/sleep", ["sleep", "600"], {}, tmp_path))
        group = os.getpgid(rank.pid)
        rank.signal(signal.SIGKILL)
        status = os.waitpid(rank.pid, 0)[1]
        for descriptor in (rank.output, rank.errors):
            os.close(descriptor)

        assert group == rank.pid
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL

    def test_memory_that_runs_out_takes_the_command_first(self, tmp_path: Path) -> None:
        rank = start(0, Program("/bin/cat", ["cat", "/proc/self/oom_score_adj"], {}, tmp_path))
        os.waitpid(rank.pid, 0)
        with os.fdopen(rank.output) as output, os.fdopen(rank.errors):
            score = int(output.read())

        ours = int(Path("/proc/self/oom_score_adj").read_text(encoding="ascii"))
        assert score == min(1_000, ours + 300)

    def test_what_is_no_program_is_not_started(self, tmp_path: Path) -> None:
        plain = tmp_path / "plain"
        plain.write_text("text", encoding="ascii")
        for path, number in ((tmp_path / "nothing", errno.ENOENT), (plain, errno.EACCES), (tmp_path, errno.EACCES)):
            with pytest.raises(NotStarted) as caught:
                start(0, Program(str(path), ["x"], {}, tmp_path))
            assert caught.value.number == number

    def test_no_descriptor_stays_open(self, tmp_path: Path) -> None:
        before = open_descriptors()
        with pytest.raises(NotStarted):
            start(0, Program("/no/such", ["x"], {}, tmp_path))

        assert open_descriptors() == before
