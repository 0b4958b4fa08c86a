"""NVIDIA cards by NVML: by UUID, never by index, since NVML's numbering is not CUDA's and ignores what is visible."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from app.fleet.condition import Driver
from app.fleet.devices import OK, UNHEALTHY, DeviceFacts, DeviceProcess
from workers.inventory.base import Listing, share_of_threads

LOST: Final = "The driver lists {count} cards, but card {index} does not answer: {error}."


@dataclass(frozen=True)
class NvmlInventory:
    """Cards of this host in the order of their PCI addresses; MIG slices instead of cards that are sliced.

    `nvml` is the module `pynvml`. It needs no CUDA context, so listing takes no memory on any card. A card that has
    fallen off the bus has no UUID to ask for: it is told in the listing's reason.
    """

    nvml: Any
    cores: int

    def list_devices(self) -> Listing:
        nvml = self.nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            return Listing(reason=f"The NVIDIA driver does not answer: {error}.", blind=True)
        try:
            return self._list()
        except nvml.NVMLError as error:
            return Listing(reason=f"The NVIDIA driver cannot list its cards: {error}.", blind=True)
        finally:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()

    def _list(self) -> Listing:
        nvml = self.nvml
        count = nvml.nvmlDeviceGetCount()
        found: list[DeviceFacts] = []
        used: dict[str, int] = {}
        reasons: list[str] = []
        for index in range(count):
            try:
                found.extend(self._card(nvml.nvmlDeviceGetHandleByIndex(index), used))
            except nvml.NVMLError as error:
                reasons.append(LOST.format(count=count, index=index, error=error))
        threads = share_of_threads(self.cores, len(found))
        found.sort(key=lambda device: device.pci_bus_id or "")
        devices = [replace(device, position=position, threads=threads) for position, device in enumerate(found)]
        return Listing(tuple(devices), " ".join(reasons) or None, used, self._driver())

    def _driver(self) -> Driver | None:
        """NVML gives CUDA's version as one number: 13000 is 13.0."""
        nvml = self.nvml
        try:
            version = _text(nvml.nvmlSystemGetDriverVersion())
            cuda = int(nvml.nvmlSystemGetCudaDriverVersion())
        except nvml.NVMLError:
            return None
        return Driver(version, f"{cuda // 1000}.{cuda % 1000 // 10}")

    def _card(self, handle: Any, used: dict[str, int]) -> list[DeviceFacts]:  # noqa: ANN401 - NVML's handles have no type
        """The card, or its slices; notes the memory in use of each."""
        problem = self._problem(handle)
        pci_bus_id = _text(self.nvml.nvmlDeviceGetPciInfo(handle).busId)
        slices = self._slices(handle)
        devices = []
        for unit in [handle] if slices is None else slices:
            identity = _text(self.nvml.nvmlDeviceGetUUID(unit))
            total, in_use = self._memory(unit)
            if in_use is not None:
                used[identity] = in_use
            devices.append(
                DeviceFacts(
                    id=identity,
                    kind="cuda",
                    name=_text(self.nvml.nvmlDeviceGetName(unit)),
                    position=0,
                    pci_bus_id=pci_bus_id,
                    memory_bytes=total,
                    health=OK if problem is None else UNHEALTHY,
                    reason=problem,
                    processes=tuple(self._processes(unit)),
                )
            )
        return devices

    def _memory(self, unit: Any) -> tuple[int, int | None]:  # noqa: ANN401
        """Bytes in all and in use. The first version of the call counts the driver's own share as used: no use here."""
        nvml = self.nvml
        total = int(nvml.nvmlDeviceGetMemoryInfo(unit).total)
        try:
            return total, int(nvml.nvmlDeviceGetMemoryInfo(unit, nvml.nvmlMemory_v2).used)
        except nvml.NVMLError:
            return total, None

    def _processes(self, unit: Any) -> Iterator[DeviceProcess]:  # noqa: ANN401
        """What has a context on the device, each process once; a driver that does not tell names none."""
        nvml = self.nvml
        seen: set[int] = set()
        for kind, ask in (
            ("compute", nvml.nvmlDeviceGetComputeRunningProcesses),
            ("graphics", nvml.nvmlDeviceGetGraphicsRunningProcesses),
        ):
            # The second is no NVMLError: an older driver lacks the newest version of the call.
            with contextlib.suppress(nvml.NVMLError, nvml.NVMLLibraryMismatchError):
                for process in ask(unit):
                    if process.pid not in seen:
                        seen.add(process.pid)
                        yield DeviceProcess(process.pid, memory_bytes=process.usedGpuMemory, kind=kind)

    def _slices(self, handle: Any) -> list[Any] | None:  # noqa: ANN401
        """Handles of the card's MIG slices, or None when it is not sliced (most cards cannot be)."""
        nvml = self.nvml
        try:
            current, _ = nvml.nvmlDeviceGetMigMode(handle)
            if current != nvml.NVML_DEVICE_MIG_ENABLE:
                return None
            most = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
        except nvml.NVMLError:
            return None
        return list(self._existing_slices(handle, most))

    def _existing_slices(self, handle: Any, most: int) -> Iterator[Any]:  # noqa: ANN401
        for index in range(most):
            with contextlib.suppress(self.nvml.NVMLError):  # a place where no slice was made
                yield self.nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)

    def _problem(self, handle: Any) -> str | None:  # noqa: ANN401
        """Why no job should get this card, or None. What a card cannot tell (many have no ECC) is no fault."""
        nvml = self.nvml
        with contextlib.suppress(nvml.NVMLError):
            errors = nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
            if errors:
                return f"{errors} uncorrectable memory errors since the driver was loaded; reset the card."
        with contextlib.suppress(nvml.NVMLError):
            _, _, pending, failed = nvml.nvmlDeviceGetRemappedRows(handle)
            if failed:
                return "Replacing a faulty row of memory failed; the card needs service."
            if pending:
                return "A faulty row of memory waits to be replaced; reset the card."
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
