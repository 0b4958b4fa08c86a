"""The command: an engine, base images, the stack, every step, the table, and nothing left behind."""

import argparse
import contextlib
import json
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from scripts.compose_test import edge, evidence, faults, moves, own_code, standing, trainers
from scripts.compose_test.base_images import BaseImages, Debian, choose
from scripts.compose_test.commands import CommandFailed, Shell
from scripts.compose_test.engine import Engine, Skipped, engine
from scripts.compose_test.jobs import FRAMEWORKS, Drill
from scripts.compose_test.report import Report
from scripts.compose_test.service import Service
from scripts.compose_test.stack import BUILT, Stack, free_port, taken_down, undisturbed

ROOT: Final = Path(__file__).resolve().parents[2]
OK: Final = 0
NOT_PASSED: Final = 1
INTERRUPTED: Final = 130
REPOSITORY: Final = "trainshed-compose-test"


class StepFailed(Exception):
    """What follows needs a step that failed."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m scripts.compose_test", description=__doc__)
    made.add_argument("--base-image", metavar="NAME", help="the image with Python that ours are built from")
    made.add_argument("--tree", type=Path, metavar="FOLDER", help="a Debian that debootstrap has already made")
    made.add_argument("--suite", default="bookworm", help="the Debian that stand-ins are made of (%(default)s)")
    made.add_argument("--mirror", help="where it comes from; else where debootstrap looks by itself")
    made.add_argument("--engine-folder", type=Path, metavar="FOLDER", help="keep the data of an engine of our own here")
    made.add_argument("--remove-images", action="store_true", help="delete also the images that speed up the next run")
    made.add_argument(
        "--write", type=Path, metavar="FILE", help="write the table into this file as well, with what it ran on"
    )
    return made


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    # As Ctrl-C: whatever ends this must take the stack down first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    report, used = Report(), list[Engine]()
    # A folder that cannot be deleted is no reason to lose the table.
    with tempfile.TemporaryDirectory(prefix="trainshed-compose-test-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        log = ROOT / "build" / "compose-test.log"
        log.parent.mkdir(exist_ok=True)
        log.write_bytes(b"")
        shell = Shell(_environ(options), log, ROOT)
        try:
            with engine(shell, options.engine_folder or scratch / "engine") as chosen:
                used.append(chosen)
                run(chosen, options, report, scratch)
        except Skipped as reason:
            print(f"SKIPPED: {reason}")
            return OK
        except StepFailed:
            pass
        except CommandFailed as failure:
            # Of the taking down: every step has its own failures.
            report.step("take everything down", lambda error=failure: _raise(error))  # type: ignore[misc]
        except KeyboardInterrupt:
            print("Interrupted; everything was taken down.")
            return INTERRUPTED
    print(f"\n{report.table()}\n\nWhat the programs said: {log}")
    if scratch.exists():
        print(f"This folder could not be deleted: {scratch}")
    if options.write:
        written = evidence.page(report, shell, used[0].version, used[0].compose_version)
        options.write.write_text(written, encoding="utf-8")
    return OK if report.passed else NOT_PASSED


def _raise(error: Exception) -> str:
    raise error


def _environ(options: argparse.Namespace) -> dict[str, str]:
    return {**os.environ, **({"PYTHON_IMAGE": options.base_image} if options.base_image else {})}


def run(chosen: Engine, options: argparse.Namespace, report: Report, scratch: Path) -> None:
    debian = Debian(options.suite, options.mirror, options.tree)
    how = "started for this test" if chosen.ours else "answered"
    needed(report, "engine", lambda: f"{chosen.version}, {how}; {' '.join(chosen.compose)}")
    base = _base_images(chosen, debian, report)
    project = f"trainshed-test-{secrets.token_hex(3)}"
    with contextlib.ExitStack() as stack:
        built = stack.enter_context(
            _images_removed(_stack(chosen, base, project, scratch), whole=options.remove_images)
        )
        needed(report, "build the images", lambda: _build(built))
        with taken_down(built):
            _all_steps(built, report, scratch)
            report.step("take everything down", lambda: _gone(built))


def _base_images(chosen: Engine, debian: Debian, report: Report) -> BaseImages:
    found: list[BaseImages] = []

    def look() -> str:
        found.append(choose(chosen.shell, ROOT, debian, uid=os.getuid()))
        return f"{found[0].how}: {', '.join(filter(None, found[0].names.values()))}"

    needed(report, "base images", look)
    return found[0]


def _stack(chosen: Engine, base: BaseImages, project: str, scratch: Path) -> Stack:
    override = scratch / "override.json"
    network = {"build": {"network": "host"}}
    override.write_text(json.dumps({"services": dict.fromkeys(BUILT, network)}), encoding="utf-8")
    images = {f"{name.upper()}_IMAGE": f"{REPOSITORY}/{name}:{project}" for name in ("api", "worker")}
    wheels = {"WHEELS": str(own_code.write_wheel(scratch / "wheels").parent)}
    ports = {name: str(free_port()) for name in ("API_PORT", "EDGE_PORT")}
    return Stack(chosen, ROOT, project, {**base.names, **images, **ports, **wheels}, override)


@contextlib.contextmanager
def _images_removed(stack: Stack, *, whole: bool) -> Iterator[Stack]:
    """This run's names for the images are gone after the block; the layers stay for the next run, unless `whole`."""
    try:
        yield stack
    finally:
        with undisturbed():
            ours = stack.shell.run("docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", f"{REPOSITORY}/*")
            for image in ours.split():
                if image.endswith(f":{stack.project}") and not whole:
                    stack.shell.run("docker", "tag", image, f"{image.partition(':')[0]}:cache")
                if whole or stack.project in image:
                    stack.shell.succeeds("docker", "image", "rm", image)


def _build(stack: Stack) -> str:
    stack.build("api", "worker")
    standing.expect_no_cuda(stack)
    return standing.image_sizes(stack)


def _all_steps(stack: Stack, report: Report, scratch: Path) -> None:
    needed(report, "up, until all are healthy", lambda: standing.bring_up(stack))
    keys: list[str] = []

    def make_key() -> str:
        keys.append(standing.first_key(stack))
        return "made by `docker compose exec api trainshed key create`"

    needed(report, "the first API key", make_key)
    service = Service(f"http://127.0.0.1:{stack.variables['API_PORT']}", keys[0])
    drill = Drill(stack, service, scratch, keys[0])
    with contextlib.closing(service):
        needed(report, "ready", lambda: _ready(drill))
        for name, work in steps(drill):
            report.step(name, work)
        _upgrade(drill, report)
        report.step("back up, delete everything, restore", lambda: moves.back_up_and_restore(drill))
        report.step("stop everything under a job, start again", lambda: moves.stop_and_start(drill))


def steps(drill: Drill) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each with its name; one that fails does not stop the rest."""
    stack = drill.stack
    yield "only the API is published", lambda: standing.what_is_published(stack)
    yield "confinement of the containers", lambda: standing.how_they_are_confined(stack)
    yield "trainshed doctor in each container", lambda: standing.examined(stack)
    yield "no way out of the data network", lambda: standing.no_way_out(stack)
    for framework in FRAMEWORKS:
        yield f"a job on {framework}", lambda name=framework: standing.train_on(drill, name)  # type: ignore[misc]
    yield "upload a CSV file, train on it", lambda: standing.train_on_upload(drill)
    yield "TLS in front of the API (profile edge)", lambda: edge.tls_in_front(drill)
    yield "what a trainer reaches", lambda: trainers.what_a_trainer_reaches(drill)
    yield "a key for code of users", lambda: own_code.key_for_code(drill)
    for framework in own_code.SCRIPT_FRAMEWORKS:
        yield f"a script on {framework}", lambda name=framework: own_code.run_script(drill, name)  # type: ignore[misc]
    yield "a script of several processes", lambda: own_code.run_ranks(drill)
    yield "a model of a user's own", lambda: own_code.train_own_model(drill)
    yield "restart Redis under a job", lambda: faults.restart_redis(drill)
    yield "restart Redis twice, then a job", lambda: faults.restart_redis_twice(drill)
    yield "restart PostgreSQL under a job", lambda: faults.restart_postgres(drill)
    for framework in FRAMEWORKS:
        name = f"restart the worker under a job on {framework}"
        yield name, lambda chosen=framework: faults.restart_worker(drill, chosen)  # type: ignore[misc]
    yield "kill the worker under a job", lambda: faults.kill_worker(drill)


def _ready(drill: Drill) -> str:
    faults.await_ready(drill)
    worker = drill.service.worker()
    return f"API and worker {worker['version']}, {len(worker['devices'])} devices, {', '.join(worker['frameworks'])}"


def _upgrade(drill: Drill, report: Report) -> None:
    found: list[tuple[Stack, str]] = []

    def build() -> str:
        found.append(moves.build_next(drill.stack, drill.scratch / "next"))
        return f"version {found[0][1]}"

    if report.step("build the next version", build):
        report.step("upgrade under a job", lambda: moves.upgrade(drill, *found[0]))


def _gone(stack: Stack) -> str:
    stack.down()
    left = stack.leftovers()
    if left:
        raise StepFailed(f"still there: {', '.join(left)}")
    return "no container, volume or network is left"


def needed(report: Report, name: str, work: Callable[[], str]) -> None:
    """A step without which nothing else makes sense."""
    skipped: list[Skipped] = []

    def guarded() -> str:
        try:
            return work()
        except Skipped as reason:
            skipped.append(reason)
            raise

    passed = report.step(name, guarded)
    if skipped:
        raise skipped[0]
    if not passed:
        raise StepFailed(name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
