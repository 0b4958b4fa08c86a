"""Cards out of a JSON file: everything is as with real ones, except that the trainer computes on the CPU.

    {"devices": [{"index": 0, "uuid": "GPU-…", "pci_bus_id": "00000000:01:00.0", "name": "Card", "memory_mib": 16384,
                  "healthy": true, "last_error": null, "mig_enabled": false, "mig": []}]}

`index` and `name` may be left out; keys that are not known are ignored, so a file may carry notes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import TrainshedError
from app.fleet.registry import DeviceFacts
from workers.inventory.base import HEALTHY, UNHEALTHY, Listing, share_of_threads

MIB: Final = 1024 * 1024


class InvalidInventory(TrainshedError):
    """The file of simulated devices cannot be used."""

    code = "invalid_inventory"

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"TRAINSHED_SIMULATED_INVENTORY names '{path}', which is not usable: {reason}. A valid file: "
            '{"devices": [{"uuid": "GPU-0", "pci_bus_id": "00000000:01:00.0", "name": "Card", "memory_mib": 16384}]}'
        )
        self.path = path


class _Slice(BaseModel):
    model_config = ConfigDict(extra="ignore")

    uuid: str = Field(min_length=1, max_length=120)
    profile: str = ""
    memory_mib: int = Field(gt=0)


class _Card(_Slice):
    index: int | None = None
    pci_bus_id: str | None = None
    name: str = "Simulated card"
    healthy: bool = True
    last_error: str | None = None
    mig_enabled: bool = False
    mig: list[_Slice] = Field(default_factory=list)


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")

    devices: list[_Card]


@dataclass(frozen=True)
class SimulatedInventory:
    """Devices of kind `cuda` with `simulated` set, in the order of their PCI addresses as NVML lists cards.

    A card with MIG enabled is not offered whole: its slices are.

    Raises:
        InvalidInventory: from `list_devices`, when the file is missing or says something impossible.
    """

    path: Path
    cores: int

    def list_devices(self) -> Listing:
        units = [unit for card in self._read() for unit in _units(card)]
        threads = share_of_threads(self.cores, len(units))
        devices = [
            DeviceFacts(
                id=unit.uuid,
                kind="cuda",
                name=name,
                position=position,
                pci_bus_id=card.pci_bus_id,
                memory_bytes=unit.memory_mib * MIB,
                threads=threads,
                simulated=True,
                health=HEALTHY if card.healthy else UNHEALTHY,
                reason=None if card.healthy else card.last_error or "The card is marked as not healthy.",
            )
            for position, (card, unit, name) in enumerate(units)
        ]
        return Listing(tuple(devices))

    def _read(self) -> list[_Card]:
        try:
            cards = _File.model_validate_json(self.path.read_bytes()).devices
        except OSError as error:
            raise InvalidInventory(self.path, error.strerror or "it cannot be read") from error
        except ValidationError as error:
            first = error.errors()[0]
            place = "/".join(str(part) for part in first["loc"])
            raise InvalidInventory(self.path, f"{place or 'the file'}: {first['msg']}") from error
        ids = [unit.uuid for card in cards for _, unit, _ in _units(card)]
        repeated = sorted({identity for identity in ids if ids.count(identity) > 1})
        if repeated:
            raise InvalidInventory(self.path, f"the uuid '{repeated[0]}' is there twice")
        return sorted(cards, key=lambda card: (card.pci_bus_id or "", card.index or 0))


def _units(card: _Card) -> list[tuple[_Card, _Slice, str]]:
    if not card.mig_enabled:
        return [(card, card, card.name)]
    return [(card, part, f"{card.name} MIG {part.profile}".strip()) for part in card.mig]
