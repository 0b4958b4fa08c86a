"""Which CUDA devices torch sees, without touching them where that would be too early."""

import json
import os
import warnings
from typing import NamedTuple

import torch


class Card(NamedTuple):
    """A CUDA device; its id as the lease writes it, None for a slice of a card, whose id torch does not tell."""

    name: str
    uuid: str | None


def seen() -> list[Card]:
    """List the devices in the order of their numbers; starts CUDA in this process."""
    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return [Card(str(each.name), _uuid(each)) for each in properties]


def seen_by_child() -> list[Card]:
    """List them in a forked child, so that this process may still fork ranks that use them.

    Raises:
        ValueError: the child could not look.
    """
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # as in followers
        pid = os.fork()
    if pid == 0:
        try:
            os.write(theirs, json.dumps(seen()).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
        text = file.read()
    os.waitpid(pid, 0)
    return [Card(*each) for each in json.loads(text)]


def _uuid(properties: object) -> str | None:
    uuid = getattr(properties, "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"
