"""Another version under a running job, and the whole service into a backup and out of it again."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

from scripts.compose_test.faults import await_ready
from scripts.compose_test.jobs import Drill, begin, came_through, went_on_without_loss
from scripts.compose_test.service import UnexpectedAnswer
from scripts.compose_test.stack import LASTING, Stack, until
from scripts.compose_test.standing import bring_up

VERSION_FILE: Final = "app/__init__.py"
_HEALTHY_S: Final = 120.0
_VERSION: Final = re.compile(r'(?m)^(__version__\b.*?")([^"]+)(")')


def next_version(text: str) -> tuple[str, str]:
    """The version in app/__init__.py raised by a local part, and the file with it."""
    found = _VERSION.search(text)
    if found is None:
        raise LookupError(f"{VERSION_FILE} has no __version__")
    version = f"{found[2]}+next"
    return version, f"{text[: found.start(2)]}{version}{text[found.end(2) :]}"


def build_next(stack: Stack, folder: Path) -> tuple[Stack, str]:
    """The stack of the next version, built from a copy of the sources, and that version."""
    skipped = shutil.ignore_patterns(".git", ".venv", ".bench-venv", "build", "__pycache__", ".*_cache", "secrets")
    shutil.copytree(stack.root, folder, ignore=skipped, symlinks=True)
    version, text = next_version((folder / VERSION_FILE).read_text(encoding="utf-8"))
    (folder / VERSION_FILE).write_text(text, encoding="utf-8")
    images = {name: f"{stack.variables[name]}-next" for name in ("API_IMAGE", "WORKER_IMAGE")}
    later = replace(stack, root=folder, variables={**stack.variables, **images})
    later.build("api", "worker")
    return later, version


def upgrade(drill: Drill, later: Stack, version: str) -> str:
    """`up` with the new images under a running job, as the operations page says."""
    job_id = begin(drill, "torch")
    drill.stack = later
    drill.stack.up()
    await_ready(drill)
    told = {"worker": drill.service.worker()["version"], "API": drill.service.get("/openapi.json")["info"]["version"]}
    if set(told.values()) != {version}:
        raise UnexpectedAnswer(f"the versions are {told}, and should be {version}")
    job = came_through(drill, job_id, ["drained", None])
    return f"worker and API tell {version}; the job went on at step {went_on_without_loss(drill, job)}"


def back_up_and_restore(drill: Drill) -> str:
    """A backup under a running job; then everything is deleted, and comes back out of the file.

    The key, the finished jobs with their models, the data set, and the running job, which goes on from a checkpoint.
    """
    job_id = begin(drill, "torch")
    kept = drill.scratch / "backup.tar"
    drill.stack.inside("api", "trainshed", "backup", "-", into=kept)
    before = {name: drill.service.job(drill.kept[name]) for name in ("torch", "tensorflow")}
    model = model_of(drill, drill.kept["torch"])
    drill.stack.down()
    restore(drill.stack, kept)
    bring_up(drill.stack)
    await_ready(drill)
    after = {name: drill.service.job(drill.kept[name]) for name in before}
    if after != before or model_of(drill, drill.kept["torch"]) != model:
        raise UnexpectedAnswer("the finished jobs are not what they were before")
    drill.service.get(f"/v1/datasets/{drill.kept['dataset']}")
    job = drill.service.wait(job_id)
    step = job["attempts"][-1]["resumed_from_step"]
    if not step:
        raise UnexpectedAnswer("the job that ran at the time of the backup began anew")
    size = kept.stat().st_size / 1e6
    return f"{size:.1f} MB; key, jobs, models and data set are back; the running job went on at step {step}"


def restore(stack: Stack, backup: Path) -> None:
    """Into a new installation, by the commands of docs/operations.md."""
    stack.compose("up", "--detach", "--no-build", "postgres")
    until(lambda: stack.health("postgres") == "healthy" or None, "PostgreSQL is healthy", _HEALTHY_S)
    stack.compose("run", "--rm", "-T", "--no-deps", "api", "restore", "-", stdin=backup)


def model_of(drill: Drill, job_id: str) -> bytes:
    """The largest file that a job left."""
    files = drill.service.get(f"/v1/jobs/{job_id}/artifacts")["data"]
    largest = max(files, key=lambda file: int(file["size_bytes"]))
    return drill.service.download(f"/v1/jobs/{job_id}/artifacts/{largest['name']}")


def stop_and_start(drill: Drill) -> str:
    """Everything stops under a job, within its grace and by its own exit, and goes on after the next start."""
    job_id = begin(drill, "torch")
    drill.stack.compose("stop")
    codes = {service: drill.stack.state(service)["ExitCode"] for service in LASTING}
    if any(codes.values()):
        raise UnexpectedAnswer(f"exit codes: {codes}")
    bring_up(drill.stack)
    await_ready(drill)
    job = came_through(drill, job_id, ["drained", None])
    return f"every exit code was 0; the job went on at step {went_on_without_loss(drill, job)}"
