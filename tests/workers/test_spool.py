"""The spool: nothing that counts is ever dropped, everything that is dropped is counted, and no entry is too long."""

from dataclasses import dataclass, field

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.jobs.journal import Entry
from workers.protocol import Point, Progress, Report
from workers.spool import POINTS_PER_ENTRY, Batch, Spool

PLENTY = 10**9


def spool(*, log: int = PLENTY, bound: int = PLENTY) -> Spool:
    return Spool(max_log_bytes=log, bound_bytes=bound)


def report(step: int, **values: float) -> Report:
    return Report(
        epoch=step,
        step=step,
        points=[Point(name=name, step=step, epoch=step, value=value) for name, value in values.items()],
        progress=Progress(epoch=step, epochs=9, step=step, steps=9, fraction=step / 9, samples_per_s=float("inf")),
    )


def of_kind(batch: Batch | None, kind: str) -> list[Entry]:
    return [entry for entry in (batch.entries if batch else ()) if entry.kind == kind]


def lines_of(batch: Batch | None) -> list[str]:
    return [line for entry in of_kind(batch, "log") for line in entry.data["lines"]]


class TestBatch:
    def test_reports_are_merged_into_one_entry(self) -> None:
        box = spool()
        box.report(report(1, loss=0.5, acc=0.1))
        box.report(report(2, loss=0.25))
        batch = box.take()

        (entry,) = of_kind(batch, "metric")
        assert entry.data["points"] == {
            "loss": {"step": [1, 2], "epoch": [1, 2], "value": [0.5, 0.25]},
            "acc": {"step": [1], "epoch": [1], "value": [0.1]},
        }
        assert entry.data["progress"]["step"] == 2

    def test_newest_metrics_carry_over_from_batch_to_batch(self) -> None:
        box = spool()
        box.report(report(1, loss=0.5, val_loss=0.6))
        box.take()
        box.written()
        box.report(report(2, loss=0.25))
        batch = box.take()
        assert batch is not None
        assert batch.metrics == {"loss": 0.25, "val_loss": 0.6}

    def test_the_best_epoch_is_found_inside_a_report(self) -> None:
        """One report of five epochs and five reports of one epoch give the same best."""
        losses = [0.9, 0.4, 0.1, 0.3, 0.5]
        values = [(step, {"loss": 1.0 / step, "val_loss": loss}) for step, loss in enumerate(losses, start=1)]
        apart, together = spool(), spool()
        for step, named in values:
            apart.report(report(step, **named))
        points = [point for step, named in values for point in report(step, **named).points]
        together.report(report(5).model_copy(update={"points": points}))
        for box in (apart, together):
            batch = box.take()
            assert batch is not None
            assert batch.best == {"loss": 1.0 / 3, "val_loss": 0.1}
            assert batch.metrics == {"loss": 1.0 / 5, "val_loss": 0.5}

    def test_best_is_told_only_when_it_is_not_the_newest(self) -> None:
        box = spool()
        for step, value in enumerate([0.5, 0.1, 0.3], 1):
            box.report(report(step, val_loss=value))
        batch = box.take()
        assert batch is not None
        assert (batch.best, batch.metrics) == ({"val_loss": 0.1}, {"val_loss": 0.3})
        box.written()
        box.report(report(4, val_loss=0.05))
        batch = box.take()
        assert batch is not None
        assert batch.best is None

    def test_numbers_that_json_lacks_are_words(self) -> None:
        box = spool()
        box.report(report(1, loss=float("nan")))
        batch = box.take()
        assert batch is not None
        assert batch.metrics == {"loss": "NaN"}
        assert batch.progress is not None
        assert batch.progress["samples_per_s"] == "Infinity"

    def test_a_report_without_points_still_brings_progress(self) -> None:
        box = spool()
        box.report(report(3))
        batch = box.take()
        assert batch is not None
        assert batch.progress is not None
        assert batch.metrics is None

    def test_one_huge_report_is_several_rows(self) -> None:
        box = spool()
        for step in range(2 * POINTS_PER_ENTRY + 1):
            box.report(report(step, loss=1.0))
        sizes = [len(entry.data["points"]["loss"]["step"]) for entry in of_kind(box.take(), "metric")]
        assert sizes == [POINTS_PER_ENTRY, POINTS_PER_ENTRY, 1]

    def test_nothing_is_there_at_first_and_after_all_is_written(self) -> None:
        box = spool()
        assert box.take() is None
        box.notice("a", "b")
        assert box.take() is not None
        box.written()
        assert box.take() is None

    def test_what_came_in_during_a_long_try_wakes_the_taker_again(self) -> None:
        box = spool()
        box.notice("a", "first")
        box.take()
        box.notice("b", "second")
        box.filled.clear()  # the taker tries the first batch again and again
        box.written()
        assert box.filled.is_set()
        box.filled.clear()
        box.take()
        box.written()
        assert not box.filled.is_set(), "nothing is left"

    def test_what_is_in_flight_stays_the_same_until_it_is_written(self) -> None:
        box = spool()
        box.notice("first", "")
        before = box.take()
        box.notice("second", "")
        assert box.take() is before
        box.written()
        assert [entry.data["code"] for entry in of_kind(box.take(), "notice")] == ["second"]

    @pytest.mark.parametrize("fill", ["report", "notice", "log", "telemetry"])
    def test_everything_that_comes_in_wakes_the_taker(self, fill: str) -> None:
        box = spool()
        box.filled.clear()
        {
            "report": lambda: box.report(report(1)),
            "notice": lambda: box.notice("a", "b"),
            "log": lambda: box.log(["a"]),
            "telemetry": lambda: box.telemetry({"gpu": 1}),
        }[fill]()
        assert box.filled.is_set()
        assert box.take() is not None


class TestBounds:
    def test_telemetry_goes_before_the_log_and_the_oldest_first(self) -> None:
        box = spool(bound=100)
        for number in range(3):
            box.telemetry({"sample": number})  # 12 bytes each
        box.log([f"line number {number:03d}" for number in range(4)])  # 18 each: 8 too many
        batch = box.take()

        assert lines_of(batch) == [f"line number {number:03d}" for number in range(4)]
        assert [entry.data["sample"] for entry in of_kind(batch, "telemetry")] == [1, 2]
        (notice,) = of_kind(batch, "notice")
        assert notice.data["telemetry"] == 1
        assert notice.data["lines"] == 0

    def test_over_the_bound_the_newest_lines_stay(self) -> None:
        box = spool(bound=100)
        box.log([f"line number {number:03d}" for number in range(100)])
        kept = lines_of(box.take())
        assert kept == [f"line number {number:03d}" for number in range(100 - len(kept), 100)]
        assert kept

    def test_the_log_limit_holds_for_the_whole_attempt(self) -> None:
        box = spool(log=50)
        kept: list[str] = []
        notices = 0
        for number in range(20):
            box.log([f"line {number}"])
            batch = box.take()
            kept += lines_of(batch)
            notices += len(of_kind(batch, "notice"))
            box.written()
        assert kept == [f"line {number}" for number in range(5)]  # each 6 characters, two quotes and a comma
        assert notices == 1


@dataclass
class Fed:
    points: list[tuple[int, float]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    samples: int = 0


_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40)
_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("report"), st.floats(allow_nan=False)),
        st.tuples(st.just("log"), st.lists(_TEXT, max_size=5)),
        st.tuples(st.just("notice"), _TEXT),
        st.tuples(st.just("telemetry"), st.integers(0, 10**6)),
        st.tuples(st.just("write"), st.none()),
        st.tuples(st.just("fail"), st.none()),
    ),
    max_size=60,
)


def drive(box: Spool, operations: list[tuple[str, object]]) -> tuple[Fed, list[Batch]]:
    """Play writes, failures and input in any order; all that the database got in the end."""
    fed, written = Fed(), []
    for step, (name, value) in enumerate([*operations, ("write", None), ("write", None)]):
        if name == "report":
            assert isinstance(value, float)
            fed.points.append((step, value))
            box.report(report(step, loss=value))
        elif name == "log":
            assert isinstance(value, list)
            fed.lines += value
            box.log(value)
        elif name == "notice":
            fed.notices.append(str(value))
            box.notice("said", str(value))
        elif name == "telemetry":
            fed.samples += 1
            box.telemetry({"sample": value})
        elif name == "write" and (batch := box.take()) is not None:
            written.append(batch)
            box.written()
        elif name == "fail":
            box.take()
    return fed, written


def got(batches: list[Batch], kind: str) -> list[Entry]:
    return [entry for batch in batches for entry in of_kind(batch, kind)]


class TestProperties:
    @given(_OPERATIONS)
    @settings(max_examples=80, deadline=None)
    def test_without_pressure_everything_arrives_once_and_in_order(self, operations: list[tuple[str, object]]) -> None:
        fed, batches = drive(spool(), operations)
        assert [line for batch in batches for line in lines_of(batch)] == fed.lines
        assert [entry.data["message"] for entry in got(batches, "notice")] == fed.notices
        assert len(got(batches, "telemetry")) == fed.samples

    @given(_OPERATIONS, st.integers(0, 500))
    @settings(max_examples=80, deadline=None)
    def test_under_pressure_points_and_notices_are_kept_and_the_rest_is_counted(
        self, operations: list[tuple[str, object]], bound: int
    ) -> None:
        fed, batches = drive(spool(bound=bound), operations)
        points = [entry.data["points"].get("loss", {"step": [], "value": []}) for entry in got(batches, "metric")]
        pairs = [pair for series in points for pair in zip(series["step"], series["value"], strict=True)]
        said = [entry for entry in got(batches, "notice") if entry.data["code"] == "said"]
        dropped = [entry for entry in got(batches, "notice") if entry.data["code"] == "spool_dropped"]

        assert [step for step, _ in pairs] == [step for step, _ in fed.points]
        assert [entry.data["message"] for entry in said] == fed.notices
        arrived = sum(len(lines_of(batch)) for batch in batches)
        assert arrived + sum(entry.data["lines"] for entry in dropped) == len(fed.lines)
        assert len(got(batches, "telemetry")) + sum(e.data["telemetry"] for e in dropped) == fed.samples

    @given(st.lists(st.text(max_size=8000), max_size=40))
    @settings(max_examples=40, deadline=None)
    def test_every_log_entry_fits_in_64_kb(self, lines: list[str]) -> None:
        box = spool()
        box.log([line.encode("utf-8", "replace").decode() for line in lines])
        assert all(len(orjson.dumps(entry.data)) <= 64_000 for entry in of_kind(box.take(), "log"))
