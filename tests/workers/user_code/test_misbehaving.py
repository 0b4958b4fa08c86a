"""Code of users that fails, hangs, lies or attacks while it answers: the reason is told, and nothing of it is left."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.workers.eventually import eventually
from tests.workers.user_code.conftest import Asker
from tests.workers.user_code.models import ROWS
from workers.predictor_handle import PredictionRefused, PredictorGone

LINEAR = """
import os, signal, socket, sys, time
import torch
from torch import nn

class Net(nn.Linear):
    tried = 0

    def forward(self, x):
        self.tried += 1
        if self.tried > 1:  # the first time is a trial with zeros
            act()
        return super().forward(x)

def build(*, input_shape, output_units):
    return Net(*input_shape, output_units)

def messages():
    # The socket over which the process answers.
    for number in range(3, 100):
        path = f"/proc/self/fd/{number}"
        if os.path.lexists(path) and os.readlink(path).startswith("socket:"):
            return number

def act():
    {act}
"""


def acting(act: str) -> str:
    """The linear model, which does this when it answers."""
    return LINEAR.replace("{act}", act)


def refusal(asker: Asker, source: str, timeout_s: float = 120.0) -> str:
    """Why the model gave no answer; its code is at fault, and nothing of it is left."""
    saved = asker.write(source)
    with pytest.raises(PredictionRefused) as caught:
        asker.ask(saved, ROWS, timeout_s)
    assert caught.value.code == "user_code"
    return str(caught.value)


class TestWhenItIsLoaded:
    @pytest.mark.parametrize(
        ("source", "reason"),
        [
            pytest.param("def build(): raise ValueError('seven')", "ValueError: seven", id="exception"),
            pytest.param("import os\ndef build(): os._exit(7)", "exit code 7", id="end of the process"),
            pytest.param("import os\ndef build(): os.kill(os.getpid(), 9)", "SIGKILL", id="signal"),
            pytest.param(
                "from torch import nn\ndef build(): return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3))",
                "not the one whose weights were saved",
                id="another model",
            ),
        ],
    )
    def test_the_reason_is_told_and_nothing_is_left(self, asker: Asker, source: str, reason: str) -> None:
        assert reason in refusal(asker, source)
        assert asker.left() == []

    @pytest.mark.parametrize("filled", ["torch.zeros(1 << 40)", "bytearray(1 << 40)"])
    def test_too_much_memory_is_not_blamed_on_the_rows(self, asker: Asker, filled: str) -> None:
        said = refusal(asker, f"import torch\ndef build(): {filled}")
        assert said == "To be built, the model needs more memory than the 4.0 GiB that it may use."
        assert asker.left() == []

    def test_one_that_never_comes_back(self, make_asker: Callable[..., Asker]) -> None:
        asker = make_asker(load_s=6.0)
        assert "longer than" in refusal(asker, "def build():\n    while True: pass")
        assert asker.left() == []


class TestWhenItAnswers:
    @pytest.mark.parametrize(
        ("act", "reason"),
        [
            pytest.param("raise KeyError('weather')", "KeyError: 'weather'", id="exception"),
            pytest.param("sys.exit(3)", "SystemExit", id="exit"),
            pytest.param("raise KeyboardInterrupt", "ended the process: KeyboardInterrupt", id="interrupt"),
        ],
    )
    def test_an_error_is_an_answer(self, asker: Asker, act: str, reason: str) -> None:
        assert reason in refusal(asker, acting(act))
        assert len(asker.left()) == 1, "the process is kept"

    @pytest.mark.parametrize(
        ("act", "reason"),
        [
            pytest.param("os._exit(7)", "exit code 7", id="end of the process"),
            pytest.param("os.kill(os.getpid(), 9)", "SIGKILL", id="signal"),
            pytest.param("os.closerange(3, 100); os._exit(0)", "exit code 0", id="closed socket"),
            pytest.param("os.write(messages(), b'{}\\n{}\\n')", "It said more than it was asked", id="two lines"),
            pytest.param(
                "os.write(messages(), b'{}\\n'); time.sleep(1000)",
                "It did not answer each row once",
                id="words of its own",
            ),
        ],
    )
    def test_the_reason_is_told_and_nothing_is_left(self, asker: Asker, act: str, reason: str) -> None:
        assert reason in refusal(asker, acting(act))
        assert asker.left() == []

    def test_its_last_output_is_told(self, asker: Asker) -> None:
        said = refusal(asker, acting("print('so long'); os._exit(1)"))
        assert "It left with exit code 1. Its last output: so long" in said

    def test_one_that_never_comes_back(self, make_asker: Callable[..., Asker]) -> None:
        asker = make_asker(answer_s=1.0)
        assert "longer than 1 s" in refusal(asker, acting("while True: pass"))
        assert asker.left() == []

    def test_one_that_prints_without_end_is_read_without_growing(self, make_asker: Callable[..., Asker]) -> None:
        asker = make_asker(answer_s=1.5)
        said = refusal(asker, acting("while True: os.write(1, b'x' * 65536)"))
        assert "longer than" in said
        assert len(said) < 3_000

    def test_an_answer_without_end_is_not_kept(self, asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("workers.user_predictor_handle.MOST_BYTES", 1_000_000)
        act = "where = messages()\n    while True: os.write(where, b'x' * 65536)"
        assert "more than 1000000 bytes" in refusal(asker, acting(act))

    def test_one_that_wants_all_memory(self, asker: Asker) -> None:
        saved = asker.write(acting("torch.zeros(1 << 40)"))
        with pytest.raises(PredictionRefused) as caught:
            asker.ask(saved, ROWS)
        assert caught.value.code == "too_large"
        assert "memory" in str(caught.value)

    def test_others_wait_no_longer_than_they_may_and_a_stop_ends_what_is_under_way(self, asker: Asker) -> None:
        saved = asker.write(acting("open('up', 'w').close(); time.sleep(1000)"))
        work = asker.launch.run_dir / "work"
        with ThreadPoolExecutor(1) as thread:
            asked = thread.submit(asker.ask, saved, ROWS)
            eventually(lambda: bool(list(work.glob("*/up"))), "it answers")
            with pytest.raises(PredictorGone, match=r"Other predictions with this model took the whole time of 0.1 s"):
                asker.ask(saved, ROWS, 0.1)
            asker.pool.stop()
            with pytest.raises(PredictorGone):
                asked.result()
        assert asker.left() == []


class TestWhatItMay:
    @pytest.mark.parametrize(
        ("act", "reason"),
        [
            pytest.param("socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", "PermissionError", id="network"),
            pytest.param("f = open('large', 'wb'); f.truncate(1 << 40)", "File too large", id="a file of holes"),
        ],
    )
    def test_what_it_tries_is_refused(self, asker: Asker, act: str, reason: str) -> None:
        assert reason in refusal(asker, acting(act))

    def test_it_has_nothing_of_the_workers_environment(
        self, make_asker: Callable[..., Asker], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRAINSHED_DATABASE_URL", "sqlite:///secret.db")
        monkeypatch.setenv("HUB_TOKEN", "hf_1")
        act = "raise ValueError('found', {'TRAINSHED_DATABASE_URL', 'HUB_TOKEN'} & set(os.environ))"

        assert "ValueError: ('found', set())" in refusal(make_asker(), acting(act))

    def test_children_that_leave_its_session_end_with_it(self, asker: Asker) -> None:
        act = (
            "pid = os.fork()\n"
            "    if pid == 0:\n"
            "        os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "        if os.fork() == 0:\n"
            "            open('pid', 'w').write(str(os.getpid())); time.sleep(1000)\n"
            "        os._exit(0)\n"
            "    os.waitpid(pid, 0)\n"
            "    while not os.path.exists('pid') or not open('pid').read(): time.sleep(0.01)\n"
            "    raise ValueError('child ' + open('pid').read())"
        )
        said = refusal(asker, acting(act))
        pid = int(said.partition("child ")[2].split()[0])
        assert _is_there(pid)
        asker.pool.stop()
        eventually(lambda: not _is_there(pid), "the child has ended")


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
