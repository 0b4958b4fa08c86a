"""The GPU suite on a host without a card: it says so, costs `make test` nothing, and passes nothing by mistake."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import cards
from tests.gpu.cards import MIB, Card, NoCard

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "tests" / "gpu"
CARD = "GPU-aaaaaaaa-0000-0000-0000-000000000001, Planted card, 00000000:01:00.0, 16384, 3, [N/A]"
OTHER = "GPU-aaaaaaaa-0000-0000-0000-000000000002, Planted card, 00000000:00:00.0, 8192, 0, Enabled"
# As nvidia-smi -L prints a card and its slices (NVIDIA MIG user guide, "MIG device names").
LIST = """GPU 0: NVIDIA A100 (UUID: GPU-aaaaaaaa-0000-0000-0000-000000000002)
  MIG 3g.20gb     Device  0: (UUID: MIG-bbbbbbbb-0000-0000-0000-000000000001)
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A driver's tool that lists two cards where there is none; nothing else of a driver is there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\n[ "$1" = -L ] && printf "%s" "{LIST}" || printf "%s\\n" "{CARD}" "{OTHER}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return program


class TestCards:
    @pytest.mark.usefixtures("planted")
    def test_they_are_listed_in_the_order_of_their_addresses(self) -> None:
        first, second = cards.cards()

        assert (first.pci_bus_id, first.sliced, first.memory_bytes) == ("00000000:00:00.0", True, 8192 * MIB)
        assert (second.id, second.sliced) == (CARD.split(",", maxsplit=1)[0], False)
        assert cards.used_bytes(second) == 3 * MIB

    @pytest.mark.usefixtures("planted")
    def test_slices_are_listed_by_their_own_ids(self) -> None:
        assert cards.slices() == [Card("MIG-bbbbbbbb-0000-0000-0000-000000000001", "MIG 3g.20gb     Device  0:", "", 0)]

    def test_driver_that_fails_is_a_reason(self, planted: Path) -> None:
        planted.write_text("#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n")
        with pytest.raises(NoCard, match="Driver/library version mismatch"):
            cards.cards()

    def test_card_without_memory_of_its_own_is_a_reason(self, planted: Path) -> None:
        planted.write_text("#!/bin/sh\necho 'GPU-1, NVIDIA GB10, 00000000:01:00.0, [N/A], [N/A], [N/A]'\n")
        with pytest.raises(NoCard, match=r"tells no memory of the card, but \[N/A\]"):
            cards.cards()

    def test_processes_have_the_hosts_numbers_in_its_first_namespace_alone(self, tmp_path: Path) -> None:
        # A container has a namespace of its own, whatever engine made it.
        (tmp_path / "pid").touch()
        assert cards.same_processes(tmp_path / "pid") is False
        own = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - a link that leads to no path
        assert cards.same_processes() is (own == 0xEFFFFFFC)  # PROC_PID_INIT_INO, linux/proc_ns.h

    def test_driver_without_cards_is_a_reason(self, planted: Path) -> None:
        planted.write_text("#!/bin/sh\n")
        with pytest.raises(NoCard, match="lists no card"):
            cards.cards()


class TestWithoutACard:
    def test_script_says_skipped_and_why(self, tmp_path: Path) -> None:
        environment = {**os.environ, "PATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "gpu_test.py")],
            capture_output=True,
            text=True,
            env=environment,
            timeout=60,
            check=False,
        )

        assert done.stdout == "SKIPPED: no card: this host has no nvidia-smi, so no NVIDIA driver.\n"
        assert done.returncode == 0

    def test_make_test_never_looks_at_it(self) -> None:
        assert [path.name for path in SUITE.glob("test_*.py")] == []
        assert len(list(SUITE.glob("gpu_*.py"))) >= 6


@pytest.mark.slow
class TestNothingPassesOnACpu:
    @pytest.mark.usefixtures("planted")
    def test_not_even_where_a_driver_claims_a_card(self) -> None:
        command = [sys.executable, "-m", "pytest", "-c", str(SUITE / "pytest.ini"), str(SUITE), "-q"]
        done = subprocess.run(
            [*command, "-k", "not tensorflow"], capture_output=True, text=True, cwd=ROOT, timeout=250, check=False
        )
        counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", done.stdout.splitlines()[-1])}

        assert counts.get("passed", 0) == 0, done.stdout[-3_000:]
        assert "does not compute on GPU-aaaaaaaa-0000-0000-0000-000000000001" in done.stdout
        assert counts["error" if counts.get("error") else "errors"] > 10
