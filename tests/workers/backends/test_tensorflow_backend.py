"""TensorFlow and devices: what it is asked about them, where, and what happens when they are not there. Case C20."""

import re
from pathlib import Path

import pytest

from tests.workers.backends.sessions import CPU
from workers.backends.base import DeviceUnavailable, load_backend
from workers.backends.tensorflow.framework import tf
from workers.environment import framework_environment
from workers.protocol import Device

ROOT = Path(__file__).parents[3]
CARDS = [Device(id=f"GPU-{place}", kind="cuda", name="Card") for place in range(2)]


def places_of(pattern: str) -> set[str]:
    """Return the source files that hold a pattern."""
    return {
        str(path.relative_to(ROOT))
        for folder in ("app", "workers")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(pattern, path.read_text())
    }


class TestMemory:
    def test_growth_is_asked_for_by_environment_and_never_by_a_call(self) -> None:
        assert framework_environment("tensorflow")["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
        assert "TF_FORCE_GPU_ALLOW_GROWTH" not in framework_environment("torch")
        assert places_of(r"set_memory_growth|GPUOptions|per_process_gpu_memory_fraction") == set()

    def test_devices_are_listed_in_the_trainer_alone(self) -> None:
        # Before a session there is one place, after it another, which counts what was started.
        # The doctor asks in a child of its own.
        assert places_of(r"list_physical_devices") == {
            "workers/backends/tensorflow/backend.py",
            "app/cli/doctor/frameworks.py",
        }
        assert places_of(r"list_logical_devices") == {"workers/backends/tensorflow/group.py"}


class TestPrepare:
    def test_cards_that_tensorflow_does_not_see_are_refused(self) -> None:
        if tf.config.list_physical_devices("GPU"):
            pytest.skip("this machine has cards")

        with pytest.raises(DeviceUnavailable, match="The job holds 2 CUDA devices, but TensorFlow sees no CUDA"):
            load_backend("tensorflow").prepare(CARDS, 1)

    def test_more_devices_after_the_first_op_leave_what_there_is(self) -> None:
        # Only a test comes here twice; opening a session on devices that are not there is refused.
        before = len(tf.config.list_logical_devices("CPU"))

        load_backend("tensorflow").prepare([CPU] * (before + 1), 1)

        assert len(tf.config.list_logical_devices("CPU")) == before


class TestVersions:
    def test_name_the_framework_and_no_cuda_in_a_build_without(self) -> None:
        versions = load_backend("tensorflow").versions()

        assert versions["tensorflow"] == tf.__version__
        assert ("cuda" in versions) == tf.test.is_built_with_cuda()
