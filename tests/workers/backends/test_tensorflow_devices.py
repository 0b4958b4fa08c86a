"""Several devices train as one does: a MirroredStrategy over logical CPU devices, in a process of its own.

One process trains everything, since it takes seconds to start one; its normal exit is part of the test.
"""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from workers.environment import framework_environment

ROOT = Path(__file__).parents[3]


@functools.cache
def outcome() -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-m", "tests.workers.backends.tensorflow_models"],
        cwd=ROOT,
        env={**os.environ, **framework_environment("tensorflow")},  # with growth asked for where there is no card (C20)
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def curves(name: str) -> dict[int, NDArray[np.float64]]:
    return {int(count): np.array(values) for count, values in outcome()[name].items()}


class TestCurves:
    """With batch norm, dropout, clipping and class weights, and a last batch that does not divide."""

    @pytest.mark.parametrize("devices", [2, 3, 4])
    def test_float64_agrees_with_one_device(self, devices: int) -> None:
        # On four devices the last batch of 3 rows leaves one of them without any.
        found = curves("pictures")

        assert_allclose(found[devices], found[1], rtol=1e-9, atol=1e-9)

    def test_float32_agrees_too(self) -> None:
        found = curves("pictures in float32")

        assert_allclose(found[2], found[1], rtol=1e-3, atol=1e-3)

    def test_a_last_batch_of_one_row_leaves_a_device_without_and_changes_nothing(self) -> None:
        # Case C32: 33 rows, batches of 16, two devices.
        found = curves("sequences")

        assert np.isfinite(found[2]).all()
        assert_allclose(found[2], found[1], rtol=1e-9, atol=1e-9)

    def test_float16_stays_finite_and_close_to_float32(self) -> None:
        half, full = curves("pictures in float16")[2], curves("pictures in float32")[1]

        # The epochs' loss sums over 35 rows; 2 % is what products of 11 bits leave.
        assert_allclose(half[:1], full[:1], rtol=0.02)
        assert np.isfinite(half).all()


class TestDevices:
    def test_all_that_were_leased_are_named(self) -> None:
        assert outcome()["devices"] == ["CPU"] * 4

    def test_every_device_holds_the_same_bits(self) -> None:
        assert outcome()["in step"] is True

    def test_a_session_goes_on_bit_by_bit_in_another(self) -> None:
        assert outcome()["goes on"] is True

    def test_more_devices_than_the_process_was_started_with_are_refused(self) -> None:
        assert outcome()["refused"] == (
            "The job holds 5 devices, and TensorFlow was started with 4 of kind CPU. Nothing was trained."
        )


class TestOutputs:
    def test_each_row_comes_once_and_in_order_however_the_part_is_cut(self) -> None:
        whole, pieces, none = outcome()["looked"]

        assert len(whole) == 11 * 3
        assert_allclose(pieces, whole, rtol=1e-12)
        assert none == [0, 3]
