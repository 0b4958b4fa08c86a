"""Weights by name, also where a framework numbers its layers anew.

Keras calls the second dense layer of a process `dense_1`, in whichever model it is: the same function gives
`sequential/dense/kernel` when it is called first and `sequential_1/dense_2/kernel` when it is called again.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

Value = TypeVar("Value")

_NUMBERED: Final = re.compile(r"(.*?)_(\d+)")


def matched(own: Sequence[str], given: Mapping[str, Value]) -> dict[str, Value] | None:
    """Return the given values under a model's own names; None when they are those of another model.

    Equal names count first. Otherwise both sides are numbered anew and compared.
    """
    if set(own) == given.keys():
        return {name: given[name] for name in own}
    theirs = {new: old for old, new in renumbered(given.keys()).items()}
    mine = renumbered(own)
    if len(theirs) != len(given) or set(mine.values()) != theirs.keys():
        return None
    return {name: given[theirs[mine[name]]] for name in own}


def renumbered(names: Collection[str]) -> dict[str, str]:
    """Count every numbered part of the paths from 0, in the order of its numbers: `dense_2, dense_5 -> dense, dense_1`.

    Parts are told apart by where they stand, so that each layer of a path is counted among its siblings alone.
    """
    siblings: dict[tuple[int, str], set[int]] = {}
    for name in names:
        for place, part in enumerate(name.split("/")):
            base, number = _cut(part)
            siblings.setdefault((place, base), set()).add(number)
    ranks = {key: {number: rank for rank, number in enumerate(sorted(found))} for key, found in siblings.items()}
    return {
        name: "/".join(_written(part, ranks, place) for place, part in enumerate(name.split("/"))) for name in names
    }


def _written(part: str, ranks: Mapping[tuple[int, str], Mapping[int, int]], place: int) -> str:
    base, number = _cut(part)
    rank = ranks[place, base][number]
    return f"{base}_{rank}" if rank else base


def _cut(part: str) -> tuple[str, int]:
    found = _NUMBERED.fullmatch(part)
    return (found[1], int(found[2])) if found else (part, 0)
