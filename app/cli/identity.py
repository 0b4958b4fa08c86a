"""Which job a person means: a whole id, `latest`, or the beginning or end of an id."""

from typing import Final

from app.cli.client import Client
from app.cli.errors import UsageProblem
from app.ids import is_id

LATEST: Final = "latest"
_LOOKED_THROUGH: Final = 200
_SHORTEST: Final = 4


def resolve_job(client: Client, text: str) -> str:
    """The id of the job.

    Ids begin with the time, so jobs of one hour begin alike: the end of an id is the shorter name.

    Raises:
        UsageProblem: no job is meant, or several are.
    """
    if is_id("job", text):
        return text
    jobs = client.pages("/v1/jobs", 1 if text == LATEST else _LOOKED_THROUGH)["data"]
    if text == LATEST:
        if not jobs:
            raise UsageProblem("There is no job yet; `trainshed submit FILE` makes one.")
        return str(jobs[0]["id"])
    matches = [job["id"] for job in jobs if _means(text, job["id"])]
    if len(text) < _SHORTEST or not matches:
        raise UsageProblem(
            f"'{text}' names no job. Give an id, at least its last {_SHORTEST} characters, or `{LATEST}`; "
            "`trainshed ls` lists them."
        )
    if len(matches) > 1:
        raise UsageProblem(f"'{text}' names {len(matches)} jobs: {', '.join(matches[:5])}")
    return str(matches[0])


def _means(text: str, job_id: str) -> bool:
    return job_id.endswith(text) or job_id.startswith((text, f"job_{text}"))
