"""The environment of the command, complete before it starts: what a script needs to know comes this way alone."""

import json
import os
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from workers.scripts.assignment import Job
from workers.scripts.folders import Folders

THREADS: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "LOKY_MAX_CPU_COUNT",
)
"""What libraries ask how many threads they may have."""
_HOST: Final = "127.0.0.1"
_LOOPBACK: Final = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME"), "lo")
"""The ranks meet on this host, which may have no other network at all."""
_LONGEST_TMP: Final = 107 - len("/torch-shm-dir-XXXXXX/manager.sock")
_FALLBACK_PORT: Final = 29_500


def environments(job: Job, folders: Folders, base: Mapping[str, str]) -> list[dict[str, str]]:
    """The environment of each rank; `base` is the host's own, which has nothing secret in it.

    What the spec says overrides what the host has and the number of threads, and nothing else.
    """
    common = {
        **base,
        **dict.fromkeys(THREADS, str(max(1, job.threads // job.ranks))),
        **job.variables,
        **_ours(job, folders, base),
    }
    if not job.per_device:
        return [common]
    ports = free_ports(job.ranks)
    return [{**common, **_rank(job, rank, ports)} for rank in range(job.ranks)]


def _ours(job: Job, folders: Folders, base: Mapping[str, str]) -> dict[str, str]:
    programs = (str(job.interpreter.parent), base.get("PATH", os.defpath))
    return {
        "TRAINSHED_JOB_ID": job.job_id,
        "TRAINSHED_ATTEMPT": str(job.attempt),
        "TRAINSHED_SEED": str(job.seed),
        "TRAINSHED_CHECKPOINT_DIR": str(folders.checkpoints),
        "TRAINSHED_OUTPUT_DIR": str(folders.outputs),
        "TRAINSHED_DATA_DIR": str(folders.data),
        **{f"TRAINSHED_DATA_{name.upper()}": str(path) for name, path in job.inputs.items()},
        "TRAINSHED_DEVICES": ",".join(device.id for device in job.devices),
        "TRAINSHED_DEVICE_COUNT": str(len(job.devices)),
        "TRAINSHED_DEVICE_TYPE": "cuda" if job.on_cards else "cpu",
        "TRAINSHED_THREADS": str(max(1, job.threads // job.ranks)),
        **_resumed(job, folders),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(folders.code),
        "PATH": os.pathsep.join(programs),
        "TMPDIR": temporary(folders.tmp),
        "HOME": str(job.work_dir),
        "USER": base.get("USER", "trainer"),
        "LOGNAME": base.get("LOGNAME", base.get("USER", "trainer")),
        "PWD": str(folders.code),
    }


def temporary(folder: Path) -> str:
    """A path of the temporary folder that is short enough for sockets in it, which have 107 bytes for theirs.

    Loader processes meet there, and a work folder's path may be long. The host's working directory leads there too, by
    a short name that holds for every process of the script.
    """
    path = str(folder)
    return path if len(os.fsencode(path)) <= _LONGEST_TMP else f"/proc/{os.getpid()}/cwd/{folder.name}"


def _resumed(job: Job, folders: Folders) -> dict[str, str]:
    if job.resume is None:
        return {}
    return {"TRAINSHED_RESUME_DIR": str(folders.checkpoints), "TRAINSHED_RESUME_STEP": str(job.resume_step)}


def _rank(job: Job, rank: int, ports: list[int]) -> dict[str, str]:
    """What torchrun sets, and Lightning and Transformers look for; for TensorFlow TF_CONFIG too."""
    count = str(job.ranks)
    variables = {
        **_LOOPBACK,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": count,
        "GROUP_WORLD_SIZE": "1",
        "ROLE_WORLD_SIZE": count,
        "MASTER_ADDR": _HOST,
        "MASTER_PORT": str(ports[0]),
        "TORCHELASTIC_RUN_ID": job.job_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # rank 0 keeps the store itself
    }
    if job.framework == "tensorflow":
        workers = [f"{_HOST}:{port}" for port in ports]
        variables["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}})
        device = job.devices[rank]
        variables["CUDA_VISIBLE_DEVICES"] = "" if device.kind == "cpu" else device.id
    return variables


def free_ports(count: int) -> list[int]:
    """Ports of this host that are free now, all different; where there are no sockets at all, some that look so."""
    with ExitStack() as stack:
        try:
            ends = [stack.enter_context(socket.socket()) for _ in range(count)]
            for end in ends:
                end.bind((_HOST, 0))
        except OSError:
            return [_FALLBACK_PORT + number for number in range(count)]
        return [end.getsockname()[1] for end in ends]


def program_of(word: str, interpreter: Path, code: Path, path: str) -> str | None:
    """The file that a command's first word means; None when there is none.

    "python" is the job's interpreter. A word with a slash is a file of the bundle, or absolute; any other is looked up
    in the interpreter's own folder first, then on PATH.
    """
    if word in ("python", "python3"):
        return str(interpreter)
    if "/" in word:
        found = code / word
        return str(found) if os.access(found, os.F_OK) else None
    for folder in (str(interpreter.parent), *path.split(os.pathsep)):
        file = Path(folder or ".") / word
        if os.access(file, os.X_OK) and file.is_file():  # in this order: a closed folder is no error of access
            return str(file)
    return None
