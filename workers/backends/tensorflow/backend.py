"""TensorFlow as a backend: devices, threads, errors."""

import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from app.errors import Cause
from workers.backends.base import Backend, Prepared, Program, Session
from workers.backends.devices import arithmetic, require
from workers.backends.initial import Weights
from workers.backends.tensorflow.framework import tf
from workers.backends.tensorflow.session import TensorFlowSession
from workers.data.arrays import Arrays
from workers.data.split import PartName
from workers.protocol import Device

_MESSAGES: Final = (
    ("CUBLAS_STATUS_ALLOC_FAILED", Cause.DEVICE_OUT_OF_MEMORY),
    ("CUDA_ERROR_OUT_OF_MEMORY", Cause.DEVICE_OUT_OF_MEMORY),
    ("uncorrectable ECC error", Cause.DEVICE_FAULT),
    ("CUDA_ERROR_ECC_UNCORRECTABLE", Cause.DEVICE_FAULT),
)
"""Texts of other errors; only what names the hardware is a device's fault, since that quarantines it."""


class TensorFlowBackend:
    """See `workers.backends.base.Backend`."""

    def __init__(self) -> None:
        self._kind = "cpu"

    def prepare(self, devices: Sequence[Device], threads: int) -> Prepared:
        """See `base.Backend`. Cards are listed here and nowhere else.

        Their memory grows as it is needed because of TF_FORCE_GPU_ALLOW_GROWTH, set when the process was started: a
        call could come too late, since listing devices may already start them.
        """
        _set_threads(threads)
        kind = arithmetic(devices)
        names = tuple(device.name for device in devices)
        if kind == "cuda":
            cards = tf.config.list_physical_devices("GPU")
            require(devices, [None] * len(cards), "TensorFlow")
            names = tuple(str(tf.config.experimental.get_device_details(card).get("device_name")) for card in cards)
            tf.config.experimental.enable_tensor_float_32_execution(False)  # noqa: FBT003 - float32 means float32
        else:
            tf.config.set_visible_devices([], "GPU")
            _cut_cpu(len(devices))
        self._kind = kind
        return Prepared(
            framework="tensorflow",
            version=str(tf.__version__),
            device_kind=kind,
            devices=names,
            simulated=any(device.kind == "simulated" for device in devices),
            threads=threads,
        )

    def open(self, program: Program, weights: Weights, parts: Mapping[PartName, Arrays]) -> Session:
        if program.module is None:
            return TensorFlowSession(program, weights, parts, self._kind)
        # By name: it imports Keras, which takes a second and which no model of ours needs.
        found = importlib.import_module("workers.backends.tensorflow.user_session")
        session: Session = found.UserTensorFlowSession(program, program.module, parts, self.cause_of)
        return session

    def versions(self) -> dict[str, str]:
        """See `base.Backend`. NCCL is linked into TensorFlow, which does not tell its version."""
        built: Mapping[str, Any] = tf.sysconfig.get_build_info()
        found = {name: str(built[f"{name}_version"]) for name in ("cuda", "cudnn") if f"{name}_version" in built}
        return {"tensorflow": str(tf.__version__), **found}

    def cause_of(self, error: BaseException) -> Cause | None:
        if isinstance(error, tf.errors.ResourceExhaustedError):
            host = self._kind == "cpu" or "device:CPU" in str(error)
            return Cause.HOST_OUT_OF_MEMORY if host else Cause.DEVICE_OUT_OF_MEMORY
        if isinstance(error, tf.errors.OpError):
            return next((cause for text, cause in _MESSAGES if text in str(error)), None)
        return None


def _set_threads(threads: int) -> None:
    """Fix the sizes of both pools; TensorFlow refuses a change after its first op, not the same number again."""
    settings: Any = tf.config.threading
    if settings.get_intra_op_parallelism_threads() != threads:
        settings.set_intra_op_parallelism_threads(threads)
    if settings.get_inter_op_parallelism_threads() != threads:
        settings.set_inter_op_parallelism_threads(threads)


def _cut_cpu(count: int) -> None:
    """Make as many logical CPU devices as were leased; they share the pool of threads.

    Only before TensorFlow's first op. Where that has been, as in the process of a test, what there is stays, and
    opening a session on more devices is refused (see `group`).
    """
    (cpu,) = tf.config.list_physical_devices("CPU")
    if count > len(tf.config.get_logical_device_configuration(cpu) or [cpu]):
        with suppress(RuntimeError):
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)


def create() -> Backend:
    return TensorFlowBackend()
