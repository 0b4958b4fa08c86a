"""Values of cards, by UUID; through a stand-in for NVML's module (case C19)."""

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pynvml
import pytest

from tests.workers.inventory.nvml_stand_in import GIB, Card, NVMLError, NvmlStandIn
from workers.inventory.telemetry import ENERGY_COUNTER, Sample, sample, sampler_of, shown

WHOLE = Card(
    "GPU-a", "00000000:01:00.0", used=3 * GIB, utilization=87, milliwatts=312_456, celsius=61, millijoules=7_500_000
)


def four_cards() -> list[Card]:
    """In the order of their PCI addresses, busy with 10, 20, 30 and 40 %."""
    return [Card(f"GPU-{n}", f"00000000:0{n}:00.0", utilization=10 * n) for n in range(1, 5)]


class TestValues:
    def test_units_are_a_share_bytes_watts_and_degrees(self) -> None:
        # NVML API reference: utilization in percent, power in milliwatts, temperature in degrees Celsius.
        # Total energy in millijoules since the driver was loaded.
        expected = {"utilization": 0.87, "memory_used_bytes": 3 * GIB, "power_w": 312.456, "temperature_c": 61}
        expected[ENERGY_COUNTER] = 7500.0
        assert sample(NvmlStandIn([WHOLE]), ["GPU-a"]) == {"GPU-a": expected}

    @pytest.mark.parametrize(
        ("cannot", "left_out"),
        [
            ("utilization", "utilization"),
            ("used", "memory_used_bytes"),
            ("milliwatts", "power_w"),
            ("celsius", "temperature_c"),
            ("millijoules", ENERGY_COUNTER),
        ],
    )
    def test_what_a_card_cannot_tell_is_left_out(self, cannot: str, left_out: str) -> None:
        every = sample(NvmlStandIn([WHOLE]), ["GPU-a"])["GPU-a"]
        dumb = replace(WHOLE, **{cannot: None})  # type: ignore[arg-type] # a parametrized field
        found = sample(NvmlStandIn([dumb]), ["GPU-a"])["GPU-a"]
        assert found == {name: value for name, value in every.items() if name != left_out}

    def test_zero_is_a_value(self) -> None:
        idle = replace(WHOLE, used=0, utilization=0, milliwatts=0, celsius=0, millijoules=0)
        assert set(sample(NvmlStandIn([idle]), ["GPU-a"])["GPU-a"].values()) == {0}

    def test_a_slice_is_asked_for_by_its_own_id(self) -> None:
        slices = [Card("MIG-1", "", used=1 * GIB), Card("MIG-2", "", used=2 * GIB)]
        nvml = NvmlStandIn([replace(WHOLE, mig=slices)])
        assert sample(nvml, ["MIG-2"]) == {"MIG-2": {"memory_used_bytes": 2 * GIB}}
        assert nvml.asked == ["MIG-2"]


class TestWhoseCard:
    @pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
    def test_the_third_and_the_fourth_are_those_in_whatever_order_they_are_listed(self, order: tuple[int, ...]) -> None:
        cards = four_cards()
        nvml = NvmlStandIn([cards[n] for n in order])
        found = sample(nvml, ["GPU-3", "GPU-4"])
        assert {card: values["utilization"] for card, values in found.items()} == {"GPU-3": 0.3, "GPU-4": 0.4}
        assert nvml.asked == ["GPU-3", "GPU-4"], "no other card is even asked"

    def test_neither_indices_nor_what_is_visible_play_a_part(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2")
        monkeypatch.delattr(NvmlStandIn, "nvmlDeviceGetHandleByIndex")
        monkeypatch.delattr(NvmlStandIn, "nvmlDeviceGetCount")
        assert sample(NvmlStandIn(four_cards()), ["GPU-4"])["GPU-4"]["utilization"] == 0.4


class TestShown:
    def test_the_counter_and_cards_that_told_only_that_are_left_out(self) -> None:
        told: Sample = {"a": {"power_w": 5.0, ENERGY_COUNTER: 9.0}, "b": {ENERGY_COUNTER: 9.0}}
        assert shown(told) == {"a": {"power_w": 5.0}}


class TestFile:
    def test_simulated_cards_and_slices_tell_what_the_file_says(self, tmp_path: Path) -> None:
        path = tmp_path / "cards.json"
        part = {"uuid": "MIG-1", "memory_mib": 1, "readings": {"memory_used_bytes": 5}}
        cards = [
            {"uuid": "GPU-a", "memory_mib": 9, "readings": {"utilization": 0.5, "power_w": 200}},
            {"uuid": "GPU-b", "memory_mib": 9, "mig_enabled": True, "mig": [part]},
        ]
        path.write_text(json.dumps({"devices": cards}))
        ask = sampler_of(None, path)
        assert ask(["GPU-a", "MIG-1", "GPU-b", "GPU-x"]) == {
            "GPU-a": {"utilization": 0.5, "power_w": 200.0},
            "MIG-1": {"memory_used_bytes": 5.0},
        }
        path.write_text(json.dumps({"devices": [{"uuid": "GPU-a", "readings": {"utilization": 0.0}}]}))
        assert ask(["GPU-a"]) == {"GPU-a": {"utilization": 0.0}}, "it is read at each look"

    @pytest.mark.parametrize(
        "text", [None, "", "[]", '{"devices": [{}]}', '{"devices": [{"uuid": "a", "readings": 5}]}']
    )
    def test_a_file_that_cannot_be_used_tells_nothing(self, tmp_path: Path, text: str | None) -> None:
        path = tmp_path / "cards.json"
        if text is not None:
            path.write_text(text)
        assert sampler_of(None, path)(["a"]) == {}

    def test_without_a_file_the_driver_is_asked(self) -> None:
        assert sampler_of(NvmlStandIn(four_cards()), None)(["GPU-4"])["GPU-4"]["utilization"] == 0.4


class TestRealModule:
    def test_it_has_every_name_that_the_stand_in_has(self) -> None:
        names = [name for name in vars(NvmlStandIn) if name.startswith(("nvml", "NVML"))]
        assert [name for name in names if not hasattr(pynvml, name)] == []

    def test_an_unknown_card_gives_nothing_with_a_driver_and_without(self) -> None:
        assert sample(pynvml, ["GPU-00000000-0000-0000-0000-000000000000"]) == {}


class TestTrouble:
    def test_a_driver_that_does_not_answer_gives_nothing(self) -> None:
        assert sample(NvmlStandIn([WHOLE], driver="Driver/library version mismatch"), ["GPU-a"]) == {}

    def test_a_card_that_is_lost_or_unknown_gives_nothing_and_the_others_theirs(self) -> None:
        cards = four_cards()
        cards[2].lost = True
        assert set(sample(NvmlStandIn(cards), ["GPU-3", "GPU-9", "GPU-4"])) == {"GPU-4"}

    def test_a_card_that_tells_nothing_is_left_out(self) -> None:
        assert sample(NvmlStandIn([Card("GPU-a", "", used=None)]), ["GPU-a"]) == {}

    def test_the_driver_is_left_as_it_was_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nvml = NvmlStandIn([WHOLE])
        sample(nvml, ["GPU-a", "GPU-x"])
        assert nvml.open == 0

        def refuses(_: NvmlStandIn) -> None:
            raise NVMLError("Uninitialized")

        monkeypatch.setattr(NvmlStandIn, "nvmlShutdown", refuses)
        assert set(sample(nvml, ["GPU-a"])) == {"GPU-a"}
