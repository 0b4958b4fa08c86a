"""The series as an event file, for `tensorboard --logdir`, which finds it by the `tfevents` in its name."""

import json
from collections.abc import Iterator
from typing import Final

from workers.exports.described import description_of
from workers.exports.event_records import header, record, scalar, text
from workers.exports.request import Made, Request
from workers.exports.series_file import read_series
from workers.model_file import Description, PythonDescription

NAME: Final = "events.out.tfevents.trainshed"
_GROUPS: Final = {"val_": "validation", "test_": "test"}


def make(request: Request) -> list[Made]:
    """Write every point of every series under its step, and the spec as text."""
    description = description_of(request.model)
    with (request.output / NAME).open("wb") as file:
        file.writelines(record(event) for event in _events(description, request))
    return [Made(NAME, "application/octet-stream", "report")]


def _events(description: Description | PythonDescription, request: Request) -> Iterator[bytes]:
    yield header()
    yield text("spec", f"```json\n{json.dumps(description.spec, indent=2, ensure_ascii=False)}\n```")
    for name, curve in read_series(request.series).items():
        tag = tag_of(name)
        for step, value in zip(curve.step.tolist(), curve.value.tolist(), strict=True):
            yield scalar(tag, step, value)


def tag_of(name: str) -> str:
    """Where a series is shown: one chart group for each metric, with its parts in it (`loss/validation`)."""
    for prefix, part in _GROUPS.items():
        if name.startswith(prefix):
            return f"{name.removeprefix(prefix)}/{part}"
    return f"{name}/training"
