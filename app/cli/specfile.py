"""A spec on disk: JSON, or JSON with comments as `trainshed init` writes it."""

import json
from pathlib import Path
from typing import Any

import json5

from app.cli.edge import Edge
from app.cli.errors import UsageProblem
from app.cli.values import with_changes


def read_spec(file: str, changes: list[str], edge: Edge) -> bytes:
    """The body to post; `-` reads standard input.

    Plain JSON that nothing changes is sent byte for byte, so that the server sees what was written. Comments and
    trailing commas (JSON5) are taken out here: the server reads strict JSON alone.

    Raises:
        UsageProblem: it cannot be read, or is no JSON.
    """
    try:
        text = edge.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageProblem(f"{file} cannot be read: {reason}.") from error
    try:
        spec: Any = json.loads(text)
    except ValueError as error:
        spec = _with_comments(file, text, error)
    else:
        if not changes:
            return text.encode()
    return json.dumps(with_changes(spec, changes)).encode()


def _with_comments(file: str, text: str, error: ValueError) -> Any:  # noqa: ANN401 - JSON
    """Read JSON5; when that fails too, what the strict reader said is the clearer sentence."""
    try:
        spec = json5.loads(text, allow_duplicate_keys=False)
        json.dumps(spec, allow_nan=False)
    except ValueError:
        where = f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else "it"
        raise UsageProblem(f"{file} is not JSON: {where}: {error.args[0].partition(':')[0]}.") from error
    return spec
