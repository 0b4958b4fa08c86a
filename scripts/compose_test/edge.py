"""The profile `edge`: TLS in front of the API, with a certificate that a client really checks."""

import json
import ssl
from typing import Any, Final

import httpx

from scripts.compose_test.jobs import Drill
from scripts.compose_test.service import UnexpectedAnswer
from scripts.compose_test.stack import until

ROOT_CERTIFICATE: Final = "/data/caddy/pki/authorities/local/root.crt"
_HEALTHY_S: Final = 120.0
_ANSWER_S: Final = 30.0


def tls_in_front(drill: Drill) -> str:
    """Through the edge the API answers as behind it, events included, and a plain request is none."""
    drill.stack.compose("--profile", "edge", "up", "--detach", "--no-build", "tls")
    until(lambda: drill.stack.health("tls") == "healthy" or None, "the edge is healthy", _HEALTHY_S)
    context = ssl.create_default_context(cadata=drill.stack.inside("tls", "cat", ROOT_CERTIFICATE))
    url = f"https://localhost:{drill.stack.variables['EDGE_PORT']}"
    headers = {"Authorization": f"Bearer {drill.key}"}
    with httpx.Client(base_url=url, headers=headers, verify=context, timeout=_ANSWER_S, trust_env=False) as client:
        path = f"/v1/jobs/{drill.kept['torch']}"
        if client.get(path).json() != drill.service.job(drill.kept["torch"]):
            raise UnexpectedAnswer("the edge answers something else than the API")
        states = _states(client, path)
    if states[-1] != "succeeded":
        raise UnexpectedAnswer(f"the stream of events through the edge ended with {states}")
    drill.stack.compose("--profile", "edge", "rm", "--stop", "--force", "tls")
    return f"certificate checked; a job and its stream of events read ({', '.join(states)})"


def _states(client: httpx.Client, path: str) -> list[Any]:
    """The states that a job's stream of events tells."""
    with client.stream("GET", f"{path}/events", headers={"Accept": "text/event-stream"}) as stream:
        lines = [line.removeprefix("data:").strip() for line in stream.iter_lines() if line.startswith("data:")]
    events = [json.loads(line) for line in lines]
    return [event["state"] for event in events if "state" in event]
