"""The commands about holds; what a shell makes of their output is tried in a shell."""

import json
import subprocess
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Trainshed
from tests.cli.fake_server import AT, FakeServer, breaks, listing, problem

ID = "hold_01k0000000000000000000000a"
OTHER = "hold_01k0000000000000000000000b"
HOLD: dict[str, Any] = {
    "id": ID,
    "object": "hold",
    "owner": "ana",
    "note": "notebook",
    "host_name": "gpu-host",
    "devices": [{"id": "GPU-1", "name": "FakeCard"}, {"id": "GPU-2", "name": "FakeCard"}],
    "environment": {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "OMP_NUM_THREADS": "8"},
    "until": AT,
    "ended_why": None,
    "device_s": 7200.0,
}
BUSY = problem(409, "devices_busy", "The devices cannot be held now: held by bob.")


def sent(server: FakeServer, route: str) -> list[dict[str, Any]]:
    return [json.loads(request.content) for request in server.asked(route)]


class TestHold:
    def test_asks_for_what_was_said(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("POST /v1/holds", httpx.Response(201, json=HOLD))
        options = ["--device-name", "A100", "--min-memory", "40GiB", "--host", "box", "--note", "x"]
        trainshed("hold", "2", "--for", "4h", *options, "--stop-when-idle", "30m", "--device-type", "cuda")
        assert sent(server, "POST /v1/holds") == [
            {
                "device_count": 2,
                "for_s": 14_400.0,
                "device_type": "cuda",
                "device_name": "A100",
                "min_device_memory_bytes": 40 * 2**30,
                "host": "box",
                "note": "x",
                "stop_when_idle_s": 1800.0,
            }
        ]

    def test_prints_what_a_shell_can_evaluate(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("POST /v1/holds", httpx.Response(201, json=HOLD))
        out = trainshed("hold", "--for", "4h").out
        assert out.splitlines()[0] == f"# {ID}: 2 × FakeCard on gpu-host until 2026-01-31T12:00:00Z"
        assert out.splitlines()[-1] == f"# give back: trainshed unhold {ID}"
        script = 'eval "$1"; echo "$CUDA_VISIBLE_DEVICES|$CUDA_DEVICE_ORDER|$OMP_NUM_THREADS"'
        shell = subprocess.run(["/bin/sh", "-c", script, "sh", out], capture_output=True, text=True, check=True)
        assert shell.stdout == "GPU-1,GPU-2|PCI_BUS_ID|8\n"

    @pytest.mark.parametrize("hostile", ["$(touch x)", "a\n; echo evil", "`id`", "'; echo evil; '"])
    def test_nothing_that_comes_from_the_server_is_executed(
        self, server: FakeServer, trainshed: Trainshed, hostile: str
    ) -> None:
        environment = {"CUDA_VISIBLE_DEVICES": hostile}
        server.on(
            "POST /v1/holds", httpx.Response(201, json={**HOLD, "host_name": hostile, "environment": environment})
        )
        out = trainshed("hold", "--for", "4h").out
        script = 'eval "$1"; printf %s "$CUDA_VISIBLE_DEVICES"'
        shell = subprocess.run(["/bin/sh", "-c", script, "sh", out], capture_output=True, text=True, check=True)
        assert (shell.stdout, shell.stderr) == (hostile, "")

    def test_json(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("POST /v1/holds", httpx.Response(201, json=HOLD))
        assert trainshed("hold", "--for", "4h", "--json").json == HOLD

    def test_busy_devices_are_refused_with_who_has_them(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("POST /v1/holds", BUSY)
        ran = trainshed("hold", "--for", "4h")
        assert (ran.code, ran.out, ran.err) == (2, "", "error: The devices cannot be held now: held by bob.\n")

    def test_waits_until_they_are_free(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("POST /v1/holds", BUSY, BUSY, httpx.Response(201, json=HOLD))
        ran = trainshed("hold", "--for", "4h", "--wait")
        assert (ran.code, ran.pauses) == (0, [5.0, 5.0])
        assert ran.err == "waiting: The devices cannot be held now: held by bob.\n", "said once"
        assert len({request.headers["idempotency-key"] for request in server.asked("POST /v1/holds")}) == 1

    def test_does_not_wait_for_what_can_never_be(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("POST /v1/holds", problem(422, "insufficient_devices", "Too many."))
        assert (trainshed("hold", "9", "--for", "4h", "--wait").code, len(server.requests)) == (2, 1)

    def test_a_lost_answer_is_asked_for_again_under_the_same_key(
        self, server: FakeServer, trainshed: Trainshed
    ) -> None:
        server.on("POST /v1/holds", breaks, httpx.Response(201, json=HOLD))
        assert trainshed("hold", "--for", "4h").code == 0
        assert len({request.headers["idempotency-key"] for request in server.asked("POST /v1/holds")}) == 1

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["hold", "2"], "--for 4h"),
            (["hold", "2", "--for", "soon"], "no length of time"),
            (["hold", "2", "--show", "latest"], "go alone"),
            (["hold", "--show", ID, "--release", ID], "go alone"),
            (["hold", "--extend", ID], "--for 4h"),
        ],
    )
    def test_says_what_is_missing(
        self, server: FakeServer, trainshed: Trainshed, arguments: list[str], said: str
    ) -> None:
        ran = trainshed(*arguments)
        assert (ran.code, len(server.requests)) == (2, 0)
        assert said in ran.err


class TestOneHold:
    def test_extended(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(f"PATCH /v1/holds/{ID}", HOLD)
        assert "export CUDA_VISIBLE_DEVICES" in trainshed("hold", "--extend", ID, "--for", "2h").out
        assert sent(server, f"PATCH /v1/holds/{ID}") == [{"for_s": 7200.0}]

    def test_shown_again(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on(f"GET /v1/holds/{ID}", HOLD)
        assert "export CUDA_VISIBLE_DEVICES=GPU-1,GPU-2" in trainshed("hold", "--show", ID).out

    @pytest.mark.parametrize("command", [["unhold"], ["hold", "--release"]])
    @pytest.mark.parametrize("name", [ID, "000a", "latest"])
    def test_given_back_by_id_end_of_id_or_as_the_latest(
        self, server: FakeServer, trainshed: Trainshed, command: list[str], name: str
    ) -> None:
        server.on("GET /v1/holds", listing(HOLD, {**HOLD, "id": OTHER}))
        server.on(f"GET /v1/holds/{ID}", HOLD)
        server.on(f"DELETE /v1/holds/{ID}", httpx.Response(204))
        assert trainshed(*command, name).out == f"{ID} given back after 1 h 00 min\n"
        assert len(server.asked(f"DELETE /v1/holds/{ID}")) == 1

    @pytest.mark.parametrize(("name", "said"), [("zzz", "No open hold"), ("k0", "No open"), ("0", "No open")])
    def test_an_unknown_one_is_said(self, server: FakeServer, trainshed: Trainshed, name: str, said: str) -> None:
        server.on("GET /v1/holds", listing(HOLD, {**HOLD, "id": OTHER}))
        ran = trainshed("unhold", name)
        assert ran.code == 2
        assert said in ran.err

    @pytest.mark.parametrize("command", [["unhold"], ["hold", "--for", "1h", "--extend"]])
    def test_the_latest_is_never_taken_from_somebody_else(
        self, server: FakeServer, trainshed: Trainshed, command: list[str]
    ) -> None:
        server.on("GET /v1/holds", listing({**HOLD, "owner": "bob"}, {**HOLD, "id": OTHER}))
        ran = trainshed(*command, "latest")
        assert (ran.code, len(server.requests)) == (2, 1)
        assert "Holds of ana, bob are open, so name one by its id" in ran.err

    def test_an_empty_name_is_no_hold(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/holds", listing(HOLD))
        assert "No open hold is ''" in trainshed("unhold", "").err

    def test_an_ambiguous_one_is_said(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/holds", listing(HOLD, {**HOLD, "id": "hold_02k0000000000000000000000a"}))
        assert "More than one open hold" in trainshed("unhold", "000a").err


class TestHolds:
    def test_each_with_its_owner_devices_and_end(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/holds", listing(HOLD, {**HOLD, "id": OTHER, "ended_why": "expired"}))
        out = trainshed("holds", "--all").out
        assert all(text in out for text in (ID, "ana", "gpu-host", "GPU-1", "GPU-2", "notebook", "open", "expired"))
        assert "state" not in dict(server.requests[0].url.params)

    def test_only_open_ones_unless_told(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/holds", listing())
        assert trainshed("holds").out == "Nobody holds devices.\n"
        assert server.requests[0].url.params["state"] == "open"

    def test_json(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/holds", listing(HOLD))
        assert trainshed("holds", "--json").json == listing(HOLD)
