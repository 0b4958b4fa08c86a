"""What a training remembers between its epochs, whole and taken up again."""

import math

import pytest

from app.spec.training import Hyperparameters
from tests.workers.test_checkpoints import POSITION
from workers.checkpoints import Position
from workers.decisions import Decisions

LOSSES = [1.0, 0.8, 0.9, 0.85, 0.84, 0.7, 0.75, 0.74, 0.73, 0.72]


def settings(**values: object) -> Hyperparameters:
    return Hyperparameters.model_validate(values)


def remembered(decisions: Decisions) -> Position:
    """What a checkpoint keeps of them, through JSON and back."""
    changed = {
        "best": decisions.best,
        "patience": decisions.patience,
        "plateau": decisions.plateau,
        "stopped_early": decisions.stopped_early,
    }
    return Position.model_validate_json(POSITION.model_copy(update=changed).model_dump_json())


class TestMonitor:
    @pytest.mark.parametrize(("validated", "monitor"), [(True, "val_loss"), (False, "loss")])
    def test_is_the_loss_of_what_there_is(self, *, validated: bool, monitor: str) -> None:
        assert Decisions(settings(), validated=validated).monitor == monitor

    def test_is_early_stoppings_own(self) -> None:
        chosen = settings(early_stopping={"monitor": "val_accuracy"})

        assert Decisions(chosen, validated=True).monitor == "val_accuracy"


class TestObserve:
    def test_without_early_stopping_nothing_stops_and_the_best_is_known(self) -> None:
        decisions = Decisions(settings(), validated=True)

        best = [decisions.observe({"val_loss": loss}, epoch, epoch) for epoch, loss in enumerate(LOSSES, 1)]

        assert [epoch for epoch, is_best in enumerate(best, 1) if is_best] == [1, 2, 6]
        assert not decisions.stopped_early
        assert decisions.patience is None
        assert decisions.scale == 1.0

    def test_plateau_scales_the_rate(self) -> None:
        schedule = {"name": "reduce_on_plateau", "patience": 1, "factor": 0.5, "monitor": "val_loss"}
        decisions = Decisions(settings(schedule=schedule), validated=True)

        scales = []
        for epoch, loss in enumerate(LOSSES, 1):
            decisions.observe({"val_loss": loss}, epoch, epoch)
            scales.append(decisions.scale)

        # Two epochs in a row that are not better, counted anew after each reduction (torch's rule).
        assert scales == [1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]

    def test_an_epoch_without_the_value_is_not_better(self) -> None:
        schedule = {"name": "reduce_on_plateau", "patience": 0, "monitor": "val_auc"}
        decisions = Decisions(settings(schedule=schedule), validated=True)
        decisions.observe({"val_auc": 0.5}, 1, 1)

        decisions.observe({"val_loss": 0.1}, 2, 2)
        assert decisions.scale == 0.5
        decisions.observe({"val_auc": math.nan}, 3, 3)
        assert decisions.scale == 0.25


class TestGoingOn:
    @pytest.mark.parametrize("cut", range(1, len(LOSSES)))
    def test_decides_as_the_unbroken_one(self, cut: int) -> None:
        chosen = settings(
            early_stopping={"patience": 3, "min_delta": 0.01},
            schedule={"name": "reduce_on_plateau", "patience": 1, "cooldown": 1},
        )
        whole = Decisions(chosen, validated=True)
        first = Decisions(chosen, validated=True)
        for epoch, loss in enumerate(LOSSES[:cut], 1):
            whole.observe({"val_loss": loss}, epoch, epoch)
            first.observe({"val_loss": loss}, epoch, epoch)

        second = Decisions(chosen, validated=True, position=remembered(first))

        for epoch, loss in enumerate(LOSSES[cut:], cut + 1):
            assert whole.observe({"val_loss": loss}, epoch, epoch) == second.observe({"val_loss": loss}, epoch, epoch)
            assert (whole.stopped_early, whole.scale, whole.best) == (
                second.stopped_early,
                second.scale,
                second.best,
            )

    def test_a_training_that_had_stopped_stays_stopped(self) -> None:
        chosen = settings(early_stopping={"patience": 1})
        first = Decisions(chosen, validated=True)
        first.observe({"val_loss": 1.0}, 1, 1)
        first.observe({"val_loss": 1.0}, 2, 2)
        assert first.stopped_early

        assert Decisions(chosen, validated=True, position=remembered(first)).stopped_early
