"""What a data set is called: the client's file name, made harmless. It is for people; no path is ever built from it."""

import re
import unicodedata
from pathlib import PurePosixPath
from typing import Final

NAME_LIMIT: Final = 120
FALLBACK: Final = "dataset.csv"


def clean_name(text: str, fallback: str = FALLBACK) -> str:
    """The last segment of a file name, without control or direction characters, at most 120 characters long.

    A long name is cut before its ending, so that `.csv` stays. When nothing is left, it is the fallback.
    """
    last = re.split(r"[/\\]", text)[-1]
    visible = "".join(" " if character.isspace() else character for character in unicodedata.normalize("NFC", last))
    shown = "".join(character for character in visible if not unicodedata.category(character).startswith("C"))
    name = " ".join(shown.split())
    if not any(character.isalnum() for character in name):
        return fallback
    ending = PurePosixPath(name).suffix
    if len(name) > NAME_LIMIT and 0 < len(ending) <= NAME_LIMIT // 2:
        return name[: NAME_LIMIT - len(ending)] + ending
    return name[:NAME_LIMIT]
