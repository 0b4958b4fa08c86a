"""`trainshed health`: the exit code and the sentence for each way in which a process can be ill."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.beacon import AT, CONTROL_BEACON, WORKER_BEACON, write_beacon
from app.cli.processes import health
from tests.fakes import FakeClock

SECOND = 1_000_000_000
NOW = 10_000 * SECOND


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(boot_ns=NOW)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run folder of the processes that are asked about."""
    monkeypatch.setenv("TRAINSHED_RUN_DIR", str(tmp_path))
    return tmp_path


def well(**other: object) -> dict[str, object]:
    """The beacon of a worker that is well, except for `other`."""
    return {
        AT: NOW - 5 * SECOND,
        "instance": "a",
        "registered": True,
        "inventory_ok": True,
        "inventory_at_boot_ns": NOW - 10 * SECOND,
        "reason": None,
        **other,
    }


class TestWorker:
    def test_one_that_beats_and_sees_its_devices_is_well(
        self, home: Path, clock: FakeClock, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_beacon(home / WORKER_BEACON, well())
        assert health.main(["worker"], clock) == 0
        assert capsys.readouterr().out == "The worker beats and sees its devices.\n"

    @pytest.mark.parametrize(
        ("facts", "message"),
        [
            # Three beats of 5 s, but never less than half a minute.
            (well(at_boot_ns=NOW - 31 * SECOND), "The worker was last heard 31 s ago."),
            (well(at_boot_ns=NOW + SECOND), "The worker has not said anything since this machine started."),
            (
                well(registered=False),
                "The worker is not registered yet: it waits for the database or its schema.",
            ),
            (
                well(inventory_ok=False, reason="Driver not loaded (NVML error 9)."),
                "The worker cannot list its devices: Driver not loaded (NVML error 9).",
            ),
            # Three looks of 15 s each.
            (
                well(inventory_at_boot_ns=NOW - 46 * SECOND),
                "The driver has not answered for 46 s: the look at the devices hangs.",
            ),
        ],
    )
    def test_one_that_is_ill_says_why(
        self, home: Path, clock: FakeClock, capsys: pytest.CaptureFixture[str], facts: dict[str, Any], message: str
    ) -> None:
        write_beacon(home / WORKER_BEACON, facts)
        assert health.main(["worker"], clock) == 1
        assert capsys.readouterr().out == f"{message}\n"

    def test_one_that_never_spoke_is_ill(
        self, home: Path, clock: FakeClock, capsys: pytest.CaptureFixture[str]
    ) -> None:
        del home
        assert health.main(["worker"], clock) == 1
        assert capsys.readouterr().out == "The worker has not said anything yet.\n"

    @pytest.mark.parametrize(("age_s", "code"), [(30, 0), (59, 0), (61, 1)])
    def test_slow_beats_are_given_more_time(
        self, home: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, age_s: int, code: int
    ) -> None:
        monkeypatch.setenv("TRAINSHED_HEARTBEAT_S", "20")
        monkeypatch.setenv("TRAINSHED_CLAIM_S", "30")
        monkeypatch.setenv("TRAINSHED_LEASE_S", "80")
        write_beacon(home / WORKER_BEACON, well(at_boot_ns=NOW - age_s * SECOND))
        assert health.main(["worker"], clock) == code

    def test_first_look_at_the_devices_may_be_missing(self, home: Path, clock: FakeClock) -> None:
        # Its beat says that it lives; whether a driver hangs is known when the first look was due.
        write_beacon(home / WORKER_BEACON, {AT: NOW, "registered": True})
        assert health.main(["worker"], clock) == 0

    def test_answer_for_programs(self, home: Path, clock: FakeClock, capsys: pytest.CaptureFixture[str]) -> None:
        write_beacon(home / WORKER_BEACON, well())
        assert health.main(["worker", "--json"], clock) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer == {"process": "worker", "well": True, "message": "The worker beats and sees its devices."}


class TestControl:
    @pytest.mark.parametrize(
        ("age_s", "code", "message"),
        [(1, 0, "The control loop goes round."), (31, 1, "The control loop was last heard 31 s ago.")],
    )
    def test_it_is_well_while_the_loop_goes_round(
        self, home: Path, clock: FakeClock, capsys: pytest.CaptureFixture[str], age_s: int, code: int, message: str
    ) -> None:
        write_beacon(home / CONTROL_BEACON, {AT: NOW - age_s * SECOND})
        assert health.main(["control"], clock) == code
        assert capsys.readouterr().out == f"{message}\n"


class Answering(http.server.BaseHTTPRequestHandler):
    """Stands in for the API: 200 for its own name, else 400, as the list of allowed hosts does."""

    def do_GET(self) -> None:
        known = self.headers["Host"] == "train.example"
        self.send_response(200 if known and self.path == "/livez" else 400)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


class TestApi:
    def test_it_is_asked_under_the_first_name_that_it_accepts(
        self, port: int, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # A stack that is only known as train.example refuses a request to 127.0.0.1, and is well.
        monkeypatch.setenv("TRAINSHED_PORT", str(port))
        monkeypatch.setenv("TRAINSHED_HOST", "0.0.0.0")  # noqa: S104 - as in a container; nothing listens there
        monkeypatch.setenv("TRAINSHED_ALLOWED_HOSTS", "train.example,localhost")
        assert health.main(["api"], clock) == 0
        assert capsys.readouterr().out == "The API answers.\n"

    def test_another_answer_than_200_is_ill(
        self, port: int, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TRAINSHED_PORT", str(port))
        monkeypatch.setenv("TRAINSHED_ALLOWED_HOSTS", "other.example")
        assert health.main(["api"], clock) == 1
        assert capsys.readouterr().out == f"The API answers 400 on 127.0.0.1:{port}, not 200.\n"

    def test_port_that_the_api_chose_itself_is_read(
        self, port: int, home: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TRAINSHED_ALLOWED_HOSTS", "train.example")
        assert health.main(["api"], clock) == 1
        (home / "api.url").write_text(f"http://127.0.0.1:{port}")
        assert health.main(["api"], clock) == 0

    def test_no_answer_is_ill(
        self, port: int, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TRAINSHED_HOST", "127.0.0.2")  # where the stand-in does not listen
        monkeypatch.setenv("TRAINSHED_PORT", str(port))
        assert health.main(["api"], clock) == 1
        assert capsys.readouterr().out.startswith(f"The API does not answer on 127.0.0.2:{port}: ")


class TestAskedWrongly:
    @pytest.mark.parametrize("arguments", [[], ["redis"], ["worker", "--loud"]])
    def test_it_is_told_how_to_ask(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            health.main(arguments)
        assert ended.value.code == 2
        assert "usage: trainshed health" in capsys.readouterr().err

    def test_settings_that_cannot_be_are_told(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TRAINSHED_HEARTBEAT", "1")
        assert health.main(["worker"]) == 2
        assert capsys.readouterr().err.startswith("error: TRAINSHED_HEARTBEAT is not a setting.")
