"""The folder of an `up`: whose it is, who holds it, and what a dead holder left."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.up.child import Child
from app.cli.up.home import Home, HomeInUse, HomeNotUsable, ProcessName, boot_id, sweep
from tests.cli.up.conftest import Script
from tests.cli.up.waiting import has_text, is_gone, until

SLEEP = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home", tmp_path / "home" / "run")
    made.make()
    return made


def name_of(child: Child) -> ProcessName:
    return ProcessName(child.pid, child.started)


class TestMake:
    def test_folders_are_for_this_user_alone(self, home: Home) -> None:
        assert {stat.S_IMODE(folder.stat().st_mode) for folder in (home.root, home.run, home.logs)} == {0o700}

    def test_one_that_others_could_enter_is_closed(self, tmp_path: Path) -> None:
        (tmp_path / "home").mkdir(mode=0o755)
        Home(tmp_path / "home", tmp_path / "home" / "run").make()
        assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700

    def test_what_cannot_be_a_folder_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(HomeNotUsable, match=r"Not a directory|File exists"):
            Home(tmp_path / "file", tmp_path / "file" / "run").make()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
    def test_somebody_elses_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "home").mkdir()
        os.chown(tmp_path / "home", 65534, 65534)
        with pytest.raises(HomeNotUsable, match="belongs to user 65534"):
            Home(tmp_path / "home", tmp_path / "home" / "run").make()


class TestHold:
    def test_the_second_one_learns_where_the_first_one_listens(self, home: Home) -> None:
        with home.hold():
            home.write_instance("http://127.0.0.1:1234", {})
            with pytest.raises(
                HomeInUse, match=rf"process {os.getpid()}\) and listens on http://127.0.0.1:1234"
            ) as caught:
                home.hold().__enter__()
        assert caught.value.listens == "http://127.0.0.1:1234"

    def test_one_that_is_just_starting_is_in_use_too(self, home: Home) -> None:
        with home.hold(), pytest.raises(HomeInUse, match="--home"):
            home.hold().__enter__()

    def test_it_is_free_again_afterwards(self, home: Home) -> None:
        for _ in range(2):
            with home.hold():
                pass

    def test_the_kernel_frees_it_with_a_killed_holder(self, home: Home) -> None:
        code = (
            "import fcntl, os, sys, time; f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); "
            "fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); time.sleep(600)"
        )
        command = [sys.executable, "-c", code, str(home.root / "up.lock")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(HomeInUse):
                home.hold().__enter__()
            holder.kill()
            holder.wait()
            with home.hold():
                pass

    def test_no_child_inherits_the_lock(self, home: Home, script: Script) -> None:
        with home.hold():
            child = Child(script("a", SLEEP))
        try:
            with home.hold():
                pass
        finally:
            child.kill()


class TestInstance:
    def test_it_is_read_as_it_was_written(self, home: Home) -> None:
        children = {"redis": ProcessName(12, 345), "api": ProcessName(13, 346)}
        home.write_instance("http://a:1", children)
        found = home.read_instance()
        assert found is not None
        assert (found.pid, found.boot_id, found.url) == (os.getpid(), boot_id(), "http://a:1")
        assert list(found.children.items()) == list(children.items())

    @pytest.mark.parametrize("text", ["", "{}", "[1]", '{"pid": 1, "children": {"a": 1}}', '{"children": {}, "x": 1}'])
    def test_what_cannot_be_read_is_none(self, home: Home, text: str) -> None:
        home.state_file.write_text(text)
        assert home.read_instance() is None

    def test_forgetting_leaves_neither_state_nor_address(self, home: Home) -> None:
        home.write_instance("http://a:1", {})
        home.api_file.write_text("http://a:1")
        home.forget_instance()
        home.forget_instance()
        assert list(home.run.iterdir()) == []


class TestSweep:
    def test_what_a_dead_up_left_is_ended(self, home: Home, script: Script) -> None:
        children = {name: Child(script(name, SLEEP)) for name in ("redis", "api")}
        home.write_instance("", {name: name_of(child) for name, child in children.items()})
        assert sweep(home, 20.0) == ["api", "redis"]
        assert all(is_gone(child.pid) for child in children.values())
        for child in children.values():
            child.kill()

    def test_a_frozen_one_can_still_end_in_good_order(self, home: Home, script: Script, tmp_path: Path) -> None:
        code = (
            "import signal, sys, time\n"
            f"def leave(*_): open({str(tmp_path / 'left')!r}, 'w').write('in order'); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, leave); print('ready', flush=True)\n"
            "while True: time.sleep(600)"
        )
        child = Child(script("control", code))
        until(lambda: has_text(child.program.log, "ready"), "the child is ready")
        os.kill(child.pid, signal.SIGSTOP)
        home.write_instance("", {"control": name_of(child)})
        assert sweep(home, 20.0) == ["control"]
        assert (tmp_path / "left").read_text() == "in order"
        child.kill()

    @pytest.mark.parametrize("freeze", [True, False])
    def test_one_that_does_not_listen_is_killed(self, home: Home, script: Script, *, freeze: bool) -> None:
        child = Child(script("api", STUBBORN))
        until(lambda: has_text(child.program.log, "ready"), "the child is ready")
        if freeze:
            os.kill(child.pid, signal.SIGSTOP)
        home.write_instance("", {"api": name_of(child)})
        assert sweep(home, 0.2) == ["api"]
        until(lambda: is_gone(child.pid), "the child's end")
        child.kill()

    def test_a_pid_that_was_given_to_another_process_is_left_alone(self, home: Home, script: Script) -> None:
        stranger = Child(script("stranger", SLEEP))
        home.write_instance("", {"api": ProcessName(stranger.pid, stranger.started - 1)})
        assert sweep(home, 0.2) == []
        assert not stranger.ended()
        stranger.kill()

    def test_numbers_of_an_earlier_boot_mean_nothing(self, home: Home, script: Script) -> None:
        stranger = Child(script("stranger", SLEEP))
        home.write_instance("", {"api": name_of(stranger)})
        content = json.loads(home.state_file.read_text())
        home.state_file.write_text(json.dumps({**content, "boot_id": "another"}))
        assert sweep(home, 0.2) == []
        assert not stranger.ended()
        stranger.kill()

    def test_nothing_left_is_nothing_to_do(self, home: Home) -> None:
        assert sweep(home, 0.2) == []
        home.write_instance("", {"api": ProcessName(2**22 + 1, 1)})
        assert sweep(home, 0.2) == []
