"""Specs on disk: strict JSON as it is, JSON with comments as strict JSON."""

import json
from pathlib import Path

import pytest

from app.cli.edge import Edge
from app.cli.errors import UsageProblem
from app.cli.specfile import read_spec


def read(tmp_path: Path, text: str, *changes: str) -> bytes:
    path = tmp_path / "job.json"
    path.write_text(text)
    return read_spec(str(path), list(changes), Edge())


class TestReadSpec:
    def test_strict_json_is_not_touched(self, tmp_path: Path) -> None:
        assert read(tmp_path, '{ "a" : 1.0 }') == b'{ "a" : 1.0 }'

    def test_comments_and_trailing_commas_are_taken_out(self, tmp_path: Path) -> None:
        text = '// why\n{"a": [1, 2,], /* not "b" */ "c": "x // y",}'
        assert json.loads(read(tmp_path, text)) == {"a": [1, 2], "c": "x // y"}

    def test_changes_work_on_both(self, tmp_path: Path) -> None:
        assert json.loads(read(tmp_path, '{"a": 1}', "a=2")) == {"a": 2}
        assert json.loads(read(tmp_path, '{"a": 1,}', "a=2")) == {"a": 2}

    @pytest.mark.parametrize("text", ['{"a": NaN,}', '{"a": Infinity,}', '{"a": 1, "a": 2,}', "{", ""])
    def test_what_strict_json_could_not_carry_is_refused(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(UsageProblem, match=r"is not JSON: line \d+, column \d+"):
            read(tmp_path, text)
