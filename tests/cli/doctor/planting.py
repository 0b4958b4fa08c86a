"""A host on which all is well, made of folders and small programs, for faults to be planted in."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from app import __version__
from app.cli.doctor.examination import examine
from app.cli.doctor.findings import Finding, Status
from app.cli.doctor.place import Place
from app.settings import Settings
from tests.workers.inventory.nvml_stand_in import Card, NvmlStandIn
from workers.sandbox import NAMESPACE

GIB: Final = 1024**3
H200: Final = Card("GPU-0", "00000000:01:00.0")
# What proc(5) documents: id, parent, device, root, mount point, options, then " - " and the kind.
LOCAL: Final = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"


@dataclass
class Host:
    """`uses` says how much space a disk has: total and free, in bytes, by folder; others have plenty."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    uses: dict[Path, tuple[int, int]] = field(default_factory=dict)
    nvml: Any = None
    seconds: float | None = None
    synchronised: bool | None = True
    uid: int = 0
    driver_s: float = 10.0
    isolation: str | None = NAMESPACE

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def write(self, path: str, text: str = "") -> Path:
        """A file below the root."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def interpreter(self, framework: str, **changes: Any) -> Path:
        """A Python for a framework that answers as the real one would, for a card with CUDA 13.0."""
        answer = {"ours": __version__, "version": "99.1", "cuda": "13.0", "devices": 1, "error": None, **changes}
        return self.program(framework, f"echo '{json.dumps(answer)}'")

    def program(self, name: str, body: str) -> Path:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        known = json.loads(self.environ.get("TRAINSHED_INTERPRETERS", "{}"))
        self.environ["TRAINSHED_INTERPRETERS"] = json.dumps({**known, name: str(path)})
        return path

    def with_cards(self, *cards: Card, cuda: int = 13000, **facts: Any) -> None:
        """A driver that lists these cards; `cuda` as NVML gives it."""
        self.nvml = NvmlStandIn(list(cards) or [H200], **facts)
        self.nvml.nvmlSystemGetDriverVersion = lambda: "580.65"
        self.nvml.nvmlSystemGetCudaDriverVersion = lambda: cuda
        self.nvml.nvmlSystemGetCudaDriverVersion_v2 = lambda: cuda

    def place(self, settings: Settings, environ: Mapping[str, str]) -> Place:
        def disk_usage(path: Path) -> SimpleNamespace:
            total, free = self.uses.get(path, (1000 * GIB, 500 * GIB))
            return SimpleNamespace(total=total, free=free)

        now = {} if self.seconds is None else {"now": lambda: float(self.seconds or 0.0)}
        return Place(
            settings,
            environ,
            root=self.root,
            nvml=self.nvml,
            disk_usage=disk_usage,
            synchronised=lambda: self.synchronised,
            uid=self.uid,
            driver_s=self.driver_s,
            isolation=lambda _uid: self.isolation,
            **now,
        )

    def examine(self) -> dict[str, Finding]:
        """All findings by name."""
        found = list(examine(self.environ, self.place))
        names = [finding.name for finding in found]
        assert sorted(set(names)) == sorted(names)
        return {finding.name: finding for finding in found}

    def faults(self) -> dict[str, str]:
        """What is a fault, and the sentence; each must say what to do."""
        found = [finding for finding in self.examine().values() if finding.status is Status.FAULT]
        assert all(finding.advice for finding in found)
        return {finding.name: finding.message for finding in found}

    def warnings(self) -> dict[str, str]:
        found = [finding for finding in self.examine().values() if finding.status is Status.WARNING]
        assert all(finding.advice for finding in found)
        return {finding.name: finding.message for finding in found}


def healthy(folder: Path) -> Host:
    host = Host(folder)
    host.home.mkdir()
    (host.root / "dev/shm").mkdir(parents=True)
    host.write("proc/self/mountinfo", LOCAL)
    host.write("proc/self/uid_map", "         0          0 4294967295\n")
    host.write("proc/self/status", "Name:\tpython\nCapEff:\t000001ffffffffff\n")
    host.environ = {"TRAINSHED_HOME": str(host.home), "PATH": str(Path(sys.executable).parent), "TMPDIR": str(folder)}
    host.interpreter("torch")
    return host
