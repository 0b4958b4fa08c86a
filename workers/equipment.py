"""What every attempt of a host works with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml
from sqlalchemy.orm import Session

from app.broker import Bell
from app.clock import Clock
from app.datasets.roots import DataRoots
from app.db import Database
from app.storage import Storage
from workers import exports
from workers.code_preparation import Packages
from workers.code_terms import CodeTerms
from workers.exporting import Export
from workers.launch_port import Launcher
from workers.proof import PROOF_S


def no_quarantine(session: Session, device_ids: Sequence[str], reason: str) -> None:
    """For a host without a fleet, as in tests of a single attempt."""


@dataclass(frozen=True)
class Equipment:
    """Times in seconds, sizes in bytes; `telemetry_s` is how often cards in use are asked how they are, 0 is never.

    `idle_after_s`: after how long a held card that does nothing is shown as idle, 0 is never. `simulated_inventory` is
    where simulated cards tell how they are, instead of the driver.
    `quarantine` marks devices as unusable, in the transaction that ends an attempt whose processes cannot be killed.
    `export` makes the files of one format from a trained model.
    `code` is what the code of users may have here, `environments` are the packages that it asks for.
    """

    database: Database
    bell: Bell
    storage: Storage
    launcher: Launcher
    clock: Clock
    interpreters: Mapping[str, Path]
    run_dir: Path
    stop_grace_s: float
    report_interval_s: float
    max_log_bytes: int
    environment: Mapping[str, str] = field(default_factory=dict)
    quarantine: Callable[[Session, Sequence[str], str], None] = no_quarantine
    export: Export = exports.run
    proof_s: float = PROOF_S
    telemetry_s: float = 0.0
    idle_after_s: float = 0.0
    simulated_inventory: Path | None = None
    nvml: Any = pynvml
    roots: DataRoots = field(default_factory=lambda: DataRoots({}))
    code: CodeTerms = field(default_factory=CodeTerms)
    environments: Packages | None = None

    @property
    def lock_dir(self) -> Path:
        return self.run_dir / "locks"
