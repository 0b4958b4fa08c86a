"""A host and a command: what the command gets, what is said for it, and how each end is told."""

import json
import sys
import zipfile
from pathlib import Path

import pytest

from app.errors import Cause
from tests.workers.scripts.hosted import (
    CPU,
    ROOT,
    Hosted,
    assignment,
    environment_of,
    hosted,
    is_running,
    run,
    script,
    wait_gone,
)
from workers.protocol import Checkpoint, Device, Notice, Report, Started

KEEP = """
import os, pathlib
def keep(name, text="x"):
    (pathlib.Path(os.environ["TRAINSHED_OUTPUT_DIR"]) / name).write_text(text)
"""


class TestStarted:
    def test_host_says_what_the_command_runs_on_and_who_it_is(self, tmp_path: Path) -> None:
        found = script(tmp_path, "print('hello')")

        started = found.started
        assert found.messages[0] is started
        assert (started.framework, started.framework_version) == ("python", sys.version.split()[0])
        assert (started.device_kind, started.devices, started.simulated) == ("cpu", ["CPU"], False)
        assert started.pid == started.pgid == found.process.pid

    def test_variables_of_the_spec_are_not_repeated(self, tmp_path: Path) -> None:
        found = script(tmp_path, "", variables={"SECRET": "hidden"})

        assert "SECRET" not in found.started.environment
        assert found.started.environment["TRAINSHED_JOB_ID"] == "job_1"

    def test_simulated_card_is_shown_and_the_cpu_computes(self, tmp_path: Path) -> None:
        card = Device(id="GPU-9", kind="simulated", name="Card")
        found = script(tmp_path, "import os; print(os.environ['TRAINSHED_DEVICE_TYPE'])", devices=[card])

        assert (found.started.device_kind, found.started.devices, found.started.simulated) == ("cpu", ["Card"], True)
        assert found.log == "cpu\n"

    def test_devices_other_than_the_leased_ones_are_refused(self, tmp_path: Path) -> None:
        told = assignment(tmp_path, ["python", "-c", ""], devices=[Device(id="GPU-9", kind="cuda", name="Card")])
        host = Hosted(told, environment_of(told) | {"CUDA_VISIBLE_DEVICES": "GPU-other"})
        try:
            failed = host.finish().failed
        finally:
            host.close()

        assert failed.cause is Cause.DEVICE_UNAVAILABLE
        assert "'GPU-other' where the lease says 'GPU-9'" in failed.message
        assert host.of(Started) == []


class TestLog:
    def test_both_streams_are_the_log_and_metrics_are_not(self, tmp_path: Path) -> None:
        found = script(tmp_path, "import sys; print('out'); print('err', file=sys.stderr); print('{\"loss\": 1}')")

        assert sorted(found.log.split()) == ["err", "out"]
        assert [(point.name, point.value) for point in found.points] == [("loss", 1.0)]

    def test_order_of_one_stream_is_kept(self, tmp_path: Path) -> None:
        found = script(tmp_path, "for n in range(20000): print(n)")

        assert found.log == "".join(f"{n}\n" for n in range(20_000))

    def test_input_is_empty(self, tmp_path: Path) -> None:
        assert script(tmp_path, "import sys; print(repr(sys.stdin.read()))").log == "''\n"


class TestReports:
    def test_points_come_with_step_epoch_and_progress(self, tmp_path: Path) -> None:
        found = script(tmp_path, 'print(\'{"step": 5, "steps": 10, "epoch": 2, "epochs": 4, "val": {"loss": 0.5}}\')')

        report = found.of(Report)[0]
        assert [(p.name, p.step, p.epoch, p.value) for p in report.points] == [("val/loss", 5, 2, 0.5)]
        assert (report.epoch, report.step, report.progress.steps, report.progress.fraction) == (2, 5, 10, 0.5)
        assert found.done.metrics == {"val/loss": 0.5}

    def test_metrics_are_seen_while_the_command_runs(self, tmp_path: Path) -> None:
        text = "import time; print('{\"loss\": 1}', flush=True); time.sleep(600)"
        with hosted(tmp_path, {"train.py": text}) as host:
            assert host.until(Report).points[0].value == 1.0

    def test_metrics_beyond_the_limit_stay_in_the_log_with_one_notice(self, tmp_path: Path) -> None:
        text = "import json\nfor n in range(300): print(json.dumps({f'm{n}': n}))"
        found = script(tmp_path, text, success="exit")

        assert len({point.name for point in found.points}) == 200
        assert len(found.log.splitlines()) == 100
        assert found.notices.count("metrics_limit") == 1


class TestEnds:
    def test_exit_code_zero_is_done(self, tmp_path: Path) -> None:
        done = script(tmp_path, KEEP + "keep('model.txt')").done

        assert (done.stopped, done.modules, done.remark) == (None, [], None)

    def test_exit_code_of_an_error_is_told_with_the_last_lines(self, tmp_path: Path) -> None:
        failed = script(tmp_path, "print('before'); raise ValueError('no good')").failed

        assert failed.cause is Cause.USER_CODE
        assert failed.message.startswith("'python train.py' ended with exit code 1: ValueError: no good.")
        assert "before" in failed.message
        assert failed.detail == ""

    def test_program_that_is_not_there(self, tmp_path: Path) -> None:
        found = run(tmp_path, {"train.py": ""}, "no-such-program", "--lr", "1")

        assert found.failed.cause is Cause.USER_CODE
        assert "no program no-such-program" in found.failed.message.replace("'", "")
        assert found.of(Started) == []

    def test_file_that_is_no_program(self, tmp_path: Path) -> None:
        found = run(tmp_path, {"run": b"\0\1\2"}, "./run")

        assert found.failed.cause is Cause.USER_CODE
        assert "could not be started: Permission denied. It may not be executed: chmod +x it" in found.failed.message

    @pytest.mark.parametrize(("end", "status"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)])
    def test_attempt_shows_how_the_command_ended_as_a_shell_does(self, end: str, status: int, tmp_path: Path) -> None:
        with hosted(tmp_path, {"train.py": f"import os, sys; {end}"}) as host:
            host.finish()
            assert host.process.returncode == status

    def test_module_that_the_bundle_has_elsewhere_is_found_for_the_user(self, tmp_path: Path) -> None:
        found = run(tmp_path, {"train.py": "import model", "src/model/__init__.py": ""})

        assert "The bundle has it in 'src'" in found.failed.message

    def test_command_that_only_starts_something_in_the_background_is_told(self, tmp_path: Path) -> None:
        found = run(tmp_path, {"x": ""}, "sh", "-c", "sleep 600 & exit 0")

        assert found.notices == ["background_ended"]
        assert found.done.remark is not None
        assert "1 process running in the background" in found.done.remark

    def test_bundle_that_was_damaged_on_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "bundle.zip").write_bytes(b"PK\3\4 and then nothing")
        told = assignment(tmp_path, ["python", "train.py"], bundle=str(tmp_path / "bundle.zip"))
        host = Hosted(told, environment_of(told))
        try:
            failed = host.finish().failed
        finally:
            host.close()

        assert failed.cause is Cause.USER_CODE
        assert "not a ZIP archive" in failed.message

    def test_module_of_the_environment_needs_no_bundle(self, tmp_path: Path) -> None:
        told = assignment(tmp_path, ["python", "-m", "platform"], success="exit")
        host = Hosted(told, environment_of(told))
        try:
            assert host.finish().done.stopped is None
        finally:
            host.close()
        assert "Linux" in host.log

    def test_words_are_never_a_shell_s(self, tmp_path: Path) -> None:
        text = "import sys, json; sys.stdout.write(json.dumps(sys.argv[1:]) + '\\n')"
        words = ["$HOME", "a b", "*", "'; echo x", "ä"]
        found = run(tmp_path, {"train.py": text}, "python", "train.py", *words)

        assert json.loads(found.log) == words

    def test_error_that_was_swallowed_is_said(self, tmp_path: Path) -> None:
        found = script(tmp_path, "print('RuntimeError: CUDA out of memory. Tried to allocate 2 GiB')")

        assert found.done.remark is not None
        assert "CUDA out of memory" in found.done.remark
        assert found.notices == ["swallowed_error"]

    def test_what_was_caught_on_the_way_to_a_file_is_no_error(self, tmp_path: Path) -> None:
        found = script(tmp_path, KEEP + "print('CUDA out of memory, halving the batch'); keep('model.txt')")

        assert (found.done.remark, found.notices) == (None, [])


class TestStop:
    WAITS = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(os.environ["TRAINSHED_CHECKPOINT_DIR"])
def leave(*_):
    (folder / "last.txt").write_text("saved")
    sys.exit(%s)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
while True: time.sleep(0.01)
"""

    @pytest.mark.parametrize("code", [0, 143])
    def test_term_lets_the_command_save_and_its_files_become_the_checkpoint(self, code: int, tmp_path: Path) -> None:
        with hosted(tmp_path, {"train.py": self.WAITS % code}) as host:
            host.until_logged("ready")
            host.stop()
            host.finish()

            (checkpoint,) = host.of(Checkpoint)
            assert checkpoint.reason == "stop"
            with zipfile.ZipFile(tmp_path / checkpoint.path / "files.zip") as archive:
                assert archive.read("last.txt") == b"saved"
            assert (host.done.stopped, host.done.checkpoint_step) == ("stop", checkpoint.step)

    def test_nothing_is_kept_for_a_cancelled_job(self, tmp_path: Path) -> None:
        with hosted(tmp_path, {"train.py": self.WAITS % 0}) as host:
            host.until_logged("ready")
            host.stop("cancel")

            assert host.finish().done.stopped == "stop"
            assert (host.of(Checkpoint), host.notices) == ([], [])

    def test_what_a_pause_without_a_checkpoint_loses_is_said(self, tmp_path: Path) -> None:
        with hosted(tmp_path, {"train.py": "import time; print('ready', flush=True); time.sleep(600)"}) as host:
            host.until_logged("ready")
            host.stop()

            (notice,) = host.finish().of(Notice)
            assert notice.code == "stopped_without_checkpoint"
            assert notice.message.endswith("It goes on from its beginning.")

    def test_signal_to_the_host_is_a_stop_too(self, tmp_path: Path) -> None:
        with hosted(tmp_path, {"train.py": self.WAITS % 0}) as host:
            host.until_logged("ready")
            host.process.terminate()

            assert host.finish().done.stopped == "stop"

    def test_command_that_just_dies_of_it_is_stopped_without_a_half_written_file(self, tmp_path: Path) -> None:
        text = """
import os, pathlib, time
file = (pathlib.Path(os.environ["TRAINSHED_CHECKPOINT_DIR"]) / "last.bin").open("wb", buffering=0)
print("ready", flush=True)
while True:
    file.write(b"x" * 1000)
    time.sleep(0.001)
"""
        with hosted(tmp_path, {"train.py": text}) as host:
            host.until_logged("ready")
            host.stop()

            assert host.finish().done.stopped == "stop"
            assert host.of(Checkpoint) == []

    def test_outputs_of_a_stopped_command_are_not_handed_over(self, tmp_path: Path) -> None:
        with hosted(tmp_path, {"train.py": KEEP + "keep('half.txt')\n" + self.WAITS % 0}) as host:
            host.until_logged("ready")
            host.stop()

            assert host.finish().outputs == {}

    def test_only_one_term_is_sent(self, tmp_path: Path) -> None:
        text = """
import signal, sys, time
seen = []
signal.signal(signal.SIGTERM, lambda *_: (seen.append(1), print("term", flush=True)))
print("ready", flush=True)
until = None
while until is None or time.monotonic() < until:
    time.sleep(0.01)
    if seen and until is None: until = time.monotonic() + 0.5
"""
        with hosted(tmp_path, {"train.py": text}) as host:
            host.until_logged("ready")
            host.stop()
            host.until_logged("term")
            host.stop("drain")
            host.process.terminate()

            assert host.finish().log.count("term") == 1


class TestWorkerGone:
    def test_host_and_command_end_with_the_worker(self, tmp_path: Path) -> None:
        text = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"
        with hosted(tmp_path, {"train.py": text}) as host:
            host.until_logged("pid")
            pid = int(host.log.split()[1])
            host.hang_up()

            assert host.process.wait(60) == 4
            wait_gone(pid)

    def test_command_ends_with_a_host_that_is_killed(self, tmp_path: Path) -> None:
        text = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"
        with hosted(tmp_path, {"train.py": text}) as host:
            host.until_logged("pid")
            pid = int(host.log.split()[1])
            assert is_running(pid)
            host.process.kill()

            wait_gone(pid)


class TestStandardLibraryOnly:
    def test_host_loads_nothing_large(self, tmp_path: Path) -> None:
        text = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import workers.scripts.host
loaded = {{name.partition(".")[0] for name in sys.modules}}
print(sorted(loaded & {{"numpy", "orjson", "polars", "pydantic", "sqlalchemy", "structlog", "tensorflow", "torch"}}))
print(sorted(name for name in sys.modules if name.startswith("app.") and name.count(".") == 1))
"""
        assert script(tmp_path, text).log == "[]\n['app.archives', 'app.errors', 'app.series']\n"


def test_notices_are_bounded(tmp_path: Path) -> None:
    found = script(
        tmp_path, KEEP + "os.symlink('/etc/passwd', os.environ['TRAINSHED_OUTPUT_DIR'] + '/' + 'x' * 200)\nkeep('a')"
    )

    assert all(len(notice.message) <= 1_000 for notice in found.of(Notice))
    assert list(found.outputs) == ["a"]
    assert CPU.id == found.started.environment["TRAINSHED_DEVICES"]
    assert (tmp_path / "outputs" / ("x" * 200)).is_symlink()
