"""Which inventory is used: never the CPU in place of a card that should be there."""

from pathlib import Path
from typing import Literal

import pytest

from tests.workers.inventory.nvml_stand_in import NvmlStandIn, two_cards
from workers.inventory import InventoryChoice, Listing, choose_inventory
from workers.inventory.select import gpu_sign

FILES = Path(__file__).parent / "files"
NO_DRIVER = "Driver Not Loaded"


def listing(
    devices: Literal["auto", "cuda", "cpu"] = "auto",
    *,
    nvml: NvmlStandIn,
    sign: str | None = None,
    simulated: Path | None = None,
    slots: int | None = None,
) -> Listing:
    choice = InventoryChoice(devices, "box", 8, simulated=simulated, cpu_slots=slots)
    return choose_inventory(choice, nvml=nvml, sign=lambda: sign).list_devices()


def ids(listing: Listing) -> list[str]:
    return [device.id for device in listing.devices]


class TestChoice:
    def test_auto_without_any_card_is_the_cpu(self) -> None:
        assert ids(listing(nvml=NvmlStandIn(driver=NO_DRIVER))) == ["cpu-0@box", "cpu-1@box"]

    def test_auto_with_cards_offers_both_kinds(self) -> None:
        assert ids(listing(nvml=two_cards(), sign="/dev/nvidia0 exists")) == [
            "GPU-a",
            "GPU-b",
            "cpu-0@box",
            "cpu-1@box",
        ]

    def test_auto_uses_a_driver_that_answers_without_a_sign(self) -> None:
        assert ids(listing(nvml=two_cards()))[:2] == ["GPU-a", "GPU-b"]

    @pytest.mark.parametrize("nvml", [NvmlStandIn(driver=NO_DRIVER), NvmlStandIn()])
    def test_a_host_that_should_have_cards_and_cannot_list_them_offers_nothing(self, nvml: NvmlStandIn) -> None:
        found = listing(nvml=nvml, sign="/proc/driver/nvidia exists")
        assert found.devices == ()
        assert found.reason is not None
        assert "/proc/driver/nvidia exists" in found.reason
        assert "not even its CPU" in found.reason
        assert "TRAINSHED_DEVICES=cpu" in found.reason

    def test_cuda_asked_for_counts_as_a_sign(self) -> None:
        found = listing("cuda", nvml=NvmlStandIn(driver=NO_DRIVER))
        assert found.devices == ()
        assert "TRAINSHED_DEVICES=cuda" in str(found.reason)
        assert NO_DRIVER in str(found.reason)

    def test_cpu_asked_for_leaves_cards_alone(self) -> None:
        assert ids(listing("cpu", nvml=two_cards(), sign="/dev/nvidia0 exists")) == ["cpu-0@box", "cpu-1@box"]

    @pytest.mark.parametrize("devices", ["auto", "cuda", "cpu"])
    def test_a_file_of_cards_goes_before_all(self, devices: Literal["auto", "cuda", "cpu"]) -> None:
        found = listing(devices, nvml=two_cards(), sign="x", simulated=FILES / "two.json", slots=1)
        assert [(device.kind, device.simulated) for device in found.devices] == [
            ("cuda", True),
            ("cuda", True),
            ("cpu", False),
        ]

    def test_no_slots_means_cards_alone(self) -> None:
        assert ids(listing(nvml=two_cards(), slots=0)) == ["GPU-a", "GPU-b"]


class TestSign:
    def test_a_plain_host_has_none(self, tmp_path: Path) -> None:
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev" / "nvidiactl").touch()  # may be there without any card
        assert gpu_sign(tmp_path) is None

    def test_a_device_node_is_one(self, tmp_path: Path) -> None:
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev" / "nvidia0").touch()
        assert gpu_sign(tmp_path) == "/dev/nvidia0 exists"

    def test_the_drivers_folder_is_one(self, tmp_path: Path) -> None:
        (tmp_path / "proc" / "driver" / "nvidia").mkdir(parents=True)
        assert gpu_sign(tmp_path) == "/proc/driver/nvidia exists"
