"""Specs and tables that the first version stored must still load: jobs and datasets outlive an upgrade.

`stored_before_nested_layers.json` was written by that version's own code.
"""

from typing import Any

import pytest

from app.spec import EffectiveSpec, TableSchema, parse_job, resolve, summarise
from tests.spec.bodies import load

STORED: dict[str, Any] = load("stored_before_nested_layers.json")


class TestStoredSpecs:
    @pytest.mark.parametrize("name", sorted(STORED["effective_specs"]))
    def test_each_loads_and_keeps_what_it_said(self, name: str) -> None:
        stored = STORED["effective_specs"][name]
        loaded = EffectiveSpec.model_validate(stored).model_dump(mode="json")
        assert contains(loaded, stored)

    @pytest.mark.parametrize("name", ["iris_layers", "uploaded_table"])
    def test_posting_one_again_trains_the_same_job(self, name: str) -> None:
        table = TableSchema.model_validate(STORED["tables"].get(name, STORED["tables"]["iris"]))
        stored = STORED["effective_specs"][name]
        assert resolve(parse_job(stored), table, "cpu") == EffectiveSpec.model_validate(stored)

    def test_what_came_later_is_off(self) -> None:
        loaded = EffectiveSpec.model_validate(STORED["effective_specs"]["digits_tensorflow"])
        assert loaded.hyperparameters.precision == "float32"
        assert loaded.hyperparameters.clip_norm is None
        assert loaded.hyperparameters.schedule.warmup_steps == 0
        assert loaded.data.split.column is None
        assert loaded.initialize_from is None


class TestStoredTables:
    @pytest.mark.parametrize("name", sorted(STORED["tables"]))
    def test_each_loads_and_keeps_what_it_said(self, name: str) -> None:
        stored = STORED["tables"][name]
        loaded = TableSchema.model_validate(stored)
        assert contains(loaded.model_dump(mode="json"), stored)
        assert (loaded.image_shape, loaded.problems) == (None, [])

    def test_a_summary_of_both_is_what_it_was(self) -> None:
        # 4 features to 16 to 8 to 3 classes, by the closed form (inputs + 1) * units.
        spec = EffectiveSpec.model_validate(STORED["effective_specs"]["iris_layers"])
        found = summarise(spec, TableSchema.model_validate(STORED["tables"]["iris"]))
        assert found.parameter_count == 5 * 16 + 17 * 8 + 9 * 3
        assert (found.train_rows, found.validation_rows, found.steps_per_epoch) == (120, 30, 8)


def contains(new: Any, old: Any) -> bool:
    """Tell whether everything that was stored is still there; new keys may stand beside it."""
    if isinstance(old, dict):
        return all(key in new and contains(new[key], value) for key, value in old.items())
    if isinstance(old, list):
        return len(new) == len(old) and all(contains(one, other) for one, other in zip(new, old, strict=True))
    return bool(new == old)
