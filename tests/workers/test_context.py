"""How points become reports."""

from tests.workers.training_jobs import Listener
from workers.context import NullContext, Reporter
from workers.protocol import Checkpoint, Progress


class Stopwatch:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


PROGRESS = Progress(epoch=2, epochs=5, step=20, steps=50, fraction=0.4)


class TestReporter:
    def test_is_due_half_a_second_after_the_start_and_after_each_report(self) -> None:
        watch = Stopwatch()
        reporter = Reporter(Listener(), watch)
        seen = []

        for moment in (100.0, 100.4, 100.5):
            watch.now = moment
            seen.append(reporter.due())
        reporter.send(PROGRESS)
        for moment in (100.9, 101.0):
            watch.now = moment
            seen.append(reporter.due())

        assert seen == [False, False, True, False, True]

    def test_sends_all_points_since_the_last_report_in_order(self) -> None:
        listener = Listener()
        reporter = Reporter(listener, Stopwatch())

        reporter.add(1, 10, {"loss": 0.5, "accuracy": 0.9})
        reporter.add(2, 20, {"loss": 0.4})
        reporter.send(PROGRESS)

        (report,) = listener.reports
        assert [(point.name, point.epoch, point.step, point.value) for point in report.points] == [
            ("loss", 1, 10, 0.5),
            ("accuracy", 1, 10, 0.9),
            ("loss", 2, 20, 0.4),
        ]
        assert (report.epoch, report.step, report.progress) == (2, 20, PROGRESS)

    def test_sends_each_point_once(self) -> None:
        listener = Listener()
        reporter = Reporter(listener, Stopwatch())
        reporter.add(1, 10, {"loss": 0.5})

        reporter.send(PROGRESS)
        reporter.send(PROGRESS)

        assert [len(report.points) for report in listener.reports] == [1, 0]

    def test_points_alone_go_out_only_when_there_are_some(self) -> None:
        listener = Listener()
        reporter = Reporter(listener, Stopwatch())

        reporter.send_points(PROGRESS)
        assert listener.reports == []
        reporter.add(1, 10, {"loss": 0.5})
        reporter.send_points(PROGRESS)
        reporter.send_points(PROGRESS)

        assert [len(report.points) for report in listener.reports] == [1]


class TestNullContext:
    def test_never_asks_to_stop(self) -> None:
        context = NullContext()
        reporter = Reporter(context, Stopwatch())

        reporter.send(PROGRESS)
        context.notice("code", "message")
        context.checkpoint(Checkpoint(step=1, epoch=1, path="c", metrics={}, reason="final", best=True))

        assert context.stop_reason() is None
