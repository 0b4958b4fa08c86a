"""Runs a user's command in one attempt of a script job, and says for it how it goes and how it ended.

The launcher forks this process and calls `main`. It always sends exactly one `done` or `failed`, unless it is killed.
"""

import errno
import hashlib
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.archives import Contents
from app.errors import Cause, TrainshedError
from workers.scripts.assignment import Job, read
from workers.scripts.best import Best
from workers.scripts.causes import culprit, judge, shown, swallowed
from workers.scripts.checkpoints import CheckpointFolder, Made, best_so_far
from workers.scripts.folders import Folders, prepare
from workers.scripts.keeper import Keeper
from workers.scripts.messages import Channel
from workers.scripts.metrics import Track
from workers.scripts.outputs import UnusableOutputs, collect
from workers.scripts.ranks import Exit, NotStarted, Program, adopt_orphans
from workers.scripts.run import Bell, Run
from workers.scripts.variables import environments, program_of
from workers.scripts.versions import framework_version

_SIGNALLED: Final = 128
_CANCEL: Final = "cancel"
"""The reason of a stop after which nobody goes on, so nothing is kept for it."""
_ERRNOS: Final[Mapping[int, Cause]] = {
    errno.ENOMEM: Cause.HOST_OUT_OF_MEMORY,
    errno.EAGAIN: Cause.WORKER_LOST,  # this host has no room for a process now
    errno.ENOSPC: Cause.ARTIFACT_UNREADABLE,
    errno.EDQUOT: Cause.ARTIFACT_UNREADABLE,
}


_NO_CHECKPOINT: Final = (
    "The command left no complete checkpoint in TRAINSHED_CHECKPOINT_DIR since this attempt began: one is complete "
    "when it has not changed for 2 s, or when its name is printed."
)
_NOT_STARTED: Final[Mapping[int, str]] = {
    errno.ENOEXEC: " A script needs a first line such as #!/bin/sh.",
    errno.EACCES: ' It may not be executed: chmod +x it, or name its interpreter, as in ["sh", "run.sh"].',
    errno.ENOENT: " Its first line names an interpreter that is not here (or it has the line ends of Windows).",
}


class Unable(Exception):
    """The command cannot be run at all."""

    def __init__(self, cause: Cause, sentence: str) -> None:
        super().__init__(sentence)
        self.cause = cause


@dataclass(frozen=True)
class Ready:
    """What is there when the command starts."""

    job: Job
    folders: Folders
    unpacked: Contents | None
    programs: list[Program]


def main(messages: int, assignment: int) -> int:
    """Run the attempt. Takes the descriptors of the message socket and of the assignment; gives the exit status."""
    channel = Channel(socket.socket(fileno=messages))
    with os.fdopen(assignment, "rb") as file:
        job = read(file.read())
    try:
        return _attempt(channel, job)
    except Unable as error:
        channel.failed(error.cause, str(error))
    except Exception:  # noqa: BLE001 - a fault of the host is told too, and its traceback is in the log
        sys.excepthook(*sys.exc_info())
        channel.failed(
            Cause.INCOMPLETE, f"The host of {shown(job.command)} failed itself; its traceback is in the log."
        )
    return 1


def _attempt(channel: Channel, job: Job) -> int:
    bell = Bell()
    ready = _prepare(job)
    track = Track(time.monotonic(), job.resume_step)
    run = Run(channel, bell, track)
    keeper = Keeper(
        CheckpointFolder(
            ready.folders.checkpoints,
            ready.folders.staged,
            lambda code, sentence: run.later(lambda: channel.notice(code, sentence)),
            Best(job.monitor, None if job.resume is None else best_so_far(job.resume)),
            job.max_output_bytes,
            job.resume_step,
        ),
        track.standing,
        lambda made: run.later(lambda: _announce(channel, made, "periodic")),
    )
    if job.resume is not None:
        keeper.begin()
    started_ns = _start(run, ready)
    channel.started(_facts(job, ready.programs[0].environment))
    keeper.start()
    run.to_the_end(keeper)
    return _Ending(channel, ready, run, keeper, track).tell(started_ns)


def _prepare(job: Job) -> Ready:
    """Make everything ready.

    Raises:
        Unable: the devices or the data are others than the job was given, or the code cannot be unpacked, or not found.
    """
    _verify_devices(job)
    _verify_data(job)
    os.chdir(job.work_dir)  # see variables.temporary
    try:
        folders, unpacked = prepare(job)
    except TrainshedError as error:
        raise Unable(Cause.USER_CODE, str(error)) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        cause = _ERRNOS.get(error.errno or 0, Cause.WORKER_LOST)
        raise Unable(cause, f"The files of the job could not be put in place: {reason}.") from error
    programs = [
        Program(_path_of(job, folders, environment), job.command, environment, folders.code)
        for environment in environments(job, folders, os.environ)
    ]
    return Ready(job, folders, unpacked, programs)


def _verify_devices(job: Job) -> None:
    """Refuse to run unless exactly the leased devices were made visible before this process began."""
    wanted = ",".join(device.id for device in job.devices if device.kind != "cpu")
    found = os.environ.get("CUDA_VISIBLE_DEVICES")
    if found != wanted:
        told = "absent" if found is None else f"'{found}'"
        sentence = f"The script's environment has CUDA_VISIBLE_DEVICES {told} where the lease says '{wanted}'."
        raise Unable(Cause.DEVICE_UNAVAILABLE, sentence)


def _verify_data(job: Job) -> None:
    """Refuse to run on a file of a data root that is not what was registered any more."""
    for name, digest in job.digests.items():
        try:
            with job.inputs[name].open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise Unable(Cause.INVALID_DATA, f"The data set '{name}' cannot be read in its place: {reason}.") from error
        if found != digest:
            sentence = f"The data set '{name}' has changed in its place since it was registered. Register it again."
            raise Unable(Cause.INVALID_DATA, sentence)


def _path_of(job: Job, folders: Folders, environment: Mapping[str, str]) -> str:
    word = job.command[0]
    path = program_of(word, job.interpreter, folders.code, environment["PATH"])
    if path is None:
        where = "in the bundle" if "/" in word else "among the environment's programs or on PATH"
        raise Unable(
            Cause.USER_CODE,
            f'There is no program {shown([word])} {where}. A valid command looks like ["python", "train.py"].',
        )
    return path


def _start(run: Run, ready: Ready) -> int:
    """Start the command; answers when that was, in nanoseconds of the clock that files have."""
    started_ns = time.time_ns()
    adopt_orphans()
    try:
        run.start(ready.programs)
    except NotStarted as error:
        sentence = f"{shown(ready.job.command)} could not be started: {error}.{_NOT_STARTED.get(error.number, '')}"
        raise Unable(Cause.USER_CODE, sentence) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        cause = _ERRNOS.get(error.errno or 0, Cause.WORKER_LOST)
        raise Unable(cause, f"{shown(ready.job.command)} could not be started: {reason}.") from error
    return started_ns


def _facts(job: Job, environment: Mapping[str, str]) -> dict[str, Any]:
    """What the job shows that it runs on. The spec's own variables are in the spec, and perhaps secret."""
    return {
        "framework": job.framework,
        "framework_version": framework_version(job.framework),
        "device_kind": "cuda" if job.on_cards else "cpu",
        "devices": [device.name for device in job.devices],
        "simulated": any(device.kind == "simulated" for device in job.devices),
        "environment": {name: value for name, value in environment.items() if name not in job.variables},
        "pid": os.getpid(),
        "pgid": os.getpgid(0),
        "threads": job.threads,
    }


def _announce(channel: Channel, made: Made, reason: str) -> None:
    channel.checkpoint(made.path, made.step, made.epoch, made.metrics, reason=reason, best=made.best)


@dataclass(frozen=True)
class _Ending:
    """No process of the command is left: the last checkpoint, the outputs, and the last word."""

    channel: Channel
    ready: Ready
    run: Run
    keeper: Keeper
    track: Track

    def tell(self, started_ns: int) -> int:
        """Say how it ended; gives the exit status."""
        failed = culprit(self.run.exits, {rank: tail.text() for rank, tail in self.run.tails.items()})
        if self.run.stop is not None:
            # Who was ended by the signal was in the middle of something; who left had its time.
            left = all(end.signal is None for end in self.run.exits)
            self._last_checkpoint("stop", everything=None if self.run.stop == _CANCEL else left)
            if self.run.stop != _CANCEL and not self.keeper.has_made:
                begins = f"step {self.ready.job.resume_step}" if self.ready.job.resume else "its beginning"
                self.channel.notice("stopped_without_checkpoint", f"{_NO_CHECKPOINT} It goes on from {begins}.")
            return self._done({"stopped": "stop"})
        self._last_checkpoint("periodic" if failed else "final", everything=failed is None)
        return self._good(started_ns) if failed is None else self._bad(failed)

    def _bad(self, failed: Exit) -> int:
        job = self.ready.job
        tail = self.run.tails[failed.rank].text()
        unpacked = self.ready.unpacked
        files = () if unpacked is None else [member.name for member in unpacked.files]
        verdict = judge(failed, tail, job.command, job.ranks, on_cards=job.on_cards, files=files)
        self.channel.failed(verdict.cause, verdict.message)
        # As a shell does: the attempt then shows the command's own exit code, or 128 and its signal.
        return failed.code or _SIGNALLED + (failed.signal or 0)

    def _good(self, started_ns: int) -> int:
        ready = self.ready
        try:
            outputs = collect(ready.job, ready.folders, ready.unpacked, started_ns, self.channel.notice)
        except UnusableOutputs as error:
            self.channel.failed(error.cause, str(error))
            return 1
        for output in outputs:
            self.channel.artifact(output.name, output.path, output.media_type)
        code, remark = ("", "") if outputs else self._why_nothing()
        if not remark:
            return self._done({})
        self.channel.notice(code, remark)
        return self._done({"remark": remark})

    def _why_nothing(self) -> tuple[str, str]:
        """What may explain a good end without a file: the code and the sentence of a notice, empty for nothing."""
        lines = (swallowed(tail.text()) for tail in self.run.tails.values())
        if line := next(filter(None, lines), None):
            return "swallowed_error", f"Its last output speaks of memory that ran out: {line.rstrip('.')}."
        if left := sum(end.left for end in self.run.exits):
            many = "1 process" if left == 1 else f"{left} processes"
            return (
                "background_ended",
                f"It left {many} running in the background, which ended with it: let it wait for what it starts.",
            )
        return "", ""

    def _done(self, facts: dict[str, Any]) -> int:
        step = self.keeper.step or None
        self.channel.done(self.track.standing().metrics, {"checkpoint_step": step, **facts})
        return 0

    def _last_checkpoint(self, reason: str, *, everything: bool | None) -> None:
        made = self.keeper.finish(everything=everything)
        self.run.catch_up()
        if made is not None:
            _announce(self.channel, made, reason)
            self.run.catch_up()
