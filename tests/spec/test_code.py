"""Reading stored specs of either kind."""

import json

import pytest
from pydantic import ValidationError

from app.spec import EffectiveScriptSpec, EffectiveSpec, code_of, kind_of, parse_script, read_effective, resolve_script
from app.spec.examples import BUNDLE, CODE_EXAMPLES
from tests.spec.bodies import resolved, spec_of


class TestReadEffective:
    def test_both_kinds_from_json_and_decoded(self) -> None:
        script = resolve_script(parse_script(CODE_EXAMPLES["script_all_settings"]), "cuda")
        model = resolved(spec_of())
        for spec, kind in ((script, EffectiveScriptSpec), (model, EffectiveSpec)):
            text = spec.model_dump_json()
            for stored in (text, text.encode(), json.loads(text)):
                found = read_effective(stored)
                assert isinstance(found, kind)
                assert found == spec

    def test_kinds_have_names(self) -> None:
        assert kind_of(resolved(spec_of())) == "model"
        assert kind_of(parse_script(CODE_EXAMPLES["script_shortest"])) == "script"

    @pytest.mark.parametrize("stored", [{}, {"script": {}}, {"script": None, "model": "mlp"}])
    def test_what_was_written_by_something_else_is_refused(self, stored: dict[str, object]) -> None:
        with pytest.raises(ValidationError):
            read_effective(stored)


class TestCodeOf:
    def test_of_a_script(self) -> None:
        code = code_of(parse_script(CODE_EXAMPLES["script_all_settings"]))
        assert code is not None
        assert (code.bundle, code.network, code.place) == (BUNDLE, False, "script")
        assert code.environment.variables == {"WANDB_MODE": "offline"}
