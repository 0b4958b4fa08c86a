"""What every inventory promises, whatever finds the devices."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.workers.inventory.nvml_stand_in import Card, NvmlStandIn, two_cards
from workers.inventory import CpuInventory, Inventory, InventoryChoice, NvmlInventory, SimulatedInventory
from workers.inventory.select import choose_inventory

FILES = Path(__file__).parent / "files"
CORES = 8


def sick_and_sliced() -> NvmlStandIn:
    sliced = Card("GPU-3", "00000000:03:00.0", mig=[Card("MIG-1", "", memory=10), Card("MIG-2", "", memory=20)])
    return NvmlStandIn([Card("GPU-1", "00000000:01:00.0", ecc_errors=4), sliced])


def both() -> Inventory:
    choice = InventoryChoice("auto", "box", CORES, simulated=FILES / "two.json")
    return choose_inventory(choice, nvml=NvmlStandIn(), sign=lambda: None)


INVENTORIES: dict[str, Callable[[], Inventory]] = {
    "nvml": lambda: NvmlInventory(two_cards(), CORES),
    "nvml, sick and sliced": lambda: NvmlInventory(sick_and_sliced(), CORES),
    "nvml, no driver": lambda: NvmlInventory(NvmlStandIn(driver="Driver Not Loaded"), CORES),
    "cpu": lambda: CpuInventory("box", CORES),
    "cpu, none": lambda: CpuInventory("box", CORES, slots=0),
    "simulated": lambda: SimulatedInventory(FILES / "two.json", CORES),
    "simulated, other order": lambda: SimulatedInventory(FILES / "order.json", CORES),
    "simulated, sliced": lambda: SimulatedInventory(FILES / "mig.json", CORES),
    "simulated, sick": lambda: SimulatedInventory(FILES / "sick.json", CORES),
    "simulated and cpu": both,
}


@pytest.fixture(params=list(INVENTORIES))
def inventory(request: pytest.FixtureRequest) -> Inventory:
    return INVENTORIES[request.param]()


class TestEveryInventory:
    def test_lists_the_same_each_time(self, inventory: Inventory) -> None:
        assert inventory.list_devices() == inventory.list_devices()

    def test_ids_are_unique_and_fit_their_column(self, inventory: Inventory) -> None:
        ids = [device.id for device in inventory.list_devices().devices]
        assert len(set(ids)) == len(ids)
        assert all(0 < len(identity) <= 120 for identity in ids)

    def test_positions_count_from_zero_in_the_order_of_the_list(self, inventory: Inventory) -> None:
        positions = [device.position for device in inventory.list_devices().devices]
        assert positions == list(range(len(positions)))

    def test_cards_are_in_the_order_of_their_pci_addresses(self, inventory: Inventory) -> None:
        addresses = [device.pci_bus_id or "" for device in inventory.list_devices().devices if device.kind == "cuda"]
        assert all(first <= second for first, second in pairwise(addresses))

    def test_kinds_are_those_of_the_scheduler(self, inventory: Inventory) -> None:
        for device in inventory.list_devices().devices:
            assert device.kind in {"cuda", "cpu"}
            assert (device.memory_bytes is not None) == (device.kind == "cuda")
            assert not (device.kind == "cpu" and device.simulated)

    def test_whoever_is_not_well_says_why(self, inventory: Inventory) -> None:
        listing = inventory.list_devices()
        assert all((device.health == "ok") == (device.reason is None) for device in listing.devices)

    @pytest.mark.parametrize("kind", ["cuda", "cpu"])
    def test_threads_of_one_kind_fit_the_cores_together(self, inventory: Inventory, kind: str) -> None:
        threads = [device.threads for device in inventory.list_devices().devices if device.kind == kind]
        assert all(count >= 1 for count in threads)
        assert sum(threads) <= max(CORES, len(threads))
