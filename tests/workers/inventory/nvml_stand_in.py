"""Stands in for the module pynvml: cards by index, with the calls, names and errors of the real one.

Names and meanings: NVML API reference, "Device Queries" and "Multi Instance GPU Management".
"""

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

GIB = 1 << 30


class NVMLError(Exception):
    """The parent of all errors of the library."""


class NVMLLibraryMismatchError(Exception):
    """The driver lacks the newest version of a call; no NVMLError in the library either."""


@dataclass
class Process:
    """One line of a device's running processes; no memory where the driver does not tell it."""

    pid: int
    usedGpuMemory: int | None = None  # noqa: N815 - the library's own name


@dataclass
class Card:
    uuid: str
    pci: str
    name: str = "NVIDIA H200"
    memory: int = 80 * GIB
    ecc_errors: int | None = 0
    remapped: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    mig: list["Card"] | None = None
    lost: bool = False
    used: int | None = 0
    utilization: int | None = None
    milliwatts: int | None = None
    celsius: int | None = None
    millijoules: int | None = None
    text: type = str
    compute: list[Process] = field(default_factory=list)
    graphics: list[Process] = field(default_factory=list)


def _set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass
class NvmlStandIn:
    """`driver` is what is wrong with the driver, or None. `open` counts initialisations that were not shut down.

    `old`: it has neither the second version of the memory call nor the third of the processes'. `versions`: the
    driver's, and CUDA's as one number.

    `asked` are the UUIDs that somebody asked for. As long as `answers` is cleared, every such call blocks.
    """

    cards: list[Card] = field(default_factory=list)
    driver: str | None = None
    open: int = 0
    asked: list[str] = field(default_factory=list)
    answers: threading.Event = field(default_factory=_set_event)

    versions: tuple[str, int] | None = ("580.65.06", 13000)
    old: bool = False

    NVMLError = NVMLError
    NVMLLibraryMismatchError = NVMLLibraryMismatchError
    nvmlMemory_v2 = 33554472  # noqa: N815 - the library's own name
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    NVML_TEMPERATURE_GPU = 0

    def nvmlInit(self) -> None:  # noqa: N802 - the library's own names, here and below
        if self.driver is not None:
            raise NVMLError(self.driver)
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:  # noqa: N802
        if self.cards[index].lost:
            raise NVMLError("GPU is lost")
        return self.cards[index]

    def nvmlDeviceGetUUID(self, card: Card) -> Any:  # noqa: N802 - text, or bytes in old versions
        return card.uuid if card.text is str else card.uuid.encode()

    def nvmlDeviceGetName(self, card: Card) -> Any:  # noqa: N802
        return card.name if card.text is str else card.name.encode()

    def nvmlDeviceGetPciInfo(self, card: Card) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=card.pci if card.text is str else card.pci.encode())

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        if self.versions is None:
            raise NVMLError("Unknown Error")
        return self.versions[0]

    def nvmlSystemGetCudaDriverVersion(self) -> int:  # noqa: N802
        return self.versions[1] if self.versions else 0

    def nvmlDeviceGetComputeRunningProcesses(self, card: Card) -> list[Process]:  # noqa: N802
        if self.old:
            raise NVMLLibraryMismatchError("Unversioned function called")
        return card.compute

    def nvmlDeviceGetGraphicsRunningProcesses(self, card: Card) -> list[Process]:  # noqa: N802
        if self.old:
            raise NVMLLibraryMismatchError("Unversioned function called")
        return card.graphics

    def nvmlDeviceGetMemoryInfo(self, card: Card, version: int | None = None) -> SimpleNamespace:  # noqa: N802
        if version is not None and self.old:
            raise NVMLError("Function Not Found")
        used = _told(card.used)
        return SimpleNamespace(total=card.memory, free=card.memory - used, used=used)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Card:  # noqa: N802
        self.asked.append(uuid)
        self.answers.wait()
        for card in self.cards:
            for unit in [card] if card.mig is None else card.mig:
                if unit.uuid == uuid and not unit.lost:
                    return unit
        raise NVMLError("Not Found")

    def nvmlDeviceGetUtilizationRates(self, card: Card) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=_told(card.utilization), memory=0)

    def nvmlDeviceGetPowerUsage(self, card: Card) -> int:  # noqa: N802
        return _told(card.milliwatts)

    def nvmlDeviceGetTemperature(self, card: Card, _sensor: int) -> int:  # noqa: N802
        return _told(card.celsius)

    def nvmlDeviceGetTotalEnergyConsumption(self, card: Card) -> int:  # noqa: N802
        return _told(card.millijoules)

    def nvmlDeviceGetMigMode(self, card: Card) -> tuple[int, int]:  # noqa: N802
        if card.mig is None:
            raise NVMLError("Not Supported")
        return (1, 1)

    def nvmlDeviceGetMaxMigDeviceCount(self, card: Card) -> int:  # noqa: N802
        return 7 if card.mig is not None else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, index: int) -> Card:  # noqa: N802
        slices = card.mig or []
        if index >= len(slices):
            raise NVMLError("Not Found")
        return slices[index]

    def nvmlDeviceGetTotalEccErrors(self, card: Card, _kind: int, _counter: int) -> int:  # noqa: N802
        if card.ecc_errors is None:
            raise NVMLError("Not Supported")
        return card.ecc_errors

    def nvmlDeviceGetRemappedRows(self, card: Card) -> tuple[int, int, int, int]:  # noqa: N802
        if card.remapped is None:
            raise NVMLError("Not Supported")
        return card.remapped


def _told(value: int | None) -> int:
    if value is None:
        raise NVMLError("Not Supported")
    return value


def two_cards() -> NvmlStandIn:
    """NVML lists by PCI address already; here the other way round, so that nothing relies on it."""
    return NvmlStandIn([Card("GPU-b", "00000000:02:00.0"), Card("GPU-a", "00000000:01:00.0")])
