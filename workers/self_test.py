"""Whether a framework really computes on a card: a small convolutional model, trained in a process of its own.

Two frameworks bring two builds of cuDNN, and a card may be too old or too new for one of them. So the worker tries
before it offers: through the same backend that trains jobs, pinned like a trainer, and as a trainer's user.
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from app.fleet.devices import OK, DeviceFacts
from workers.environment import framework_environment, trainer_environment
from workers.ownership import remove_tree
from workers.protocol import Device
from workers.trainer_user import NoUserFree, TrainerUsers

TIMEOUT_S: Final = 180.0
"""The first start of a card, with an empty cache of kernels, was reported to take a minute."""
_END_S: Final = 5.0
"""How long to wait for the end of one that was killed."""
_FOLDER: Final = ".self-test"
_LINES: Final = 3
_CHARACTERS: Final = 600


def wanted(choice: str, devices: Sequence[DeviceFacts]) -> list[DeviceFacts]:
    """The device to test on: the first usable card; with `on`, where there is none, the first of any kind."""
    usable = [device for device in devices if device.health == OK]
    cards = [device for device in usable if device.kind == "cuda" and not device.simulated]
    return {"auto": cards, "on": cards or usable}.get(choice, [])[:1]


def run(
    interpreters: Mapping[str, Path],
    devices: Sequence[DeviceFacts],
    timeout_s: float = TIMEOUT_S,
    *,
    environment: Mapping[str, str] | None = None,
    users: TrainerUsers | None = None,
) -> dict[str, str | None]:
    """By framework: None, or why it must not be offered, with the last lines of its output. Never raises.

    `devices`: as `wanted` gives them; each framework is tried on the first. `environment` is the worker's own.
    """
    if not devices:
        return dict.fromkeys(interpreters)
    base = os.environ if environment is None else environment
    return {
        framework: _fault(framework, interpreter, devices[0], timeout_s, base, users)
        for framework, interpreter in interpreters.items()
    }


def _fault(
    framework: str,
    interpreter: Path,
    facts: DeviceFacts,
    timeout_s: float,
    base: Mapping[str, str],
    users: TrainerUsers | None,
) -> str | None:
    kind = "cpu" if facts.kind == "cpu" else "simulated" if facts.simulated else "cuda"
    device = Device(id=facts.id, kind=kind, name=facts.name, pci_bus_id=facts.pci_bus_id)
    try:
        with _work_folder(users) as (folder, uid), tempfile.TemporaryFile() as output:
            question = {
                "framework": framework,
                "device": device.model_dump(),
                "threads": facts.threads,
                "parent": os.getpid(),
                "uid": uid,
            }
            given = {**framework_environment(framework), **trainer_environment([device], 1, folder, base)}
            code = _end_of(interpreter, question, folder, {**given, "TMPDIR": str(folder)}, output, timeout_s)
            if code == 0:
                return None
            how = f"it took longer than {timeout_s:g} s" if code is None else _how(code)
            said = _tail(output, 1 if code == 1 else _LINES)
            return f"The self-test of {framework} on {facts.name} ({facts.id}) failed: {how}. {said}".strip()
    except (OSError, NoUserFree) as error:
        return f"The self-test of {framework} could not be started: {error}."


def _end_of(
    interpreter: Path,
    question: Mapping[str, object],
    folder: Path,
    environment: Mapping[str, str],
    output: IO[bytes],
    timeout_s: float,
) -> int | None:
    """The exit code; None when it was killed for taking too long."""
    # Not as a context manager, which waits without a limit: a process that hangs in a driver does not die of SIGKILL.
    child = subprocess.Popen(
        [str(interpreter), "-P", "-m", "workers.self_test_child"],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    try:
        child.communicate(json.dumps(question).encode() + b"\n", timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_END_S)
    return child.returncode


@contextlib.contextmanager
def _work_folder(users: TrainerUsers | None) -> Iterator[tuple[Path, int | None]]:
    """A folder that the child may write in, and the user that it is to become."""
    if users is None:
        with tempfile.TemporaryDirectory(prefix="trainshed-self-test-", ignore_cleanup_errors=True) as name:
            yield Path(name), None
        return
    uid, folder = users.take(), users.work / _FOLDER
    try:
        remove_tree(folder)
        folder.mkdir(mode=0o700)
        users.hand_over(folder, uid)
        yield folder, uid
    finally:
        users.take_back(folder, uid, kill=True)
        remove_tree(folder)


def _how(code: int) -> str:
    return f"it left with exit code {code}" if code > 0 else f"it ended by signal {signal.Signals(-code).name}"


def _tail(output: IO[bytes], most: int) -> str:
    output.seek(0, os.SEEK_END)
    output.seek(max(0, output.tell() - 16 * 1024))
    lines = [line.strip() for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    return " ".join(lines[-most:])[-_CHARACTERS:]
