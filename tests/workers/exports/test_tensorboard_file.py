"""Event files, read back by TensorBoard's own reader."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event

from tests.workers.exports.models import MODELS, write_model
from workers.exports import event_records
from workers.exports.request import Request
from workers.exports.tensorboard_file import make, tag_of


@pytest.fixture
def events(tmp_path: Path) -> EventAccumulator:
    shape, layers = MODELS["dense"]
    folder = write_model(tmp_path / "model", layers, shape)
    series = {
        "loss": {"step": [10, 20, 30], "epoch": [1, 2, 3], "value": [1.0, "NaN", 0.1]},
        "val_loss": {"step": [10], "epoch": [1], "value": [0.75]},
        "test_accuracy": {"step": [30], "epoch": [3], "value": [0.9]},
        "learning_rate": {"step": [10], "epoch": [1], "value": [0.001]},
    }
    (tmp_path / "series.json").write_text(json.dumps(series))
    output = tmp_path / "logs"
    output.mkdir()
    assert [vars(file) for file in make(Request(folder, output, tmp_path / "series.json"))] == [
        {"name": "events.out.tfevents.trainshed", "media_type": "application/octet-stream", "kind": "report"}
    ]
    found = EventAccumulator(str(output))  # a folder, as `tensorboard --logdir` takes it
    found.Reload()
    return found


class TestEvents:
    def test_every_point_is_under_its_step(self, events: EventAccumulator) -> None:
        points = [(event.step, event.value) for event in events.Scalars("loss/training")]

        assert [step for step, _ in points] == [10, 20, 30]
        assert points[0][1] == 1.0
        assert math.isnan(points[1][1])
        assert points[2][1] == np.float32(0.1)  # TensorBoard keeps 32 bits

    def test_parts_of_a_metric_share_a_group(self, events: EventAccumulator) -> None:
        assert sorted(events.Tags()["scalars"]) == [
            "accuracy/test",
            "learning_rate/training",
            "loss/training",
            "loss/validation",
        ]

    def test_spec_is_there_to_read(self, events: EventAccumulator) -> None:
        (event,) = events.Tensors("spec/text_summary")

        text = event.tensor_proto.string_val[0].decode()
        spec = json.loads(text.removeprefix("```json\n").removesuffix("\n```"))
        assert spec["framework"] == "tensorflow"

    def test_job_without_series_has_its_spec_alone(self, tmp_path: Path) -> None:
        shape, layers = MODELS["dense"]
        make(Request(write_model(tmp_path, layers, shape), tmp_path))
        found = EventAccumulator(str(tmp_path))
        found.Reload()

        assert found.Tags()["scalars"] == []
        assert found.Tags()["tensors"] == ["spec/text_summary"]

    def test_file_tells_nothing_of_the_machine(self, tmp_path: Path) -> None:
        shape, layers = MODELS["dense"]
        folder = write_model(tmp_path / "model", layers, shape)
        contents = []
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            make(Request(folder, tmp_path / name))
            contents.append((tmp_path / name / "events.out.tfevents.trainshed").read_bytes())

        assert contents[0] == contents[1]  # no time, no host, no process in it


class TestRecords:
    @pytest.mark.parametrize(
        "value", [0.0, -0.0, 1.0, -2.5, 1e-45, 3.4028235e38, 1e300, -1e300, math.inf, -math.inf, math.nan]
    )
    def test_value_is_what_32_bits_make_of_it(self, value: float) -> None:
        event = Event.FromString(event_records.scalar("loss/training", 7, value))

        with np.errstate(over="ignore"):
            assert_array_equal(event.summary.value[0].simple_value, np.float32(value))

    @pytest.mark.parametrize("step", [0, 1, 127, 128, 300, 2**31, 2**53])
    def test_step_of_any_size(self, step: int) -> None:
        event = Event.FromString(event_records.scalar("赤/training", step, 1.0))

        assert (event.step, event.wall_time) == (step, step)
        assert event.summary.value[0].tag == "赤/training"

    def test_checksum_is_crc32c(self) -> None:
        # RFC 3720, appendix B.4: 32 bytes of zeros have the checksum 0x8A9136AA; then masked as TensorFlow does.
        crc = 0x8A9136AA
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

        assert event_records.record(bytes(32))[-4:] == masked.to_bytes(4, "little")


@pytest.mark.parametrize(
    ("name", "tag"),
    [("loss", "loss/training"), ("val_top_3", "top_3/validation"), ("test_r2", "r2/test"), ("valve", "valve/training")],
)
def test_tag(name: str, tag: str) -> None:
    assert tag_of(name) == tag
