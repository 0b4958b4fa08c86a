"""Find one's way in the spec's models: from a Pydantic error location to a pointer and what may stand there.

Pydantic puts the tag of a tagged union into the location (`model, mlp, hidden` for what the client wrote at
`/model/hidden`). Following the types beside the location tells a tag from a key, even if a client uses a key that is
spelt like a tag.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo

Parts = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """What may stand at a place: a model, a union, a list (`items`), a mapping (`keys` to `values`), or a value.

    `members`: the union's members by tag; `key`: the field that tells them apart, None when the kind of value does.
    `annotation` and `metadata`: the bare type and its constraints; `examples`: valid values, if the field gives some.
    """

    annotation: Any
    metadata: tuple[Any, ...] = ()
    optional: bool = False
    model: type[BaseModel] | None = None
    members: "dict[str, Shape]" = field(default_factory=dict)
    key: str | None = None
    items: "Shape | None" = None
    keys: "Shape | None" = None
    values: "Shape | None" = None
    examples: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A location without tags.

    `shape`: what may stand there, None for an unknown key; with `is_key`, what the last part itself may be.
    `owner`: the model that has, or lacks, the last key.
    `siblings`: the other members when the owner was chosen from a union.
    `root`: the model at which the way began.
    """

    parts: Parts
    shape: Shape | None
    owner: type[BaseModel] | None
    siblings: dict[str, Shape]
    root: type[BaseModel]
    is_key: bool = False


def shape_of(annotation: Any, metadata: Sequence[Any] = ()) -> Shape:  # noqa: ANN401 - any type form can stand in a model
    """Read a type as a `Shape`; an optional X is X, since None never appears in a location."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return shape_of(arguments[0], [*arguments[1:], *metadata])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return Shape(annotation, model=annotation)
    constraints = tuple(_flat(metadata))
    if origin is list:
        return Shape(annotation, constraints, items=shape_of(arguments[0]))
    if origin is dict:
        return Shape(annotation, constraints, keys=shape_of(arguments[0]), values=shape_of(arguments[1]))
    if origin in (Union, UnionType):
        return _union(annotation, metadata)
    return Shape(annotation, constraints)


def _flat(metadata: Sequence[Any]) -> Iterator[Any]:
    for item in metadata:
        yield from item.metadata if isinstance(item, FieldInfo) else (item,)


def _union(annotation: Any, metadata: Sequence[Any]) -> Shape:  # noqa: ANN401 - a union of any types
    present = [argument for argument in get_args(annotation) if argument is not type(None)]
    if len(present) == 1:
        return replace(shape_of(present[0], metadata), optional=True)
    infos = [item for item in metadata if isinstance(item, FieldInfo)]
    key = next((info.discriminator for info in infos if isinstance(info.discriminator, str)), None)
    return Shape(annotation, members={_tag(member, key): shape_of(member) for member in present}, key=key)


def _tag(member: Any, key: str | None) -> str:  # noqa: ANN401 - a member of a union
    if key is None:
        return str(next(item.tag for item in get_args(member)[1:] if isinstance(item, Tag)))
    return str(get_args(member.model_fields[key].annotation)[0])


def field_shape(info: FieldInfo) -> Shape:
    """Return the shape of a model's field, with the field's examples."""
    shape = shape_of(info.annotation, [info])
    return replace(shape, examples=tuple(info.examples or ()))


def locate(root: type[BaseModel], location: Sequence[str | int]) -> Place:
    """Follow an error location from `root`, leaving union tags and Pydantic's `[key]` mark out."""
    shape: Shape | None = Shape(root, model=root)
    place = Place((), shape, None, {}, root)
    above: Shape | None = None
    siblings: dict[str, Shape] = {}
    for part in location:
        if shape is not None and shape.members:
            siblings = shape.members
            shape = siblings.get(str(part))
            continue
        if part == "[key]" and above is not None and above.keys is not None:
            return replace(place, shape=above.keys, is_key=True)
        above, owner = shape, shape.model if shape is not None else None
        shape = _step(shape, part)
        place = Place((*place.parts, part), shape, owner, siblings, root)
        siblings = {}
    return place


def _step(shape: Shape | None, part: str | int) -> Shape | None:
    if shape is None:
        return None
    if shape.model is not None:
        info = shape.model.model_fields.get(str(part))
        return field_shape(info) if info is not None else None
    return shape.items or shape.values


def every_field(
    root: type[BaseModel], prefix: tuple[str, ...] = (), above: frozenset[type[BaseModel]] = frozenset()
) -> Iterator[tuple[tuple[str, ...], Shape]]:
    """Yield every field below `root` with its path of keys; lists add no key, union members are walked one by one.

    A model inside of itself (`above`), as layers in a residual layer, is not walked again.
    """
    for name, info in root.model_fields.items():
        shape = field_shape(info)
        yield (*prefix, name), shape
        inner = [model for model in models_in(shape) if model not in above]
        for model in inner:
            yield from every_field(model, (*prefix, name), above | set(inner))


def models_in(shape: Shape) -> Iterator[type[BaseModel]]:
    """Yield the models that may stand at a place, or in its list or mapping."""
    if shape.model is not None:
        yield shape.model
    for inner in (*shape.members.values(), shape.items, shape.values):
        if inner is not None:
            yield from models_in(inner)
