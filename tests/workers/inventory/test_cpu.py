"""CPU slots, and how many cores there are to share."""

from pathlib import Path

import pytest

from workers.inventory import CpuInventory
from workers.inventory.cores import usable_cores


class TestSlots:
    @pytest.mark.parametrize(
        ("cores", "slots", "expected"),
        [
            (1, None, [1]),
            (2, None, [2]),
            (4, None, [4]),
            (8, None, [4, 4]),
            (15, None, [5, 5, 5]),
            (8, 3, [2, 2, 2]),
            (2, 4, [1, 1, 1, 1]),
            (8, 0, []),
        ],
    )
    def test_cores_are_shared_evenly(self, cores: int, slots: int | None, expected: list[int]) -> None:
        devices = CpuInventory("box", cores, slots).list_devices().devices
        assert [device.threads for device in devices] == expected

    def test_ids_name_the_host(self) -> None:
        assert CpuInventory("box", 2).list_devices().devices[0].id == "cpu-0@box"


def cores(root: Path, membership: str, affinity: int = 16) -> int:
    (root / "self").write_text(membership)
    return usable_cores(cgroups=root / "cgroup", membership=root / "self", affinity=affinity)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class TestCores:
    # Layouts: Documentation/admin-guide/cgroup-v2.rst ("cpu.max") and scheduler/sched-bwc.rst ("cpu.cfs_quota_us").
    def test_without_a_quota_it_is_the_affinity(self, tmp_path: Path) -> None:
        write(tmp_path / "cgroup" / "box" / "cpu.max", "max 100000\n")
        assert cores(tmp_path, "0::/box\n") == 16

    def test_a_quota_counts_in_whole_cores(self, tmp_path: Path) -> None:
        write(tmp_path / "cgroup" / "box" / "cpu.max", "250000 100000\n")
        assert cores(tmp_path, "0::/box\n") == 2

    def test_the_tightest_group_above_counts_too(self, tmp_path: Path) -> None:
        write(tmp_path / "cgroup" / "pod" / "box" / "cpu.max", "800000 100000\n")
        write(tmp_path / "cgroup" / "pod" / "cpu.max", "300000 100000\n")
        assert cores(tmp_path, "0::/pod/box\n") == 3

    def test_version_1_is_read_as_well(self, tmp_path: Path) -> None:
        write(tmp_path / "cgroup" / "cpu,cpuacct" / "box" / "cpu.cfs_quota_us", "400000\n")
        write(tmp_path / "cgroup" / "cpu,cpuacct" / "box" / "cpu.cfs_period_us", "100000\n")
        write(tmp_path / "cgroup" / "cpu,cpuacct" / "cpu.cfs_quota_us", "-1\n")
        write(tmp_path / "cgroup" / "cpu,cpuacct" / "cpu.cfs_period_us", "100000\n")
        assert cores(tmp_path, "3:cpu,cpuacct:/box\n2:cpuset:/box\n0::/\n") == 4

    def test_inside_a_container_the_mount_is_the_group(self, tmp_path: Path) -> None:
        write(tmp_path / "cgroup" / "cpu.max", "150000 100000\n")
        assert cores(tmp_path, "0::/../../elsewhere\n") == 1

    @pytest.mark.parametrize("text", ["", "nonsense", "0 0", "10 max"])
    def test_there_is_always_one(self, tmp_path: Path, text: str) -> None:
        write(tmp_path / "cgroup" / "cpu.max", text)
        assert cores(tmp_path, "0::/\n", affinity=1) == 1

    def test_less_than_one_core_is_one(self, tmp_path: Path) -> None:
        write(tmp_path / "cgroup" / "cpu.max", "50000 100000\n")
        assert cores(tmp_path, "0::/\n") == 1

    def test_this_machine_has_some(self) -> None:
        assert usable_cores() >= 1
