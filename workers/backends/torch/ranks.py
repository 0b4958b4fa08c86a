"""Several devices of one host as one session: rank 0 is the trainer itself, the other ranks are forked from it.

    rank 0: tell(run) ── run ─ collective ─ collective ── answers
    rank 1: ─── receive ── run ─ collective ─ collective ── send

Every rank has all rows and all weights and makes the same calls on its share of each batch. The ranks meet through a
file in a private folder, so there is no port to be taken, and Gloo and NCCL listen on the loopback interface alone.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from workers.backends.base import Session, SessionState, Steps
from workers.backends.initial import WeightFacts, Weights
from workers.backends.torch.followers import Followers
from workers.backends.torch.group import Group, Together, share
from workers.backends.torch.wire import ByName, receive, send
from workers.data.metrics import Sums
from workers.data.split import PartName

JOIN_S: Final = 60.0
"""How long ranks have to build their models, and then to meet."""

COLLECTIVE_S: Final = 600.0
"""How long a rank waits for the others in a collective. All make equal steps, so only a rank that hangs takes long."""

_LOOPBACK: Final = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")

Kind = Literal["cuda", "cpu"]
Make = Callable[[Group, torch.device], Session]
Given = TypeVar("Given")


class RankedSession:
    """See `workers.backends.base.Session`; to be made before the process has computed anything.

    `make(group, device)` builds the session of one rank, in its own process. `threads`: of each rank. `build_s`: how
    long that may take.
    """

    def __init__(self, make: Make, world: int, kind: Kind, threads: int, build_s: float = JOIN_S) -> None:
        self._world = world
        self._kind = kind
        self._closed = False
        self._folder = Path(tempfile.mkdtemp(prefix="trainshed-ranks-"))
        meeting = self._folder / "meeting"

        def body(rank: int, connection: Connection) -> None:
            torch.set_num_threads(threads)
            _follow(connection, make, rank, world, kind, meeting)

        self._followers = Followers(world, body)
        try:
            self._own = make(Together(0, world), _device(kind, 0))
            self._followers.answers(build_s)
            self._followers.tell({"order": "join"})
            _join(0, world, kind, meeting)
            self._followers.answers(JOIN_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, another rank may be the reason
            self._leave()
            raise self._followers.fault(error) from None

    def run(self, steps: Steps, sums: Sums) -> Sums:
        arrays: ByName = {"rows": steps.rows, "rates": steps.rates, "sums": sums}
        return self._together(
            {"order": "run", "first": steps.first}, arrays, lambda: self._own.run(steps, sums), lambda own, _: own
        )

    def outputs(self, part: PartName, start: int, stop: int) -> NDArray[np.floating]:
        return self._together(
            {"order": "outputs", "part": part, "start": start, "stop": stop},
            {},
            lambda: _outputs(self._own, part, start, stop, 0, self._world),
            lambda own, others: np.concatenate([own, *(given["outputs"] for given in others)]),
        )

    def facts(self) -> dict[str, WeightFacts]:
        return self._own.facts()

    def weights(self) -> Weights:
        return self._own.weights()

    def state(self) -> SessionState:
        return self._own.state()

    def restore(self, weights: Weights, state: SessionState | None) -> None:
        arrays: ByName = {f"weights.{name}": value for name, value in weights.items()}
        arrays |= {f"state.{name}": value for name, value in (state or {}).items()}
        head = {"order": "restore", "state": state is not None}
        self._together(head, arrays, lambda: self._own.restore(weights, state), lambda _, __: None)

    def close(self) -> None:
        """Let the ranks leave. Their process should end by `os._exit` then: freeing what Gloo used was seen to hang."""
        if self._closed:
            return
        self._closed = True
        self._followers.close()
        self._leave()

    def _together(
        self,
        head: Mapping[str, object],
        arrays: Mapping[str, NDArray[Any]],
        own: Callable[[], Given],
        joined: Callable[[Given, list[ByName]], Given],
    ) -> Given:
        """Have every rank do the same; returns what rank 0 made of its own result and the others'."""
        try:
            self._followers.tell(head, arrays)
            result = own()
            return joined(result, self._followers.answers())
        except Exception as error:
            self._closed = True
            failure = self._followers.fault(error)
            self._leave()
            if failure is error:
                raise
            raise failure from failure.__cause__

    def _leave(self) -> None:
        """Leave the process group. NCCL would wait there for ranks that have left; its end comes with the process."""
        if dist.is_initialized() and self._kind == "cpu":
            dist.destroy_process_group()
        shutil.rmtree(self._folder, ignore_errors=True)


def _follow(connection: Connection, make: Make, rank: int, world: int, kind: Kind, meeting: Path) -> None:
    """Be one of the other ranks: do what rank 0 says until it says `close`."""
    session = make(Together(rank, world), _device(kind, rank))
    send(connection, {"done": "built"})
    while True:
        head, arrays = receive(connection)
        given: ByName = {}
        match head["order"]:
            case "join":
                _join(rank, world, kind, meeting)
            case "run":
                session.run(Steps(arrays["rows"], arrays["rates"], head["first"]), arrays["sums"])
            case "outputs":
                mine = _outputs(session, head["part"], head["start"], head["stop"], rank, world)
                given = {"outputs": mine}
            case "restore":
                session.restore(_under("weights.", arrays), _under("state.", arrays) if head["state"] else None)
            case "close":
                return
        send(connection, {"done": head["order"]}, given)


def _join(rank: int, world: int, kind: Kind, meeting: Path) -> None:
    """Meet the other ranks.

    Raises:
        RuntimeError: not all came within a minute.
    """
    for variable in _LOOPBACK:
        os.environ.setdefault(variable, "lo")
    dist.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=JOIN_S),
    )
    # Private, and the only way to give the meeting and the work different limits.
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=COLLECTIVE_S))  # noqa: SLF001


def _device(kind: Kind, rank: int) -> torch.device:
    if kind == "cuda":
        torch.cuda.set_device(rank)
    return torch.device(kind, rank) if kind == "cuda" else torch.device("cpu")


def _outputs(session: Session, part: PartName, start: int, stop: int, rank: int, world: int) -> NDArray[np.floating]:
    mine = share(stop - start, rank, world)
    return session.outputs(part, start + mine.start, start + mine.stop)


def _under(prefix: str, arrays: ByName) -> ByName:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
