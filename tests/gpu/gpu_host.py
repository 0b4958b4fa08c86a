"""What the worker finds out about cards: the list, what they are doing, who uses them, and whether they compute."""

import importlib
import os
import time
from typing import Any

import pytest

from tests.gpu.attempts import LONG, until
from tests.gpu.cards import MIB, Card, same_processes, slices, used_bytes
from tests.gpu.conftest import Compute, Train

_LIMIT_S = 60.0


@pytest.fixture
def nvml() -> Any:
    return pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed in this environment")


@pytest.fixture
def server_side() -> None:
    """The inventory is the worker's, and imports its database code."""
    for package in ("sqlalchemy", "orjson"):
        pytest.importorskip(package, reason=f"{package} is not installed: an environment of a framework alone")


def inventory(nvml: Any) -> Any:
    return importlib.import_module("workers.inventory.nvml").NvmlInventory(nvml, os.cpu_count() or 1)


class TestSelfTest:
    def test_framework_computes_rightly(self, compute: Compute, card: Card) -> None:
        assert compute(card, "self test") is None


@pytest.mark.usefixtures("server_side")
class TestInventory:
    def test_it_lists_what_the_driver_lists_in_the_order_of_pci_addresses(
        self, nvml: Any, all_cards: list[Card]
    ) -> None:
        listing = inventory(nvml).list_devices()
        whole = [card.id for card in all_cards if not card.sliced]

        assert [device.id for device in listing.devices if device.id in whole] == whole
        assert [device.kind for device in listing.devices] == ["cuda"] * (len(whole) + len(slices()))
        assert listing.driver is not None

    def test_looking_takes_no_memory_on_the_card(self, nvml: Any, card: Card) -> None:
        before = used_bytes(card)
        seen = [device.id for _ in range(5) for device in inventory(nvml).list_devices().devices]

        assert seen.count(card.id) == 5
        assert used_bytes(card) - before < 32 * MIB

    def test_process_on_the_card_is_named(self, nvml: Any, train: Train, card: Card) -> None:
        if not same_processes():
            pytest.skip("in a container the driver names processes by the host's numbers")
        attempt = train(card, epochs=LONG)
        until(attempt, "report", "failed")
        device = next(each for each in inventory(nvml).list_devices().devices if each.id == card.id)

        assert attempt.started().pid in [process.pid for process in device.processes]


@pytest.mark.usefixtures("server_side")
class TestTelemetry:
    def test_card_at_work_says_so(self, nvml: Any, train: Train, card: Card) -> None:
        sample = importlib.import_module("workers.inventory.telemetry").sample
        attempt = train(card, epochs=LONG, model={"type": "mlp", "hidden": [2048, 2048]})
        until(attempt, "report", "failed")
        give_up, seen = time.monotonic() + _LIMIT_S, 0.0
        while seen == 0.0 and time.monotonic() < give_up:
            values = sample(nvml, [card.id])[card.id]
            seen = values["utilization"]

        assert 0 < seen <= 1
        assert values["memory_used_bytes"] > 0
        assert values["power_w"] > 0
        assert 0 < values["temperature_c"] < 120
