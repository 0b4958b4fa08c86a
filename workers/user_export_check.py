"""The process that loads a file which was made of a python model, and compares; no code of the user's is here to run.

The file itself may be hostile, so this too is an entry of a launcher, in the sandbox of code jobs. The line that comes
is `{}`; the answer is `{"ready": true}` or an error.
"""

from pathlib import Path
from typing import Any

from workers.exports.python_model.check import check
from workers.user_errand import received
from workers.user_export import answer_once


def main(messages: int, assignment: int) -> int:
    """Check the file beside the model's own."""
    errand = received(assignment)

    def work() -> dict[str, Any]:
        check(Path(errand.model), errand.framework)
        return {"ready": True}

    return answer_once(messages, work)
