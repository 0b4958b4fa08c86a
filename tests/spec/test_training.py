"""Optimizers, schedules and the other settings of training, as they are written."""

from typing import Any

import pytest

from app.spec import parse_job
from app.spec.training import AdamW
from tests.spec.bodies import hyper, problem_at

# The defaults that the documentation promises; optimizers as in reference texts of torch and Keras.
DEFAULTS: list[tuple[str, dict[str, Any]]] = [
    ("sgd", {"momentum": 0.0, "nesterov": False}),
    ("adam", {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}),
    ("adamw", {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7}),
    ("rmsprop", {"rho": 0.9, "momentum": 0.0, "epsilon": 1e-7}),
    ("adagrad", {"initial_accumulator": 0.0, "epsilon": 1e-7}),
]
SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("constant", {}),
    ("cosine", {"final_learning_rate": 0.0}),
    ("step", {"every_epochs": 10, "factor": 0.1}),
    ("exponential", {"factor": 0.95}),
    (
        "reduce_on_plateau",
        {
            "monitor": "val_loss",
            "factor": 0.5,
            "patience": 5,
            "min_delta": 0.0,
            "cooldown": 0,
            "min_learning_rate": 0.0,
        },
    ),
]


def settings(**values: Any) -> dict[str, Any]:
    return parse_job(hyper(**values)).hyperparameters.model_dump(mode="json")


class TestDefaults:
    @pytest.mark.parametrize(("name", "values"), DEFAULTS)
    def test_an_optimizer_is_complete(self, name: str, values: dict[str, Any]) -> None:
        assert settings(optimizer=name)["optimizer"] == {"name": name, **values}

    @pytest.mark.parametrize(("name", "values"), SCHEDULES)
    def test_a_schedule_is_complete_and_starts_at_once(self, name: str, values: dict[str, Any]) -> None:
        assert settings(schedule=name)["schedule"] == {"name": name, **values, "warmup_steps": 0}

    def test_early_stopping_keeps_the_best_model(self) -> None:
        assert settings(early_stopping={})["early_stopping"] == {
            "monitor": "val_loss",
            "patience": 5,
            "min_delta": 0.0,
            "restore_best": True,
        }


class TestWeightDecay:
    def test_it_goes_with_adamw(self) -> None:
        spec = parse_job(hyper(optimizer="adamw", weight_decay=0.01)).hyperparameters
        assert isinstance(spec.optimizer, AdamW)
        assert spec.weight_decay == 0.01

    @pytest.mark.parametrize("name", ["sgd", "adam", "rmsprop", "adagrad"])
    def test_another_optimizer_is_told_what_to_use(self, name: str) -> None:
        # Keras decays with any optimizer, torch adds l2 to the gradient: one word for two things.
        problem = problem_at(hyper(optimizer=name, weight_decay=0.01), "/hyperparameters/weight_decay")
        assert problem.message == (
            f'hyperparameters.weight_decay must be 0, or the optimizer "adamw"; with "{name}" use l2.'
        )

    def test_a_wrong_optimizer_is_told_once(self) -> None:
        problem = problem_at(hyper(optimizer="adamx", weight_decay=0.01), "/hyperparameters/optimizer")
        assert problem.suggestion in ("adam", "adamw")


class TestValues:
    @pytest.mark.parametrize(
        ("key", "wrong"),
        [
            ("clip_norm", 0),
            ("clip_norm", -1),
            ("clip_norm", "1"),
            ("clip_value", 0),
            ("clip_value", True),
            ("checkpoint_every_epochs", 0),
            ("checkpoint_every_epochs", 1.5),
            ("precision", "half"),
            ("early_stopping", True),
            ("early_stopping", "val_loss"),
        ],
    )
    def test_a_wrong_value_is_pointed_at(self, key: str, wrong: Any) -> None:
        problem = problem_at(hyper(**{key: wrong}), f"/hyperparameters/{key}")
        assert problem.message.startswith(f"hyperparameters.{key} must be")

    @pytest.mark.parametrize(
        ("schedule", "key"),
        [
            ({"name": "step", "every_epochs": 0}, "every_epochs"),
            ({"name": "step", "factor": 0}, "factor"),
            ({"name": "step", "factor": 1.1}, "factor"),
            ({"name": "exponential", "factor": -0.5}, "factor"),
            ({"name": "reduce_on_plateau", "factor": 1.0}, "factor"),
            ({"name": "reduce_on_plateau", "patience": -1}, "patience"),
            ({"name": "reduce_on_plateau", "monitor": "test_loss"}, "monitor"),
            ({"name": "cosine", "warmup_steps": -1}, "warmup_steps"),
            ({"name": "cosine", "warmup_steps": 1.0}, "warmup_steps"),
        ],
    )
    def test_a_schedules_numbers_have_bounds(self, schedule: dict[str, Any], key: str) -> None:
        problem = problem_at(hyper(schedule=schedule), f"/hyperparameters/schedule/{key}")
        assert problem.message.startswith(f"hyperparameters.schedule.{key} must be")

    @pytest.mark.parametrize(
        ("precision", "meant"), [("fp16", "float16"), ("bf16", "bfloat16"), ("mixed_float16", "float16")]
    )
    def test_a_precision_of_another_tool_is_understood(self, precision: str, meant: str) -> None:
        assert problem_at(hyper(precision=precision), "/hyperparameters/precision").suggestion == meant

    @pytest.mark.parametrize(
        ("key", "meant"),
        [
            ("max_grad_norm", "clip_norm"),
            ("class_weight", "class_weights"),
            ("mixed_precision", "precision"),
            ("wd", "weight_decay"),
        ],
    )
    def test_a_key_of_another_tool_is_understood(self, key: str, meant: str) -> None:
        assert problem_at(hyper(**{key: 1}), f"/hyperparameters/{key}").suggestion == meant

    @pytest.mark.parametrize(
        ("name", "meant"),
        [("plateau", "reduce_on_plateau"), ("ReduceLROnPlateau", "reduce_on_plateau"), ("stp", "step")],
    )
    def test_a_schedule_of_another_tool_is_understood(self, name: str, meant: str) -> None:
        assert problem_at(hyper(schedule={"name": name}), "/hyperparameters/schedule/name").suggestion == meant
