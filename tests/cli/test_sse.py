"""The event stream's format: section 9.2.6 of the WHATWG HTML standard, from whose examples most cases are."""

import pytest

from app.cli.sse import Decoder, Event

STREAM = (
    b": a comment\n\n"
    b"retry: 2000\n\n"
    b"id: 1\nevent: state\ndata: {}\n\n"
    b"data: YHOO\ndata: +2\ndata: 10\n\n"
    b'id: 7\r\nevent: metric\r\ndata: {"loss": "\xc3\xa4"}\r\n\r\n'
    b"data:no space\rdata:  two spaces\r\r"
    b"unfinished: 1\ndata: lost"
)
EVENTS = [
    Event("1", "state", "{}"),
    Event("1", "message", "YHOO\n+2\n10"),
    Event("7", "metric", '{"loss": "ä"}'),
    Event("7", "message", "no space\n two spaces"),
]


def decode(*pieces: bytes) -> list[Event]:
    decoder = Decoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


class TestDecoder:
    def test_comments_and_retry_are_no_events_and_what_is_unfinished_never_becomes_one(self) -> None:
        assert decode(STREAM) == EVENTS

    @pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 16])
    def test_pieces_of_any_size_give_the_same_events(self, size: int) -> None:
        pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
        assert decode(*pieces) == EVENTS

    @pytest.mark.parametrize("cut", range(len(b"data: a\r\n\r\ndata: b\r\n\r\n")))
    def test_a_cut_inside_a_line_end_makes_no_extra_line(self, cut: int) -> None:
        text = b"data: a\r\n\r\ndata: b\r\n\r\n"
        assert [event.data for event in decode(text[:cut], text[cut:])] == ["a", "b"]

    def test_a_byte_order_mark_at_the_start_is_dropped(self) -> None:
        assert decode(b"\xef\xbb\xbfdata: a\n\n") == [Event("", "message", "a")]

    def test_a_character_split_between_pieces_is_whole(self) -> None:
        assert decode(b"data: \xc3", b"\xa4\n\n") == [Event("", "message", "ä")]

    def test_an_event_without_data_is_dropped_but_its_id_is_kept(self) -> None:
        assert decode(b"id: 3\nevent: x\n\ndata: a\n\n") == [Event("3", "message", "a")]

    def test_an_id_with_nul_is_ignored(self) -> None:
        assert decode(b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n") == [
            Event("1", "message", "a"),
            Event("1", "message", "b"),
        ]

    def test_a_line_without_a_colon_is_a_field_with_an_empty_value(self) -> None:
        assert decode(b"data\ndata\n\n") == [Event("", "message", "\n")]
