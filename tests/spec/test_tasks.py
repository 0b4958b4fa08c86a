"""Which losses and metrics go with which task."""

from typing import get_args

import pytest

from app.spec import parse_job
from app.spec.job import LossName, MetricName, Task
from app.spec.tasks import LOSSES, METRICS, check_target, losses_and_metrics, task_of
from tests.spec.bodies import body, integer, number, table, text


class TestTables:
    def test_every_loss_and_metric_of_the_spec_belongs_to_a_task(self) -> None:
        assert {loss for losses in LOSSES.values() for loss in losses} == set(get_args(LossName))
        assert {metric for metrics in METRICS.values() for metric in metrics} == set(get_args(MetricName))
        assert set(LOSSES) == set(METRICS) == set(get_args(Task))


class TestLossesAndMetrics:
    @pytest.mark.parametrize("task", get_args(Task))
    def test_each_loss_fits_its_task_alone(self, task: Task) -> None:
        for loss in get_args(LossName):
            found, _, problems = losses_and_metrics(parse_job(body(loss=loss)), task)
            assert found == loss
            assert bool(problems) == (loss not in LOSSES[task])

    @pytest.mark.parametrize("task", get_args(Task))
    def test_each_metric_fits_its_task_alone(self, task: Task) -> None:
        for metric in get_args(MetricName):
            _, found, problems = losses_and_metrics(parse_job(body(metrics=[metric])), task)
            assert found == [metric]
            assert bool(problems) == (metric not in METRICS[task])

    def test_a_list_is_copied_and_never_shared_with_the_table_of_tasks(self) -> None:
        _, found, _ = losses_and_metrics(parse_job(body()), "regression")
        found.clear()
        assert METRICS["regression"] == ("mae", "rmse", "r2")


class TestCheckTarget:
    @pytest.mark.parametrize("share", [0.5, 0.51])
    def test_from_half_numbers_on_text_is_taken_for_spoilt_numbers(self, share: float) -> None:
        # 100 rows; at 50 % text cells and fewer the column looks like numbers, above like names.
        target = text("y", distinct=60, texts=round(share * 100))
        spec = parse_job(body())
        assert bool(check_target(spec, "classification", target, 100)) == (share <= 0.5)

    def test_a_few_different_words_are_always_classes(self) -> None:
        target = text("grade", distinct=6, texts=10, labels=["1", "2", "3", "4", "5", "x"])
        assert check_target(parse_job(body()), "classification", target, 100) == []

    def test_a_whole_number_target_with_too_many_values_is_sent_to_regression(self) -> None:
        (problem,) = check_target(parse_job(body()), "classification", integer("y", 1001), 5000)
        assert problem.suggestion == "regression"


class TestTaskOf:
    def test_a_column_of_gaps_is_no_class_number(self) -> None:
        target = integer("y", 0, missing=100)
        assert task_of(parse_job(body()), table(number("x"), target), target) == "regression"
