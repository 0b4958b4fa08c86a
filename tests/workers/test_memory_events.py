"""The counter of kills for memory, read from folders that look like those of a kernel."""

from pathlib import Path

import pytest

from workers.memory_events import oom_kills


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "vmstat").write_text("nr_free_pages 10\noom_kill 7\n")
    return tmp_path


def read(root: Path, membership: str) -> int:
    (root / "self").write_text(membership)
    return oom_kills(cgroups=root / "cgroup", membership=root / "self", vmstat=root / "vmstat")


class TestOomKills:
    def test_version_2_counts_in_the_own_group(self, root: Path) -> None:
        own = root / "cgroup" / "docker" / "abc"
        own.mkdir(parents=True)
        # Layout: Documentation/admin-guide/cgroup-v2.rst, "memory.events".
        (own / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n")
        (root / "cgroup" / "memory.events").write_text("oom_kill 99\n")
        assert read(root, "0::/docker/abc\n") == 2

    def test_in_a_container_the_group_is_the_mount_itself(self, root: Path) -> None:
        (root / "cgroup").mkdir()
        (root / "cgroup" / "memory.events").write_text("oom 1\noom_kill 1\n")
        assert read(root, "0::/system.slice/not-below-this-mount\n") == 1

    def test_version_1_counts_in_oom_control(self, root: Path) -> None:
        own = root / "cgroup" / "memory" / "box"
        own.mkdir(parents=True)
        (own / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n")
        assert read(root, "4:memory:/box\n0::/\n") == 4

    def test_without_groups_the_machines_counter_is_read(self, root: Path) -> None:
        (root / "cgroup").mkdir()
        assert read(root, "0::/\n") == 7

    def test_a_kernel_that_tells_nothing_is_zero(self, tmp_path: Path) -> None:
        nowhere = tmp_path / "nowhere"
        assert oom_kills(cgroups=nowhere, membership=nowhere, vmstat=nowhere) == 0

    def test_the_real_one_is_a_number_that_never_falls(self) -> None:
        assert 0 <= oom_kills() <= oom_kills()
