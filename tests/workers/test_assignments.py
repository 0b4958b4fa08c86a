"""What of an assignment the worker finds out by itself."""

from pathlib import Path

import pytest

from app.jobs.claims import ClaimedDevice
from workers.assignments import driver_version

CARD = ClaimedDevice("GPU-1", "cuda", "Card", "00000000:17:00.0", 2**34, 1, simulated=False)
SIMULATED = ClaimedDevice("GPU-2", "cuda", "Card", "00000000:ca:00.0", 2**34, 1, simulated=True)
SLOT = ClaimedDevice("cpu-0@host", "cpu", "CPU slot", None, None, 1, simulated=False)


class TestDriverVersion:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "version"
        path.write_text("580.95.05\n")
        return path

    def test_is_that_of_the_kernel_module(self, file: Path) -> None:
        assert driver_version([SLOT, CARD], file) == "580.95.05"

    @pytest.mark.parametrize("device", [SLOT, SIMULATED])
    def test_devices_without_a_driver_have_none(self, file: Path, device: ClaimedDevice) -> None:
        assert driver_version([device], file) is None

    def test_a_driver_that_does_not_say_is_none(self, tmp_path: Path) -> None:
        assert driver_version([CARD], tmp_path / "absent") is None
        (tmp_path / "odd").write_bytes(b"\xff\xfe")
        assert driver_version([CARD], tmp_path / "odd") is None
