"""What is monitored, how classes are weighed, what is exported: refused when it cannot be what was meant."""

from typing import Any, get_args

import pytest

from app.spec import EffectiveSpec, InvalidSpec, SpecProblem, parse_job, resolve
from app.spec.monitors import MonitorName, higher_is_better
from app.spec.tasks import METRICS
from tests.spec.bodies import UPLOADED, body, hyper, integer, number, problem_at, table, text

SCHEMA = table(number("x"), text("species", labels=["fir", "oak", "pine tree"], distinct=3), integer("many", 9))


def raw(target: str = "species", **changes: Any) -> dict[str, Any]:
    data = {"source": UPLOADED, "target": target, "features": ["x"], **changes.pop("data", {})}
    settings = {key: changes.pop(key) for key in list(changes) if key not in ("metrics", "framework", "exports")}
    return {"framework": "torch", "model": "linear", "data": data, "hyperparameters": settings, **changes}


def resolved(*args: Any, **changes: Any) -> EffectiveSpec:
    return resolve(parse_job(raw(*args, **changes)), SCHEMA, "cpu")


def refused(*args: Any, **changes: Any) -> SpecProblem:
    with pytest.raises(InvalidSpec) as caught:
        resolved(*args, **changes)
    (problem,) = caught.value.problems
    return problem


def stopping(monitor: str) -> dict[str, Any]:
    return {"early_stopping": {"monitor": monitor}}


def plateau(monitor: str) -> dict[str, Any]:
    return {"schedule": {"name": "reduce_on_plateau", "monitor": monitor}}


NO_VALIDATION: dict[str, Any] = {"data": {"split": {"validation": 0.0}}}


class TestMonitors:
    @pytest.mark.parametrize("monitor", ["val_loss", "loss", "val_accuracy", "accuracy"])
    def test_what_is_reported_can_be_monitored(self, monitor: str) -> None:
        assert resolved(**stopping(monitor), **plateau(monitor)).hyperparameters.early_stopping is not None

    @pytest.mark.parametrize(
        ("setting", "pointer"),
        [(stopping, "/hyperparameters/early_stopping/monitor"), (plateau, "/hyperparameters/schedule/monitor")],
    )
    def test_without_a_validation_part_there_is_nothing_to_look_at(self, setting: Any, pointer: str) -> None:
        assert refused(**setting("val_loss"), **NO_VALIDATION) == SpecProblem(
            pointer,
            "Monitor val_loss needs a validation part, and there is none: set data.split.validation above 0, for "
            "example 0.2, or monitor loss.",
            "loss",
        )
        assert resolved(**setting("loss"), **NO_VALIDATION).data.split.validation == 0

    def test_a_metric_that_is_not_reported_says_what_to_add(self) -> None:
        assert refused(**stopping("val_f1")) == SpecProblem(
            "/hyperparameters/early_stopping/monitor",
            "Monitor val_f1 is not reported: add f1 to metrics, or use one of val_loss, val_accuracy.",
            "val_loss",
        )
        assert resolved(**stopping("val_f1"), metrics=["f1"]).metrics == ["f1"]

    def test_without_validation_the_loss_is_offered(self) -> None:
        problem = refused(**stopping("accuracy"), metrics=[], **NO_VALIDATION)
        assert problem.message.endswith("add accuracy to metrics, or use loss.")

    def test_a_given_split_may_lack_the_validation_part(self) -> None:
        schema = table(number("x"), integer("y", 2), text("part", labels=["test", "train"]))
        split = {"method": "given", "column": "part"}
        spec = parse_job(
            body(
                model="linear",
                data={"source": UPLOADED, "target": "y", "split": split},
                hyperparameters=stopping("val_loss"),
            )
        )
        with pytest.raises(InvalidSpec, match="mark rows of "):
            resolve(spec, schema, "cpu")
        whole = table(number("x"), integer("y", 2), text("part", labels=["Validation", "train"]))
        assert resolve(spec, whole, "cpu").data.split.method == "given"

    @pytest.mark.parametrize(("target", "monitor"), [("x", "val_accuracy"), ("species", "val_r2"), ("species", "mae")])
    def test_a_metric_of_the_other_task_is_not_advised(self, target: str, monitor: str) -> None:
        changes = {"data": {"features": ["many"]}} if target == "x" else {}
        problem = refused(target, **stopping(monitor), **changes)
        task = "regression" if target == "x" else "classification"
        assert problem.message.startswith(f"Monitor {monitor} does not fit {task}; use one of val_loss, ")

    @pytest.mark.parametrize(("wrong", "meant"), [("validation_loss", "val_loss"), ("val_acuracy", "val_accuracy")])
    def test_a_misspelt_monitor_is_recognised(self, wrong: str, meant: str) -> None:
        problem = problem_at(hyper(**stopping(wrong)), "/hyperparameters/early_stopping/monitor")
        assert problem.suggestion == meant

    def test_every_metric_can_be_monitored_on_the_validation_part(self) -> None:
        names = set(get_args(MonitorName))
        assert {f"val_{metric}" for metrics in METRICS.values() for metric in metrics} | {"val_loss"} <= names

    @pytest.mark.parametrize("monitor", get_args(MonitorName))
    def test_errors_and_losses_are_better_when_lower(self, monitor: str) -> None:
        # scikit-learn's scorers negate exactly these: they end in _error or _loss.
        assert higher_is_better(monitor) == (monitor.removeprefix("val_") not in ("loss", "mae", "rmse"))


class TestTopMetrics:
    @pytest.mark.parametrize(("metric", "most"), [("top_3", 3), ("top_5", 5)])
    def test_they_need_more_classes_than_they_look_at(self, metric: str, most: int) -> None:
        assert resolved("many", metrics=[metric]).metrics == [metric]
        assert refused(metrics=["f1", metric]) == SpecProblem(
            "/metrics/1", f"Metric {metric} needs more than {most} classes; column 'species' has 3.", "accuracy"
        )


class TestClassWeights:
    @pytest.mark.parametrize("weights", ["balanced", {"oak": 2.0}, {"pine tree": 5, "fir": 0.5, "oak": 1}])
    def test_known_classes_are_weighed(self, weights: Any) -> None:
        assert resolved(class_weights=weights).hyperparameters.class_weights == weights

    @pytest.mark.parametrize(("wrong", "nearest"), [("Oak", "oak"), ("pine_tree", "pine tree"), ("firr", "fir")])
    def test_an_unknown_class_names_the_nearest(self, wrong: str, nearest: str) -> None:
        assert refused(class_weights={wrong: 2.0}) == SpecProblem(
            f"/hyperparameters/class_weights/{wrong}",
            f"'{wrong}' is no class of column 'species'; did you mean '{nearest}'?",
            nearest,
        )

    def test_of_a_thousand_unknown_classes_twenty_are_explained(self) -> None:
        schema = table(number("x"), text("species", labels=[f"class {n:03}" for n in range(1000)], distinct=1000))
        weights = {f"klass {number:03}": 1.0 for number in range(1000)}
        with pytest.raises(InvalidSpec) as caught:
            resolve(parse_job(raw(class_weights=weights)), schema, "cpu")
        assert len(caught.value.problems) == 20
        assert caught.value.problems[7].suggestion == "class 007"

    def test_a_class_like_no_other_lists_them(self) -> None:
        problem = refused("many", class_weights={"1.0": 2.0})
        assert problem.message == (
            "'1.0' is no class of column 'many'; the classes are '0', '1', '2', '3', '4', '5', '6', '7' and 1 more."
        )

    def test_regression_has_none(self) -> None:
        problem = refused("x", class_weights="balanced", data={"features": ["many"]})
        assert problem == SpecProblem(
            "/hyperparameters/class_weights", "Class weights need classes; regression has none.", "null"
        )

    @pytest.mark.parametrize("wrong", [{}, {"a": 0}, {"a": -1}, {"a": "2"}, "balance", 3, []])
    def test_anything_else_is_refused_where_it_stands(self, wrong: Any) -> None:
        where = "/hyperparameters/class_weights" + ("/a" if wrong and isinstance(wrong, dict) else "")
        assert problem_at(hyper(class_weights=wrong), where).message.startswith("hyperparameters.class_weights")


class TestExports:
    def test_keras_needs_tensorflow(self) -> None:
        assert refused(exports=["onnx", "keras"]) == SpecProblem(
            "/exports/1", "Export keras needs the framework tensorflow; what torch trains can leave as onnx.", "onnx"
        )
        assert resolved(exports=["keras"], framework="tensorflow").exports == ["keras"]

    def test_a_format_is_named_once(self) -> None:
        assert "only once" in problem_at(body(exports=["onnx", "onnx"]), "/exports").message

    def test_none_at_all_is_a_choice(self) -> None:
        assert resolved(exports=[]).exports == []


class TestInitializeFrom:
    @pytest.mark.parametrize("checkpoint", ["best", "last", 0, 1200])
    def test_a_checkpoint_is_best_last_or_a_step(self, checkpoint: Any) -> None:
        source = {"job": "job_01k0000000000000000000000a", "checkpoint": checkpoint}
        spec = parse_job(body(initialize_from=source))
        assert spec.model_dump(mode="json")["initialize_from"] == source

    @pytest.mark.parametrize("checkpoint", ["first", -1, True, None, 1.5, 2**63])  # a column holds 64 bits
    def test_anything_else_is_refused(self, checkpoint: Any) -> None:
        source = {"job": "job_01k0000000000000000000000a", "checkpoint": checkpoint}
        problem = problem_at(body(initialize_from=source), "/initialize_from/checkpoint")
        assert problem.message.startswith("initialize_from.checkpoint must be")

    @pytest.mark.parametrize("job", ["", "x", "job_", "job_../../x", "ds_01k0000000000000000000000a", 3])
    def test_a_job_is_named_by_its_id(self, job: Any) -> None:
        problem = problem_at(body(initialize_from={"job": job}), "/initialize_from/job")
        assert "job_01k0000000000000000000000a" in problem.message
