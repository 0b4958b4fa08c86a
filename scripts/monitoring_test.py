"""`make monitoring-test`: a Prometheus scrapes a running service; no query of a dashboard, no alert rule may be empty.

It needs the programs `prometheus` and `promtool` (Debian: apt install prometheus), and says SKIPPED without them. The
service is `trainshed up` with two simulated cards, of which one has got readings, as no simulated card tells any.
"""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import yaml
from sqlalchemy import update

from app.db import Database
from app.fleet.models import Device
from tests.e2e.specs import quick
from tests.e2e.stack import Stack, running_stack
from tests.ports import free_ports

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "deploy" / "monitoring"
RULES: Final = FOLDER / "rules" / "trainshed.yml"
DASHBOARDS: Final = FOLDER / "grafana" / "dashboards"
_LIMIT_S: Final = 90.0
_LOOK_S: Final = 0.5
# Metrics that rules and dashboards name; other words of an expression are functions and labels.
_SELECTOR: Final = re.compile(r"\b((?:trainshed|process)_\w+|up)\b(\{[^}]*\})?")
# What Grafana fills in; the window is short, since the test scrapes each second.
_VARIABLES: Final = {"$__rate_interval": "20s", "$host": ".*"}
CARD: Final = "GPU-00000000-aaaa-0000-0000-000000000001"
_INVENTORY: Final = {
    "devices": [
        {
            "index": index,
            "uuid": f"GPU-00000000-aaaa-0000-0000-00000000000{index + 1}",
            "pci_bus_id": f"00000000:0{index + 1}:00.0",
            "name": "TestCard",
            "memory_mib": 8192,
        }
        for index in range(2)
    ]
}
READINGS: Final = {"utilization": 0.5, "memory_used_bytes": 1_000_000_000, "power_w": 100.0, "temperature_c": 60}


@dataclass(frozen=True)
class Query:
    """An expression, and where it stands."""

    place: str
    expr: str


@dataclass(frozen=True)
class Row:
    """A line of the table: what was checked, whether it is well, and what was seen."""

    what: str
    well: bool
    seen: str


def dashboard_queries() -> list[Query]:
    """Every query of every panel and variable, with Grafana's variables as they stand."""
    found = []
    for path in sorted(DASHBOARDS.glob("*.json")):
        board = json.loads(path.read_text(encoding="utf-8"))
        for panel in board["panels"]:
            found += [Query(f"{path.stem}: {panel['title']}", target["expr"]) for target in panel["targets"]]
        for variable in board["templating"]["list"]:
            metric = re.fullmatch(r"label_values\((\w+), \w+\)", variable["query"]["query"])
            found.append(Query(f"{path.stem}: ${variable['name']}", metric[1] if metric else ""))
    return found


def alert_rules() -> list[Query]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [Query(rule["alert"], rule["expr"]) for group in groups for rule in group["rules"]]


def selectors(expr: str) -> list[str]:
    """The series that an expression reads, each as it selects them."""
    return sorted({"".join(found) for found in _SELECTOR.findall(expr)})


def metric_names(expr: str) -> set[str]:
    return {name for name, _ in _SELECTOR.findall(expr)}


def filled(expr: str) -> str:
    for name, value in _VARIABLES.items():
        expr = expr.replace(name, value)
    return expr


def configuration(stack: Stack, metrics_port: int, key_file: Path) -> dict[str, Any]:
    """Ours, looking each second, at where this service is; the API is asked with a key, as docs/monitoring.md shows."""
    config: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES)]
    at = {"trainshed-control": metrics_port + 1, "trainshed-worker": metrics_port + 2}
    for job in config["scrape_configs"]:
        port = at.get(job["job_name"], urlsplit(stack.url).port)
        job["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
        if job["job_name"] == "trainshed-api":
            job["authorization"] = {"credentials_file": str(key_file)}
    return config


class Prometheus:
    """One that runs; `get` is its HTTP API."""

    def __init__(self, url: str, client: httpx.Client) -> None:
        self._url = url
        self._client = client

    def get(self, path: str, **params: str) -> Any:  # noqa: ANN401 - whatever JSON holds
        answer = self._client.get(f"{self._url}/api/v1/{path}", params=params)
        content = answer.json()
        if content["status"] != "success":
            raise ValueError(f"{params}: {content['error']}")
        return content["data"]

    def count(self, expr: str) -> int:
        """How many series an expression answers now."""
        return len(self.get("query", query=expr)["result"])

    def is_ready(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self._client.get(f"{self._url}/-/ready").is_success
        return False


@contextlib.contextmanager
def prometheus(config: Mapping[str, Any], folder: Path) -> Iterator[Prometheus]:
    """Debian's, in a folder of its own, ended with the block."""
    (folder / "prometheus.yml").write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
    port = free_ports(1)
    command = [
        shutil.which("prometheus") or "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            with httpx.Client(trust_env=False, timeout=10.0) as client:
                server = Prometheus(f"http://127.0.0.1:{port}", client)
                _until(lambda: server.is_ready() or process.poll() is not None)
                if process.poll() is not None:
                    raise RuntimeError((folder / "prometheus.log").read_text(encoding="utf-8", errors="replace"))
                yield server
        finally:
            process.terminate()


def _until(fact: Callable[[], object], limit_s: float = _LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not fact() and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[Prometheus]:
    """A service with some history, and a Prometheus that scrapes it."""
    (folder / "inventory.json").write_text(json.dumps(_INVENTORY), encoding="utf-8")
    ports = free_ports(3)
    settings = {
        "TRAINSHED_SIMULATED_INVENTORY": str(folder / "inventory.json"),
        "TRAINSHED_DEVICES": "auto",
        "TRAINSHED_METRICS_PORT": str(ports),
    }
    with running_stack(folder / "home", settings) as stack:
        key_file = folder / "key"
        key_file.write_text(stack.key, encoding="ascii")
        with prometheus(configuration(stack, ports, key_file), folder) as server:
            tell_readings(stack.database_url)
            stack.wait(stack.submit(quick(device_type="cuda")))
            yield server


def tell_readings(database_url: str) -> None:
    """What a driver would have said of one card."""
    database = Database(database_url)
    with database.write() as session:
        session.execute(
            update(Device).where(Device.id == CARD).values(readings=READINGS, readings_at=datetime.now(UTC))
        )
    database.dispose()


def check_series(server: Prometheus, queries: Sequence[Query]) -> list[Row]:
    """One row for each; an empty one is asked again until it answers or the time is over."""
    found = dict.fromkeys(queries, 0)

    def all_answer() -> bool:
        for query in (query for query, count in found.items() if not count):
            found[query] = server.count(filled(query.expr))
        return all(found.values())

    _until(all_answer)
    return [Row(query.place, count > 0, f"{count} series  {query.expr}") for query, count in found.items()]


def rule_inputs() -> list[Query]:
    """An alert that does not fire answers nothing, so what counts is that each series that it reads is there."""
    return [Query(f"{rule.place} reads", selector) for rule in alert_rules() for selector in selectors(rule.expr)]


def check_rules(server: Prometheus) -> list[Row]:
    """Whether Prometheus could evaluate every rule."""
    groups = server.get("rules")["groups"]
    _until(
        lambda: all(rule["health"] != "unknown" for group in server.get("rules")["groups"] for rule in group["rules"])
    )
    groups = server.get("rules")["groups"]
    return [
        Row(rule["name"], rule["health"] == "ok", f"{rule['health']} {rule.get('lastError', '')}, {rule['state']}")
        for group in groups
        for rule in group["rules"]
    ]


def check_files() -> list[Row]:
    """What promtool says of the configuration, the rules and their tests."""
    rows = []
    for arguments in (
        ("check", "config", "prometheus.yml"),
        ("check", "rules", str(RULES)),
        ("test", "rules", "tests/rules.yml"),
    ):
        command = [shutil.which("promtool") or "promtool", *arguments]
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        clean = done.returncode == 0 and not re.search(r"warn|fail|error", output, re.IGNORECASE)
        rows.append(Row(f"promtool {arguments[0]} {arguments[1]}", clean, " ".join(output.split())))
    return rows


def missing_programs() -> list[str]:
    return [name for name in ("prometheus", "promtool") if shutil.which(name) is None]


def main() -> int:
    """The exit code: 1 when anything is not well."""
    missing = missing_programs()
    if missing:
        print(f"SKIPPED: {' and '.join(missing)} not found on PATH; Debian and Ubuntu: apt install prometheus")
        return 0
    rows = check_files()
    with tempfile.TemporaryDirectory() as name, watched(Path(name)) as server:
        rows += check_series(server, [*dashboard_queries(), *rule_inputs()])
        rows += check_rules(server)
    for row in rows:
        print(f"{'ok  ' if row.well else 'FAIL'} {row.what:60.60} {row.seen}")
    bad = sum(not row.well for row in rows)
    print(f"{len(rows) - bad} of {len(rows)} are well.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
