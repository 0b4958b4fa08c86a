"""Which cards this host has, as the driver says; standard library only, so that a host without any is told fast."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MIB: Final = 1024 * 1024
_FIELDS: Final = "uuid,name,pci.bus_id,memory.total,memory.used,mig.mode.current"
_TIMEOUT_S: Final = 30
_SLICED: Final = "Enabled"
_FIRST_NAMESPACE: Final = 0xEFFFFFFC
"""The host's own, of processes: PROC_PID_INIT_INO in linux/proc_ns.h."""


class NoCard(Exception):
    """Why there is none to test on."""


@dataclass(frozen=True)
class Card:
    """`id` is what a lease says: GPU-…, or MIG-… for a slice, which does not tell its memory here (0)."""

    id: str
    name: str
    pci_bus_id: str
    memory_bytes: int
    sliced: bool = False


def cards() -> list[Card]:
    """The whole cards, in the order of their PCI addresses; one that is sliced is among them, and says so.

    Raises:
        NoCard: there is none, or nothing that could tell.
    """
    found = [Card(uuid, name, pci, _bytes(total), mig == _SLICED) for uuid, name, pci, total, _, mig in _asked(_FIELDS)]
    if not found:
        raise NoCard("nvidia-smi lists no card")
    return sorted(found, key=lambda card: card.pci_bus_id)


def slices() -> list[Card]:
    """MIG slices of all cards."""
    lines = _nvidia_smi("-L").splitlines()
    return [
        Card(line.rpartition("UUID: ")[2].rstrip(")"), line.strip().split(" (")[0], "", 0)
        for line in lines
        if "UUID: MIG-" in line
    ]


def used_bytes(card: Card) -> int:
    """Memory in use on a card, by whomever."""
    return next(_bytes(line[4]) for line in _asked(_FIELDS) if line[0] == card.id)


def _bytes(text: str) -> int:
    try:
        return int(text) * MIB
    except ValueError:  # "[N/A]": a card that shares the host's memory has no number of its own
        raise NoCard(f"nvidia-smi tells no memory of the card, but {text}, and the suite measures it") from None


def _asked(fields: str) -> list[list[str]]:
    text = _nvidia_smi(f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    return [[part.strip() for part in line.split(",")] for line in text.splitlines() if line.strip()]


def _nvidia_smi(*arguments: str) -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise NoCard("this host has no nvidia-smi, so no NVIDIA driver")
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoCard(f"nvidia-smi did not answer within {_TIMEOUT_S} s") from error
    if done.returncode:
        said = " ".join((done.stdout + done.stderr).split())
        raise NoCard(f"nvidia-smi says: {said[:200] or 'nothing'}")
    return done.stdout


def same_processes(namespace: Path = Path("/proc/self/ns/pid")) -> bool:
    """Whether the driver names processes as we see them: not in a container, which has numbers of its own."""
    return namespace.stat().st_ino == _FIRST_NAMESPACE
