"""Following a journal: every entry once and in order, whatever happens to the connection."""

import httpx
import pytest

from app.cli.errors import Refused, ServerFailed, Unreachable
from app.cli.follow import JournalEntry, Patience, follow_journal, is_last
from tests.cli.fake_server import JOB, Answer, FakeServer, breaks, metric, problem, refuses, state, stream

EVENTS = f"GET /v1/jobs/{JOB}/events"
ENTRIES = [state(1, "queued", 0), state(2, "starting"), state(3, "running"), metric(4, 1, 0.5), state(5, "succeeded")]


class Clock:
    """A clock that the pauses move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.lost: list[str] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def patience(self) -> Patience:
        return Patience(self.pause, self.lost.append, lambda: self.now, limit_s=60.0)


def followed(*answers: Answer, clock: Clock | None = None, after: int = 0) -> tuple[list[JournalEntry], FakeServer]:
    server = FakeServer()
    server.on(EVENTS, *answers)
    with server.client() as client:
        return list(follow_journal(client, JOB, (clock or Clock()).patience(), after)), server


class TestWholeStream:
    def test_entries_come_in_order_and_the_last_state_ends_it(self) -> None:
        entries, server = followed(stream(*ENTRIES))
        assert entries == ENTRIES
        assert len(server.requests) == 1

    def test_the_request_asks_for_a_stream_from_the_start(self) -> None:
        _, server = followed(stream(*ENTRIES))
        headers = server.requests[0].headers
        assert (headers["Accept"], headers["Last-Event-ID"]) == ("text/event-stream", "0")

    def test_a_position_is_asked_for(self) -> None:
        entries, server = followed(stream(*ENTRIES[3:]), after=3)
        assert [entry["seq"] for entry in entries] == [4, 5]
        assert server.requests[0].headers["Last-Event-ID"] == "3"

    def test_no_content_means_that_nothing_follows(self) -> None:
        assert followed(httpx.Response(204), after=5)[0] == []

    @pytest.mark.parametrize(("name", "last"), [("failed", True), ("cancelled", True), ("paused", False)])
    def test_only_final_states_are_last(self, name: str, *, last: bool) -> None:
        assert is_last(state(1, name)) is last


class TestLostConnection:
    def test_it_goes_on_after_the_last_entry_that_came(self) -> None:
        entries, server = followed(stream(*ENTRIES[:3], lost=True), breaks, refuses, stream(*ENTRIES[3:]))
        assert entries == ENTRIES
        assert [request.headers["Last-Event-ID"] for request in server.requests] == ["0", "3", "3", "3"]

    def test_a_stream_that_ends_too_early_is_opened_again(self) -> None:
        entries, _ = followed(stream(*ENTRIES[:2]), stream(*ENTRIES[2:]))
        assert entries == ENTRIES

    def test_what_is_repeated_is_dropped(self) -> None:
        entries, _ = followed(stream(*ENTRIES[:3], lost=True), stream(*ENTRIES[1:]))
        assert entries == ENTRIES

    def test_pauses_grow_to_a_bound_and_start_again_with_the_next_entry(self) -> None:
        clock = Clock()
        followed(
            stream(ENTRIES[0], lost=True),
            *[refuses] * 6,
            stream(*ENTRIES[1:3], lost=True),
            stream(*ENTRIES[3:]),
            clock=clock,
        )
        assert clock.pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.2]

    def test_each_loss_is_told(self) -> None:
        clock = Clock()
        followed(stream(ENTRIES[0], lost=True), stream(*ENTRIES[1:]), clock=clock)
        assert len(clock.lost) == 1
        assert "reset by peer" in clock.lost[0]

    def test_a_server_that_restarts_is_waited_for(self) -> None:
        away = problem(503, "unavailable", "Not available now.")
        entries, _ = followed(stream(*ENTRIES[:3]), away, away, stream(*ENTRIES[3:]))
        assert entries == ENTRIES

    def test_it_gives_up_in_the_end(self) -> None:
        clock = Clock()
        with pytest.raises(Unreachable):
            followed(stream(ENTRIES[0], lost=True), refuses, clock=clock)
        assert 60.0 < clock.now < 70.0

    def test_a_server_that_never_answered_is_not_waited_for(self) -> None:
        with pytest.raises(Unreachable):
            followed(refuses)
        with pytest.raises(ServerFailed):
            followed(problem(500, "internal", "The server failed."))

    def test_a_refusal_is_final(self) -> None:
        with pytest.raises(Refused, match="revoked"):
            followed(stream(ENTRIES[0], lost=True), problem(401, "unauthenticated", "The key was revoked."))
