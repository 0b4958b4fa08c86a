"""What a script's host is told: `workers.protocol.ScriptAssignment`, read as plain JSON.

    {"job_id": "job_…", "attempt": 1, "framework": "torch", "interpreter": "/…/bin/python",
     "command": ["python", "train.py"], "processes": "one" | "per_device", "variables": {"NAME": "value"},
     "devices": [{"id": "cpu-0@host", "kind": "cuda" | "cpu" | "simulated", …}], "threads": 2, "work_dir": "/…",
     "seed": 0, "bundle": "/…/bundle.zip" | null, "bundle_format": "zip" | "wheel" | null,
     "inputs": {"train": "/…/data/train.csv"}, "digests": {"train": "0f…"},
     "resume": "/…/resume" | null, "resume_step": 40 | null,
     "monitor": {"metric": "val_loss", "mode": "min" | "max"} | null, "success": "files" | "exit",
     "limits": {"archive": {"entries", "total_bytes", "file_bytes", "ratio"}, "max_output_bytes", "max_output_files"}}

The worker wrote it, so nothing is checked here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.archives import Limits


@dataclass(frozen=True)
class Device:
    """One device of the attempt; `kind` is cuda, cpu or simulated (a card that is not there: the CPU computes)."""

    id: str
    kind: str
    name: str = ""


@dataclass(frozen=True)
class Monitor:
    """Which metric says what the best checkpoint is, and whether less or more of it is better."""

    metric: str
    mode: str


@dataclass(frozen=True)
class Job:
    """One attempt of a script job. `resume` holds `files.zip` and its manifest; paths are absolute.

    `digests`: the SHA-256 that data read in place must still have.
    """

    job_id: str
    attempt: int
    framework: str
    interpreter: Path
    command: tuple[str, ...]
    work_dir: Path
    archive: Limits
    max_output_bytes: int
    max_output_files: int
    devices: tuple[Device, ...] = ()
    threads: int = 1
    per_device: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    bundle: Path | None = None
    inputs: Mapping[str, Path] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    resume: Path | None = None
    resume_step: int = 0
    monitor: Monitor | None = None
    needs_files: bool = True

    @property
    def ranks(self) -> int:
        """How many processes run the command."""
        return max(1, len(self.devices)) if self.per_device else 1

    @property
    def on_cards(self) -> bool:
        """Whether real cards compute; simulated ones do not."""
        return any(device.kind == "cuda" for device in self.devices)


def read(text: bytes | str) -> Job:
    """Read an assignment; what it does not know it ignores."""
    told: dict[str, Any] = json.loads(text)
    work_dir = Path(told["work_dir"])
    archive, monitor = told["limits"]["archive"], told.get("monitor")
    names = ("entries", "total_bytes", "file_bytes", "ratio")
    return Job(
        job_id=told["job_id"],
        attempt=told["attempt"],
        framework=told["framework"],
        interpreter=Path(told["interpreter"]),
        command=tuple(told["command"]),
        work_dir=work_dir,
        archive=Limits(**{name: archive[name] for name in names if name in archive}),
        max_output_bytes=told["limits"]["max_output_bytes"],
        max_output_files=told["limits"]["max_output_files"],
        devices=tuple(
            Device(device["id"], device["kind"], device.get("name") or device["id"]) for device in told["devices"]
        ),
        threads=told["threads"],
        per_device=told["processes"] == "per_device",
        variables=told.get("variables") or {},
        seed=told.get("seed") or 0,
        bundle=work_dir / told["bundle"] if told.get("bundle") else None,
        inputs={name: work_dir / path for name, path in (told.get("inputs") or {}).items()},
        digests=told.get("digests") or {},
        resume=work_dir / told["resume"] if told.get("resume") else None,
        resume_step=told.get("resume_step") or 0,
        monitor=Monitor(monitor["metric"], monitor["mode"]) if monitor else None,
        needs_files=told.get("success", "files") == "files",
    )
