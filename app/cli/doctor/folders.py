"""Folders: writable, on the right kind of disk, with room; locks that work; shared memory; data roots."""

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from app.cli.doctor.findings import Finding, fault, skipped, warning, well
from app.cli.doctor.place import Place
from app.cli.figures import size
from workers.locks import close_all, take
from workers.root_probe import probe_roots

FILE: Final = "file://"
SQLITE: Final = "sqlite:///"
SHM_BYTES: Final = 1024 * 1024 * 1024
_NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "lustre", "gpfs", "beegfs", "afs", "9p"})
# Those in user space: fuse.sshfs, fuse.glusterfs …
_FUSE: Final = "fuse."
_READ_AND_ENTER: Final = 0o005
_REMEDIES: Final = {
    errno.ENOSPC: "Free space there.",
    errno.EDQUOT: "Free space there, or have the quota raised.",
    errno.EROFS: "Mount a volume there, or name another folder.",
}


def folders_of(place: Place) -> dict[str, Path]:
    """The folders that the service writes to, by what they are for."""
    settings = place.settings
    found = {"home": settings.home, "run_dir": settings.effective_run_dir}
    if settings.effective_database_url.startswith(SQLITE):
        found["database"] = Path(settings.effective_database_url.removeprefix(SQLITE)).parent
    if settings.effective_storage_url.startswith(FILE):
        found["storage"] = Path(settings.effective_storage_url.removeprefix(FILE))
    return found


def check_writable(place: Place) -> Iterator[Finding]:
    """Whether this user may write there; a folder that is not there yet must be possible to make."""
    for what, folder in folders_of(place).items():
        name, existing = f"folder.{what}", _existing(folder)
        try:
            with tempfile.TemporaryFile(dir=existing):
                yield well(name, f"{folder} can be written to.")
        except OSError as error:
            yield fault(
                name,
                f"{existing} cannot be written to by user {place.uid}: {error.strerror}.",
                _REMEDIES.get(error.errno or 0) or f"chown -R {place.uid} {existing}, or name another folder.",
            )


def check_local(place: Place) -> Iterator[Finding]:
    """Kernel locks and SQLite need a disk of this host; a network's file system promises too little."""
    for what, folder in folders_of(place).items():
        if what not in ("run_dir", "database"):
            continue
        name, kind = f"disk.{what}", file_system(place, folder)
        variable = "TRAINSHED_RUN_DIR" if what == "run_dir" else "TRAINSHED_DATABASE_URL"
        if kind in _NETWORK or kind.startswith(_FUSE):
            yield fault(
                name, f"{folder} is on a network file system ({kind}).", f"Set {variable} to a disk of this host."
            )
        else:
            yield well(name, f"{folder} is on this host ({kind or 'unknown'}).")


def check_locks(place: Place) -> Iterator[Finding]:
    """Whether a lock that is held is refused a second time: that is what keeps two trainers off one device."""
    folder = _existing(place.settings.effective_run_dir)
    advice = "Set TRAINSHED_RUN_DIR to a local disk."
    taken: list[int] = []
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".doctor-") as scratch:
            for _ in range(2):
                descriptor = take(str(Path(scratch) / "lock"))
                taken += [descriptor] if descriptor is not None else []
    except OSError as error:
        yield fault("locks", f"A file in {folder} cannot be locked: {error.strerror}.", advice)
        return
    finally:
        close_all(taken)
    if len(taken) == 1:
        yield well("locks", f"Locks work in {folder}.")
    else:
        yield fault("locks", f"A file in {folder} can be locked twice.", advice)


def check_disk(place: Place) -> Iterator[Finding]:
    """Free space, once per disk, against the reserve below which nothing is placed."""
    reserve = place.settings.disk_reserve_bytes
    by_disk: dict[int, tuple[list[str], Path]] = {}
    for what, folder in folders_of(place).items():
        existing = _existing(folder)
        by_disk.setdefault(existing.stat().st_dev, ([], existing))[0].append(what)
    for names, folder in by_disk.values():
        if names == ["run_dir"] and not place.works:
            # Without a worker it holds a sign of life and locks: in a container a small file system in memory will do.
            continue
        name, free = f"space.{names[0]}", place.disk_usage(folder).free
        told = f"{size(free)} free at {folder} (for {', '.join(names)})"
        if free < reserve:
            yield fault(
                name,
                f"{told}, less than TRAINSHED_DISK_RESERVE_BYTES ({size(reserve)}): no job is placed here.",
                "Free space, delete jobs (`trainshed rm`, `trainshed gc`), or lower the reserve.",
            )
        elif free < 2 * reserve:
            yield warning(name, f"{told}, near the reserve of {size(reserve)}.", "Free space soon: `trainshed gc`.")
        else:
            yield well(name, f"{told}.")


def check_temporary(place: Place) -> Iterator[Finding]:
    """Uploads and downloads may pass through here."""
    folder = Path(place.environ.get("TMPDIR") or tempfile.gettempdir())
    if not folder.is_dir():
        yield fault("temporary", f"TMPDIR is {folder}, which is no folder.", "Set TMPDIR to one on a disk with room.")
        return
    wanted = max(place.settings.max_upload_bytes, place.settings.max_bundle_bytes)
    free = place.disk_usage(folder).free
    if free < wanted:
        yield warning(
            "temporary",
            f"{size(free)} free for temporary files in {folder}; an upload may have {size(wanted)}.",
            "Set TMPDIR to a folder on a larger disk.",
        )
    else:
        yield well("temporary", f"{size(free)} free for temporary files in {folder}.")


def check_shared_memory(place: Place) -> Iterator[Finding]:
    """Processes of one trainer pass batches through it; a container has 64 MiB unless told."""
    if not place.works:
        yield skipped("shared_memory", "No worker runs here.")
        return
    folder = place.root / "dev/shm"
    total = place.disk_usage(folder).total if folder.is_dir() else 0
    if total < SHM_BYTES:
        told = fault if place.cards.devices or place.settings.devices == "cuda" else warning
        yield told(
            "shared_memory",
            f"Shared memory (/dev/shm) has {size(total)}; trainers of several processes need {size(SHM_BYTES)}.",
            "Give the container shm_size: 2g (docker run --shm-size=2g), or mount a larger /dev/shm.",
        )
    else:
        yield well("shared_memory", f"{size(total)}.")


def check_roots(place: Place) -> Iterator[Finding]:
    """Folders whose data is read in place. A child looks at them: a mount that does not answer must not hang this."""
    roots = place.settings.data_roots
    for root, state in sorted(probe_roots(roots).items()):
        name, folder = f"data_root.{root}", roots[root]
        if not state.ok:
            yield fault(
                name,
                f"The data root '{root}' ({folder}): {state.problem}",
                f"Mount {folder} here, or correct TRAINSHED_DATA_ROOTS.",
            )
        elif place.settings.trainer_uids and folder.stat().st_mode & _READ_AND_ENTER != _READ_AND_ENTER:
            yield warning(
                name,
                f"{folder} is not readable by everybody, and trainers have users of their own here.",
                f"chmod o+rx {folder}, or jobs that read from it fail.",
            )
        else:
            yield well(name, f"{folder} can be read.")


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists: where it would be made."""
    candidates = [folder.absolute(), *folder.absolute().parents]
    with contextlib.suppress(OSError):
        return next(path for path in candidates if os.path.lexists(path))
    return Path("/")


def file_system(place: Place, folder: Path) -> str:
    """The kind of file system that a folder is on or would be; empty when the kernel does not tell."""
    try:
        lines = (place.root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    wanted = _existing(folder).resolve()
    best, kind = -1, ""
    for line in lines:
        mounted, _, described = line.partition(" - ")
        point = Path(mounted.split(" ")[4].replace("\\040", " "))
        # Of two at one place the later one lies on top.
        if (point == wanted or point in wanted.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), described.split(" ")[0]
    return kind
