"""Thin a series for a chart without hiding what one looks for: spikes, dips, and where it stopped being a number."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_ENDS: Final = 2


def downsample(steps: Sequence[int], values: Sequence[float], max_points: int) -> list[int]:
    """Return the indices to keep, in order and at most `max_points` of them.

    The first and the last point stay. Between them the range of steps is cut into equal parts, and of each part its
    smallest and largest finite value stay, and its first NaN or infinity. From `max_points` = 5 on the extremes of the
    whole series are therefore among what is kept; below that only the ends are certain.

    Args:
        steps: where each point stands on the axis of the chart, in non-decreasing order.
        values: the points, as long as `steps`; NaN and infinities are allowed.
        max_points: the most points wanted, at least 2.

    Raises:
        ValueError: the lengths differ, or fewer than 2 points are asked for.
    """
    count = len(values)
    if len(steps) != count:
        raise ValueError(f"steps has {len(steps)} entries and values has {count}; they must be equally long")
    if max_points < _ENDS:
        raise ValueError(f"max_points is {max_points}; a series needs at least its first and last point, 2")
    if count <= max_points:
        return list(range(count))
    points = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(points)
    kept_per_part = 2 if finite.all() else 3
    parts = (max_points - _ENDS) // kept_per_part
    kept = {0, count - 1}
    if parts:
        part = _parts_of(np.asarray(steps, dtype=np.float64), parts)
        kept.update(_extremes(part, points, np.flatnonzero(finite)))
        kept.update(_first_of_each(part, np.flatnonzero(~finite)))
    return sorted(kept)


def _parts_of(steps: NDArray[np.float64], parts: int) -> NDArray[np.int64]:
    """The part, 0 .. parts-1, that each step falls into; all are in part 0 when the steps do not differ."""
    start, width = steps[0], steps[-1] - steps[0]
    if width <= 0:
        return np.zeros(len(steps), dtype=np.int64)
    part: NDArray[np.int64] = np.minimum((steps - start) * (parts / width), parts - 1).astype(np.int64)
    return part


def _extremes(part: NDArray[np.int64], points: NDArray[np.float64], chosen: NDArray[np.intp]) -> list[int]:
    """The index of the smallest and of the largest of the `chosen` points in each part."""
    order = chosen[np.lexsort((points[chosen], part[chosen]))]
    if not len(order):
        return []
    first_of_part = np.flatnonzero(np.diff(part[order], prepend=-1))
    last_of_part = np.append(first_of_part[1:], len(order)) - 1
    return [int(index) for index in np.concatenate((order[first_of_part], order[last_of_part]))]


def _first_of_each(part: NDArray[np.int64], chosen: NDArray[np.intp]) -> list[int]:
    _, first = np.unique(part[chosen], return_index=True)
    return [int(index) for index in chosen[first]]
