"""docs/settings.md has every setting, once, with its default."""

import re
from pathlib import Path
from typing import Final

import pytest

from app.settings import CLIENT_VARIABLES, PREFIX, Settings, load_settings

PAGE: Final = (Path(__file__).resolve().parents[2] / "docs/settings.md").read_text(encoding="utf-8")
# | `TRAINSHED_X` | default | meaning |
ROW: Final = re.compile(r"^\| `(TRAINSHED_\w+)` \| (none|`[^`]*`) \| (.+) \|$", re.MULTILINE)
ROWS: Final = ROW.findall(PAGE)
NAMES: Final = sorted(Settings.model_fields)


class TestSettingsPage:
    def test_every_setting_is_there_once_and_no_other(self) -> None:
        assert sorted(name for name, _, _ in ROWS) == sorted(PREFIX + name.upper() for name in NAMES)

    @pytest.mark.parametrize("name", NAMES)
    def test_the_default_is_the_one_of_the_code(self, name: str) -> None:
        variable = PREFIX + name.upper()
        default = next(text for row, text, _ in ROWS if row == variable)
        unset = getattr(load_settings({}), name)
        if default == "none":
            assert unset in (None, "", {}, ())
        else:
            written = default.strip("`").replace("~", str(Path.home()))
            assert getattr(load_settings({variable: written}), name) == unset

    def test_every_row_says_something(self) -> None:
        assert [name for name, _, meaning in ROWS if not meaning.endswith(".")] == []

    def test_variables_of_the_client_are_there(self) -> None:
        assert {name for name in CLIENT_VARIABLES if f"| `{name}` |" in PAGE} == CLIENT_VARIABLES

    def test_sizes_that_are_hard_to_read_are_told_in_words_too(self) -> None:
        # 1 GiB = 2^30 and 7 days = 604 800 s: what is said in brackets is the number beside it.
        units = {"MiB": 2**20, "GiB": 2**30, "days": 86_400}
        told = re.findall(r"^\| `TRAINSHED_\w+` \| `(\d+)` \| [^|]*\((\d+) (MiB|GiB|days)\)", PAGE, re.MULTILINE)
        assert len(told) >= 6
        assert [
            (int(number), int(count) * units[unit])
            for number, count, unit in told
            if int(number) != int(count) * units[unit]
        ] == []
