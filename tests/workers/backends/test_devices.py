"""Whether a framework sees what was leased."""

import pytest

from app.errors import Cause
from workers.backends.base import DeviceUnavailable
from workers.backends.devices import arithmetic, require
from workers.protocol import Device


def card(number: int, kind: str = "GPU") -> Device:
    return Device(id=f"{kind}-{number}", kind="cuda", name="Card")


class TestArithmetic:
    def test_cards_compute_themselves(self) -> None:
        assert arithmetic([card(1), card(2)]) == "cuda"

    @pytest.mark.parametrize("kind", ["cpu", "simulated"])
    def test_all_else_is_computed_on_the_cpu(self, kind: str) -> None:
        assert arithmetic([Device.model_validate({"id": "x", "kind": kind, "name": "x"})]) == "cpu"


class TestRequire:
    @pytest.mark.parametrize(
        ("leased", "seen"),
        [
            ([card(1)], ["GPU-1"]),
            ([card(1), card(2)], ["GPU-2", "GPU-1"]),
            ([card(1), card(2)], [None, None]),
            ([card(1, "MIG")], [None]),
            ([card(1, "MIG")], ["GPU-9"]),
        ],
    )
    def test_accepts_what_was_leased(self, leased: list[Device], seen: list[str | None]) -> None:
        require(leased, seen, "torch")

    @pytest.mark.parametrize(
        ("seen", "sentence"),
        [
            ([], "The job holds 1 CUDA device, but torch sees no CUDA devices."),
            (["GPU-1", "GPU-2"], "The job holds 1 CUDA device, but torch sees 2 CUDA devices."),
            ([None, None], "The job holds 1 CUDA device, but torch sees 2 CUDA devices."),
            (["GPU-7"], "The job holds GPU-1, but torch sees GPU-7. Nothing was trained."),
        ],
    )
    def test_refuses_anything_else(self, seen: list[str | None], sentence: str) -> None:
        with pytest.raises(DeviceUnavailable) as caught:
            require([card(1)], seen, "torch")

        assert str(caught.value).startswith(sentence)
        assert caught.value.cause == Cause.DEVICE_UNAVAILABLE
