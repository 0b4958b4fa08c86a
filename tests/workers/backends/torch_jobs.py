"""Jobs of several torch ranks, each in a process of its own that has computed nothing before: ranks are forked.

Run as a program it imports torch once and then forks a process for each job it is asked for, as a launcher does. A
request is a line with a list of names, which run at the same time; the answer is a line with what became of each.
"""

import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any

import numpy as np
import psutil
import torch

from tests.workers.backends.conformance import same
from tests.workers.backends.tensorflow_models import CPUS, PICTURES, SEQUENCES, curve, part, program
from tests.workers.backends.torch_faults import FAULTS
from workers.backends.base import Program, Session, Steps, load_backend
from workers.backends.initial import draw_weights
from workers.confinement import end_with
from workers.data.metrics import no_sums

LIMIT_S = 90


def opened(wanted: Program, rows: int = 35) -> Session:
    backend = load_backend("torch")
    backend.prepare(CPUS[: wanted.world], 1)
    weights = draw_weights(wanted.layers, wanted.input_shape, 3)
    return backend.open(wanted, weights, {"train": part(rows), "validation": part(11, 1)})


def trained(wanted: Program, rows: int = 35, epochs: int = 3) -> list[float]:
    """Train, and close."""
    session = opened(wanted, rows)
    values = curve(session, rows, range(1, epochs + 1))
    session.close()
    session.close()
    return values


def pictures(world: int, **settings: Any) -> list[float]:
    return trained(program(PICTURES, world=world, **{"dtype": "float64", **settings}))


def sequences(world: int) -> list[float]:
    return trained(program(SEQUENCES, world=world, dtype="float64"), 33)


def again(world: int) -> bool:
    """Whether two runs of the same job on several ranks have the same bits."""
    return pictures(world) == pictures(world)


def cut(world: int) -> bool:
    """Whether the sums have the same bits wherever an epoch is cut."""
    rows = np.random.default_rng(0).integers(0, 35, (7, 16))
    found = []
    for pieces in ([7], [1, 4, 2]):
        session, sums, step = opened(program(world=world)), no_sums("classification"), 0
        for count in pieces:
            chunk = Steps(rows[step : step + count], np.full(count, 0.01), step)
            sums, step = session.run(chunk, sums), step + count
        found.append((sums.tolist(), session.weights()))
        session.close()
    return found[0][0] == found[1][0] and same(found[0][1], found[1][1])


def goes_on(world: int) -> bool:
    """Whether a new session goes on where another one is, bit by bit."""
    first = opened(program(world=world))
    curve(first, epochs=[1, 2])
    weights, state = first.weights(), first.state()
    onward = curve(first, epochs=[3])
    first.close()
    second = opened(program(world=world))
    second.restore(weights, state)
    found = curve(second, epochs=[3]) == onward and same(second.weights(), first.weights())
    second.close()
    return found


def looked(world: int) -> list[Any]:
    """Return the logits of 11 rows at once, in pieces smaller than the number of ranks, and the shape of none."""
    session = opened(program(world=world, dtype="float64"))
    pieces = [session.outputs("validation", start, min(start + 3, 11)) for start in range(0, 11, 3)]
    whole, none = session.outputs("validation", 0, 11), session.outputs("validation", 4, 4)
    session.close()
    return [whole.ravel().tolist(), np.concatenate(pieces).ravel().tolist(), list(none.shape)]


def threads() -> list[int]:
    """Return how many threads rank 0 computes with when two ranks share four and one, and what is then reported."""
    counts = []
    for given in (4, 1):
        prepared = load_backend("torch").prepare(CPUS[:2], given)
        counts += [prepared.threads, torch.get_num_threads()]
    return counts


def listening() -> list[str]:
    """Return the addresses that either rank listens on while they train, and how many sockets those are."""
    session = opened(program(world=2))
    family = [psutil.Process(), *psutil.Process().children()]
    sockets = [found for each in family for found in each.net_connections("inet") if found.status == "LISTEN"]
    session.close()
    return sorted({str(found.laddr.ip) for found in sockets})


def beside_another() -> list[float]:
    """Train while somebody holds the port that torch's own launcher likes."""
    with socket.socket() as taken, suppress(OSError):
        taken.bind(("127.0.0.1", 29500))
        taken.listen()
        return pictures(2)
    return pictures(2)


def terminated() -> list[float]:
    """SIGTERM reaches the whole group, which goes on until rank 0 says otherwise."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    session = opened(program(world=2, dtype="float64"))
    for child in psutil.Process().children():
        child.terminate()
    values = curve(session, epochs=range(1, 4))
    session.close()
    return values


JOBS: dict[str, Callable[[], Any]] = {
    **{f"pictures {world}": lambda world=world: pictures(world) for world in (1, 2, 3, 4)},  # type: ignore[misc]
    **{f"sequences {world}": lambda world=world: sequences(world) for world in (1, 2)},  # type: ignore[misc]
    **{f"float32 {world}": lambda world=world: pictures(world, dtype="float32") for world in (1, 2)},  # type: ignore[misc]
    "float16 2": lambda: pictures(2, dtype="float32", precision="float16"),
    "again": lambda: again(2),
    "cut": lambda: cut(3),
    "goes on": lambda: goes_on(2),
    "looked": lambda: looked(4),
    "threads": threads,
    "listening": listening,
    "beside another": beside_another,
    "terminated": terminated,
    **FAULTS,
}


def start(name: str) -> tuple[int, int, IO[str]]:
    """Fork a process for a job; returns its pid, the end of a pipe with its result, and a file with its errors."""
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by its reader
    theirs, ours = os.pipe()
    pid = os.fork()
    if pid == 0:
        end_with(os.getppid())
        os.close(theirs)
        os.dup2(errors.fileno(), 2)
        status = 1
        try:
            os.write(ours, json.dumps(JOBS[name]()).encode())
            status = 0
        finally:
            sys.excepthook(*sys.exc_info()) if status else None
            os._exit(status)
    os.close(ours)
    return pid, theirs, errors


def outcome(pid: int, results: int, errors: IO[str]) -> dict[str, Any]:
    """Wait for all processes of a job: the pipe ends when the last of them has gone."""
    signal.alarm(LIMIT_S)
    with os.fdopen(results, "rb") as pipe, errors:
        text = pipe.read()
        _, status = os.waitpid(pid, 0)
        errors.seek(0)
        said = errors.read()
    signal.alarm(0)
    return {"result": json.loads(text or "null"), "status": os.waitstatus_to_exitcode(status), "errors": said}


def requests() -> Iterator[list[str]]:
    for line in sys.stdin:
        yield json.loads(line)


def main() -> None:
    for names in requests():
        found = [outcome(*job) for job in [start(name) for name in names]]
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
