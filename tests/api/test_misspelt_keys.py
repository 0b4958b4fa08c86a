"""A key that is misspelt or in the wrong place is refused at submit; the effective values are part of every job.

The spec and the patches are those of the shared failure case about silently ignored hyperparameters.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.client import ONE_DATABASE, Api, problem

DATA = Path(__file__).parents[1] / "data"
WRONG_KEYS: list[dict[str, Any]] = json.loads((DATA / "wrong_keys.json").read_text())
TYPO_SPEC: dict[str, Any] = json.loads((DATA / "typo_spec.json").read_text())
# Pointer of the wrong key, and the key that was meant (or None where there is no such setting here).
EXPECTED = {
    "typo inside hyperparameters": ("/hyperparameters/lerning_rate", "learning_rate"),
    "right key, wrong nesting level": ("/learning_rate", "hyperparameters.learning_rate"),
    "hyphen instead of underscore": ("/hyperparameters/batch-size", "batch_size"),
    "key of another tool": ("/hyperparameters/num_workers", None),
    "wrong case": ("/Framework", "framework"),
}


@pytest.fixture
def toy(api: Api) -> dict[str, Any]:
    """A valid spec over an uploaded table of four classes."""
    answer = api.post("/v1/datasets", files={"file": ("toy.csv", (DATA / "four_classes.csv").read_bytes(), "text/csv")})
    assert answer.status_code == 201, answer.text
    spec: dict[str, Any] = json.loads(json.dumps(TYPO_SPEC))
    spec["data"]["source"] = answer.json()["id"]
    del spec["hyperparameters"]["lerning_rate"], spec["hyperparameters"]["batchsize"]
    return spec | {"device_type": "cpu"}


@ONE_DATABASE
class TestMisspeltKeys:
    @pytest.mark.parametrize("case", WRONG_KEYS, ids=lambda case: str(case["note"]))
    def test_each_is_refused_by_name_with_what_was_meant(
        self, api: Api, toy: dict[str, Any], case: dict[str, Any]
    ) -> None:
        spec = toy | case["patch"]
        spec["hyperparameters"] = toy["hyperparameters"] | case["patch"].get("hyperparameters", {})
        (shown,) = problem(api.post("/v1/jobs", json=spec), 422, "invalid_spec")["errors"]
        pointer, meant = EXPECTED[case["note"]]
        assert shown["pointer"] == pointer
        assert pointer.rsplit("/", 1)[1] in shown["message"]
        if meant is not None:
            assert meant in f"{shown['suggestion']} {shown['message']}"

    def test_two_at_once_are_both_named(self, api: Api, toy: dict[str, Any]) -> None:
        spec = toy | {"hyperparameters": TYPO_SPEC["hyperparameters"]}
        shown = problem(api.post("/v1/jobs", json=spec), 422, "invalid_spec")["errors"]
        assert {item["pointer"]: item["suggestion"] for item in shown} == {
            "/hyperparameters/lerning_rate": "learning_rate",
            "/hyperparameters/batchsize": "batch_size",
        }

    def test_the_valid_spec_is_accepted_with_all_its_values(self, api: Api, toy: dict[str, Any]) -> None:
        answer = api.post("/v1/jobs", json=toy)
        assert answer.status_code == 201
        shown = answer.json()["effective_spec"]
        assert shown["hyperparameters"] | toy["hyperparameters"] == shown["hyperparameters"]
        assert {"optimizer", "schedule", "l1", "l2", "weight_decay", "seed"} <= shown["hyperparameters"].keys()
        assert shown["data"]["features"]
        assert answer.json()["dataset_id"] == toy["data"]["source"]

    def test_tags_of_unions_are_in_no_pointer(self, api: Api, toy: dict[str, Any]) -> None:
        spec = toy | {"model": {"type": "mlp", "hidden": ["many"]}}
        (shown,) = problem(api.post("/v1/jobs", json=spec), 422, "invalid_spec")["errors"]
        assert shown["pointer"] == "/model/hidden/0"
