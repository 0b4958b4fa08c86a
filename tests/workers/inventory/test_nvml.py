"""Cards by NVML, through a stand-in for its module."""

import pytest

from app.fleet.condition import Driver
from app.fleet.devices import DeviceProcess
from tests.workers.inventory.nvml_stand_in import Card, NvmlStandIn, Process, two_cards
from workers.inventory import NvmlInventory

ADDRESS = "00000000:01:00.0"


def only(card: Card) -> tuple[str, str | None]:
    (device,) = NvmlInventory(NvmlStandIn([card]), 4).list_devices().devices
    return device.health, device.reason


class TestCards:
    def test_they_are_listed_with_what_the_driver_says(self) -> None:
        first, second = NvmlInventory(two_cards(), 8).list_devices().devices
        assert (first.id, second.id) == ("GPU-a", "GPU-b")
        assert (first.name, first.pci_bus_id, first.memory_bytes) == ("NVIDIA H200", ADDRESS, 80 << 30)
        assert (first.threads, first.simulated) == (4, False)

    def test_bytes_of_old_versions_are_text(self) -> None:
        (device,) = NvmlInventory(NvmlStandIn([Card("GPU-a", ADDRESS, text=bytes)]), 4).list_devices().devices
        assert (device.id, device.name, device.pci_bus_id) == ("GPU-a", "NVIDIA H200", ADDRESS)

    def test_a_sliced_card_is_offered_by_slice_and_never_whole(self) -> None:
        slices = [Card("MIG-1", "", name="H200 MIG 1g.18gb", memory=18), Card("MIG-2", "", memory=36)]
        listing = NvmlInventory(NvmlStandIn([Card("GPU-a", ADDRESS, mig=slices)]), 4).list_devices()
        assert [(d.id, d.memory_bytes, d.pci_bus_id) for d in listing.devices] == [
            ("MIG-1", 18, ADDRESS),
            ("MIG-2", 36, ADDRESS),
        ]

    def test_a_card_in_mig_mode_without_slices_offers_nothing(self) -> None:
        assert NvmlInventory(NvmlStandIn([Card("GPU-a", ADDRESS, mig=[])]), 4).list_devices().devices == ()


class TestHealth:
    def test_a_good_card_is_ok(self) -> None:
        assert only(Card("GPU-a", ADDRESS)) == ("ok", None)

    def test_a_card_that_cannot_tell_is_ok(self) -> None:
        assert only(Card("GPU-a", ADDRESS, ecc_errors=None, remapped=None)) == ("ok", None)

    @pytest.mark.parametrize(
        ("card", "reason"),
        [
            (Card("GPU-a", ADDRESS, ecc_errors=3), "3 uncorrectable memory errors"),
            (Card("GPU-a", ADDRESS, remapped=(0, 1, 1, 0)), "waits to be replaced"),
            (Card("GPU-a", ADDRESS, remapped=(0, 1, 0, 1)), "needs service"),
        ],
    )
    def test_a_sick_card_is_listed_with_its_reason(self, card: Card, reason: str) -> None:
        health, why = only(card)
        assert health == "unhealthy"
        assert reason in str(why)

    def test_a_card_that_fell_off_the_bus_is_told_and_the_others_are_offered(self) -> None:
        cards = [Card("GPU-a", ADDRESS, lost=True), Card("GPU-b", "00000000:02:00.0")]
        listing = NvmlInventory(NvmlStandIn(cards), 4).list_devices()
        assert [device.id for device in listing.devices] == ["GPU-b"]
        assert listing.reason == "The driver lists 2 cards, but card 0 does not answer: GPU is lost."


class TestDriver:
    def test_one_that_does_not_answer_gives_nothing_and_a_reason(self) -> None:
        listing = NvmlInventory(NvmlStandIn(driver="Driver/library version mismatch"), 4).list_devices()
        assert listing.devices == ()
        assert listing.reason == "The NVIDIA driver does not answer: Driver/library version mismatch."

    def test_it_is_left_as_it_was_found(self) -> None:
        nvml = two_cards()
        NvmlInventory(nvml, 4).list_devices()
        assert nvml.open == 0

    def test_a_driver_that_does_not_answer_is_told_from_a_host_without_cards(self) -> None:
        assert NvmlInventory(NvmlStandIn(driver="Unknown Error"), 4).list_devices().blind
        assert not NvmlInventory(NvmlStandIn(), 4).list_devices().blind
        lost = NvmlStandIn([Card("GPU-a", ADDRESS, lost=True)])
        assert not NvmlInventory(lost, 4).list_devices().blind, "the driver knows that this card is not there"

    @pytest.mark.parametrize(
        ("versions", "driver"),
        [(("580.65.06", 13000), Driver("580.65.06", "13.0")), (("535.1", 12020), Driver("535.1", "12.2"))],
    )
    def test_its_version_is_read_from_nvml_s_numbers(self, versions: tuple[str, int], driver: Driver) -> None:
        """CUDA 13.0 is 13000, 12.2 is 12020: NVML API reference, nvmlSystemGetCudaDriverVersion."""
        assert NvmlInventory(NvmlStandIn(versions=versions), 4).list_devices().driver == driver

    def test_one_that_does_not_tell_its_version_is_used_all_the_same(self) -> None:
        nvml = NvmlStandIn([Card("GPU-a", ADDRESS)], versions=None)
        listing = NvmlInventory(nvml, 4).list_devices()
        assert (listing.driver, len(listing.devices)) == (None, 1)


class TestUse:
    def test_processes_are_listed_once_with_their_memory(self) -> None:
        card = Card("GPU-a", ADDRESS, compute=[Process(1, 5), Process(2)], graphics=[Process(1, 5), Process(3, 7)])
        (device,) = NvmlInventory(NvmlStandIn([card]), 4).list_devices().devices
        assert device.processes == (
            DeviceProcess(1, memory_bytes=5),
            DeviceProcess(2),
            DeviceProcess(3, memory_bytes=7, kind="graphics"),
        )

    def test_slices_have_processes_and_memory_of_their_own(self) -> None:
        slices = [Card("MIG-1", "", compute=[Process(1)], used=5), Card("MIG-2", "", used=6)]
        listing = NvmlInventory(NvmlStandIn([Card("GPU-a", ADDRESS, mig=slices)]), 4).list_devices()
        assert [len(device.processes) for device in listing.devices] == [1, 0]
        assert listing.used_bytes == {"MIG-1": 5, "MIG-2": 6}

    def test_an_old_driver_tells_neither_and_is_used_all_the_same(self) -> None:
        card = Card("GPU-a", ADDRESS, compute=[Process(1)], used=5)
        listing = NvmlInventory(NvmlStandIn([card], old=True), 4).list_devices()
        assert (listing.devices[0].processes, listing.used_bytes) == ((), {})
        assert listing.devices[0].memory_bytes == 80 << 30
