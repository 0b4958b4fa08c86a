"""The environment of a trainer: complete before its interpreter starts, and with nothing in it that is secret.

A variable set later has no effect: CUDA reads CUDA_VISIBLE_DEVICES once, and libraries read their thread limits when
they are loaded. So all of it is there at exec, and nothing else of the worker's own environment is.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from workers.fault_points import VARIABLE
from workers.protocol import Device

# What a trainer may know of the worker's environment: how to find programs and libraries, and how to write text.
# PYTHONPATH is not among them: it would mix the worker's packages into the framework's own environment.
ALLOWED: Final = frozenset(
    {
        "CUDA_HOME",
        "CUDA_PATH",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "LD_LIBRARY_PATH",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_VISIBLE_DEVICES",
        "PATH",
        "TMPDIR",
        "TZ",
        VARIABLE,  # where a test wants a trainer to be killed; otherwise it is not set
    }
)

# One thread until the trainer raises its own: a process with one thread is safe to fork.
ONE_THREAD: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

# Pools that start with their first use, so their size can be pinned at exec.
POOLS: Final = ("POLARS_MAX_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")

FRAMEWORK: Final[Mapping[str, Mapping[str, str]]] = {
    # OpenMP's threads sleep while they wait instead of spinning: two threads beside two busy neighbours on two cores
    # were measured 30 times faster so, and 10 times on a nearly idle machine (docs/decisions/0009).
    "torch": {"OMP_WAIT_POLICY": "PASSIVE"},
    "tensorflow": {
        "KERAS_BACKEND": "tensorflow",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_CPP_MIN_LOG_LEVEL": "1",  # without notes on how TensorFlow was built
    },
}


def visible_devices(devices: Iterable[Device]) -> str:
    """What CUDA_VISIBLE_DEVICES must be: ids, never indices, and empty (hiding all) when there is only the CPU.

    Simulated devices are named too, so that a test without a card sees what a card would get.
    """
    return ",".join(device.id for device in devices if device.kind != "cpu")


def trainer_environment(
    devices: Iterable[Device], threads: int, work_dir: Path, base: Mapping[str, str]
) -> dict[str, str]:
    """Build the environment that both frameworks share; `base` is the worker's own.

    The home is the work directory: caches and settings of a user do not leak into a job, and a job's not out of it.
    """
    return {
        **{name: base[name] for name in sorted(ALLOWED & base.keys())},
        "HOME": str(work_dir),
        "CUDA_VISIBLE_DEVICES": visible_devices(devices),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        **dict.fromkeys(ONE_THREAD, "1"),
        **dict.fromkeys(POOLS, str(threads)),
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",  # whatever LANG says: the log and model.json hold names in any script
        "PYTHONNOUSERSITE": "1",
    }


def framework_environment(framework: str) -> Mapping[str, str]:
    """What one framework needs besides; memory growth by environment, since a call comes after the devices' start."""
    return FRAMEWORK.get(framework, {})
