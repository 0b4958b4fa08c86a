"""What cards say of themselves while they work: asked for by UUID, so that nobody is told another card's values."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

Sample = dict[str, dict[str, float]]


def sample(nvml: Any, device_ids: Sequence[str]) -> Sample:  # noqa: ANN401 - the module pynvml, or a stand-in
    """By device id: `utilization` (0 to 1), `memory_used_bytes`, `power_w` and `temperature_c`.

    NVML ignores which devices are visible and numbers them in its own way, so indices mean nothing here. What a device
    cannot tell is left out (a MIG slice knows its memory only), and so is a device that tells nothing. Never raises for
    the driver or a card; may block for as long as the driver does.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return {}
    try:
        found = {device_id: _values(nvml, device_id) for device_id in device_ids}
    finally:
        # Not kept open: a card cannot be reset while somebody has it open.
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()
    return {device_id: values for device_id, values in found.items() if values}


def _values(nvml: Any, device_id: str) -> dict[str, float]:  # noqa: ANN401
    """Units of NVML: percent, bytes, milliwatts, degrees Celsius."""
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(device_id)
    except nvml.NVMLError:
        return {}
    readings: dict[str, Callable[[], float]] = {
        "utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        "memory_used_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "temperature_c": lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
    }
    values: dict[str, float] = {}
    for name, read in readings.items():
        with contextlib.suppress(nvml.NVMLError):
            values[name] = read()
    return values
