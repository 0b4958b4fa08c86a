"""Bodies and tables that the spec's tests share."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.spec import (
    CellAt,
    Column,
    EffectiveSpec,
    InvalidSpec,
    SpecProblem,
    TableSchema,
    parse_job,
    parse_spec,
    resolve,
)

DATA = Path(__file__).parent.parent / "data"
UPLOADED = "ds_01k0000000000000000000000a"


def body(**changes: Any) -> dict[str, Any]:
    """The shortest spec with some keys changed."""
    return {"framework": "torch", "model": "mlp", "data": "digits", "device_count": 1, **changes}


def hyper(**values: Any) -> dict[str, Any]:
    return body(hyperparameters=values)


def problems_of(raw: object) -> list[SpecProblem]:
    """The problems of a body that must be refused."""
    try:
        parse_spec(raw)
    except InvalidSpec as error:
        return error.problems
    raise AssertionError("the spec was accepted")


def problem_at(raw: object, pointer: str) -> SpecProblem:
    """The only problem at a pointer."""
    found = [problem for problem in problems_of(raw) if problem.pointer == pointer]
    assert len(found) == 1, problems_of(raw)
    return found[0]


def only_problem(raw: object) -> SpecProblem:
    """The one problem of a body, wherever it is."""
    found = problems_of(raw)
    assert len(found) == 1, found
    return found[0]


def load(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def number(name: str, **more: Any) -> Column:
    return Column(**{"name": name, "kind": "number", "missing": 0, "distinct": 100, **more})


def text(name: str, **more: Any) -> Column:
    cell = CellAt(row=2, value="oak")
    labels = ["birch", "oak"]
    values = {"name": name, "kind": "text", "missing": 0, "distinct": 2, "labels": labels, "texts": 100}
    return Column(**{**values, "first_text": cell, **more})


def integer(name: str, distinct: int, **more: Any) -> Column:
    labels = [str(value) for value in range(distinct)] if distinct <= 1000 else None
    return Column(**{"name": name, "kind": "integer", "missing": 0, "distinct": distinct, "labels": labels, **more})


def table(*columns: Column, rows: int = 100) -> TableSchema:
    return TableSchema(source_kind="csv", rows=rows, columns=list(columns))


BIRDS = table(number("bill"), number("wing"), integer("year", 3), text("species"))


def spec_of(data: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "framework": "torch",
        "model": "linear",
        "data": {"source": UPLOADED, "target": "species", **(data or {})},
        "device_count": 1,
        **changes,
    }


def resolved(raw: dict[str, Any], schema: TableSchema = BIRDS) -> EffectiveSpec:
    return resolve(parse_job(raw), schema, "cpu")


def refused(raw: dict[str, Any], schema: TableSchema = BIRDS) -> list[SpecProblem]:
    with pytest.raises(InvalidSpec) as caught:
        resolved(raw, schema)
    return caught.value.problems


def only(raw: dict[str, Any], schema: TableSchema = BIRDS) -> SpecProblem:
    problems = refused(raw, schema)
    assert len(problems) == 1, problems
    return problems[0]
