"""What cards say of themselves while they work: asked for by UUID, so that nobody is told another card's values."""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

Sample = dict[str, dict[str, float]]
Sampler = Callable[[Sequence[str]], Sample]
ENERGY_COUNTER: Final = "energy_counter_j"
"""Joules since the driver was loaded: only its growth means anything, so it is summed up and never shown."""
READINGS: Final = ("utilization", "memory_used_bytes", "power_w", "temperature_c")


def sampler_of(nvml: Any, simulated: Path | None) -> Sampler:  # noqa: ANN401 - the module pynvml, or a stand-in
    """What asks a host's cards: the driver, or the file of simulated devices where there is one."""
    return partial(sample, nvml) if simulated is None else partial(sample_file, simulated)


def sample(nvml: Any, device_ids: Sequence[str]) -> Sample:  # noqa: ANN401 - the module pynvml, or a stand-in
    """By device id: `utilization` (0 to 1), `memory_used_bytes`, `power_w`, `temperature_c`, `energy_counter_j`.

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


def sample_file(path: Path, device_ids: Sequence[str]) -> Sample:
    """The same of simulated cards: what `readings` says of a card or slice in the file of simulated devices.

        {"devices": [{"uuid": "GPU-0", …, "readings": {"utilization": 0.8, "power_w": 250}}]}

    Read at each look, so that a test may change it meanwhile. A file that cannot be read tells nothing.
    """
    try:
        cards = orjson.loads(path.read_bytes())["devices"]
        units = [unit for card in cards for unit in (card, *card.get("mig", ()))]
        told = {str(unit["uuid"]): unit.get("readings") or {} for unit in units}
        return {
            device_id: {name: float(value) for name, value in told[device_id].items()}
            for device_id in device_ids
            if told.get(device_id)
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def shown(values: Sample) -> Sample:
    """What people are told of a sample."""
    return {
        device_id: {name: told[name] for name in READINGS if name in told}
        for device_id, told in values.items()
        if any(name in told for name in READINGS)
    }


def _values(nvml: Any, device_id: str) -> dict[str, float]:  # noqa: ANN401
    """Units of NVML: percent, bytes, milliwatts, degrees Celsius, millijoules (Volta and newer)."""
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(device_id)
    except nvml.NVMLError:
        return {}
    readings: dict[str, Callable[[], float]] = {
        "utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        "memory_used_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "temperature_c": lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        ENERGY_COUNTER: lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000,
    }
    values: dict[str, float] = {}
    for name, read in readings.items():
        with contextlib.suppress(nvml.NVMLError):
            values[name] = read()
    return values
