"""Whether a framework sees what was leased. Pure: a backend lists what it sees, this decides."""

from collections.abc import Sequence
from typing import Literal

from workers.backends.base import DeviceUnavailable
from workers.protocol import Device


def arithmetic(devices: Sequence[Device]) -> Literal["cuda", "cpu"]:
    """Return where to compute: simulated devices are leased like cards, and computed on the CPU."""
    return "cuda" if any(device.kind == "cuda" for device in devices) else "cpu"


def require(leased: Sequence[Device], seen: Sequence[str | None], framework: str) -> None:
    """Check the CUDA devices that a framework lists against the leased ones.

    `seen` has one entry per device: its UUID (`GPU-…`), or None where the framework does not tell, as TensorFlow, and
    every framework for a slice of a card (`MIG-…`); then only the count can be checked.

    Raises:
        DeviceUnavailable: another number of devices, or other devices.
    """
    if len(seen) != len(leased):
        raise DeviceUnavailable(
            f"The job holds {_count(len(leased))}, but {framework} sees {_count(len(seen))}. "
            "Nothing was trained, least of all on the CPU. Check the driver and that the installed framework has CUDA."
        )
    wanted = [device.id for device in leased if device.id.startswith("GPU-")]
    found = {uuid for uuid in seen if uuid is not None}
    strange = [uuid for uuid in wanted if found and uuid not in found]
    if strange:
        raise DeviceUnavailable(
            f"The job holds {', '.join(wanted)}, but {framework} sees {', '.join(sorted(found))}. Nothing was trained."
        )


def _count(number: int) -> str:
    return f"{number or 'no'} CUDA device{'' if number == 1 else 's'}"
