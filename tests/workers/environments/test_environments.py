"""Environments really installed by pip, from wheels made here: what they have, what is told, and how they fail."""

import json
import stat
import subprocess
from pathlib import Path

import pytest

from app.errors import Cause
from tests.fakes import FakeClock
from tests.workers.environments.journal import PLENTY, PYTHON, Journal, environments
from tests.workers.environments.silent_index import silent_index
from tests.workers.environments.wheels import sha256_of, wheel
from workers.environments.environments import Environments
from workers.environments.errors import EnvironmentCancelled, EnvironmentFailed
from workers.environments.installing import Limits

MB = 1024 * 1024


def told_by(python: Path, code: str) -> list[str]:
    """What the interpreter prints, a line each."""
    done = subprocess.run([str(python), "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels, with a space in its name."""
    folder = tmp_path_factory.mktemp("packages") / "wheel house"
    wheel(folder, "tiny-one", requires=["tiny-two>=1"], scripts={"tiny": "tiny_one:main"})
    wheel(folder, "tiny-two")
    wheel(folder, "tiny-two", "2.0")
    wheel(folder, "clash-a", requires=["tiny-two==1.0"])
    wheel(folder, "clash-b", requires=["tiny-two==2.0"])
    wheel(folder, "wants-other", requires=["trainshed==0.0.0"])
    wheel(folder, "numpy", "0.1")
    wheel(folder, "big", files={"big.bin": bytes(12 * MB)})
    wheel(folder, "spoils-start", files={"spoiled.pth": "import os; os._exit(3)\n"})
    (folder / "only-source-1.0.tar.gz").write_bytes(b"")
    return folder


class Built:
    """One environment with two packages, made once for the tests that only look at it."""

    def __init__(self, folder: Path, house: Path) -> None:
        self.folder = folder
        self.environments = environments(folder, house)
        self.journal = Journal()
        self.python = self.journal.obtain(self.environments, "tiny-one\n")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, house: Path) -> Built:
    return Built(tmp_path_factory.mktemp("built") / "environments", house)


class TestWhatItHas:
    def test_the_packages_and_those_that_they_bring_along(self, built: Built) -> None:
        code = "import tiny_one, tiny_two; print(tiny_one.VERSION, tiny_two.VERSION)"
        assert told_by(built.python, code) == ["1.0 2.0"]

    def test_their_programs(self, built: Built) -> None:
        program = built.python.parent / "tiny"
        done = subprocess.run([str(program)], capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout == "tiny-one 1.0\n"

    def test_the_packages_of_the_base_from_where_they_are(self, built: Built) -> None:
        names = ["numpy", "pydantic", "workers.launcher", "app.archives"]
        names += ["torch", "tensorflow"]  # found, not imported: that takes seconds
        code = f"import importlib.util as u\nfor n in {names}: s = u.find_spec(n); print(s and s.origin)"
        assert told_by(built.python, code) == told_by(PYTHON, code)

    def test_our_own_launcher_can_be_imported(self, built: Built) -> None:
        code = "import workers.launcher, sys; print(workers.launcher.main.__name__, sys.prefix)"
        assert told_by(built.python, code) == [f"main {built.python.parent.parent}"]

    def test_programs_of_the_base_run_in_it(self, built: Built) -> None:
        program = built.python.parent / "lint-imports"
        assert program.read_text(encoding="utf-8").startswith(f"#!{built.python}\n")
        done = subprocess.run([str(program), "--help"], capture_output=True, text=True, check=True, timeout=60)
        assert "--config" in done.stdout

    def test_everybody_may_read_it_and_nobody_write(self, built: Built) -> None:
        root = built.python.parent.parent
        modes = {stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*") if not path.is_symlink()}
        assert modes == {0o444, 0o555}
        # The folder itself has to be removed one day.
        assert stat.S_IMODE(root.stat().st_mode) == 0o755
        assert stat.S_IMODE(built.folder.stat().st_mode) == 0o755

    def test_it_says_what_it_was_made_of(self, built: Built) -> None:
        mark = json.loads((built.python.parent.parent / "environment.json").read_text(encoding="utf-8"))
        assert mark["requirements"] == ["tiny-one"]
        assert mark["packages"] == {"tiny-one": "1.0", "tiny-two": "2.0"}
        assert mark["framework"] == "python"
        assert mark["bytes"] > 0

    def test_nothing_else_is_left_in_the_folder(self, built: Built) -> None:
        assert [path.name for path in built.folder.iterdir()] == [built.python.parent.parent.name]

    def test_a_package_that_the_base_has_too_comes_first(self, house: Path, tmp_path: Path) -> None:
        before = told_by(PYTHON, "import numpy; print(numpy.__version__)")
        python = Journal().obtain(environments(tmp_path / "e", house), "numpy==0.1")
        assert told_by(python, "import numpy; print(numpy.VERSION)") == ["0.1"]
        assert told_by(PYTHON, "import numpy; print(numpy.__version__)") == before


class TestWhatIsTold:
    def test_notices_say_what_is_done(self, built: Built) -> None:
        assert built.journal.codes == ["environment_building", "environment_progress", "environment_ready"]
        messages = [message for _, message in built.journal.notices]
        assert messages[:2] == [
            "Installing one requirement into a new environment for python.",
            "Installing tiny-two, tiny-one.",
        ]
        assert messages[2].startswith("The environment is ready after ")
        assert ": 2 packages, " in messages[2]

    def test_the_log_has_pips_lines_without_a_file_that_nobody_knows(self, built: Built) -> None:
        assert built.journal.lines[-1] == "Successfully installed tiny-one-1.0 tiny-two-2.0"
        assert not any("requirements.txt" in line for line in built.journal.lines)

    def test_the_second_time_it_is_there(self, built: Built) -> None:
        journal = Journal()
        assert journal.obtain(built.environments, ["Tiny_One"], holder="job_2-1") == built.python
        assert journal.codes == ["environment_reused"]
        assert journal.lines == []

    def test_a_later_start_of_the_worker_finds_it(self, built: Built, house: Path) -> None:
        later, journal = environments(built.folder, house), Journal()
        later.clean_up()
        assert journal.obtain(later, "tiny-one") == built.python
        assert journal.codes == ["environment_reused"]

    def test_without_requirements_the_base_will_do(self, built: Built) -> None:
        journal = Journal()
        assert journal.obtain(built.environments, "# nothing\n") == PYTHON
        assert journal.notices == []


class TestHashes:
    def test_the_right_ones_are_taken_and_a_wrong_one_is_not(self, house: Path, tmp_path: Path) -> None:
        right = sha256_of(house / "tiny_two-1.0-py3-none-any.whl")
        wrong = sha256_of(house / "tiny_two-2.0-py3-none-any.whl")
        there = environments(tmp_path / "e", house)
        python = Journal().obtain(there, f"tiny-two==1.0 --hash=sha256:{right}")
        assert told_by(python, "import tiny_two; print(tiny_two.VERSION)") == ["1.0"]
        with pytest.raises(EnvironmentFailed, match="is not the one that the hashes were made of"):
            Journal().obtain(there, f"tiny-two==1.0 --hash=sha256:{wrong}")


class TestFailing:
    @pytest.mark.parametrize(
        ("requirements", "told"),
        [
            ("no-such-package", r"No wheel 'no-such-package' for Python 3\.\d+ was found .* is the name right\?"),
            ("tiny-two==7", r"There is no 'tiny-two==7' for Python 3\.\d+ .*; there are 1\.0, 2\.0\."),
            ("only-source", r"\(Packages that have to be built from their sources are not taken here\.\)"),
            ("clash-a\nclash-b", r"clash-a 1\.0 depends on tiny-two==1\.0; clash-b 1\.0 depends on tiny-two==2\.0\."),
            ("wants-other", r"wants-other 1\.0 depends on trainshed==0\.0\.0; this host keeps trainshed=="),
            ("spoils-start", r"installed, and then Python did not start with them"),
        ],
    )
    def test_the_sentence_names_what_is_wrong(self, house: Path, tmp_path: Path, requirements: str, told: str) -> None:
        journal = Journal()
        with pytest.raises(EnvironmentFailed, match=told) as caught:
            journal.obtain(environments(tmp_path / "e", house), requirements)
        assert caught.value.cause is Cause.ENVIRONMENT_FAILED
        assert "environment_ready" not in journal.codes
        assert list((tmp_path / "e").iterdir()) == []

    def test_the_last_lines_of_pip_come_along(self, house: Path, tmp_path: Path) -> None:
        with pytest.raises(EnvironmentFailed) as caught:
            Journal().obtain(environments(tmp_path / "e", house), "no-such-package")
        assert caught.value.detail[-1] == "ERROR: No matching distribution found for no-such-package"

    def test_what_our_trainer_needs_stays_fit_for_it(self, house: Path, tmp_path: Path) -> None:
        # pyproject.toml: Trainshed needs numpy>=2.1, so a script may have 0.1 (above), and our trainer not.
        with pytest.raises(EnvironmentFailed, match=r"asks? for numpy==0\.1; this host keeps numpy>=2\.1"):
            Journal().obtain(environments(tmp_path / "e", house), "numpy==0.1", runs_trainer=True)

    def test_what_was_not_checked_at_submission_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(EnvironmentFailed, match=r"Line 2 .* is a path"):
            Journal().obtain(environments(tmp_path / "e"), "tiny-one\n./here")

    def test_a_framework_without_an_interpreter_is_the_hosts_fault(self, tmp_path: Path) -> None:
        with pytest.raises(EnvironmentFailed, match="no interpreter for torch") as caught:
            Journal().obtain(environments(tmp_path / "e"), "tiny-one", framework="torch")
        assert caught.value.cause is Cause.WORKER_LOST

    def test_a_folder_that_cannot_be_made_is_the_hosts_fault(self, house: Path, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(EnvironmentFailed, match="could not make the environment") as caught:
            Journal().obtain(environments(tmp_path / "file" / "e", house), "tiny-two")
        assert caught.value.cause is Cause.WORKER_LOST


class TestLimits:
    def test_one_that_takes_too_much_of_the_disk(self, house: Path, tmp_path: Path) -> None:
        limits = Limits(timeout_s=300, most_bytes=8 * MB, reserve_bytes=0)
        with pytest.raises(EnvironmentFailed, match="takes more than 8 MB, the limit on this host"):
            Journal().obtain(environments(tmp_path / "e", house, limits=limits), "big")
        assert list((tmp_path / "e").iterdir()) == []

    def test_a_disk_that_must_keep_room_for_others(self, house: Path, tmp_path: Path) -> None:
        limits = Limits(timeout_s=300, most_bytes=PLENTY, reserve_bytes=1 << 60)
        with pytest.raises(EnvironmentFailed, match="which must stay free for other jobs"):
            Journal().obtain(environments(tmp_path / "e", house, limits=limits), "tiny-two")

    def test_one_that_takes_too_long(self, tmp_path: Path, clock: FakeClock) -> None:
        limits = Limits(timeout_s=60, most_bytes=PLENTY, reserve_bytes=0)
        with silent_index() as index:

            def passes() -> bool:
                clock.advance(61 if index.asked.is_set() else 0)
                return False

            there = environments(tmp_path / "e", index=index.url, limits=limits, clock=clock)
            with pytest.raises(EnvironmentFailed, match="took longer than 60 s"):
                Journal(cancelled=passes).obtain(there, "tiny-two")
        assert list((tmp_path / "e").iterdir()) == []

    def test_one_that_nobody_wants_any_more(self, tmp_path: Path) -> None:
        with silent_index() as index:
            there: Environments = environments(tmp_path / "e", index=index.url)
            with pytest.raises(EnvironmentCancelled):
                Journal(cancelled=index.asked.is_set).obtain(there, "tiny-two")
        assert list((tmp_path / "e").iterdir()) == []
