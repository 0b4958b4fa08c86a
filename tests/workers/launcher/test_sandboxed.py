"""A launch of code of a user's own: what it gets, and what happens where the host cannot keep it in."""

import json
import os
import socket

import pytest

from tests.workers.launcher.conftest import Start
from tests.workers.sandboxed import has_namespaces
from workers import launcher
from workers.environment import framework_environment
from workers.launch import TEMPORARY, LaunchRequest
from workers.protocol import Decoder, Failed
from workers.sandbox import OWN_ACCOUNT_FILES, NoIsolation, Sandbox

SANDBOX = Sandbox(network=False, needs_loopback=False, max_file_bytes=1 << 30, max_processes=16)
needs_namespaces = pytest.mark.skipif(not has_namespaces(), reason="no namespace can be made here")


class TestWhatItGets:
    @needs_namespaces
    def test_temporary_folder_of_its_own_and_no_network(self, start: Start) -> None:
        attempt = start("tell_sandbox", changes={"sandbox": SANDBOX})
        said = attempt.line()

        assert said["temporary"] == f"{attempt.request.assignment.work_dir}/{TEMPORARY}"
        assert (said["is_folder"], said["umask"], said["networks"]) == (True, OWN_ACCOUNT_FILES, ["lo"])
        assert (said["uid"], said["privileges"]) == (os.getuid(), ["1"])
        assert attempt.ended().code == 0

    @needs_namespaces
    def test_network_stays_where_the_job_may_have_it(self, start: Start) -> None:
        said = start("tell_sandbox", changes={"sandbox": SANDBOX._replace(network=True)}).line()

        assert said["networks"] == sorted(name for _, name in socket.if_nameindex())

    def test_our_own_trainer_is_in_none(self, start: Start) -> None:
        assert start("tell_privileges").line()["privileges"] == ["0"]


class TestTooManyProcesses:
    def test_end_the_attempt_and_none_is_left(self, start: Start) -> None:
        """Root's are counted and killed; anybody else's are refused by the kernel, and the code fails."""
        attempt = start("fork_many", changes={"sandbox": SANDBOX})
        attempt.line()
        ended = attempt.ended()

        assert (ended.signal, ended.code) in ((9, None), (None, 1))
        assert not ended.survivors
        words = b"more than 16 processes" if ended.signal else b"Resource temporarily unavailable"
        assert words in attempt.all_output()


class TestNoIsolation:
    def test_the_last_word_says_so_and_no_code_is_run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_sandbox: Sandbox, _uid: int | None) -> None:
            raise NoIsolation

        monkeypatch.setattr(launcher, "enter", refuse)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with pytest.raises(SystemExit, match="1"):
                launcher._give_up_rights({"sandbox": list(SANDBOX), "uid": None}, theirs.fileno())
            (message,) = Decoder().feed(ours.recv(4096))

        assert isinstance(message, Failed)
        assert message.cause == "environment_failed"
        assert "the loopback device" in message.message


class TestRequest:
    def test_framework_is_that_of_the_assignment(self, start: Start) -> None:
        request: LaunchRequest = start("exit_with_seed").request

        assert request.framework == "torch"
        assert framework_environment("python") == {}, "a script without a framework gets no variables of one"

    def test_sandbox_travels_as_plain_json(self) -> None:
        assert Sandbox(*json.loads(json.dumps(SANDBOX))) == SANDBOX
