"""Sugar: a string where an object stands for the object with that name and every default."""

from collections.abc import Callable


def named_by(key: str) -> Callable[[object], object]:
    """Return a function that turns the string `x` into `{key: x}` and leaves everything else alone."""

    def expand(value: object) -> object:
        return {key: value} if isinstance(value, str) else value

    return expand
