"""One installation for all who want the same; what a crash leaves; and what goes when nobody uses it."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from app.spec.requirements import parse_requirements
from tests.workers.environments.journal import PLENTY, PYTHON, Journal, environments
from tests.workers.environments.silent_index import silent_index
from tests.workers.environments.wheels import wheel
from tests.workers.eventually import eventually
from workers.environments.base import ask
from workers.environments.environments import Environments, Keeping
from workers.environments.errors import EnvironmentCancelled, EnvironmentFailed
from workers.environments.plan import NO_INDEX, Plan, Sources
from workers.environments.shelf import MARK, Record, Shelf, kept
from workers.processes import LAUNCH_TAG, all_pids, launch_of

DAY_S = 86_400.0
NOW = 1_800_000_000.0


def waiting(journal: Journal) -> bool:
    return "environment_waiting" in journal.codes


class TestTwoWhoWantTheSame:
    def test_one_installs_and_both_have_it(self, tmp_path: Path) -> None:
        house = wheel(tmp_path / "wheels", "tiny").parent
        there, gate = environments(tmp_path / "e", house), threading.Event()

        def held() -> bool:
            gate.wait()
            return False

        first, second = Journal(cancelled=held), Journal()
        with ThreadPoolExecutor(2) as pool:
            one = pool.submit(first.obtain, there, "tiny", holder="job_1-1")
            eventually(lambda: "environment_building" in first.codes)
            other = pool.submit(second.obtain, there, "tiny", holder="job_2-1")
            eventually(lambda: waiting(second))
            gate.set()
            assert one.result() == other.result()
        assert second.codes == ["environment_waiting"]
        assert second.lines == []

    def test_one_failure_is_both_failures(self, tmp_path: Path) -> None:
        there, gate = environments(tmp_path / "e", tmp_path), threading.Event()

        def held() -> bool:
            gate.wait()
            return False

        first, second = Journal(cancelled=held), Journal()
        with ThreadPoolExecutor(2) as pool:
            one = pool.submit(first.obtain, there, "missing")
            eventually(lambda: "environment_building" in first.codes)
            other = pool.submit(second.obtain, there, "missing")
            eventually(lambda: waiting(second))
            gate.set()
            reasons = [reason(future) for future in (one, other)]
        assert reasons[0] == reasons[1]
        assert "missing" in reasons[0]
        assert second.lines == []  # it did not try for itself

    def test_who_waits_may_be_called_off(self, tmp_path: Path) -> None:
        with silent_index() as index, ThreadPoolExecutor(1) as pool:
            there, stop = environments(tmp_path / "e", index=index.url), threading.Event()
            one = pool.submit(Journal(cancelled=stop.is_set).obtain, there, "tiny")
            assert index.asked.wait(60)
            with pytest.raises(EnvironmentCancelled):
                Journal(cancelled=lambda: True).obtain(there, "tiny")
            assert not one.done()
            stop.set()
            with pytest.raises(EnvironmentCancelled):
                one.result()

    def test_when_the_first_is_called_off_the_second_installs(self, tmp_path: Path) -> None:
        house = wheel(tmp_path / "wheels", "tiny").parent
        there, gate = environments(tmp_path / "e", house), threading.Event()

        def held() -> bool:
            gate.wait()
            return True

        first, second = Journal(cancelled=held), Journal()
        with ThreadPoolExecutor(2) as pool:
            one = pool.submit(first.obtain, there, "tiny")
            eventually(lambda: "environment_building" in first.codes)
            other = pool.submit(second.obtain, there, "tiny")
            eventually(lambda: waiting(second))
            gate.set()
            with pytest.raises(EnvironmentCancelled):
                one.result()
            assert other.result().exists()
        assert second.codes[:2] == ["environment_waiting", "environment_building"]


def reason(future: "Future[Path]") -> str:
    with pytest.raises(EnvironmentFailed) as caught:
        future.result()
    return str(caught.value)


class TestACrash:
    # A worker that dies in the middle of an installation, whose child's child has no parent-death signal.
    CODE = """
import sys
from pathlib import Path
from tests.workers.environments.journal import Journal, environments
Journal().obtain(environments(Path(sys.argv[1]), index=sys.argv[2]), "tiny")
"""

    def test_nothing_counts_as_complete_and_nothing_goes_on(self, tmp_path: Path) -> None:
        folder = tmp_path / "e"
        with silent_index() as index:
            command = [sys.executable, "-c", self.CODE, str(folder), index.url]
            with subprocess.Popen(command, cwd=Path(__file__).parents[3]) as worker:
                assert index.asked.wait(60)
                launch = next(folder.glob("*.launch")).read_text(encoding="ascii")
                assert running(launch)
                worker.send_signal(signal.SIGKILL)
                worker.wait()
            there = environments(folder, wheel(tmp_path / "wheels", "tiny").parent)
            there.clean_up()
            assert list(folder.iterdir()) == []
            assert running(launch) == []
        journal = Journal()
        assert journal.obtain(there, "tiny").exists()
        assert "environment_building" in journal.codes

    def test_what_is_half_there_is_made_anew(self, tmp_path: Path) -> None:
        there = environments(tmp_path / "e", wheel(tmp_path / "wheels", "tiny").parent)
        python = Journal().obtain(there, "tiny")
        mark = python.parent.parent / MARK
        mark.chmod(0o644)
        mark.write_text(mark.read_text(encoding="utf-8")[:20], encoding="utf-8")
        journal = Journal()
        assert journal.obtain(there, "tiny") == python
        assert journal.codes[0] == "environment_building"


def running(launch: str) -> list[int]:
    assert LAUNCH_TAG
    return [pid for pid in all_pids() if launch_of(pid) == launch]


def put(folder: Path, key: str, *, size: int, days_ago: float) -> None:
    """A complete environment, as far as the shelf can tell."""
    shelf = Shelf(folder)
    shelf.begin(key, "")
    shelf.finish(key, Record("python", "3.11", (key,), {}, size, 1.0, "2026-01-01T00:00:00Z"))
    os.utime(folder / key / MARK, (NOW - days_ago * DAY_S,) * 2)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def kept_ones(folder: Path, *, most_bytes: int = PLENTY, days: float = 14.0) -> Environments:
    return environments(folder, keeping=Keeping(most_bytes, days * DAY_S), wall=lambda: NOW)


class TestWhatIsKept:
    def test_nothing_goes_that_fits_and_was_used_lately(self, tmp_path: Path) -> None:
        put(tmp_path, "a", size=5, days_ago=13.9)
        kept_ones(tmp_path, most_bytes=5).collect()
        assert names(tmp_path) == ["a"]
        assert (kept(tmp_path).count, kept(tmp_path).bytes) == (1, 5)

    def test_what_was_not_used_for_long_goes(self, tmp_path: Path) -> None:
        put(tmp_path, "old", size=1, days_ago=14.1)
        put(tmp_path, "new", size=1, days_ago=13.9)
        kept_ones(tmp_path).collect()
        assert names(tmp_path) == ["new"]

    def test_the_longest_unused_go_until_the_rest_fits(self, tmp_path: Path) -> None:
        for days_ago, key in enumerate(["c", "b", "a"]):
            put(tmp_path, key, size=4, days_ago=days_ago)
        kept_ones(tmp_path, most_bytes=8).collect()
        assert names(tmp_path) == ["b", "c"]
        kept_ones(tmp_path, most_bytes=7).collect()
        assert names(tmp_path) == ["c"]

    def test_what_went_for_its_age_makes_room(self, tmp_path: Path) -> None:
        put(tmp_path, "old", size=4, days_ago=20)
        put(tmp_path, "new", size=4, days_ago=1)
        kept_ones(tmp_path, most_bytes=4).collect()
        assert names(tmp_path) == ["new"]

    def test_none_goes_that_somebody_uses(self, tmp_path: Path) -> None:
        there = kept_ones(tmp_path, most_bytes=0)
        key = Plan(ask("python", PYTHON), parse_requirements("tiny"), Sources(NO_INDEX)).key
        put(tmp_path, key, size=4, days_ago=100)
        put(tmp_path, "unused", size=4, days_ago=0)
        for holder in ("job_1-1", "errand-0"):
            Journal().obtain(there, "tiny", holder=holder)
        there.collect()
        assert names(tmp_path) == [key]
        there.release("job_1-1")
        assert names(tmp_path) == [key]
        there.release("errand-0")
        assert names(tmp_path) == []

    def test_use_is_noted(self, tmp_path: Path) -> None:
        there = kept_ones(tmp_path)
        key = Plan(ask("python", PYTHON), parse_requirements("tiny"), Sources(NO_INDEX)).key
        put(tmp_path, key, size=4, days_ago=10)
        Journal().obtain(there, "tiny")
        os.utime(tmp_path / key / MARK, (NOW - 20 * DAY_S,) * 2)
        there.release("job_1-1")  # an attempt may take weeks: its end counts
        assert names(tmp_path) == [key]

    def test_a_holder_without_any_gives_nothing_back(self, tmp_path: Path) -> None:
        put(tmp_path, "a", size=5, days_ago=0)
        kept_ones(tmp_path, most_bytes=0).release("nobody")
        assert names(tmp_path) == ["a"]
