"""When a service counts as ready. Answers as app.api.health and app.api.fleet give them."""

import httpx
import pytest

from app.cli.up.readiness import Look, Readiness
from tests.cli.fake_server import URL, FakeServer, listing, problem, refuses

OK = {"status": "ok", "message": "Answers."}


def health(status: str = "ok", **checks: dict[str, str]) -> dict[str, object]:
    return {"status": status, "checks": {"database": OK, **checks}}


def worker(*frameworks: str, online: bool = True, reason: str | None = None) -> dict[str, object]:
    return {"online": online, "frameworks": list(frameworks), "reason": reason}


NO_TORCH = health("degraded", workers={"status": "degraded", "message": "No worker online runs torch."})
MISSING = ("workers: No worker online runs torch.",)


@pytest.fixture
def server(server: FakeServer) -> FakeServer:
    server.on("GET /readyz", health())
    server.on("GET /v1/workers", listing(worker("torch", "tensorflow")))
    return server


def look(server: FakeServer, key: str = "ts_a") -> Look:
    readiness = Readiness(URL, key, transport=httpx.MockTransport(server.handle))
    try:
        return readiness.look()
    finally:
        readiness.close()


class TestLook:
    def test_all_well_and_a_worker_there_is_ready(self, server: FakeServer) -> None:
        assert look(server) == Look(settled=True, missing=())

    def test_nobody_there_yet(self, server: FakeServer) -> None:
        server.on("GET /readyz", refuses)
        found = look(server)
        assert not found.settled
        assert "the API does not answer" in found.missing[0]

    def test_something_else_there_is_not_ready_either(self, server: FakeServer) -> None:
        server.on("GET /readyz", httpx.Response(200, text="<html>"))
        assert not look(server).settled

    def test_a_check_that_is_down_is_waited_for(self, server: FakeServer) -> None:
        down = {"status": "down", "message": "It cannot be used."}
        server.on("GET /readyz", httpx.Response(503, json=health("down", storage=down)))
        assert look(server) == Look(settled=False, missing=("storage: It cannot be used.",))

    @pytest.mark.parametrize("workers", [[], [worker("torch", online=False)], [worker()]])
    def test_without_a_worker_that_offers_something_it_waits(
        self, server: FakeServer, workers: list[dict[str, object]]
    ) -> None:
        server.on("GET /readyz", NO_TORCH)
        server.on("GET /v1/workers", listing(*workers))
        assert look(server) == Look(settled=False, missing=MISSING)

    @pytest.mark.parametrize("found", [worker("tensorflow"), worker(reason="no framework is installed")])
    def test_a_worker_that_lacks_something_is_as_ready_as_it_gets(
        self, server: FakeServer, found: dict[str, object]
    ) -> None:
        server.on("GET /readyz", NO_TORCH)
        server.on("GET /v1/workers", listing(found))
        assert look(server) == Look(settled=True, missing=MISSING)

    def test_without_a_key_only_the_checks_count(self, server: FakeServer) -> None:
        assert look(server, key="") == Look(settled=True, missing=())
        server.on("GET /readyz", NO_TORCH)
        assert look(server, key="") == Look(settled=False, missing=MISSING)
        assert server.asked("GET /v1/workers") == []

    def test_a_key_of_another_database_is_named(self, server: FakeServer) -> None:
        server.on("GET /v1/workers", problem(401, "unauthenticated", "A working API key is needed."))
        found = look(server)
        assert found.settled
        assert "trainshed key create --save" in found.missing[0]
