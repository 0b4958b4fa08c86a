"""What training code says goes to the worker; what the worker wants is heard at the next safe point."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.test_protocol import report
from workers.channel import POINTS_LIMIT, TERMINATED, WORKER_GONE, Channel, ChannelContext, WorkerGone
from workers.protocol import Artifact, Checkpoint, Decoder, Message, Notice, Report, Stop, encode

Ends = tuple[ChannelContext, Channel, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The context in /work, its channel, and the worker's end of the socket."""
    trainer, worker = socket.socketpair()
    worker.settimeout(10)
    channel = Channel(trainer)
    with trainer, worker:
        yield ChannelContext(channel, Path("/work")), channel, worker


def receive(worker: socket.socket, count: int) -> list[Message]:
    decoder, messages = Decoder(), list[Message]()
    while len(messages) < count:
        messages += decoder.feed(worker.recv(65536))
    return messages


class TestSending:
    def test_report_and_notice_arrive(self, ends: Ends) -> None:
        context, _, worker = ends
        context.report(report())
        context.notice("short_batch", "The last batch has 3 rows.")

        assert receive(worker, 2) == [report(), Notice(code="short_batch", message="The last batch has 3 rows.")]

    @pytest.mark.parametrize("path", ["out/model.json", "/work/out/model.json"])
    def test_artifact_is_named_by_its_path_in_the_work_directory(self, ends: Ends, path: str) -> None:
        context, _, worker = ends
        context.artifact("model", Path(path), "application/json", "model")

        assert receive(worker, 1) == [
            Artifact(name="model", path="out/model.json", media_type="application/json", kind="model")
        ]

    def test_checkpoint_is_announced_as_it_is(self, ends: Ends) -> None:
        context, _, worker = ends
        message = Checkpoint(
            step=7, epoch=1, path="checkpoints/7-1", metrics={"loss": 0.1}, reason="periodic", best=True
        )
        context.checkpoint(message)

        assert receive(worker, 1) == [message]

    def test_file_elsewhere_is_refused(self, ends: Ends) -> None:
        with pytest.raises(ValueError, match="is not in the subpath"):
            ends[0].artifact("model", Path("/etc/passwd"), "text/plain", "model")

    def test_report_over_the_limit_of_a_line_is_cut(self, ends: Ends) -> None:
        context, _, worker = ends
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        ends[1]._end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        long = report(points=POINTS_LIMIT + 1)
        context.report(long)
        parts = receive(worker, 2)

        assert [len(part.points) for part in parts if isinstance(part, Report)] == [POINTS_LIMIT, 1]
        assert [point for part in parts if isinstance(part, Report) for point in part.points] == long.points

    def test_report_without_points_still_tells_the_progress(self, ends: Ends) -> None:
        context, _, worker = ends
        context.report(report(points=0))

        assert receive(worker, 1) == [report(points=0)]


class TestStopping:
    def test_nothing_asks_for_it(self, ends: Ends) -> None:
        assert ends[0].stop_reason() is None

    def test_message_asks_for_it_and_it_stays(self, ends: Ends) -> None:
        context, _, worker = ends
        worker.sendall(encode(Stop(reason="cancel")))

        assert (context.stop_reason(), context.stop_reason()) == ("cancel", "cancel")

    def test_message_in_two_pieces_is_heard_when_it_is_whole(self, ends: Ends) -> None:
        context, _, worker = ends
        line = encode(Stop(reason="cancel"))
        worker.sendall(line[:5])
        assert context.stop_reason() is None
        worker.sendall(line[5:])

        assert context.stop_reason() == "cancel"

    def test_garbage_before_it_does_not_hide_it(self, ends: Ends) -> None:
        context, _, worker = ends
        worker.sendall(b"garbage\n" + encode(Stop(reason="cancel")))

        assert context.stop_reason() == "cancel"

    def test_other_messages_do_not_ask_for_it(self, ends: Ends) -> None:
        context, _, worker = ends
        worker.sendall(encode(Notice(message="hello", code="hello")))

        assert context.stop_reason() is None

    def test_term_asks_for_it(self, ends: Ends) -> None:
        context, channel, _ = ends
        before = signal.signal(signal.SIGTERM, channel.on_signal)
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            assert context.stop_reason() == TERMINATED
        finally:
            signal.signal(signal.SIGTERM, before)

    def test_reason_of_a_message_is_known_although_term_came_before_it_was_read(self, ends: Ends) -> None:
        # A cancelled trainer in a long chunk meets both at once, and must not write a checkpoint for nothing.
        context, channel, worker = ends
        worker.sendall(encode(Stop(reason="cancel")))
        channel.on_signal(signal.SIGTERM, None)

        assert context.stop_reason() == "cancel"

    def test_first_message_stays(self, ends: Ends) -> None:
        context, _, worker = ends
        worker.sendall(encode(Stop(reason="pause")))
        assert context.stop_reason() == "pause"
        worker.sendall(encode(Stop(reason="cancel")))

        assert context.stop_reason() == "pause"


class TestWorkerGone:
    def test_sending_leaves_the_process(self, ends: Ends) -> None:
        context, _, worker = ends
        worker.close()
        with pytest.raises(WorkerGone) as caught:
            context.notice("x", "x")

        assert caught.value.code == WORKER_GONE

    @pytest.mark.parametrize("unread", [0, 1])
    def test_asking_leaves_the_process(self, ends: Ends, unread: int) -> None:
        context, _, worker = ends
        for _ in range(unread):
            context.notice("x", "x")  # the worker's end closes with data in it: a reset, not an end of file
        worker.close()
        with pytest.raises(WorkerGone):
            context.stop_reason()

    def test_training_code_cannot_take_it_for_an_error_of_its_own(self) -> None:
        assert not issubclass(WorkerGone, Exception)
