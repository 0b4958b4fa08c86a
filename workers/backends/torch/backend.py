"""torch as a backend: devices, threads, errors."""

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Final

import torch

from app.errors import Cause
from workers.backends.base import Backend, Prepared, Program, Session
from workers.backends.devices import arithmetic, require
from workers.backends.initial import Weights
from workers.backends.torch.cards import Card, seen, seen_by_child
from workers.backends.torch.causes import cause_of
from workers.backends.torch.group import Group
from workers.backends.torch.ranks import Kind, RankedSession
from workers.backends.torch.session import TorchSession
from workers.backends.torch.user_session import UserTorchSession
from workers.data.arrays import Arrays
from workers.data.split import PartName
from workers.protocol import Device
from workers.user_model.module import UserModule

USER_BUILD_S: Final = 600.0
"""How long the ranks may take to import a user's code and to build their models."""


class TorchBackend:
    """See `workers.backends.base.Backend`."""

    def __init__(self) -> None:
        self._kind: Kind = "cpu"

    def prepare(self, devices: Sequence[Device], threads: int) -> Prepared:
        """The threads are shared by the ranks, one for each device: more threads than cores is a cliff."""
        torch.set_num_threads(max(1, threads // max(1, len(devices))))
        self._kind = arithmetic(devices)
        names = tuple(device.name for device in devices)
        if self._kind == "cuda":
            # Ranks are forked, and a process that has touched CUDA cannot be: with several cards a child looks.
            cards: list[Card] = seen() if len(devices) == 1 else seen_by_child()
            require(devices, [card.uuid for card in cards], "torch")
            names = tuple(card.name for card in cards)
            _compute_plainly()
        return Prepared(
            framework="torch",
            version=str(torch.__version__),
            device_kind=self._kind,
            devices=names,
            simulated=any(device.kind == "simulated" for device in devices),
            threads=torch.get_num_threads(),
        )

    def open(self, program: Program, weights: Weights, parts: Mapping[PartName, Arrays]) -> Session:
        """One device: in this process. Several: in this one and in forked ones, so before any computation."""
        if program.module is not None:
            return self._open_module(program, program.module, parts)
        if program.world == 1:
            return TorchSession(program, weights, parts, torch.device(self._kind))
        make = functools.partial(_session, program, weights, parts)
        return RankedSession(make, program.world, self._kind, torch.get_num_threads())

    def _open_module(self, program: Program, module: UserModule, parts: Mapping[PartName, Arrays]) -> Session:
        if program.world == 1:
            return UserTorchSession(program, module, parts, torch.device(self._kind))
        make = functools.partial(_user_session, program, module, parts)
        session = RankedSession(make, program.world, self._kind, torch.get_num_threads(), USER_BUILD_S)
        # Every rank has built the model by itself. Code that draws from a generator of its own gives each another one.
        session.restore(session.weights(), None)
        return session

    def cause_of(self, error: BaseException) -> Cause | None:
        return cause_of(error)

    def versions(self) -> dict[str, str]:
        found: dict[str, object] = {"torch": torch.__version__, "cuda": torch.version.cuda}
        if self._kind == "cuda":
            found["cudnn"] = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
            found["nccl"] = ".".join(str(number) for number in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
        return {name: str(version) for name, version in found.items() if version is not None}


def _compute_plainly() -> None:
    """Have float32 mean float32 on a card: torch multiplies in TF32 in convolutions and recurrent layers by default.

    TF32 keeps 10 bits, and what a saved model gives would differ from what it gave in training by 1e-3.
    """
    torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]
    torch.backends.cudnn.rnn.fp32_precision = "ieee"  # type: ignore[attr-defined]
    # Our recurrent weights are transposed on the way; cuDNN copies them, and would say so in every job's log.
    warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")


def _session(
    program: Program, weights: Weights, parts: Mapping[PartName, Arrays], group: Group, device: torch.device
) -> TorchSession:
    return TorchSession(program, weights, parts, device, group)


def _user_session(
    program: Program, module: UserModule, parts: Mapping[PartName, Arrays], group: Group, device: torch.device
) -> UserTorchSession:
    return UserTorchSession(program, module, parts, device, group)


def create() -> Backend:
    return TorchBackend()
