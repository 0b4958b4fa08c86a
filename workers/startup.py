"""What a worker looks at before it offers its host, and again from time to time: folders, disk, memory, users."""

import contextlib
import os
import pwd
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

import structlog

from app.fleet.condition import Condition, Remark, RootState
from app.settings import PREFIX, InvalidSettings, Settings
from app.storage import Storage, configured_storage
from workers.environments.shelf import FOLDER as ENVIRONMENTS
from workers.environments.shelf import kept as kept_environments
from workers.ownership import remove_tree
from workers.privileges import hide_memory, missing
from workers.root_probe import probe_roots
from workers.trainer_user import TrainerUsers
from workers.user_probe import look

log = structlog.get_logger("worker")

GIB: Final = 1024**3
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - it is measured, nothing is put there
ENOUGH_SHARED_MEMORY: Final = GIB
FEWEST_FILES: Final = 1_000
OTHERS: Final = 0o007
OPEN_FOLDERS: Final = ("work", ENVIRONMENTS)
"""Of the run folder those that trainers may enter: their work, and what was installed for them."""
SECRETS: Final = ("DATABASE_URL", "BROKER_URL", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY")
"""Settings whose files no trainer may read."""
_FILE: Final = "file://"
_SQLITE: Final = "sqlite:///"


class Probed(Protocol):
    """What is asked of the settings; `app.settings.Settings` has all of it."""

    @property
    def home(self) -> Path: ...
    @property
    def effective_run_dir(self) -> Path: ...
    @property
    def effective_storage_url(self) -> str: ...
    @property
    def effective_database_url(self) -> str: ...
    @property
    def disk_reserve_bytes(self) -> int: ...
    @property
    def data_roots(self) -> Mapping[str, Path]: ...
    @property
    def interpreters(self) -> Mapping[str, Path]: ...


def harden() -> None:
    """Let no other process of this user read this one's memory; to be called first in a worker."""
    hide_memory()


def trainer_users(settings: Settings) -> TrainerUsers | None:
    """The users that trainers get, cleaned of what an earlier worker left; None: they run as this worker does.

    Needs the host's lock. What this worker makes from now on is closed to others.

    Raises:
        InvalidSettings: TRAINSHED_TRAINER_UIDS is set, and this process may not do what that needs.
    """
    uids = settings.trainer_uid_range
    if uids is None:
        return None
    _check_may(uids)
    run_dir = settings.effective_run_dir.absolute()
    work = run_dir / "work"
    os.umask(0o027)
    for folder in (settings.home.absolute(), run_dir):
        _close_to_others(folder, run_dir)
    try:
        work.mkdir(mode=0o711, parents=True, exist_ok=True)
        _open_way(work, settings.home.absolute())
    except OSError as error:
        raise InvalidSettings(f"The work folder '{work}' cannot be opened to trainers: {error.strerror}.") from error
    users = TrainerUsers(uids, run_dir / "locks")
    killed = users.clean_up()
    if killed:
        log.warning("left_overs_killed", pids=killed)
    for path in work.iterdir():
        remove_tree(path)
    for python in sorted({Path(sys.executable), *settings.interpreters.values()}):
        sight = look(users, python=python)
        if sight.fault is not None:
            raise InvalidSettings(f"TRAINSHED_TRAINER_UIDS cannot be used here with {python}: {sight.fault}.")
    log.info("trainers_have_users", first=uids[0], last=uids[-1])
    return users


def storage_of(settings: Settings) -> Storage:
    """The storage that the settings name.

    Raises:
        InvalidSettings: its folder cannot be made, or cannot be entered.
        UnsupportedStorage: they name none.
    """
    try:
        return configured_storage(settings)
    except OSError as error:
        raise InvalidSettings(
            f"The worker's storage folder (TRAINSHED_STORAGE_URL) '{settings.effective_storage_url}' cannot be used by "
            f"user {os.geteuid()}: {error.strerror}. Make it, for this user, for example /var/lib/trainshed/storage."
        ) from error


def probe(settings: Probed, *, many_processes: bool, users: TrainerUsers | None = None) -> Condition:
    """Look now: disk, shared memory, roots, problems and blockers; the driver and the port are the caller's to add.

    Never raises; may block for as long as a disk does, so not from the heartbeat.

    `many_processes`: trainers here may be of several processes (cards are offered), which need shared memory.
    """
    run_dir = settings.effective_run_dir.absolute()
    storage = _local(settings.effective_storage_url)
    places = {"run folder (TRAINSHED_RUN_DIR)": run_dir, "work folder (TRAINSHED_RUN_DIR/work)": run_dir / "work"}
    if storage is not None:
        places["storage folder (TRAINSHED_STORAGE_URL)"] = storage
    blockers = [remark for role, path in places.items() for remark in _unwritable(role, path)]
    free, total, full = _disk(places, settings.disk_reserve_bytes)
    shm, problems = _shared_memory(many_processes=many_processes)
    environments = kept_environments(run_dir / ENVIRONMENTS)
    roots = probe_roots(settings.data_roots)
    if users is not None:
        seen, roots = _seen_by_trainers(settings, users, run_dir, storage, roots)
        blockers += seen
    return Condition(
        disk_free_bytes=free,
        disk_total_bytes=total,
        shm_bytes=shm,
        environments=environments.count,
        environments_bytes=environments.bytes,
        roots=roots,
        problems=tuple(problems),
        blockers=(*blockers, *full),
    )


def _check_may(uids: range) -> None:
    lacking = missing()
    if lacking:
        raise InvalidSettings(
            f"TRAINSHED_TRAINER_UIDS gives trainers users of their own, which user {os.geteuid()} may not do: it lacks "
            f"the capabilities {', '.join(lacking)}. Start the worker as root (in a container with cap_add: [CHOWN, "
            "KILL, SETGID, SETUID]), or leave TRAINSHED_TRAINER_UIDS out."
        )
    taken = {entry.pw_uid: entry.pw_name for entry in pwd.getpwall()} | {os.geteuid(): "the worker itself"}
    found = next((uid for uid in sorted(taken) if uid in uids), None)
    if found is not None:
        raise InvalidSettings(
            f"TRAINSHED_TRAINER_UIDS {uids[0]}-{uids[-1]} holds user {found}, which is {taken[found]}. Name a range "
            "that nobody has on this host, for example 20000-20255."
        )


def _close_to_others(folder: Path, but: Path) -> None:
    """Take away what others may do with this user's own entries of a folder, but what has to stay open."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):
                facts = path.lstat()
                ours = facts.st_uid == os.geteuid() and not stat.S_ISLNK(facts.st_mode)
                if ours and facts.st_mode & OTHERS and path not in (but, *(but / name for name in OPEN_FOLDERS)):
                    path.chmod(stat.S_IMODE(facts.st_mode) & ~OTHERS)


def _open_way(work: Path, home: Path) -> None:
    """Let every user pass through (not list) the folders above the work folders, as far as they are this product's.

    Raises:
        InvalidSettings: one of them is closed, and not ours to open.
    """
    for folder in (work, *work.parents):
        facts = folder.stat()
        if facts.st_mode & stat.S_IXOTH:
            continue
        ours = folder in (work, work.parent) or folder == home
        if not ours or facts.st_uid != os.geteuid():
            raise InvalidSettings(
                f"Trainers with users of their own (TRAINSHED_TRAINER_UIDS) cannot reach their work folders in "
                f"'{work}': '{folder}' is closed to other users. Let them pass (chmod o+x '{folder}'), or set "
                "TRAINSHED_RUN_DIR, for example TRAINSHED_RUN_DIR=/var/lib/trainshed/run."
            )
        folder.chmod(stat.S_IMODE(facts.st_mode) | stat.S_IXOTH)


def _local(url: str) -> Path | None:
    return Path(url.removeprefix(_FILE)) if url.startswith(_FILE) else None


def _unwritable(role: str, path: Path) -> Iterator[Remark]:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"probe")
    except OSError as error:
        yield Remark(
            "not_writable",
            f"The worker's {role} '{path}' cannot be written by user {os.geteuid()}: {error.strerror}. No job starts "
            f"here until it can; for example chown {os.geteuid()} '{path}'.",
        )


def _disk(places: Mapping[str, Path], reserve: int) -> tuple[int | None, int | None, list[Remark]]:
    """Free and whole bytes of the fuller disk, and why no job may start for lack of room."""
    found: dict[str, shutil._ntuple_diskusage] = {}
    remarks: list[Remark] = []
    for role, path in places.items():
        with contextlib.suppress(OSError):
            found[role] = shutil.disk_usage(path)
            facts = os.statvfs(path)
            if facts.f_files and facts.f_favail < FEWEST_FILES:
                remarks.append(Remark("no_inodes", f"The disk of the {role} '{path}' has room for no more files."))
    if not found:
        return None, None, remarks
    role, fullest = min(found.items(), key=lambda item: item[1].free)
    if fullest.free < reserve:
        remarks.append(
            Remark(
                "disk_reserve",
                f"The disk of the {role} '{places[role]}' has {fullest.free / GIB:.1f} GiB free, less than the reserve "
                f"of {reserve / GIB:.1f} GiB (TRAINSHED_DISK_RESERVE_BYTES). No job starts here until there is more; "
                "`trainshed gc --dry-run` shows what can go.",
            )
        )
    return fullest.free, fullest.total, remarks[:1]


def _shared_memory(*, many_processes: bool, place: Path = SHARED_MEMORY) -> tuple[int | None, list[Remark]]:
    try:
        size = shutil.disk_usage(place).total
    except OSError:
        return None, []
    if size >= ENOUGH_SHARED_MEMORY or not many_processes:
        return size, []
    sentence = (
        f"Shared memory ({place}) has {size / GIB:.2f} GiB; a job of several processes dies of SIGBUS when it is full. "
        "Give the container at least 1 GiB, for example shm_size: 2g."
    )
    return size, [Remark("small_shared_memory", sentence)]


def _seen_by_trainers(
    settings: Probed, users: TrainerUsers, run_dir: Path, storage: Path | None, roots: Mapping[str, RootState]
) -> tuple[list[Remark], dict[str, RootState]]:
    """Blockers for what is open to trainers and must not be, or closed and needed; the roots as trainers see them."""
    secret = {path: f"the file of {name}" for name, path in _secret_files()}
    secret |= dict.fromkeys(_database_files(settings.effective_database_url), "the database")
    secret |= {run_dir / "locks": "the folder of locks", settings.home / "client.json": "the operator's API key"}
    secret |= {Path(f"/proc/{os.getpid()}/environ"): "the worker's environment"}
    if storage is not None:
        secret[storage] = "the storage folder"
    programs = {Path(sys.executable), *settings.interpreters.values()}
    readable = {name: settings.data_roots[name] for name, state in roots.items() if state.ok}
    sight = look(users, secret=list(secret), needed=[*programs, *readable.values()])
    if sight.fault is not None:
        return [Remark("trainer_user", f"Trainers cannot have users of their own: {sight.fault}.")], dict(roots)
    remarks = [
        Remark("open_to_trainers", f"Trainers (user {sight.uid}) can read {secret[Path(path)]}, '{path}': chmod o-rwx.")
        for path in sight.open
    ]
    remarks += [
        Remark(
            "closed_to_trainers", f"Trainers (user {sight.uid}) cannot run '{path}': let others read and execute it."
        )
        for path in sorted(map(str, programs & set(map(Path, sight.closed))))
    ]
    closed = f"Trainers (user {sight.uid}) cannot read it: let others read it, chmod -R o+rX."
    shut = {name for name, path in readable.items() if str(path) in sight.closed}
    return remarks, {name: RootState(ok=False, problem=closed) if name in shut else roots[name] for name in roots}


def _secret_files() -> Iterator[tuple[str, Path]]:
    for name in SECRETS:
        variable = f"{PREFIX}{name}_FILE"
        if os.environ.get(variable):
            yield variable, Path(os.environ[variable])


def _database_files(url: str) -> list[Path]:
    if not url.startswith(_SQLITE):
        return []
    path = url.removeprefix(_SQLITE)
    return [Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")]
