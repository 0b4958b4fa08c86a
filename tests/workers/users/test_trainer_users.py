"""Trainers with users of their own, under a worker that is root with the four capabilities of its container alone."""

import stat
from collections.abc import Callable
from typing import Any

from tests.workers.users.confined import GROUP, needs_root
from workers.privileges import NEEDED

pytestmark = needs_root

Scenario = Callable[[str], Any]
NONE = "0" * 16


def kind(mode: int) -> str:
    return stat.filemode(mode)


class TestWhatATrainerIs:
    def test_it_has_a_user_and_no_capability_and_no_way_to_more(self, scenario: Scenario) -> None:
        found = scenario("what_a_trainer_is")
        said, uid = found["said"], found["uid"]

        # linux/capability.h: bit 0 is CHOWN, 5 KILL, 6 SETGID, 7 SETUID. Nothing that reads another's files or memory.
        assert found["held"] == sum(1 << number for number in NEEDED.values()) == 0b1110_0001
        assert said["users"] == [uid] * 3
        assert said["groups"] == [uid] * 3
        assert said["capabilities"] == [NONE] * 4
        assert (said["no_new_privileges"], said["core"], said["umask"]) == (1, [0, 0], "0007")
        assert said["processes"] == 16_384

    def test_the_kernel_ends_it_with_its_launcher_although_its_user_changed(self, scenario: Scenario) -> None:
        # prctl(2): the signal is cleared when the user changes, so it must have been set afterwards.
        assert scenario("what_a_trainer_is")["said"]["parent_death_signal"] == 9

    def test_it_can_read_its_own_environment_and_writes_in_its_folder_alone(self, scenario: Scenario) -> None:
        said = scenario("what_a_trainer_is")["said"]
        work_dir = said["directory"]

        # prctl(2): a change of user hides a process' own /proc files from it, and the trainer checks its environment.
        assert (said["dumpable"], said["own_environment"]) == (1, True)
        assert work_dir.endswith("/run/work/job_1")
        assert said["variables"] == {"HOME": work_dir, "TMPDIR": work_dir, "USER": "trainer", "LOGNAME": "trainer"}

    def test_what_it_makes_goes_to_the_workers_group_and_in_the_end_to_the_worker(self, scenario: Scenario) -> None:
        found = scenario("what_a_trainer_is")

        assert found["said"]["made"] == {"made": [GROUP, 0o660], "folder": [GROUP, 0o2770]}
        assert found["after"] == {"": [0, GROUP, 0o700], "made": [0, GROUP, 0o600], "folder": [0, GROUP, 0o700]}
        assert (found["text"], found["code"]) == ("by the trainer", 0)

    def test_a_program_with_the_setuid_bit_gives_it_nothing(self, scenario: Scenario) -> None:
        found = scenario("setuid_program")

        assert kind(found["bit"])[3] == "s"
        assert found["user"] == str(found["uid"])


class TestWhatATrainerReaches:
    def test_neither_secrets_nor_others_work_nor_anybodys_memory(self, scenario: Scenario) -> None:
        found = scenario("what_a_trainer_can_reach")

        assert found["own"] is True  # so that what follows is not a trainer that can read nothing at all
        assert found["read"] == []

    def test_it_can_signal_nobody(self, scenario: Scenario) -> None:
        assert scenario("what_a_trainer_can_reach")["signalled"] == []


class TestTraps:
    """A hostile trainer leaves links, pipes, holes, closed folders and a tree deeper than any path may be."""

    def test_only_plain_files_and_folders_of_the_worker_come_back(self, scenario: Scenario) -> None:
        found = scenario("traps")
        left = {name: facts for name, facts in found["left"].items() if not name.startswith((".moved-", "ddd"))}

        assert sorted(left.keys() - {"original", "second name"}) == ["closed", "good", "holes"]
        assert len(left) <= 4  # of a file with two names at most one is left
        assert {tuple(facts[:2]) for facts in found["left"].values()} == {(0, GROUP)}
        assert found["hidden"] == "hidden"
        assert (found["code"], found["survivors"]) == (0, False)

    def test_nothing_outside_is_touched(self, scenario: Scenario) -> None:
        found = scenario("traps")

        assert found["secret"] == "a secret of the worker"
        assert found["owner"] == [0, GROUP, 0o600]

    def test_no_depth_and_no_mode_keeps_the_folder_from_being_removed(self, scenario: Scenario) -> None:
        found = scenario("traps")

        assert found["deep"] == 1  # the file at the bottom was reached
        assert found["gone"] is True

    def test_what_it_left_where_everybody_may_write_goes_too(self, scenario: Scenario) -> None:
        assert scenario("traps")["shared"] == []

    def test_so_does_memory_that_no_process_has(self, scenario: Scenario) -> None:
        # sysvipc(7): segments, queues and semaphores stay until somebody removes them, or the machine restarts.
        found = scenario("memory_without_a_process")

        assert found["before"] == found["made"]
        assert found["after"] == []

    def test_a_file_of_holes_is_no_larger_than_what_could_be_stored(self, scenario: Scenario) -> None:
        assert scenario("traps")["size"] < 1 << 60


class TestEnds:
    """Nothing of a trainer's user is left when its end is reported, whatever it did."""

    def test_daemon_that_freed_the_locks(self, scenario: Scenario) -> None:
        found = scenario("daemon_without_locks")

        assert found == {"survivors": False, "gone": [True, True], "left": [], "notes": []}

    def test_one_that_forks_without_end(self, scenario: Scenario) -> None:
        # Whether its launcher has the time to prove it or the worker does depends on how much it takes of the machine.
        found = scenario("fork_bomb")

        assert (found["gone"], found["left"], found["notes"]) == ([True], [], [])

    def test_one_whose_first_thread_has_left(self, scenario: Scenario) -> None:
        found = scenario("zombie_with_a_thread")

        assert found == {"survivors": False, "gone": [True], "left": [], "notes": []}

    def test_launcher_that_was_killed(self, scenario: Scenario) -> None:
        # Its death signal reaches the trainer, its daemon is found by its user.
        assert scenario("launcher_killed") == {"gone": True, "left": [], "notes": []}

    def test_launcher_that_is_frozen(self, scenario: Scenario) -> None:
        found = scenario("launcher_frozen")

        assert (found["said"], found["left"], found["notes"]) == (2, [], [])
        assert found["owner"] == [0, GROUP, 0o700]


class TestUsers:
    def test_one_attempt_at_a_time_and_the_longest_free_one_first(self, scenario: Scenario) -> None:
        found = scenario("users_one_after_the_other")

        assert found["first"] == [0, 1, 2, 3]
        assert found["refused"] == "NoUserFree"
        assert found["again"] == 1

    def test_none_is_given_while_a_process_of_it_is_left(self, scenario: Scenario) -> None:
        found = scenario("users_one_after_the_other")

        assert found["kept"] is True  # its note says that it is not proven to be free
        assert (found["after"], found["code"]) == (2, -9)

    def test_stray_is_found_by_the_lock_that_its_user_was_noted_with(self, scenario: Scenario) -> None:
        # Its descriptors cannot be read without CAP_SYS_PTRACE, so who holds the lock cannot be seen.
        assert scenario("sweep_of_a_users_processes") == {"others": [], "found": True, "code": -9}

    def test_free_locks_are_no_proof_while_its_user_has_a_process(self, scenario: Scenario) -> None:
        found = scenario("proof_that_nothing_is_left")

        assert found["alive"] == [False, True]
        assert (found["freed"], found["after"], found["left"]) == (True, True, [])

    def test_next_worker_ends_what_the_last_one_left_and_no_strangers(self, scenario: Scenario) -> None:
        found = scenario("next_worker_cleans_up")

        assert (found["killed"], found["ended"]) == (True, -9)
        assert found["stranger"] is None  # a process of the range that no worker of this host has started
        assert found["given"] == [0, 1]


class TestCheckpointsOfARunningTrainer:
    def test_folder_of_plain_files_is_taken_and_closed_to_the_trainer(self, scenario: Scenario) -> None:
        found = scenario("checkpoints")

        assert (found["content"], found["names"]) == ("good", ["weights"])
        assert found["owner"] == [0, GROUP, 0o700]
        assert found["file"] == [0, GROUP, 0o600]
        assert found["changed"] == []  # not by its new path, nor through a descriptor from before

    def test_traps_are_refused(self, scenario: Scenario) -> None:
        refused = scenario("checkpoints")["refused"]

        assert refused == {
            "linked": "foreign",
            "piped": "foreign",
            "closed": "PermissionError",
            "doubled": "foreign",
            "by-a-link": "foreign",
            "missing": "FileNotFoundError",
            "..": "foreign",
        }
