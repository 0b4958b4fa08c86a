"""The user's page of the spec: complete, and its examples work."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from annotated_types import Le, MaxLen

from app.spec import Environment, JobSpec, PythonModel, Script, ScriptSpec, parse_spec, resolve
from app.spec.base import SpecModel
from app.spec.catalog import LAYERS, LOSS_MEANINGS, METRIC_MEANINGS, MODELS, OPTIMIZERS, SCHEDULES
from app.spec.data import DataSpec, Preprocess, Split
from app.spec.layers import ACTIVATIONS
from app.spec.model import Cnn, Mlp, Resnet
from app.spec.places import every_field
from app.spec.training import Hyperparameters
from app.tables import builtin_schema
from tests.spec.bodies import UPLOADED

PAGE = (Path(__file__).parents[2] / "docs" / "spec.md").read_text(encoding="utf-8")
REQUIRED = "no default"
EXAMPLES = re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)


DEFAULTS: list[type[SpecModel]] = [
    *(JobSpec, DataSpec, Split, Preprocess, Mlp, Cnn, Resnet),
    *(PythonModel, Environment, Hyperparameters, Script),
]
"""What the page's tables of `field | default | meaning` are about, in this order."""


def default_of(model: type[SpecModel], name: str) -> Any:
    """The default as JSON; REQUIRED when there is none."""
    info = model.model_fields[name]
    if info.is_required():
        return REQUIRED
    value = info.get_default(call_default_factory=True)
    return value.model_dump() if isinstance(value, SpecModel) else value


def tables(head: str) -> list[list[list[str]]]:
    """The cells of each table that begins with the head, row by row."""
    found = re.findall(rf"^{re.escape(head)}\n\|[-|]+\n((?:\|.*\n)+)", PAGE, flags=re.MULTILINE)
    return [[re.split(r" ?(?<!\\)\| ?", line)[1:-1] for line in table.splitlines()] for table in found]


def expanded(model: type[SpecModel], name: str, short: Any) -> Any:
    """A default as the page writes it, in full: `{}` and a name stand for an object with every default."""
    value = default_of(model, name)
    if isinstance(value, dict) and isinstance(short, str):
        key = next(iter(value))
        return value if value[key] == short else short
    info = model.model_fields[name]
    if isinstance(value, dict) and isinstance(info.default, SpecModel) and isinstance(short, dict):
        return type(info.default).model_validate(short).model_dump()
    return short


class TestDefaults:
    @pytest.mark.parametrize(("model", "rows"), [*zip(DEFAULTS, tables("| field | default | meaning |"), strict=True)])
    def test_each_table_has_every_field_with_its_default(self, model: type[SpecModel], rows: list[list[str]]) -> None:
        written: dict[str, Any] = {}
        for names, default, _ in rows:
            for name in re.findall(r"`(\w+)`", names):
                short = json.loads(default.strip("`")) if default else REQUIRED
                written[name] = expanded(model, name, short)
        assert written == {name: default_of(model, name) for name in model.model_fields if name != "type"}

    @pytest.mark.parametrize(
        ("head", "parts", "shared"),
        [
            ("| `type` | fields (defaults) | shape |", LAYERS, ()),
            ("| `name` | fields (defaults) | step |", OPTIMIZERS, ()),
            ("| `name` | fields (defaults) | rate |", SCHEDULES, ("warmup_steps",)),
        ],
    )
    def test_so_has_each_list_of_fields(
        self, head: str, parts: dict[str, type[SpecModel]], shared: tuple[str, ...]
    ) -> None:
        (rows,) = tables(head)
        assert {name for names, *_ in rows for name in re.findall(r"`(\w+)`", names)} == set(parts)
        for names, fields, _ in rows:
            for name in re.findall(r"`(\w+)`", names):
                if fields.startswith(("as ", "the same")):  # as the row before, which is checked
                    continue
                written = {
                    key: REQUIRED if not value else json.loads(value.split(" = ")[0].strip("`"))
                    for key, value in re.findall(r"`(\w+)`(?: \(([^)]*)\))?", fields)
                }
                model = parts[name]
                own = [key for key in model.model_fields if key not in ("type", "name", *shared)]
                assert written == {key: default_of(model, key) for key in own}, name


def most(name: str) -> set[str]:
    """The largest values or lengths that the spec allows for fields of that name, as the page writes numbers."""
    found = set()
    for path, shape in [*every_field(JobSpec), *every_field(ScriptSpec)]:
        for place in (shape, shape.items, *shape.members.values()) if path[-1] == name else ():
            limits = place.metadata if place is not None else ()
            found |= {f"{item.le:,}" for item in limits if isinstance(item, Le)}
            found |= {f"{item.max_length:,}" for item in limits if isinstance(item, MaxLen)}
    return found


class TestLimits:
    def test_what_the_page_says_is_what_is_checked(self) -> None:
        (rows,) = tables("| what | at most |")
        for what, limits in rows:
            told = set(re.findall(r"\d[\d,]*", limits))
            for name in re.findall(r"`(\w+)`", what):
                assert most(name) & told, name

    def test_every_large_limit_is_told(self) -> None:
        # Small ones, as of shares, stand beside their fields; memory has none but that of 64-bit numbers.
        told = set(re.findall(r"\d[\d,]*", " ".join(limits for _, limits in tables("| what | at most |")[0])))
        keys = {path[-1] for path, _ in every_field(JobSpec)} - {"min_device_memory_bytes", "checkpoint", "source"}
        untold = {(key, limit) for key in keys for limit in most(key) - told if float(limit.replace(",", "")) > 256}
        assert {key for key, _ in untold} <= {"patience", "cooldown", "every_epochs", "checkpoint_every_epochs"}


class TestPage:
    def test_every_key_of_the_spec_is_explained(self) -> None:
        keys = {path[-1] for spec in (JobSpec, ScriptSpec) for path, _ in every_field(spec)} - {"type"}
        assert not [key for key in keys if f"`{key}`" not in PAGE]

    def test_every_word_that_can_be_chosen_is_there(self) -> None:
        words = [*MODELS, *LAYERS, *OPTIMIZERS, *SCHEDULES, *LOSS_MEANINGS, *METRIC_MEANINGS, *ACTIVATIONS]
        assert not [word for word in words if f"`{word}`" not in PAGE]

    @pytest.mark.parametrize("written", EXAMPLES)
    def test_each_example_is_accepted(self, written: str) -> None:
        spec = parse_spec(json.loads(written))
        if isinstance(spec, JobSpec) and spec.data.source != UPLOADED:
            assert resolve(spec, builtin_schema(spec.data.source), "cpu").data.source == spec.data.source

    def test_there_are_examples(self) -> None:
        assert len(EXAMPLES) == 6

    def test_every_link_within_the_page_leads_somewhere(self) -> None:
        titles = re.findall(r"^#+ (.*)$", PAGE, flags=re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
        assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= anchors
