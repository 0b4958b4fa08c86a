"""What every part of a spec shares: strict values, plain text, and the parts' common base."""

import unicodedata
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

_REFUSED_CATEGORIES = frozenset({"Cc", "Cs"})  # control characters, and halves of a character that UTF-8 cannot carry
_TURNING_MARKS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # they show text in another order


class SpecModel(BaseModel):
    """A part of a spec: frozen, without unknown keys, without silent conversion, without NaN or infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


LONGEST_COLUMN_NAME = 256
MOST_COLUMNS = 16_384


def not_plain(text: str) -> str | None:
    """Return why the text is not plain, `character 3 is U+0000, which cannot be shown`, or None when it is."""
    for position, character in enumerate(text, start=1):
        if unicodedata.category(character) in _REFUSED_CATEGORIES or character in _TURNING_MARKS:
            return f"character {position} is U+{ord(character):04X}, which cannot be shown"
    return None


def plain(text: str) -> str:
    """Return the text, or refuse what is not plain."""
    reason = not_plain(text)
    if reason is not None:
        raise PydanticCustomError("plain_text", "must be plain text, but {reason}", {"reason": reason})
    return text


PlainText = Annotated[str, AfterValidator(plain)]
"""Text that can be stored, shown and sent as UTF-8: no control characters, no half characters, no turning marks."""

ShortText = Annotated[PlainText, Field(min_length=1, max_length=120)]
ColumnName = Annotated[PlainText, Field(min_length=1, max_length=LONGEST_COLUMN_NAME)]
NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
