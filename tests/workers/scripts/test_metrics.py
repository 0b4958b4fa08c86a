"""Which lines are metrics, and what becomes of them."""

import json
import math

import pytest

from workers.scripts.metrics import MOST, SERIES_LIMIT, Sighting, Track, sight


def seen(**said: object) -> Sighting:
    found = sight(json.dumps(said).encode())
    assert found is not None
    return found


class TestSight:
    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"loss 0.5",
            b"{'loss': 0.5}",
            b'{"loss": 0.5} trailing',
            b'epoch 1: {"loss": 0.5}',
            b"[0.5]",
            b"0.5",
            b'{"message": "hello"}',
            b'{"ok": true}',
            b'{"losses": [0.5]}',
            b'{"loss": null}',
            b"{}",
            b'{"loss": 0.5',
            b'{"\xff": 1}',
            b"{" * 100_000 + b"}" * 100_000,
            b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
            b'{"loss": ' + b"9" * 5_000 + b"}",
        ],
        ids=lambda line: line[:12].decode("latin-1"),
    )
    def test_line_without_a_number_in_an_object_of_its_own_is_text(self, line: bytes) -> None:
        assert sight(line) is None

    def test_numbers_are_metrics_and_nothing_else_is(self) -> None:
        found = seen(loss=0.5, count=3, ok=True, name="x", many=[1, 2], none=None)

        assert found.numbers == {"loss": 0.5, "count": 3.0}

    def test_nested_objects_flatten_with_slashes(self) -> None:
        assert seen(val={"loss": 1, "top": {"five": 2}}).numbers == {"val/loss": 1.0, "val/top/five": 2.0}

    def test_position_is_no_metric(self) -> None:
        found = seen(step=3, epoch=1, steps=30, epochs=10, loss=0.5)

        assert (found.numbers, found.position) == ({"loss": 0.5}, {"step": 3, "epoch": 1, "steps": 30, "epochs": 10})

    def test_epoch_in_parts_is_the_whole_one_before(self) -> None:
        assert seen(epoch=2.75, loss=1).position == {"epoch": 2}

    @pytest.mark.parametrize("step", [-1, MOST + 1, 1e300, math.nan, math.inf, "5", True, None, [1]])
    def test_step_that_is_none_is_left_out(self, step: object) -> None:
        assert seen(step=step, loss=1).position == {}

    @pytest.mark.parametrize(
        ("word", "value"), [(b"Infinity", math.inf), (b"-Infinity", -math.inf), (b"1e999", math.inf)]
    )
    def test_infinite_numbers_are_values(self, word: bytes, value: float) -> None:
        found = sight(b'{"loss": %s}' % word)

        assert found is not None
        assert found.numbers == {"loss": value}

    def test_nan_is_a_value(self) -> None:
        found = sight(b'{"loss": NaN}')

        assert found is not None
        assert math.isnan(found.numbers["loss"])

    def test_whole_number_too_large_for_a_float_is_infinite(self) -> None:
        assert seen(loss=10**400, gain=-(10**400)).numbers == {"loss": math.inf, "gain": -math.inf}

    def test_metric_behind_a_progress_bar_is_seen(self) -> None:
        found = sight(b'\r 50%|#####     |\r{"loss": 0.5}\r\n')

        assert found is not None
        assert found.numbers == {"loss": 0.5}

    @pytest.mark.parametrize(
        ("key", "name"), [("x" * 500, "x" * 120), ("a\nb\0", "a\ufffdb\ufffd"), ("\ud800", "\ufffd"), ("", "value")]
    )
    def test_names_are_short_and_can_be_stored_and_shown(self, key: str, name: str) -> None:
        assert seen(**{key: 1}).numbers == {name: 1.0}

    def test_checkpoint_is_named(self) -> None:
        assert seen(checkpoint="last.pt") == Sighting({}, {}, "last.pt")


class TestTrack:
    def test_values_stand_at_the_step_and_epoch_of_their_line(self) -> None:
        track = Track(0.0)
        track.take(seen(step=10, epoch=2, loss=0.5, acc=0.25))

        assert track.points() == [("loss", 10, 2, 0.5), ("acc", 10, 2, 0.25)]
        assert track.points() == []

    def test_without_a_step_each_series_counts_for_itself(self) -> None:
        track = Track(0.0)
        for said in (seen(loss=3.0), seen(loss=2.0, acc=0.5), seen(loss=1.0)):
            track.take(said)

        assert [(name, step) for name, step, _, _ in track.points()] == [
            ("loss", 1),
            ("loss", 2),
            ("acc", 1),
            ("loss", 3),
        ]

    def test_after_a_checkpoint_counting_goes_on_behind_its_step(self) -> None:
        track = Track(0.0, resume_step=40)
        track.take(seen(loss=1.0))

        assert track.points() == [("loss", 41, 0, 1.0)]

    def test_epoch_stays_until_another_is_said(self) -> None:
        track = Track(0.0)
        track.take(seen(epoch=3))
        track.take(seen(step=7, loss=1.0))

        assert track.points() == [("loss", 7, 3, 1.0)]

    def test_steps_that_go_back_are_taken_as_they_are(self) -> None:
        track = Track(0.0)
        track.take(seen(step=9, loss=1.0))
        track.take(seen(step=2, loss=2.0))

        assert [point[1] for point in track.points()] == [9, 2]
        assert track.standing().step == 2

    def test_series_beyond_the_limit_are_left_out_and_said(self) -> None:
        track = Track(0.0)
        assert track.take(seen(**{f"m{number}": 1 for number in range(SERIES_LIMIT)}))

        assert not track.take(seen(m0=2.0, one_more=3.0))
        assert len(track.points()) == SERIES_LIMIT + 1
        assert "one_more" not in track.standing().metrics

    def test_standing_has_the_newest_values(self) -> None:
        track = Track(0.0)
        track.take(seen(step=1, epoch=1, loss=2.0, acc=0.1))
        track.take(seen(step=2, epoch=1, loss=1.0))

        standing = track.standing()
        assert (standing.step, standing.epoch, standing.metrics) == (2, 1, {"loss": 1.0, "acc": 0.1})


class TestProgress:
    def test_steps_tell_the_fraction_and_the_time_left(self) -> None:
        track = Track(100.0)
        track.take(seen(step=25, steps=100))

        # A quarter took 10 s, so three more quarters take 30.
        found = track.progress(110.0)
        assert (found["fraction"], found["eta_s"]) == (0.25, pytest.approx(30.0))

    def test_epochs_do_where_there_are_no_steps(self) -> None:
        track = Track(0.0)
        track.take(seen(epoch=3, epochs=4, loss=1.0))

        assert track.progress(1.0)["fraction"] == 0.75

    def test_nothing_is_known_without_a_total(self) -> None:
        track = Track(0.0)
        track.take(seen(step=3, loss=1.0))

        found = track.progress(1.0)
        assert (found["steps"], found["fraction"], found["eta_s"]) == (0, 0.0, None)

    def test_fraction_never_exceeds_one(self) -> None:
        track = Track(0.0)
        track.take(seen(step=300, steps=100))

        assert track.progress(1.0)["fraction"] == 1.0

    def test_run_that_goes_on_counts_its_own_time_alone(self) -> None:
        track = Track(0.0, resume_step=50)
        track.take(seen(step=50, steps=100))
        assert track.progress(10.0)["eta_s"] is None
        track.take(seen(step=60, steps=100))

        # A tenth took 5 s, four tenths are left.
        assert track.progress(15.0)["eta_s"] == pytest.approx(20.0)
