"""Code that fails, cheats or fights, over a real service: each ends with its right cause, and leaves nothing behind.

Cases C04, C05, C23 and C27, and point 2 of what this stage must show. After each the device is free, no process of the
job is left, and the next job runs.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.scripts import (
    artifacts,
    code_stack,
    detail,
    devices_are_free,
    ended,
    lines,
    notices,
    script,
    submit,
    upload,
)
from tests.e2e.stack import Json, Stack
from tests.e2e.test_fleet_faults import ANA, FIRST, Cards, until_state
from tests.e2e.test_fleet_faults import SETTINGS as CARD_SETTINGS

pytestmark = pytest.mark.slow

MARK = "sleeper-of-a-hostile-script"
"""What the processes that try to stay are called."""
MOST_PROCESSES = 64

GOOD = """
import os
open(os.path.join(os.environ["TRAINSHED_OUTPUT_DIR"], "model.txt"), "w").write("weights")
"""
SLEEPER = f"import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600) # {MARK}"
"""A process that ignores TERM."""
FIGHTER = f"""
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for leave in (False, True):
    if os.fork() == 0:
        if leave:
            os.setsid()
            if os.fork():
                os._exit(0)
        os.execv(sys.executable, [sys.executable, "-c", {SLEEPER!r}])
print("started", flush=True)
signal.pause()
while True:
    signal.pause()
"""
BOMB = """
import os, time
started = time.monotonic()
while time.monotonic() - started < 20:
    try:
        os.fork()
    except OSError:
        pass
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    settings = {
        "TRAINSHED_CODE_MAX_PROCESSES": str(MOST_PROCESSES),
        "TRAINSHED_CODE_MAX_FILE_BYTES": str(64 << 20),
        "TRAINSHED_STOP_GRACE_S": "2",
        "TRAINSHED_MAX_LOG_BYTES": str(1 << 20),
        "TRAINSHED_MAX_ARTIFACT_BYTES": str(16 << 20),
    }
    with code_stack(tmp_path_factory.mktemp("hostile") / "home", settings) as running:
        yield running


@pytest.fixture(autouse=True)
def _host_is_unharmed(stack: Stack) -> Iterator[None]:
    """After each test: nothing of it is left, the worker is the same one, and its device can be had."""
    worker = stack.pid("worker")
    yield
    stack.until(lambda: devices_are_free(stack), "the device is free")
    assert sleepers() == []
    assert stack.pid("worker") == worker
    work = stack.home.root / "run" / "work"
    stack.until(lambda: not list(work.iterdir()) or None, "its files are gone")


def sleepers() -> list[int]:
    """Processes of scripts that are left, wherever they have gone."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if MARK.encode() in command or b"train.py" in command:
                found.append(int(entry.name))
    return found


def cause(job: Json) -> tuple[str, str | None]:
    return job["state"], job["cause"]


class TestErrorsOfTheCode:
    def test_syntax_error(self, stack: Stack) -> None:
        job = ended(stack, "def broken(:\n")

        assert cause(job) == ("failed", "user_code")
        assert "SyntaxError" in detail(job)

    def test_missing_import_is_named_with_what_to_do(self, stack: Stack) -> None:
        job = ended(stack, "import a_module_that_nobody_has\n")

        assert cause(job) == ("failed", "user_code")
        assert "a_module_that_nobody_has" in detail(job)
        assert "requirements" in detail(job)

    def test_command_that_is_not_there(self, stack: Stack) -> None:
        job = stack.wait(stack.submit(script(None, "no-such-program-anywhere")))

        assert cause(job) == ("failed", "user_code")
        assert "no-such-program-anywhere" in detail(job)

    def test_exit_code_of_its_own(self, stack: Stack) -> None:
        job = ended(stack, "import sys; print('bad luck'); sys.exit(3)")

        assert cause(job) == ("failed", "user_code")
        assert "3" in detail(job)
        assert "bad luck" in detail(job)

    def test_endless_loop_ends_with_its_time(self, stack: Stack) -> None:
        job = ended(stack, "while True: pass", job={"timeout_s": 1})

        assert cause(job) == ("failed", "timed_out")


class TestProcesses:
    def test_children_that_fork_twice_and_ignore_term_end_with_a_cancel(self, stack: Stack) -> None:
        job_id = submit(stack, FIGHTER)
        stack.until(lambda: len(sleepers()) >= 3 or None, "the script and both children are up")
        stack.until(lambda: "started" in lines(stack, job_id) or None, "the script says that it has started")

        answer = stack.client.post(f"/v1/jobs/{job_id}/cancel")
        assert answer.json()["state"] == "running"
        assert answer.json()["stop_requested"] == "cancel"

        assert cause(stack.wait(job_id)) == ("cancelled", None)
        assert sleepers() == []

    def test_fork_bomb_is_kept_small_and_does_not_win(self, stack: Stack) -> None:
        """An ordinary user's is refused more processes, and goes on until its time is over; root's is killed."""
        job = ended(stack, BOMB, job={"timeout_s": 5})

        assert job["state"] == "failed"
        assert job["cause"] in ("timed_out", "user_code", "trainer_killed")

    def test_loader_workers_work(self, stack: Stack) -> None:
        """C04: a pool of processes inside a job, which a daemonic process of a queue may not have."""
        pool = "import multiprocessing, os, json\nif __name__ == '__main__':\n"
        pool += "    with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        pool += "        print(json.dumps({'sum': sum(pool.map(int, range(100)))}))\n"

        job = ended(stack, pool + f"    exec({GOOD!r})")

        assert cause(job) == ("succeeded", None)
        assert job["metrics"]["last"] == {"sum": 4950.0}

    def test_killed_main_process_takes_its_loaders_along(self, stack: Stack) -> None:
        """C23: SIGKILL to the user's main process alone, while two loader workers sleep."""
        source = "import os, subprocess, sys, time\nfor _ in range(2):\n"
        source += f"    subprocess.Popen([sys.executable, '-c', {SLEEPER!r}])\n"
        source += "print('pid', os.getpid(), flush=True)\ntime.sleep(600)"
        job_id = submit(stack, source)
        stack.until(lambda: len(sleepers()) >= 3 or None, "the script and its loaders are up")
        stack.until(lambda: lines(stack, job_id) or None, "its pid")
        (pid,) = [int(line.split()[1]) for line in lines(stack, job_id) if line.startswith("pid")]

        os.kill(pid, 9)

        job = stack.wait(job_id)
        assert cause(job) == ("failed", "trainer_killed")
        assert "SIGKILL" in detail(job)
        assert sleepers() == []


class TestFloods:
    def test_sparse_file_of_a_terabyte_is_refused(self, stack: Stack) -> None:
        job = ended(stack, "import os\nos.truncate(os.open('hole', os.O_CREAT | os.O_RDWR), 1 << 40)")

        assert cause(job) == ("failed", "user_code")
        assert "File too large" in detail(job)

    def test_outputs_larger_than_allowed_are_not_stored(self, stack: Stack) -> None:
        big = "import os\nopen(os.environ['TRAINSHED_OUTPUT_DIR'] + '/big', 'wb').truncate(20 << 20)"

        job = ended(stack, big)

        assert cause(job) == ("failed", "artifact_unreadable")
        assert artifacts(stack, job["id"]) == {}

    def test_a_hundred_megabytes_of_log_are_cut(self, stack: Stack) -> None:
        shout = "line = 'x' * 99 + chr(10)\nimport sys\nfor _ in range(1_000_000): sys.stdout.write(line)\n"

        job = ended(stack, shout + GOOD)

        assert cause(job) == ("succeeded", None)
        kept = sum(len(line) + 1 for line in lines(stack, job["id"]))
        assert 0 < kept <= 2 << 20
        assert "log_limit" in notices(stack, job["id"]), notices(stack, job["id"])

    def test_fifty_thousand_metric_lines_are_taken(self, stack: Stack) -> None:
        count = "import json\nfor n in range(50_000): print(json.dumps({'step': n, 'loss': n / 2}))\n"

        job = ended(stack, count + GOOD)

        assert cause(job) == ("succeeded", None)
        assert job["metrics"]["last"] == {"loss": 49_999 / 2}
        assert job["progress"]["step"] == 49_999
        (series,) = stack.client.get(f"/v1/jobs/{job['id']}/metrics").json()["data"]
        assert 0 < len(series["value"]) <= 1000, "thinned out for whoever looks"

    def test_metrics_that_are_no_numbers_are_kept_as_what_they_are(self, stack: Stack) -> None:
        job = ended(stack, "import json\nprint(json.dumps({'loss': float('nan'), 'best': float('inf')}))\n" + GOOD)

        assert cause(job) == ("succeeded", None)
        assert job["metrics"]["last"] == {"loss": "NaN", "best": "Infinity"}


class TestEnds:
    """C27: success needs proof, and each way to run out of memory is told from the others."""

    def test_memory_that_ran_out_and_exit_code_0_is_no_success(self, stack: Stack) -> None:
        job = ended(stack, "print('CUDA out of memory')")

        assert cause(job) == ("failed", "incomplete")
        assert "CUDA out of memory" in detail(job)

    def test_the_frameworks_own_error_is_the_devices_memory(self, stack: Stack) -> None:
        source = "class OutOfMemoryError(RuntimeError): __module__ = 'torch'\n"

        job = ended(stack, source + "raise OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 GiB')")

        assert cause(job) == ("failed", "device_out_of_memory")
        assert "batch" in job["message"]
        assert len(job["attempts"]) == 1

    def test_killed_by_signal_9(self, stack: Stack) -> None:
        job = ended(stack, "import os; os.kill(os.getpid(), 9)")

        assert cause(job) == ("failed", "trainer_killed")
        assert "SIGKILL" in detail(job)

    def test_partial_artifact_and_exit_code_0(self, stack: Stack) -> None:
        source = "import io, os, zipfile\npacked = io.BytesIO()\n"
        source += "with zipfile.ZipFile(packed, 'w') as archive: archive.writestr('weights', bytes(1000))\n"
        source += "open(os.environ['TRAINSHED_OUTPUT_DIR'] + '/model.zip', 'wb').write(packed.getvalue()[:500])"

        job = ended(stack, source)

        assert cause(job) == ("failed", "artifact_unreadable")
        assert "model.zip" in detail(job)

    def test_nothing_left_is_no_success_unless_the_exit_code_is_to_be_enough(self, stack: Stack) -> None:
        assert cause(ended(stack, "pass")) == ("failed", "incomplete")
        assert cause(ended(stack, "pass", success="exit")) == ("succeeded", None)

    def test_good_script_works_after_all_of_it(self, stack: Stack) -> None:
        job = ended(stack, GOOD)

        assert cause(job) == ("succeeded", None)
        assert artifacts(stack, job["id"]) == {"model.txt": b"weights"}


class TestReach:
    """What a script can touch of the service that runs it, when both are the same user."""

    def test_neither_the_worker_nor_its_servers(self, stack: Stack) -> None:
        worker, port = stack.pid("worker"), stack.client.base_url.port
        source = f"""
import errno, json, os, socket
def tried(work):
    try:
        work()
    except OSError as error:
        return errno.errorcode[error.errno]
print("tried", json.dumps([
    tried(lambda: os.kill({worker}, 9)),
    tried(lambda: open("/proc/{worker}/environ", "rb").read()),
    tried(lambda: socket.create_connection(("127.0.0.1", {port}), 5)),
    sorted(name for name in os.environ if "REDIS" in name or "DATABASE" in name or "BROKER" in name or "KEY" in name),
]))
"""
        job = ended(stack, source + GOOD)

        (said,) = [line for line in lines(stack, job["id"]) if line.startswith("tried")]
        killed, read, connected, secrets = json.loads(said.removeprefix("tried"))
        assert read == "EACCES"
        assert connected in ("ECONNREFUSED", "EPERM", "ENETUNREACH")
        assert secrets == []
        assert killed in ("EPERM", None)


def test_wrong_entrypoint_of_a_model_names_what_there_is(stack: Stack) -> None:
    spec = {
        "framework": "torch",
        "model": {
            "type": "python",
            "bundle": upload(stack, {"nets.py": "def build():\n    return None\n"}),
            "entrypoint": "nets:make",
        },
        "data": "iris",
        "hyperparameters": {"epochs": 1},
        "device_type": "cpu",
    }

    job = stack.wait(stack.submit(spec))

    assert cause(job) == ("failed", "user_code")
    assert "build" in detail(job)


class TestBusyDevice:
    """C23, on a simulated card: what a dead job leaves busy is not handed out before it is free."""

    def test_card_that_a_dead_script_leaves_busy_waits(self, tmp_path: Path) -> None:
        cards = Cards(tmp_path / "cards.json")
        settings = CARD_SETTINGS | {"TRAINSHED_SIMULATED_INVENTORY": str(cards.path)}
        on_card = {"device_type": "cuda"}
        with code_stack(tmp_path / "home", settings) as stack:
            job_id = submit(
                stack, "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)", job=on_card
            )
            stack.until(lambda: lines(stack, job_id) or None, "its pid")
            cards.plant(FIRST, processes=[ANA])
            stack.until(lambda: "foreign_process" in notices(stack, job_id) or None, "the process is seen")

            os.kill(int(lines(stack, job_id)[0].split()[1]), 9)

            assert cause(stack.wait(job_id)) == ("failed", "trainer_killed")
            until_state(stack, FIRST, "in_use_elsewhere")
            waiting = submit(stack, GOOD, job=on_card)
            stack.until(lambda: stack.job(waiting).get("waiting"), "why it waits")
            assert stack.job(waiting)["waiting"]["code"] == "devices_unavailable"
            cards.plant(FIRST, processes=[])
            assert cause(stack.wait(waiting)) == ("succeeded", None)
