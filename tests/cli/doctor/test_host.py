"""Faults of folders, disks, memory, users and the clock, planted one at a time."""

import os
import pwd
import tempfile
from pathlib import Path

import pytest

from app.cli.doctor.findings import Status
from tests.cli.doctor.planting import GIB, Host


class TestAllIsWell:
    def test_there_is_no_fault_and_no_warning(self, host: Host) -> None:
        assert host.faults() == host.warnings() == {}

    def test_a_check_that_fails_itself_does_not_hide_the_others(self, host: Host) -> None:
        host.write("proc/self/uid_map", "not numbers\n")
        host.environ["TRAINSHED_TRAINER_UIDS"] = "20000-20255"
        assert "The check failed: ValueError" in host.faults()["trainer_users"]
        assert "broker" in host.examine()


class TestFolders:
    @pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
    def test_a_network_s_file_system_under_locks_and_sqlite_is_a_fault(self, host: Host, kind: str) -> None:
        share = f"30 22 0:40 / {host.home} rw shared:2 - {kind} server:/export rw\n"
        host.write("proc/self/mountinfo", f"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n{share}")
        faults = host.faults()
        assert faults.keys() == {"disk.run_dir", "disk.database"}
        assert f"network file system ({kind})" in faults["disk.run_dir"]

    def test_what_lies_on_top_counts(self, host: Host) -> None:
        nfs, tmpfs = "30 22 0:40 / {0} rw - nfs4 server:/ rw\n", "31 30 0:41 / {0} rw - tmpfs tmpfs rw\n"
        host.write("proc/self/mountinfo", (nfs + tmpfs).format(host.home))
        assert host.faults() == {}

    def test_a_file_in_the_place_of_a_folder(self, host: Host, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_text("")
        host.environ["TRAINSHED_RUN_DIR"] = str(file)
        faults = host.faults()
        assert "Not a directory" in faults["folder.run_dir"]
        assert "cannot be locked" in faults["locks"]

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_folder_of_somebody_else(self, host: Host) -> None:
        host.home.chmod(0o500)
        assert "Permission denied" in host.faults()["folder.home"]

    def test_a_disk_below_the_reserve_and_one_near_it(self, host: Host) -> None:
        host.environ["TRAINSHED_DISK_RESERVE_BYTES"] = str(10 * GIB)
        host.uses[host.home] = (100 * GIB, 9 * GIB)
        assert host.faults().keys() == {"space.home"}
        assert "9.0 GiB free" in host.faults()["space.home"]
        host.uses[host.home] = (100 * GIB, 19 * GIB)
        assert host.faults() == {}
        assert host.warnings().keys() == {"space.home"}

    def test_a_run_folder_of_its_own_needs_room_only_where_a_worker_runs(self, host: Host) -> None:
        # A file system of its own on every Linux, as the tmpfs that the control loop's container has.
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            host.uses[Path(folder)] = (64 * 1024**2, 64 * 1024**2)
            host.environ["TRAINSHED_RUN_DIR"] = folder
            assert host.faults().keys() == {"space.run_dir"}
            host.environ.pop("TRAINSHED_INTERPRETERS")
            assert host.faults() == {}

    def test_little_room_for_uploads(self, host: Host, tmp_path: Path) -> None:
        host.uses[tmp_path] = (64 * 1024**2, 64 * 1024**2)
        assert "an upload may have 256.0 MiB" in host.warnings()["temporary"]

    def test_a_data_root_that_is_not_mounted(self, host: Host, tmp_path: Path) -> None:
        host.environ["TRAINSHED_DATA_ROOTS"] = f"scans={tmp_path / 'none'}:ro"
        assert host.faults().keys() == {"data_root.scans"}

    def test_a_data_root_on_which_nothing_is_mounted(self, host: Host, tmp_path: Path) -> None:
        (tmp_path / "scans").mkdir()
        host.environ["TRAINSHED_DATA_ROOTS"] = f"scans={tmp_path / 'scans'}:ro"
        assert "perhaps nothing is mounted there" in host.faults()["data_root.scans"]

    def test_a_data_root_that_trainers_users_cannot_read(self, host: Host, tmp_path: Path) -> None:
        (tmp_path / "scans").mkdir(mode=0o700)
        (tmp_path / "scans" / "toy.csv").touch()
        host.environ["TRAINSHED_DATA_ROOTS"] = f"scans={tmp_path / 'scans'}:ro"
        assert host.warnings() == {}
        host.environ["TRAINSHED_TRAINER_UIDS"] = "20000-20255"
        assert host.warnings().keys() == {"data_root.scans"}


class TestSharedMemory:
    # Docker's own size, unless shm_size says otherwise: docs.docker.com, "docker run --shm-size".
    DOCKER = 64 * 1024**2

    def test_docker_s_own_size_is_a_fault_where_there_are_cards(self, host: Host) -> None:
        host.uses[host.root / "dev/shm"] = (self.DOCKER, self.DOCKER)
        assert host.warnings().keys() == {"shared_memory"}
        host.with_cards()
        assert "has 64.0 MiB" in host.faults()["shared_memory"]

    def test_it_does_not_matter_where_nothing_trains(self, host: Host) -> None:
        host.uses[host.root / "dev/shm"] = (self.DOCKER, self.DOCKER)
        host.environ.pop("TRAINSHED_INTERPRETERS")
        assert host.examine()["shared_memory"].status is Status.SKIPPED


class TestUsers:
    @pytest.fixture(autouse=True)
    def _range(self, host: Host) -> None:
        host.environ["TRAINSHED_TRAINER_UIDS"] = "20000-20255"

    def test_all_is_well_as_root_with_its_capabilities(self, host: Host) -> None:
        assert host.examine()["trainer_users"].message == "256 users are there for trainers."

    def test_who_is_not_root_cannot_give_users(self, host: Host) -> None:
        host.uid = 1000
        assert "not root" in host.faults()["trainer_users"]

    def test_numbers_of_the_host_s_own_users(self, host: Host) -> None:
        taken = next(user for user in pwd.getpwall() if user.pw_uid > 0)
        host.environ["TRAINSHED_TRAINER_UIDS"] = f"{taken.pw_uid}-{taken.pw_uid}"
        assert taken.pw_name in host.faults()["trainer_users"]

    def test_capabilities_that_were_dropped_are_named(self, host: Host) -> None:
        # capabilities(7): KILL is bit 5, SETGID 6, SETUID 7; CHOWN, bit 0, is missing here.
        host.write("proc/self/status", "CapEff:\t00000000000000e0\n")
        assert host.faults()["trainer_users"].endswith("the capabilities CHOWN are missing.")

    def test_numbers_that_a_user_namespace_does_not_have(self, host: Host) -> None:
        host.write("proc/self/uid_map", "         0     100000      20100\n")
        assert "user namespace" in host.faults()["trainer_users"]

    def test_a_container_needs_a_name_that_stays(self, host: Host) -> None:
        host.write(".dockerenv")
        assert host.warnings().keys() == {"host_id"}
        host.environ["TRAINSHED_HOST_ID"] = "gpu-box"
        assert host.warnings() == {}


class TestClock:
    def test_a_clock_that_stands_in_the_past(self, host: Host) -> None:
        host.seconds = 0.0  # 1970, as after an empty battery
        assert "behind the day" in host.faults()["clock"]

    def test_one_that_follows_no_time_server(self, host: Host) -> None:
        host.synchronised = False
        assert host.warnings().keys() == {"clock"}

    def test_a_kernel_that_does_not_tell_is_no_news(self, host: Host) -> None:
        host.synchronised = None
        assert host.warnings() == {}
