"""From a claim to what a trainer is told: its work directory, its data, its devices, its threads."""

from collections.abc import Sequence
from pathlib import Path

from app.jobs.attempts import Claim, ClaimedDevice
from app.storage import Storage
from workers.protocol import Assignment, DataSource, Device


def make_work_dir(run_dir: Path, job_id: str, attempt: int) -> Path:
    """A new, empty directory that only this user can enter."""
    folder = run_dir / "work" / f"{job_id}-{attempt}"
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
    return folder


def make_assignment(claim: Claim, work_dir: Path, storage: Storage) -> Assignment:
    """Fetch the data and write down what to train, on what.

    Raises:
        OSError: the data could not be fetched.
    """
    return Assignment(
        job_id=claim.job_id,
        attempt=claim.attempt,
        spec=claim.spec,
        table=_fetch(claim, work_dir, storage),
        devices=[_device(device) for device in claim.devices],
        threads=threads_of(claim.devices),
        work_dir=str(work_dir),
        seed=claim.spec.hyperparameters.seed,
    )


def threads_of(devices: Sequence[ClaimedDevice]) -> int:
    """An attempt's thread limit: the shares of its devices together. It is fixed, since torch's bits depend on it."""
    return max(1, sum(device.threads for device in devices))


def _fetch(claim: Claim, work_dir: Path, storage: Storage) -> DataSource:
    if claim.dataset_key is None:
        return DataSource(builtin=claim.builtin)
    path = work_dir / "table.csv"
    storage.get(claim.dataset_key, path)
    return DataSource(path=str(path))


def _device(device: ClaimedDevice) -> Device:
    return Device(
        id=device.id,
        kind="simulated" if device.simulated else "cpu" if device.kind == "cpu" else "cuda",
        name=device.name,
        pci_bus_id=device.pci_bus_id,
        memory_bytes=device.memory_bytes,
    )
