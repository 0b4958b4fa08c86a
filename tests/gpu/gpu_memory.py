"""A job takes the memory that it needs, says so when there is too little, and gives all of it back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.gpu.attempts import LONG, until
from tests.gpu.cards import MIB, Card, used_bytes
from tests.gpu.conftest import Train
from tests.workers.launcher.attempt import ROOT

GIB = 1024 * MIB
NOISE = 64 * MIB
ROOM = 2 * GIB
"""What is left beside a process that fills the card: enough for a start, too little for the model below."""
LARGE = {"type": "mlp", "hidden": [8192] * 5}
"""Four matrices of 8192 x 8192: 1 GiB of weights, as much of gradients, and twice that for Adam."""
_LIMIT_S = 60.0

_FILL = {
    "torch": """
import torch
held = torch.empty({mib} << 20, dtype=torch.uint8, device='cuda')
torch.cuda.synchronize()
""",
    # Not one large tensor: memory that grows is taken in ever larger pieces, so how much is left would be chance.
    "tensorflow": """
import tensorflow as tf
card = tf.config.list_physical_devices('GPU')[0]
tf.config.set_logical_device_configuration(card, [tf.config.LogicalDeviceConfiguration(memory_limit={mib})])
with tf.device('/GPU:0'):
    tf.zeros(1).numpy()
""",
}
_WAIT = "\nprint('full', flush=True)\nimport sys; sys.stdin.read()"


def eventually(condition: Callable[[], bool]) -> bool:
    give_up = time.monotonic() + _LIMIT_S
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.2)
    return True


@contextmanager
def filled(framework: str, card: Card, room: int) -> Iterator[None]:
    """Another process holds the card's memory, all but so much."""
    free = card.memory_bytes - used_bytes(card)
    code = _FILL[framework].format(mib=(free - room - GIB) // MIB) + _WAIT
    environment = {**os.environ, "TF_FORCE_GPU_ALLOW_GROWTH": "false", "CUDA_VISIBLE_DEVICES": card.id}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"full\n"
        yield
        process.kill()


class TestGrowth:
    def test_small_job_leaves_most_of_the_card_free(self, train: Train, card: Card) -> None:
        # TensorFlow takes nearly all of a card unless its memory is told to grow (tensorflow.org/guide/gpu).
        before = used_bytes(card)
        attempt = train(card, epochs=LONG)
        until(attempt, "report", "failed")
        taken = used_bytes(card) - before

        assert 0 < taken < card.memory_bytes / 4


class TestGivenBack:
    def test_after_a_good_end(self, train: Train, card: Card) -> None:
        before = used_bytes(card)
        attempt = train(card)
        assert until(attempt, "done", "failed")[-1]["type"] == "done"
        assert attempt.ended().code == 0

        assert eventually(lambda: used_bytes(card) - before < NOISE)

    def test_after_a_kill(self, train: Train, card: Card) -> None:
        before = used_bytes(card)
        attempt = train(card, epochs=LONG)
        until(attempt, "report", "failed")
        held = used_bytes(card) - before
        attempt.run.stop(signal.SIGKILL)
        assert attempt.ended().signal == signal.SIGKILL

        assert held > NOISE
        assert eventually(lambda: used_bytes(card) - before < NOISE)


class TestOutOfMemory:
    def test_cause_is_the_devices_memory_and_the_message_helps(self, train: Train, framework: str, card: Card) -> None:
        if card.memory_bytes < 8 * GIB:
            pytest.skip("needs a card of 8 GiB or more")
        with filled(framework, card, ROOM):
            attempt = train(card, model=LARGE, batch_size=256)
            failed = until(attempt, "done", "failed")[-1]

        assert (failed["type"], failed["cause"]) == ("failed", "device_out_of_memory")
        assert "hyperparameters.batch_size" in failed["message"]

    def test_the_same_job_trains_when_there_is_room(self, train: Train, card: Card) -> None:
        if card.memory_bytes - used_bytes(card) < 12 * GIB:
            pytest.skip("needs 12 GiB of free memory on the card")
        said = until(train(card, model=LARGE, batch_size=256, epochs=1), "done", "failed")

        assert said[-1]["type"] == "done", said[-1]
