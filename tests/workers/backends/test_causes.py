"""The frameworks' own errors, raised for real where that is cheap, and told apart."""

import pytest
import torch

from app.errors import Cause
from tests.workers.backends.sessions import CPU
from workers.backends.base import Backend, load_backend
from workers.backends.tensorflow.framework import tf

TOO_MUCH = 1 << 44
"""16 TiB of bytes: refused at once, without touching any memory."""


def prepared(name: str) -> Backend:
    backend = load_backend(name)
    backend.prepare([CPU], 1)
    return backend


class TestHostOutOfMemory:
    def test_torch(self) -> None:
        with pytest.raises(RuntimeError) as caught:
            torch.empty(TOO_MUCH, dtype=torch.uint8)

        assert prepared("torch").cause_of(caught.value) == Cause.HOST_OUT_OF_MEMORY

    def test_tensorflow(self) -> None:
        # The text of a real one, which takes TensorFlow ten seconds of waiting to raise.
        text = "OOM when allocating tensor with shape[16384] on /job:localhost/replica:0/task:0/device:CPU:0 by cpu"

        assert prepared("tensorflow").cause_of(tf.errors.ResourceExhaustedError(None, None, text)) == (
            Cause.HOST_OUT_OF_MEMORY
        )


class TestTorchOnACard:
    @pytest.mark.parametrize(
        ("error", "cause"),
        [
            (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), Cause.DEVICE_OUT_OF_MEMORY),
            (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), Cause.DEVICE_OUT_OF_MEMORY),
            (RuntimeError("CUDA error: uncorrectable ECC error encountered"), Cause.DEVICE_FAULT),
            (RuntimeError("CUDA error: device-side assert triggered"), None),
        ],
    )
    def test_message_decides(self, error: RuntimeError, cause: Cause | None) -> None:
        assert prepared("torch").cause_of(error) == cause


class TestTensorFlowOnACard:
    @pytest.mark.parametrize(
        ("message", "cause"),
        [
            ("OOM when allocating tensor on /job:localhost/replica:0/task:0/device:GPU:0", Cause.DEVICE_OUT_OF_MEMORY),
            ("OOM when allocating tensor on /job:localhost/replica:0/task:0/device:CPU:0", Cause.HOST_OUT_OF_MEMORY),
        ],
    )
    def test_exhausted_device_is_named_in_the_message(
        self, message: str, cause: Cause, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backend = prepared("tensorflow")
        monkeypatch.setattr(backend, "_kind", "cuda")

        assert backend.cause_of(tf.errors.ResourceExhaustedError(None, None, message)) == cause

    @pytest.mark.parametrize(
        ("message", "cause"),
        [
            ("failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED", Cause.DEVICE_OUT_OF_MEMORY),
            ("CUDA_ERROR_ECC_UNCORRECTABLE", Cause.DEVICE_FAULT),
            ("Matrix size-incompatible", None),
        ],
    )
    def test_message_of_another_error_decides(self, message: str, cause: Cause | None) -> None:
        assert prepared("tensorflow").cause_of(tf.errors.InternalError(None, None, message)) == cause
