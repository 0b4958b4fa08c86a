"""From pipes to the log and to metrics, and the last output that explains an end."""

import os
from collections.abc import Iterator

import pytest

from workers.scripts.metrics import Sighting
from workers.scripts.output import AFTER_END_BYTES, TAIL_BYTES, Stream, Tail


class Reader:
    """A pipe with a stream at its end."""

    def __init__(self, prefix: bytes = b"", *, metrics: bool = True, complete: bool = True) -> None:
        ours, self.theirs = os.pipe()
        self.log = bytearray()
        self.seen: list[Sighting] = []
        self.tail = Tail()
        self.complete = complete
        self.stream = Stream(ours, self.tail, self.log.extend, prefix, self._take if metrics else None)

    def _take(self, sighting: Sighting) -> bool:
        self.seen.append(sighting)
        return self.complete

    def write(self, data: bytes) -> None:
        os.write(self.theirs, data)
        self.stream.read()


@pytest.fixture
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    os.close(reader.theirs)
    os.close(reader.stream.descriptor)


class TestStream:
    def test_metric_is_taken_out_of_the_log(self, reader: Reader) -> None:
        reader.write(b'before\n{"loss": 1}\nafter\n')

        assert bytes(reader.log) == b"before\nafter\n"
        assert [sighting.numbers for sighting in reader.seen] == [{"loss": 1.0}]

    def test_metric_that_came_in_pieces(self, reader: Reader) -> None:
        reader.write(b'{"lo')
        reader.write(b'ss": 1}\n')

        assert [sighting.numbers for sighting in reader.seen] == [{"loss": 1.0}]

    def test_nothing_to_read_is_none(self, reader: Reader) -> None:
        assert reader.stream.read() is None

    def test_line_that_was_not_taken_in_whole_stays_in_the_log(self) -> None:
        reader = Reader(complete=False)
        reader.write(b'{"loss": 1}\n')
        os.close(reader.theirs)
        reader.stream.finish()

        assert bytes(reader.log) == b'{"loss": 1}\n'

    def test_other_ranks_have_a_prefix_and_no_metrics(self) -> None:
        reader = Reader(b"[1] ", metrics=False)
        reader.write(b'hello\n{"loss": 1}\n')
        os.close(reader.theirs)
        reader.stream.finish()

        assert bytes(reader.log) == b'[1] hello\n[1] {"loss": 1}\n'
        assert reader.tail.text() == 'hello\n{"loss": 1}'

    def test_last_line_without_an_end_is_not_lost(self) -> None:
        reader = Reader()
        reader.write(b"the end")
        os.close(reader.theirs)
        reader.stream.finish()

        assert bytes(reader.log) == b"the end\n"

    def test_finish_does_not_wait_for_who_holds_the_other_end(self) -> None:
        reader = Reader()
        reader.write(b"the end")
        reader.stream.finish()
        os.close(reader.theirs)

        assert bytes(reader.log) == b"the end\n"
        assert AFTER_END_BYTES > 0


class TestTail:
    def test_old_output_is_forgotten(self) -> None:
        tail = Tail()
        for number in range(100_000):
            tail.add(f"line {number}\n".encode())

        assert tail.text().endswith("line 99999")
        assert len(tail.text()) <= TAIL_BYTES

    def test_progress_bar_is_what_was_left_standing(self) -> None:
        tail = Tail()
        tail.add(b" 1%\r50%\r100%\n\nnext\r\n")

        assert tail.text() == "100%\nnext"
