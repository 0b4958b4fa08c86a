"""From a claim to what a trainer is told: its work directory, its data, its devices, its threads."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from app.datasets.roots import DataRoots
from app.jobs.claims import Claim, ClaimedDevice
from app.spec import EffectiveSpec
from app.storage import Storage
from workers.beginning import Beginning
from workers.protocol import Assignment, DataSource, Device

DRIVER_FILE: Final = Path("/sys/module/nvidia/version")


def work_folder(run_dir: Path, job_id: str, attempt: int) -> Path:
    """Where an attempt's own files lie while it runs."""
    return run_dir / "work" / f"{job_id}-{attempt}"


def make_work_dir(run_dir: Path, job_id: str, attempt: int) -> Path:
    """A new, empty directory that only this user can enter."""
    folder = work_folder(run_dir, job_id, attempt)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
    return folder


def make_assignment(
    claim: Claim, spec: EffectiveSpec, work_dir: Path, storage: Storage, beginning: Beginning, roots: DataRoots
) -> Assignment:
    """Fetch the data of a model job and write down what to train, on what, from where on.

    Raises:
        UnknownRoot: they lie where this host cannot read.
        OSError: an uploaded file could not be fetched.
    """
    return Assignment(
        job_id=claim.job_id,
        attempt=claim.attempt,
        spec=spec,
        table=_fetch(claim, work_dir, storage, roots),
        devices=[device_of(device) for device in claim.devices],
        threads=threads_of(claim.devices),
        work_dir=str(work_dir),
        seed=spec.hyperparameters.seed,
        resume=_text(beginning.resume),
        initialize=_text(beginning.initialize),
        driver=driver_version(claim.devices),
    )


def driver_version(devices: Sequence[ClaimedDevice], file: Path = DRIVER_FILE) -> str | None:
    """The version of the driver that serves these devices, for the record; None for devices without one.

    From the kernel, not by NVML: it answers also where the driver's own library hangs.
    """
    if not any(device.kind == "cuda" and not device.simulated for device in devices):
        return None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return file.read_text(encoding="ascii").strip() or None
    return None


def threads_of(devices: Sequence[ClaimedDevice]) -> int:
    """An attempt's thread limit: the shares of its devices together. It is fixed, since torch's bits depend on it."""
    return max(1, sum(device.threads for device in devices))


def _fetch(claim: Claim, work_dir: Path, storage: Storage, roots: DataRoots) -> DataSource:
    if claim.dataset_uri is not None:
        return _in_place(claim, claim.dataset_uri, roots)
    if claim.dataset_key is None:
        return DataSource(builtin=claim.builtin)
    # The name says what is in it, for whoever looks at the folder; the trainer goes by the format.
    path = work_dir / f"table.{claim.dataset_format or 'csv'}"
    storage.get(claim.dataset_key, path)
    return DataSource(path=str(path), format=claim.dataset_format)


def _in_place(claim: Claim, uri: str, roots: DataRoots) -> DataSource:
    """Only said, not looked at: a mount that does not answer would hold this thread for good, but a trainer can end."""
    folder, path = roots.folder_of(uri)
    return DataSource(path=path, format=claim.dataset_format, root=str(folder), uri=uri, digest=claim.dataset_digest)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def device_of(device: ClaimedDevice) -> Device:
    """A device as the trainer is told of it."""
    return Device(
        id=device.id,
        kind="simulated" if device.simulated else "cpu" if device.kind == "cpu" else "cuda",
        name=device.name,
        pci_bus_id=device.pci_bus_id,
        memory_bytes=device.memory_bytes,
    )
