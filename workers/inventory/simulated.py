"""Cards out of a JSON file: everything is as with real ones, except that the trainer computes on the CPU.

    {"devices": [{"index": 0, "uuid": "GPU-…", "pci_bus_id": "00000000:01:00.0", "name": "Card", "memory_mib": 16384,
                  "healthy": true, "last_error": null, "mig_enabled": false, "mig": [], "vanished": false,
                  "processes": [{"pid": 4711, "user": "ana", "name": "python", "memory_mib": 900, "kind": "compute"}],
                  "memory_used_mib": 0}],
     "driver_error": null}

Only `devices`, and of each its `uuid` and `memory_mib`, are needed; keys that are not known are ignored, so a file may
carry notes. The file is read at each look, so faults can be planted while a worker runs. A slice has `processes` and
`memory_used_mib` of its own. `driver_error` stands for a driver that does not answer.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import TrainshedError
from app.fleet.devices import OK, UNHEALTHY, DeviceFacts, DeviceProcess
from workers.inventory.base import Listing, share_of_threads

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


class _Process(BaseModel):
    model_config = ConfigDict(extra="ignore")

    pid: int = Field(gt=0)
    user: str | None = None
    name: str | None = None
    memory_mib: int | None = Field(default=None, ge=0)
    kind: Literal["compute", "graphics"] = "compute"

    def as_process(self) -> DeviceProcess:
        used = None if self.memory_mib is None else self.memory_mib * MIB
        return DeviceProcess(self.pid, self.user, self.name, used, self.kind)


class _Slice(BaseModel):
    model_config = ConfigDict(extra="ignore")

    uuid: str = Field(min_length=1, max_length=120)
    profile: str = ""
    memory_mib: int = Field(gt=0)
    memory_used_mib: int | None = Field(default=None, ge=0)
    processes: list[_Process] = Field(default_factory=list)


class _Card(_Slice):
    index: int | None = None
    pci_bus_id: str | None = None
    name: str = "Simulated card"
    healthy: bool = True
    last_error: str | None = None
    mig_enabled: bool = False
    mig: list[_Slice] = Field(default_factory=list)
    vanished: bool = False


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")

    devices: list[_Card]
    driver_error: str | None = None


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
        file = self._read()
        if file.driver_error is not None:
            return Listing(reason=f"The simulated driver does not answer: {file.driver_error}.", blind=True)
        present = [card for card in file.devices if not card.vanished]
        units = [unit for card in present for unit in _units(card)]
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
                health=OK if card.healthy else UNHEALTHY,
                reason=None if card.healthy else card.last_error or "The card is marked as not healthy.",
                processes=tuple(process.as_process() for process in unit.processes),
            )
            for position, (card, unit, name) in enumerate(units)
        ]
        lost = [
            f"The card {card.uuid} does not answer: it is marked as vanished." for card in file.devices if card.vanished
        ]
        used = {unit.uuid: unit.memory_used_mib * MIB for _, unit, _ in units if unit.memory_used_mib is not None}
        return Listing(tuple(devices), " ".join(lost) or None, used)

    def _read(self) -> _File:
        """The file, its cards in the order of their PCI addresses."""
        try:
            file = _File.model_validate_json(self.path.read_bytes())
        except OSError as error:
            raise InvalidInventory(self.path, error.strerror or "it cannot be read") from error
        except ValidationError as error:
            first = error.errors()[0]
            place = "/".join(str(part) for part in first["loc"])
            raise InvalidInventory(self.path, f"{place or 'the file'}: {first['msg']}") from error
        ids = [unit.uuid for card in file.devices for _, unit, _ in _units(card)]
        repeated = sorted({identity for identity in ids if ids.count(identity) > 1})
        if repeated:
            raise InvalidInventory(self.path, f"the uuid '{repeated[0]}' is there twice")
        file.devices.sort(key=lambda card: (card.pci_bus_id or "", card.index or 0))
        return file


def _units(card: _Card) -> list[tuple[_Card, _Slice, str]]:
    if not card.mig_enabled:
        return [(card, card, card.name)]
    return [(card, part, f"{card.name} MIG {part.profile}".strip()) for part in card.mig]
