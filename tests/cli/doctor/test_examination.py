"""How findings come together, and what is told of the kernel's own answers."""

from collections.abc import Iterator

import pytest

from app.cli.doctor.__main__ import document, summary
from app.cli.doctor.examination import CHECKS, worst
from app.cli.doctor.findings import Finding, Status, fault, run_check, skipped, warning, well
from app.cli.doctor.folders import file_system, folders_of
from app.cli.doctor.place import Place, clock_is_synchronised
from app.errors import Conflict
from app.settings import Settings
from tests.cli.doctor.planting import H200, Host

WELL, SKIPPED = well("a", "Fine."), skipped("b", "Not here.")
WARNING, FAULT = warning("c", "Soon.", "See to it."), fault("d", "Broken.", "Mend it.")


class TestWorst:
    @pytest.mark.parametrize(
        ("found", "status"),
        [
            ([], Status.OK),
            ([SKIPPED], Status.SKIPPED),
            ([SKIPPED, WELL], Status.OK),
            ([WELL, WARNING, WELL], Status.WARNING),
            ([FAULT, WARNING], Status.FAULT),
        ],
    )
    def test_the_worst_one_counts(self, found: list[Finding], status: Status) -> None:
        assert worst(found) is status

    @pytest.mark.parametrize(
        ("found", "said"),
        [
            ([WELL, SKIPPED], "All is well."),
            ([FAULT], "1 fault, 0 warnings."),
            ([FAULT, WARNING, FAULT], "2 faults, 1 warning."),
        ],
    )
    def test_a_person_is_told_how_many(self, found: list[Finding], said: str) -> None:
        assert summary(found) == said

    def test_a_program_is_told_each(self) -> None:
        told = document([WELL, FAULT])
        assert (told["object"], told["status"]) == ("doctor", "fault")
        assert told["counts"] == {"ok": 1, "skipped": 0, "warning": 0, "fault": 1}
        assert told["checks"] == [
            {"name": "a", "status": "ok", "message": "Fine.", "advice": ""},
            {"name": "d", "status": "fault", "message": "Broken.", "advice": "Mend it."},
        ]


class TestRunCheck:
    def test_what_was_found_before_it_failed_is_kept(self) -> None:
        def check(_place: Place) -> Iterator[Finding]:
            yield WELL
            raise ZeroDivisionError("by nothing")

        found = list(run_check("x", check, Place(Settings())))
        assert [finding.name for finding in found] == ["a", "x"]
        assert found[1].message == "The check failed: ZeroDivisionError: by nothing"

    def test_an_error_of_ours_is_its_own_sentence(self) -> None:
        def check(_place: Place) -> Iterator[Finding]:
            raise Conflict("Two of them.")

        (found,) = run_check("x", check, Place(Settings()))
        assert (found.status, found.message) == (Status.FAULT, "Two of them.")

    def test_names_of_checks_are_there_once(self) -> None:
        names = [name for name, _ in CHECKS]
        assert len(set(names)) == len(names)


class TestFileSystem:
    def test_the_longest_mount_point_counts(self, host: Host) -> None:
        host.write(
            "proc/self/mountinfo",
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
            f"23 22 0:5 / {host.folder} rw - xfs /dev/sdb1 rw\n"
            f"24 23 0:6 / {host.folder}/other rw - nfs4 server:/ rw\n",
        )
        place = host.place(Settings(home=host.home), {})
        assert file_system(place, host.home) == "xfs"
        assert file_system(place, host.folder / "others" / "not-made-yet") == "xfs"
        assert file_system(place, host.folder.parent) == "ext4"

    def test_blanks_in_names_are_written_as_the_kernel_writes_them(self, host: Host) -> None:
        # proc(5): a blank in a path is \040.
        folder = host.folder / "my files"
        folder.mkdir()
        host.write("proc/self/mountinfo", f"24 23 0:6 / {host.folder}/my\\040files rw - nfs4 server:/ rw\n")
        assert file_system(host.place(Settings(), {}), folder) == "nfs4"

    def test_a_kernel_that_does_not_tell(self, host: Host) -> None:
        (host.root / "proc/self/mountinfo").unlink()
        assert file_system(host.place(Settings(), {}), host.home) == ""

    def test_only_folders_of_this_host_are_looked_at(self, host: Host) -> None:
        far = Settings(home=host.home, database_url="postgresql+psycopg://db/x", storage_url="s3://models/x")
        assert folders_of(host.place(far, {})).keys() == {"home", "run_dir"}
        near = Settings(home=host.home)
        assert folders_of(host.place(near, {})).keys() == {"home", "run_dir", "database", "storage"}


class TestPlace:
    def test_the_kernel_s_own_clock_answers(self) -> None:
        assert clock_is_synchronised() in (True, False, None)

    def test_the_driver_is_asked_once(self, host: Host) -> None:
        host.with_cards(H200)
        place = host.place(Settings(), {})
        assert place.cards is place.cards
        assert host.nvml.open == 0  # and was let go again

    def test_where_nothing_of_a_worker_is_installed_nothing_of_it_is_asked(self, host: Host) -> None:
        host.environ.pop("TRAINSHED_INTERPRETERS")
        found = host.examine()
        assert {found[name].status for name in ("driver", "frameworks", "shared_memory")} == {Status.SKIPPED}
