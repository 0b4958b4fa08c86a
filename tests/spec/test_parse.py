"""What a client may leave out, what strings stand for, and what comes back."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spec import JobSpec, parse_job
from app.spec.examples import EXAMPLES
from tests.spec.bodies import body, hyper

# The whole spec with every default, as written in the specification of the job spec.
DEFAULTS: dict[str, Any] = {
    "name": None,
    "tags": {},
    "framework": "torch",
    "model": {"type": "mlp", "hidden": [64, 64], "activation": "relu", "dropout": 0.0, "batch_norm": False},
    "data": {
        "source": "digits",
        "target": None,
        "features": "all",
        "split": {"method": "auto", "column": None, "validation": 0.2, "test": 0.0, "seed": None},
        "missing": "error",
        "preprocess": {"numeric": "standardize", "categorical": "one_hot", "impute": "mean"},
    },
    "task": "auto",
    "loss": "auto",
    "metrics": "auto",
    "hyperparameters": {
        "epochs": 20,
        "batch_size": 64,
        "learning_rate": 0.001,
        "optimizer": {"name": "adam", "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7},
        "schedule": {"name": "constant", "warmup_steps": 0},
        "l1": 0.0,
        "l2": 0.0,
        "weight_decay": 0.0,
        "clip_norm": None,
        "clip_value": None,
        "class_weights": None,
        "precision": "float32",
        "early_stopping": None,
        "checkpoint_every_epochs": None,
        "seed": 0,
    },
    "device_count": 1,
    "device_type": "auto",
    "min_device_memory_bytes": None,
    "device_name": None,
    "initialize_from": None,
    "exports": ["report", "tensorboard"],
    "retry": {"failures": 0, "losses": 3},
    "timeout_s": 86400,
    "stop_when_idle_s": None,
    "priority": 0,
    "not_before": None,
}


class TestShortest:
    def test_every_default_is_filled_in_and_in_the_order_of_the_specification(self) -> None:
        dumped = parse_job(body()).model_dump(mode="json")
        assert dumped == DEFAULTS
        assert list(dumped) == list(DEFAULTS)

    def test_the_whole_object_means_the_same_as_the_shortest(self) -> None:
        assert parse_job(DEFAULTS) == parse_job(body())

    def test_the_posted_object_is_left_alone(self) -> None:
        raw = body(hyperparameters={"optimizer": "sgd"})
        before = json.dumps(raw)
        parse_job(raw)
        assert json.dumps(raw) == before


class TestSugar:
    @pytest.mark.parametrize(
        ("short", "whole"),
        [
            ({"model": "linear"}, {"model": {"type": "linear"}}),
            ({"model": "mlp"}, {"model": {"type": "mlp"}}),
            ({"model": "cnn"}, {"model": {"type": "cnn"}}),
            ({"model": "resnet"}, {"model": {"type": "resnet"}}),
            ({"data": "iris"}, {"data": {"source": "iris"}}),
            ({"hyperparameters": {"optimizer": "sgd"}}, {"hyperparameters": {"optimizer": {"name": "sgd"}}}),
            ({"hyperparameters": {"schedule": "cosine"}}, {"hyperparameters": {"schedule": {"name": "cosine"}}}),
        ],
    )
    def test_a_string_stands_for_the_object_with_its_defaults(
        self, short: dict[str, Any], whole: dict[str, Any]
    ) -> None:
        assert parse_job(body(**short)) == parse_job(body(**whole))

    def test_cosine_ends_at_zero_unless_told_otherwise(self) -> None:
        dumped = parse_job(hyper(schedule="cosine")).model_dump(mode="json")
        assert dumped["hyperparameters"]["schedule"] == {
            "name": "cosine",
            "final_learning_rate": 0.0,
            "warmup_steps": 0,
        }


class TestAccepts:
    @pytest.mark.parametrize("name", EXAMPLES)
    def test_each_example(self, name: str) -> None:
        assert isinstance(parse_job(EXAMPLES[name]), JobSpec)

    def test_a_whole_number_where_a_number_is_wanted(self) -> None:
        rate = parse_job(hyper(learning_rate=1)).hyperparameters.learning_rate
        assert isinstance(rate, float)
        assert rate == 1

    def test_a_learning_rate_so_high_that_training_diverges(self) -> None:
        # Divergence is a way for a job to end, not a wrong spec.
        assert parse_job(hyper(learning_rate=1e3)).hyperparameters.learning_rate == 1e3

    def test_an_empty_list_of_metrics_means_the_loss_alone(self) -> None:
        assert parse_job(body(metrics=[])).metrics == []

    @pytest.mark.parametrize(
        "name", ["<script>alert(1)</script>", "{{7*7}}", "'); alert(1);//", "CON", "Größe 测试 🙂"]
    )
    def test_any_plain_text_as_a_name(self, name: str) -> None:
        assert parse_job(body(name=name, tags={"t": name})).name == name

    def test_a_time_in_any_zone(self) -> None:
        spec = parse_job(body(not_before="2024-01-01T13:30:45.5-08:00"))
        expected = datetime(2024, 1, 1, 13, 30, 45, 500000, tzinfo=UTC) + timedelta(hours=8)
        assert spec.not_before == expected


class TestFrozen:
    def test_a_spec_cannot_be_changed(self) -> None:
        spec = parse_job(body())
        with pytest.raises(ValueError, match="frozen"):
            spec.priority = 3  # type: ignore[misc]


JOB = st.fixed_dictionaries(
    {
        "framework": st.sampled_from(["torch", "tensorflow"]),
        "model": st.one_of(
            st.just({"type": "linear"}),
            st.fixed_dictionaries(
                {
                    "type": st.just("mlp"),
                    "hidden": st.lists(st.integers(1, 65536), min_size=1, max_size=4),
                    "dropout": st.floats(0, 0.99),
                }
            ),
        ),
        "data": st.fixed_dictionaries(
            {
                "source": st.sampled_from(["digits", "iris"]),
                "split": st.fixed_dictionaries({"validation": st.floats(0, 0.5), "test": st.floats(0, 0.4)}),
            }
        ),
        "hyperparameters": st.fixed_dictionaries(
            {
                "epochs": st.integers(1, 1_000_000),
                "learning_rate": st.floats(min_value=1e-30, max_value=1e30),
                "seed": st.integers(0, 2**32 - 1),
            }
        ),
        "priority": st.integers(-10, 10),
        "tags": st.dictionaries(
            st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=64), st.just("x"), max_size=16
        ),
        "not_before": st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
    }
)


class TestRoundTrip:
    @given(JOB)
    def test_what_a_spec_is_written_as_is_read_as_the_same_spec(self, raw: dict[str, Any]) -> None:
        spec = parse_job(raw)
        assert parse_job(json.loads(spec.model_dump_json())) == spec

    @given(JOB)
    def test_every_value_arrives_as_it_was_sent(self, raw: dict[str, Any]) -> None:
        hyperparameters = parse_job(raw).hyperparameters
        sent = raw["hyperparameters"]
        assert hyperparameters.model_dump(include=set(sent)) == sent


class TestImport:
    def test_the_spec_needs_no_numbers_library_and_no_framework(self) -> None:
        # Every process imports the spec, also those that must start fast.
        code = "import sys, app.spec; print(sorted({'numpy', 'polars', 'torch', 'tensorflow'} & set(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"
