"""The worker and its trainer understand each other, whatever a trainer writes and however the bytes are cut."""

import json
import math
from pathlib import Path

import pytest

from app.errors import Cause
from tests.workers.launcher.attempt import assignment, simulated
from workers.protocol import (
    LINE_LIMIT,
    Artifact,
    Assignment,
    Checkpoint,
    Decoder,
    Done,
    Failed,
    Message,
    Notice,
    Point,
    Progress,
    ProtocolError,
    Report,
    Started,
    Stop,
    encode,
)


def report(value: float = 0.5, points: int = 1) -> Report:
    return Report(
        epoch=1,
        step=10,
        points=[Point(name="loss", step=n, epoch=1, value=value) for n in range(points)],
        progress=Progress(epoch=1, epochs=2, step=10, steps=20, fraction=0.5, eta_s=1.5, samples_per_s=100.0),
    )


ONE_OF_EACH: list[Message] = [
    Started(
        framework="torch",
        framework_version="2.13.0",
        device_kind="cpu",
        devices=["GPU-0"],
        simulated=True,
        environment={"CUDA_VISIBLE_DEVICES": "GPU-0"},
        pid=10,
        pgid=10,
        threads=2,
    ),
    report(),
    Notice(message="The last batch has 3 rows.", code="short_batch"),
    Artifact(name="model", path="model.safetensors", media_type="application/octet-stream", kind="model"),
    Artifact(name="environment.json", path="m/e.json", media_type="application/json", kind="environment"),
    Checkpoint(step=70, epoch=7, path="checkpoints/70-7", metrics={"val_loss": 0.1}, reason="final", best=False),
    Done(
        metrics={"val_accuracy": 0.9},
        samples_per_s=100.0,
        stopped="stop",
        best_epoch=3,
        best_step=30,
        checkpoint_step=70,
        modules=["torch"],
    ),
    Failed(cause=Cause.DIVERGED, message="The loss is NaN\nfrom step 3 on.", detail="Traceback", modules=[]),
    Stop(reason="cancel"),
]


class TestRoundTrip:
    @pytest.mark.parametrize("message", ONE_OF_EACH, ids=lambda message: message.type)
    def test_message_comes_back_equal(self, message: Message) -> None:
        assert Decoder().feed(encode(message)) == [message]

    def test_message_is_one_line_also_with_a_newline_inside(self) -> None:
        assert [encode(message).count(b"\n") for message in ONE_OF_EACH] == [1] * len(ONE_OF_EACH)

    def test_bytes_may_be_cut_anywhere(self) -> None:
        stream = b"".join(encode(message) for message in ONE_OF_EACH)
        decoder = Decoder()

        assert [m for n in range(len(stream)) for m in decoder.feed(stream[n : n + 1])] == ONE_OF_EACH

    def test_assignment_comes_back_equal(self, tmp_path: Path) -> None:
        whole = assignment(tmp_path, [simulated("GPU-0")])

        assert Assignment.model_validate_json(whole.model_dump_json()) == whole


class TestNumbersThatJsonCannotHold:
    @pytest.mark.parametrize(("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
    def test_they_travel_as_text(self, value: float, text: str) -> None:
        line = encode(report(value))
        # A strict reader, such as orjson or a browser, must be able to parse the line.
        fields = json.loads(line, parse_constant=pytest.fail)
        (received,) = Decoder().feed(line)

        assert fields["points"][0]["value"] == text
        assert isinstance(received, Report)
        assert str(received.points[0].value) == str(value)

    def test_metrics_of_done_too(self) -> None:
        (received,) = Decoder().feed(encode(Done(metrics={"loss": math.nan})))

        assert isinstance(received, Done)
        assert math.isnan(received.metrics["loss"])


class TestBadLines:
    @pytest.mark.parametrize(
        "line",
        [
            b"not json",
            b"{}",
            b'{"type": "unknown"}',
            b'{"type": "stop"}',
            b'{"type": "stop", "reason": "x", "more": 1}',
            b"\xff\xfe",
            b"[" * 10_000,
            b'{"type": "failed", "cause": "no_such_cause", "message": "x"}',
        ],
    )
    def test_it_is_an_error_that_carries_the_good_messages(self, line: bytes) -> None:
        stop = Stop(reason="cancel")
        decoder = Decoder()
        with pytest.raises(ProtocolError) as caught:
            decoder.feed(encode(stop) + line + b"\n" + encode(stop))

        assert caught.value.messages == [stop, stop]
        assert caught.value.code == "protocol_error"
        assert decoder.feed(encode(stop)) == [stop]

    def test_blank_lines_are_nothing(self) -> None:
        assert Decoder().feed(b"\n  \n\r\n") == []

    def test_line_without_end_costs_bounded_memory_and_one_error(self) -> None:
        decoder = Decoder()
        for _ in range(7):
            assert decoder.feed(b"x" * (LINE_LIMIT // 8)) == []
        with pytest.raises(ProtocolError, match="over the limit of 1048576 bytes"):
            decoder.feed(b"x" * (LINE_LIMIT // 8))
        for _ in range(40):
            assert decoder.feed(b"x" * (LINE_LIMIT // 8)) == []

        assert len(decoder._rest) < LINE_LIMIT
        assert decoder.feed(b'"}\n' + encode(Stop(reason="cancel"))) == [Stop(reason="cancel")]

    def test_message_over_the_limit_is_not_written(self) -> None:
        with pytest.raises(ProtocolError, match="A 'notice' message of"):
            encode(Notice(message="x" * LINE_LIMIT, code="long"))

    def test_longest_line_is_read(self) -> None:
        empty = len(encode(Notice(message="", code="long")))
        longest = Notice(message="x" * (LINE_LIMIT - empty), code="long")

        assert Decoder().feed(encode(longest)) == [longest]
