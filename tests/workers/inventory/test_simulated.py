"""Cards out of a file."""

import json
from pathlib import Path

import pytest

from app.fleet.devices import DeviceProcess
from workers.inventory import InvalidInventory, SimulatedInventory

FILES = Path(__file__).parent / "files"


def devices_of(name: str) -> list[tuple[str, int | None, str]]:
    listing = SimulatedInventory(FILES / name, 4).list_devices()
    return [(device.id, device.memory_bytes, device.health) for device in listing.devices]


class TestFile:
    def test_cards_are_cuda_and_simulated(self) -> None:
        first, second = SimulatedInventory(FILES / "two.json", 4).list_devices().devices
        assert (first.kind, first.simulated, first.name) == ("cuda", True, "FakeCard")
        assert (first.memory_bytes, first.pci_bus_id) == (16384 << 20, "00000000:01:00.0")
        assert (first.threads, second.position) == (2, 1)

    def test_the_order_is_that_of_pci_addresses_not_of_speed(self) -> None:
        sizes = [memory for _, memory, _ in devices_of("order.json")]
        assert sizes == [8192 << 20, 49152 << 20, 24576 << 20]

    def test_a_sliced_card_gives_its_slices(self) -> None:
        assert devices_of("mig.json") == [
            ("MIG-aaaaaaaa-0000-5000-8000-000000000001", 20480 << 20, "ok"),
            ("MIG-aaaaaaaa-0000-5000-8000-000000000002", 10240 << 20, "ok"),
            ("GPU-66666666-7777-8888-9999-000000000000", 81920 << 20, "ok"),
        ]

    def test_a_sick_card_is_listed_with_its_last_error(self) -> None:
        well, sick = SimulatedInventory(FILES / "sick.json", 4).list_devices().devices
        assert (well.health, well.reason) == ("ok", None)
        assert (sick.health, sick.reason) == ("unhealthy", "Xid 79")


class TestPlantedFaults:
    """The file is read at each look, so that faults can be planted while a worker runs."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "cards.json"

    def write(self, path: Path, *cards: dict[str, object], **rest: object) -> None:
        whole = [{"uuid": f"GPU-{n}", "pci_bus_id": f"0000:0{n}:00.0", "memory_mib": 16} for n in range(len(cards))]
        path.write_text(
            json.dumps({"devices": [card | fault for card, fault in zip(whole, cards, strict=True)], **rest})
        )

    def test_a_vanished_card_is_not_listed_and_told(self, path: Path) -> None:
        inventory = SimulatedInventory(path, 4)
        self.write(path, {}, {})
        assert [device.id for device in inventory.list_devices().devices] == ["GPU-0", "GPU-1"]
        self.write(path, {}, {"vanished": True})
        listing = inventory.list_devices()
        assert ([device.id for device in listing.devices], listing.blind) == (["GPU-0"], False)
        assert listing.reason == "The card GPU-1 does not answer: it is marked as vanished."

    def test_processes_and_memory_in_use_are_those_of_the_file(self, path: Path) -> None:
        ana = {"pid": 4711, "user": "ana", "name": "python", "memory_mib": 2}
        self.write(path, {"processes": [ana, {"pid": 7, "kind": "graphics"}], "memory_used_mib": 3}, {})
        listing = SimulatedInventory(path, 4).list_devices()
        assert listing.devices[0].processes == (
            DeviceProcess(4711, "ana", "python", 2 << 20),
            DeviceProcess(7, kind="graphics"),
        )
        assert listing.used_bytes == {"GPU-0": 3 << 20}

    def test_a_driver_that_does_not_answer_lists_nothing(self, path: Path) -> None:
        self.write(path, {}, driver_error="Unknown Error")
        listing = SimulatedInventory(path, 4).list_devices()
        assert (listing.devices, listing.blind) == ((), True)
        assert listing.reason == "The simulated driver does not answer: Unknown Error."


class TestInvalidFile:
    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            ("not JSON", "Invalid JSON"),
            ("[]", "the file"),
            ("{}", "devices"),
            ('{"devices": [{"memory_mib": 1}]}', "devices/0/uuid"),
            ('{"devices": [{"uuid": "GPU-1", "memory_mib": 0}]}', "devices/0/memory_mib"),
            (
                json.dumps({"devices": [{"uuid": "GPU-1", "memory_mib": 1}, {"uuid": "GPU-1", "memory_mib": 1}]}),
                "'GPU-1' is there twice",
            ),
        ],
    )
    def test_it_says_where_and_shows_a_valid_one(self, tmp_path: Path, content: str, reason: str) -> None:
        path = tmp_path / "cards.json"
        path.write_text(content)
        with pytest.raises(InvalidInventory) as caught:
            SimulatedInventory(path, 4).list_devices()
        assert reason in str(caught.value)
        assert '"memory_mib": 16384' in str(caught.value)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInventory, match=r"TRAINSHED_SIMULATED_INVENTORY.*nowhere\.json.*No such file"):
            SimulatedInventory(tmp_path / "nowhere.json", 4).list_devices()
