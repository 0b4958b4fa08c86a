"""What is in a safetensors file, read from its head alone: names and shapes, without a tensor and without a library.

The format: eight bytes with the length of the head (little endian), then that many bytes of JSON.
Source: the description of the format in the repository of safetensors.
"""

from typing import BinaryIO, Final

import orjson

from app.errors import TrainshedError

WEIGHTS_FILE: Final = "weights.safetensors"
_LENGTH_BYTES: Final = 8
_LONGEST: Final = 100_000_000


class UnreadableHeader(TrainshedError):
    """Not the head of a safetensors file; whoever asked says what that means for its request."""

    def __init__(self) -> None:
        super().__init__("This is no safetensors file.")


def tensor_shapes(file: BinaryIO) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor by name.

    Raises:
        UnreadableHeader: the file does not begin as a safetensors file does.
        OSError: the file cannot be read.
    """
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    head = file.read(length) if length <= _LONGEST else b""
    try:
        content = orjson.loads(head)
        return {name: tuple(facts["shape"]) for name, facts in content.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableHeader from error
