"""What a follower sees: lines without a terminal, bars on one."""

import io

import pytest
from rich.console import Console

from app.cli.display import Bars, Lines, open_display
from app.cli.follow import JournalEntry
from app.cli.view import JobView, sentence_of
from tests.cli.fake_server import log, metric, state

RUN = [
    state(1, "queued", 0),
    state(2, "starting", worker="gpu-1", devices=["cpu-0@abc"]),
    state(3, "running", devices=["CPU slot"]),
    metric(4, 1, 0.5),
    log(5, "hello"),
    metric(6, 1, 0.45),
    metric(7, 2, "NaN"),
    state(8, "failed", cause="diverged", message="The loss became NaN."),
]


def shown(entries: list[JournalEntry], *, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=terminal, highlight=False, markup=False)
    view = JobView()
    with open_display(console) as display:
        for entry in entries:
            view.apply(entry)
            display.entry(entry, view)
    return out.getvalue()


def script_metric(seq: int, step: int, steps: int = 0) -> JournalEntry:
    """As of a script that prints no epochs: what it did not say is 0."""
    entry = metric(seq, 0, 0.5)
    fraction = step / steps if steps else 0.0
    entry["progress"] = {"epoch": 0, "epochs": 0, "step": step, "steps": steps, "fraction": fraction}
    return entry


class TestView:
    def viewed(self, *entries: JournalEntry) -> JobView:
        view = JobView()
        for entry in entries:
            view.apply(entry)
        return view

    def test_it_knows_the_newest_of_everything(self) -> None:
        view = self.viewed(*RUN[:6])
        assert (view.state, view.attempt, view.epoch, view.fraction) == ("running", 1, 1, 0.25)
        assert view.metrics == {"loss": 0.45}

    def test_another_attempt_starts_from_nothing(self) -> None:
        view = self.viewed(*RUN[:6], state(7, "starting", 2))
        assert (view.epoch, view.fraction, view.metrics) == (0, 0.0, {})

    @pytest.mark.parametrize(("step", "epoch", "share"), [(5, 1, 0.5), (10, 1, 1.0), (13, 2, 0.3), (40, 4, 1.0)])
    def test_the_share_of_the_epoch(self, step: int, epoch: int, share: float) -> None:
        # 40 steps in 4 epochs: 10 steps each.
        entry = metric(1, epoch, 0.5)
        entry["progress"]["step"] = step
        assert self.viewed(entry).fraction_of_epoch == pytest.approx(share)

    def test_before_the_first_report_there_is_no_share(self) -> None:
        assert JobView().fraction_of_epoch == 0.0

    def test_rates_are_not_among_the_metrics_of_quality(self) -> None:
        entry = metric(1, 1, 0.5)
        for name in ("samples_per_s", "learning_rate", "val_loss"):
            entry["points"][name] = {"step": [10], "epoch": [1], "value": [1.0]}
        assert self.viewed(entry).quality == "loss 0.5  val_loss 1"

    def test_the_pace_leaves_out_what_is_not_known(self) -> None:
        entry = metric(1, 1, 0.5)
        assert self.viewed(entry).pace == "12\u202f346 samples/s, 1.5 s left"
        entry["progress"] |= {"eta_s": None, "samples_per_s": None}
        assert self.viewed(entry).pace == ""


class TestSentences:
    def test_a_state_names_host_devices_and_a_later_attempt(self) -> None:
        entry = state(1, "starting", 2, worker="gpu-1", devices=["GPU-1", "GPU-2"])
        assert sentence_of(entry) == "starting on gpu-1 (GPU-1, GPU-2) [attempt 2]"

    def test_devices_that_read_alike_are_counted(self) -> None:
        entry = state(1, "running", devices=["CPU slot, 1 thread", "CPU slot, 1 thread", "other"])
        assert sentence_of(entry) == "running (2 × CPU slot, 1 thread, other)"

    def test_an_end_gives_its_reason(self) -> None:
        assert sentence_of(RUN[-1]) == "failed: diverged: The loss became NaN."

    def test_last_lines_of_a_program_are_not_repeated(self) -> None:
        message = "It ended with exit code 1. Its last output:\nTraceback\nValueError"
        entry = {"kind": "state", "state": "failed", "cause": "user_code", "message": message}
        assert sentence_of(entry) == "failed: user_code: It ended with exit code 1."

    def test_notices_are_news_and_reports_are_not(self) -> None:
        assert (
            sentence_of({"kind": "notice", "code": "x", "message": "3 rows\x1b dropped"})
            == "note: 3 rows\ufffd dropped"
        )
        assert [sentence_of(entry) for entry in (metric(1, 1, 0.5), log(2, "x"))] == [None, None]


class TestLines:
    def test_each_state_and_each_epoch_gets_one_line(self) -> None:
        lines = [line.partition(" ")[2] for line in shown(RUN, terminal=False).splitlines()]
        assert lines == [
            "queued",
            "starting on gpu-1 (cpu-0)",
            "running (CPU slot)",
            "epoch 1/4  25%  loss 0.5  12\u202f346 samples/s, 1.5 s left",
            "epoch 2/4  50%  loss NaN  12\u202f346 samples/s, 1.5 s left",
            "failed: diverged: The loss became NaN.",
        ]

    def test_a_script_that_knows_no_epochs_gets_a_line_for_each_step(self) -> None:
        entries = [script_metric(1, step=5), script_metric(2, step=5), script_metric(3, step=9, steps=18)]
        lines = [line.partition(" ")[2] for line in shown(entries, terminal=False).splitlines()]
        assert lines == ["step 5  loss 0.5", "step 9/18  50%  loss 0.5"]

    def test_the_log_is_shown_without_control_characters(self) -> None:
        out = io.StringIO()
        Lines(Console(file=out, width=120)).log(["one", "two\x1b[2J"])
        assert out.getvalue() == "  | one\n  | two\ufffd[2J\n"

    def test_nothing_is_coloured_or_moved_about(self) -> None:
        assert "\x1b" not in shown(RUN, terminal=False)

    def test_markup_in_names_stays_text(self) -> None:
        assert "[red]gpu[/red]" in shown([state(1, "starting", worker="[red]gpu[/red]")], terminal=False)


class TestBars:
    def test_a_terminal_gets_bars_and_a_pipe_gets_lines(self) -> None:
        assert isinstance(open_display(Console(file=io.StringIO(), force_terminal=True)), Bars)
        assert isinstance(open_display(Console(file=io.StringIO())), Lines)

    def test_states_stay_above_the_bars(self) -> None:
        text = shown(RUN, terminal=True)
        assert "starting on gpu-1" in text
        assert "failed: diverged" in text

    def test_the_bars_follow_the_job(self) -> None:
        bars = Bars(Console(file=io.StringIO(), force_terminal=True))
        view = JobView()
        for entry in RUN[:4]:
            view.apply(entry)
            bars.entry(entry, view)
        training, epoch = bars._progress.tasks
        assert (training.completed, epoch.completed, epoch.fields["text"]) == (0.25, 1.0, "1 of 4")
        assert bars._below.plain == "loss 0.5"

    def test_a_script_that_knows_no_epochs_has_no_bar_but_a_place(self) -> None:
        bars = Bars(Console(file=io.StringIO(), force_terminal=True))
        view = JobView()
        view.apply(script_metric(1, step=5))
        bars.entry(script_metric(1, step=5), view)
        assert [task.visible for task in bars._progress.tasks] == [False, False]
        assert bars._below.plain == "step 5  loss 0.5"

    def test_the_log_goes_above_the_bars(self) -> None:
        out = io.StringIO()
        with Bars(Console(file=out, width=120, force_terminal=True)) as bars:
            bars.log(["hello"])
        assert "  | hello" in out.getvalue()

    def test_a_note_is_replaced_by_the_next_state(self) -> None:
        bars = Bars(Console(file=io.StringIO(), force_terminal=True))
        bars.note("waiting: 0 free")
        assert bars._below.plain == "waiting: 0 free"
        bars.entry(state(2, "starting"), JobView())
        assert bars._below.plain == ""
