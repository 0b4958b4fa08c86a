"""What a worker with few capabilities does with trainers of other users; each returns what the test looks at.

Run by `confined`, in a process of its own: `python -m tests.workers.users.scenarios NAME FOLDER`.
"""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from app.fleet.devices import DeviceFacts
from app.settings import Settings
from tests.workers.launcher.attempt import FAR_NS, Attempt, Watched, assignment, boot_ns, simulated
from workers import self_test
from workers.launch import ColdLauncher, ColdRun, LaunchRequest, trainer_environment
from workers.ownership import ForeignFolder, remove_tree, take_folder
from workers.privileges import effective
from workers.processes import processes_of
from workers.proof import free_locks, locks_free
from workers.protocol import DataSource
from workers.startup import harden, probe, trainer_users
from workers.sweep import sweep
from workers.trainer_user import TrainerUsers
from workers.user_memory import left_by
from workers.user_probe import look

PACKAGES = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
SECRET = "a secret of the worker"


def uids() -> range:
    """Numbers that no other process of the tests uses at the same time."""
    first = 1_000_000 + os.getpid() * 8
    return range(first, first + 4)


class Worker:
    """A worker with a pool of users, whose trainers run entry points of `hostile`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        (self.run_dir / "work").mkdir(mode=0o711, parents=True)
        self.run_dir.chmod(0o711)
        self.shared = folder / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o1777)
        self.secret = folder / "secret"
        self.secret.write_text(SECRET)
        self.secret.chmod(0o600)
        self.users = TrainerUsers(uids(), self.run_dir / "locks", [self.shared])

    @contextmanager
    def start(self, entry: str, job: str = "job_1", device: str = "GPU-0", **asked: object) -> Iterator[Attempt]:
        run = ColdLauncher(close_ms=1_000, users=self.users).start(self.request(entry, job, device, **asked))
        with closing(run):
            yield Attempt(run, self.request(entry, job, device, **asked))

    def request(self, entry: str, job: str, device: str, **asked: object) -> LaunchRequest:
        devices, work_dir = [simulated(device)], self.work_dir(job)
        work_dir.mkdir(mode=0o700, exist_ok=True)
        source = DataSource(path=json.dumps(asked), format="csv")
        told = assignment(work_dir, devices, job=job).model_copy(update={"table": source})
        return LaunchRequest(
            interpreter=Path(sys.executable),
            environment=trainer_environment(devices, 1, work_dir, os.environ) | PACKAGES,
            assignment=told,
            lock_dir=self.run_dir / "locks",
            until_boot_ns=boot_ns() + FAR_NS,
            entry=f"tests.workers.users.hostile:{entry}",
        )

    def work_dir(self, job: str) -> Path:
        return self.run_dir / "work" / job


def processes() -> list[int]:
    return [pid for uid in uids() for pid in processes_of(uid)]


def owner(path: Path) -> list[int]:
    facts = path.lstat()
    return [facts.st_uid, facts.st_gid, stat.S_IMODE(facts.st_mode)]


def what_a_trainer_is(folder: Path) -> object:
    worker = Worker(folder)
    with worker.start("describe") as attempt:
        said, end = attempt.line(), attempt.ended()
    after = {name: owner(worker.work_dir("job_1") / name) for name in ("", "made", "folder")}
    text = (worker.work_dir("job_1") / "made").read_text()
    return {
        "said": said,
        "code": end.code,
        "uid": uids()[0],
        "after": after,
        "text": text,
        "held": effective(),
    }


def what_a_trainer_can_reach(folder: Path) -> object:
    worker = Worker(folder)
    harden()
    with worker.start("describe", "job_2", "GPU-1") as other:
        other.ended()
        with worker.start("spy", "job_3", "GPU-3", read=[], signal=[]) as neighbour:
            third = neighbour.line()["pid"]
            run = worker.users  # its notes lie beside the locks
            secrets = {
                "secret": worker.secret,
                "worker": Path(f"/proc/{os.getpid()}/environ"),
                "memory": Path(f"/proc/{os.getpid()}/maps"),
                "neighbour": Path(f"/proc/{third}/environ"),
                "neighbour's files": worker.work_dir("job_3"),
                "others": worker.work_dir("job_2"),
                "all work": run.work,
                "locks": worker.run_dir / "locks",
            }
            ran = neighbour.run
            assert isinstance(ran, ColdRun)
            pids = [os.getpid(), third, ran._process.pid]
            paths = {name: str(path) for name, path in secrets.items()}
            own = str(worker.work_dir("job_1"))
            with worker.start("spy", read=[*paths.values(), own], signal=[*pids, os.getppid()]) as attempt:
                said = attempt.line()
    read = [name for name, path in paths.items() if path in said["read"]]
    return {"read": read, "own": own in said["read"], "signalled": said["signalled"]}


def traps(folder: Path) -> object:
    worker = Worker(folder)
    with worker.start("plant", secret=str(worker.secret), elsewhere=[str(worker.shared)]) as attempt:
        size = attempt.line()["size"]
        end = attempt.ended()
    work_dir = worker.work_dir("job_1")
    left = {str(path.relative_to(work_dir)): owner(path) for path in work_dir.iterdir()}
    hidden = (work_dir / "closed" / "inside" / "file").read_text()
    deep = list(work_dir.rglob("bottom"))
    shared = [path.name for path in worker.shared.iterdir()]
    remove_tree(work_dir)
    return {
        "code": end.code,
        "survivors": end.survivors,
        "left": left,
        "hidden": hidden,
        "deep": len(deep),
        "shared": shared,
        "secret": worker.secret.read_text(),
        "owner": owner(worker.secret),
        "gone": not work_dir.exists(),
        "size": size,
    }


def _ended_from_outside(folder: Path, entry: str, lines: int = 1) -> object:
    worker = Worker(folder)
    with worker.start(entry) as attempt:
        said = [attempt.line()["pid"] for _ in range(lines)]
        watched = [Watched(pid) for pid in said]
        attempt.run.stop(signal.SIGKILL)
        end = attempt.ended()
    gone = [each.gone() for each in watched]
    return {"survivors": end.survivors, "gone": gone, "left": processes(), "notes": _notes(worker)}


def _notes(worker: Worker) -> list[str]:
    return sorted(path.name for path in (worker.run_dir / "locks").glob("user-*"))


def daemon_without_locks(folder: Path) -> object:
    return _ended_from_outside(folder, "unlock_and_hide", lines=2)


def fork_bomb(folder: Path) -> object:
    return _ended_from_outside(folder, "multiply")


def zombie_with_a_thread(folder: Path) -> object:
    return _ended_from_outside(folder, "zombie_with_a_thread")


def launcher_killed(folder: Path) -> object:
    worker = Worker(folder)
    with worker.start("unlock_and_hide") as attempt:
        trainer = Watched(min(attempt.line()["pid"], attempt.line()["pid"]))
        run = attempt.run
        assert isinstance(run, ColdRun)
        os.kill(run._process.pid, signal.SIGKILL)
        gone = trainer.gone()
    return {"gone": gone, "left": processes(), "notes": _notes(worker)}


def launcher_frozen(folder: Path) -> object:
    worker = Worker(folder)
    with worker.start("unlock_and_hide") as attempt:
        said = [attempt.line(), attempt.line()]
        run = attempt.run
        assert isinstance(run, ColdRun)
        os.kill(run._process.pid, signal.SIGSTOP)
    return {"said": len(said), "left": processes(), "notes": _notes(worker), "owner": owner(worker.work_dir("job_1"))}


def sweep_of_a_users_processes(folder: Path) -> object:
    """A stray of an earlier worker, whose descriptors cannot be read: found by what was noted of its user."""
    worker = Worker(folder)
    uid = worker.users.take(["job-job_1.lock", "dev-GPU-0.lock"])
    with _process_of(uid) as stray:
        others = sweep(worker.run_dir / "locks", ["dev-GPU-1.lock"])
        found = sweep(worker.run_dir / "locks", ["dev-GPU-0.lock"])
        return {"others": others, "found": found == [stray.pid], "code": stray.wait(10)}


def proof_that_nothing_is_left(folder: Path) -> object:
    worker = Worker(folder)
    names, locks = ["job-job_1.lock", "dev-GPU-0.lock"], worker.run_dir / "locks"
    uid = worker.users.take(names)
    with _process_of(uid):
        alive = [locks_free(locks, names[:1]), locks_free(locks, ["dev-GPU-1.lock"])]
        freed = free_locks(locks, names, keep_on=lambda: True)
    return {"alive": alive, "freed": freed, "after": locks_free(locks, names), "left": processes()}


def next_worker_cleans_up(folder: Path) -> object:
    worker = Worker(folder)
    uid = worker.users.take(["job-job_1.lock"])
    work_dir = worker.work_dir("job_1")
    work_dir.mkdir()
    worker.users.hand_over(work_dir, uid)
    with _process_of(uid, work_dir) as stray, _process_of(uids()[2]) as stranger:
        again = TrainerUsers(uids(), worker.run_dir / "locks", [worker.shared])
        killed = again.clean_up()
        ended = stray.wait(10)
        given = [again.take() for _ in range(2)]
        return {
            "killed": killed == [stray.pid],
            "ended": ended,
            "stranger": stranger.poll(),
            "given": [uids().index(number) for number in given],
            "notes": len(_notes(worker)),
        }


def users_one_after_the_other(folder: Path) -> object:
    worker = Worker(folder)
    pool = worker.users
    first = [uids().index(pool.take()) for _ in range(4)]
    refused = ""
    try:
        pool.take()
    except Exception as error:  # noqa: BLE001
        refused = type(error).__name__
    pool.take_back(_made(worker, "job_a"), uids()[1])
    with _process_of(uids()[2]) as left:
        pool.take_back(_made(worker, "job_b"), uids()[2])
        again = uids().index(pool.take())
        kept = _notes(worker).__contains__(f"user-{uids()[2]}")
        after = uids().index(pool.take())  # ours to kill, so it is, and its user is free
        return {"first": first, "refused": refused, "again": again, "kept": kept, "after": after, "code": left.wait(10)}


def _made(worker: Worker, job: str) -> Path:
    worker.work_dir(job).mkdir()
    return worker.work_dir(job)


@contextmanager
def _process_of(uid: int, folder: Path = Path("/")) -> "Iterator[subprocess.Popen[bytes]]":
    code = "import os,signal; from workers.privileges import become; become(%d); os.write(1, b'up'); signal.pause()"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code % uid],
        stdout=subprocess.PIPE,
        cwd=folder,
        env=PACKAGES,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.read(2) == b"up"
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()


def checkpoints(folder: Path) -> object:
    worker = Worker(folder)
    with worker.start("checkpoints", secret=str(worker.secret)) as attempt:
        attempt.line()
        work_dir, taken = worker.work_dir("job_1"), worker.run_dir / "work" / "job_1.taken"
        taken.mkdir(mode=0o700)
        refused: dict[str, str] = {}
        for number, name in enumerate(("good", "linked", "piped", "closed", "doubled", "by-a-link", "missing", "..")):
            try:
                take_folder(work_dir, f"checkpoints/{name}", taken / str(number))
            except ForeignFolder:
                refused[name] = "foreign"
            except OSError as error:
                refused[name] = type(error).__name__
        attempt.run.messages.sendall(json.dumps({"taken": str(taken / "0")}).encode())
        changed = attempt.line()["changed"]
    return {
        "refused": refused,
        "content": (taken / "0" / "weights").read_text(),
        "owner": owner(taken / "0"),
        "file": owner(taken / "0" / "weights"),
        "names": sorted(path.name for path in (taken / "0").iterdir()),
        "changed": changed,
    }


def memory_without_a_process(folder: Path) -> object:
    worker = Worker(folder)
    with worker.start("leave_memory") as attempt:
        made = attempt.line()["made"]
        attempt.ended()
        before = left_by(uids()[0])
    return {"made": made, "before": [number for _, number in before], "after": left_by(uids()[0])}


def setuid_program(folder: Path) -> object:
    worker = Worker(folder)
    program = folder / "id"
    program.write_bytes(Path("/usr/bin/id").read_bytes())
    program.chmod(0o4755)
    with worker.start("use_setuid_program", program=str(program)) as attempt:
        return {"user": attempt.line()["user"], "uid": uids()[0], "bit": owner(program)[2]}


def seen(folder: Path) -> object:
    worker = Worker(folder)
    (folder / "open").write_text("for all")
    (folder / "open").chmod(0o644)
    sight = look(worker.users, secret=[worker.secret, folder / "open"], needed=[worker.secret, worker.shared])
    other = look(worker.users, python=Path("/bin/false"))
    silent = folder / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 600\n")
    silent.chmod(0o755)
    mute = look(worker.users, python=silent, timeout_s=0.2)
    return {
        "open": [Path(path).name for path in sight.open],
        "closed": [Path(path).name for path in sight.closed],
        "fault": sight.fault,
        "without": other.fault,
        "mute": mute.fault,
        "left": [path.name for path in worker.users.work.iterdir()],
        "notes": _notes(worker),
    }


def self_tested(folder: Path) -> object:
    worker = Worker(folder)
    device = DeviceFacts(id="cpu-0@host", kind="cpu", name="CPU", position=0)
    environment = {"PATH": os.environ["PATH"]}
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={os.environ["PYTHONPATH"]} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    found = self_test.run({"torch": python}, [device], environment=environment, users=worker.users)
    return {"found": found, "left": [path.name for path in worker.users.work.iterdir()], "notes": _notes(worker)}


def started(folder: Path) -> object:
    """What the start of a worker makes of a home that others may read, and what a look says."""
    home = folder / "home"
    run_dir = home / "run"
    for path in (home, run_dir, home / "storage", run_dir / "locks", run_dir / "work" / "job_1-1"):
        path.mkdir(parents=True, exist_ok=True)
    (home / "trainshed.db").write_text("rows")
    (home / "trainshed.db").chmod(0o644)
    scans = folder / "scans"
    scans.mkdir(mode=0o700)
    (scans / "first.csv").write_text("a\n1\n")  # an empty root is not in use
    settings = Settings(home=home, trainer_uids=f"{uids()[0]}-{uids()[-1]}", data_roots={"scans": scans})
    users = trainer_users(settings)
    assert users is not None
    before = probe(settings, many_processes=False, users=users)
    scans.chmod(0o755)
    (home / "storage").chmod(0o755)
    after = probe(settings, many_processes=False, users=users)
    return {
        "modes": {str(path.relative_to(home)): owner(path)[2] for path in sorted(home.rglob("*"))},
        "before": before.as_json(),
        "after": after.as_json(),
    }


SCENARIOS: dict[str, Callable[[Path], Any]] = {
    name: value for name, value in list(globals().items()) if getattr(value, "__module__", None) == __name__
}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(SCENARIOS[sys.argv[1]](Path(sys.argv[2]))) + "\n")
    sys.stdout.flush()
