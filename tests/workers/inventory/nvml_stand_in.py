"""Stands in for the module pynvml: cards by index, with the calls, names and errors of the real one.

Names and meanings: NVML API reference, "Device Queries" and "Multi Instance GPU Management".
"""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

GIB = 1 << 30


class NVMLError(Exception):
    """The parent of all errors of the library."""


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
    text: type = str


@dataclass
class NvmlStandIn:
    """`driver` is what is wrong with the driver, or None. `open` counts initialisations that were not shut down."""

    cards: list[Card] = field(default_factory=list)
    driver: str | None = None
    open: int = 0

    NVMLError = NVMLError
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0

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

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=card.memory, free=card.memory, used=0)

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


def two_cards() -> NvmlStandIn:
    """NVML lists by PCI address already; here the other way round, so that nothing relies on it."""
    return NvmlStandIn([Card("GPU-b", "00000000:02:00.0"), Card("GPU-a", "00000000:01:00.0")])
