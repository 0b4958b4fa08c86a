"""What Prometheus and Grafana are given: it fits the product, the compose file and itself; a Prometheus takes it."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import select

from app import metering
from app.broker import Bell
from app.db import Database
from app.fleet.models import Device
from app.main import create_app
from app.settings import Settings
from app.storage import open_storage
from scripts import monitoring_test as monitoring
from tests.fakes import START, FakeClock
from tests.rows import add_job, add_project, add_worker

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/monitoring.md"
# Prometheus makes the first itself; the library tells the others, on Linux.
NOT_OURS: Final = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total"}
CONDITION: Final = {"disk_free_bytes": 1, "disk_total_bytes": 2, "shm_bytes": 3}
NEEDS_PROMETHEUS = pytest.mark.skipif(
    bool(monitoring.missing_programs()),
    reason=f"not on PATH: {', '.join(monitoring.missing_programs())} (Debian and Ubuntu: apt install prometheus)",
)


def boards() -> dict[str, dict[str, Any]]:
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in monitoring.DASHBOARDS.glob("*.json")}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(monitoring.RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def read_yaml(path: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
    return content


class SilentBell(Bell):
    """One whose Redis does not answer."""

    @property
    def healthy(self) -> bool:
        return False


@pytest.fixture
def exported(database: Database, clock: FakeClock, tmp_path: Path) -> set[str]:
    """The names of all series that some process of ours shows, with a fleet and a queue that leave nothing out."""
    with database.write() as session:
        add_worker(session).condition = dict(CONDITION)
        add_job(session, add_project(session))
        device = session.execute(select(Device)).scalar_one()
        device.readings, device.readings_at = dict(monitoring.READINGS), START
    storage = open_storage(f"file://{tmp_path}/storage")
    app = create_app(Settings(home=tmp_path), database, storage, SilentBell(None), clock=clock)
    app.state.telemetry.times.labels("GET", "/v1/jobs")  # as the first request makes it
    others = generate_latest(metering.together(metering.CONTROL, metering.WORKER))
    families = list(text_string_to_metric_families((app.state.telemetry.text() + others).decode()))
    return {sample.name for family in families for sample in family.samples}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestNames:
    def test_every_metric_that_a_dashboard_or_a_rule_names_is_one_that_we_show(self, exported: set[str]) -> None:
        queries = [*monitoring.dashboard_queries(), *monitoring.alert_rules()]
        unknown = {name: query.place for query in queries for name in monitoring.metric_names(query.expr) - exported}
        assert set(unknown) <= NOT_OURS, unknown
        assert len(queries) > 60

    def test_every_metric_that_we_show_is_on_the_page_and_no_other(self, exported: set[str]) -> None:
        families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exported if name.startswith("trainshed_")}
        told = set(re.findall(r"^\| `(trainshed_\w+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
        assert told == families


class TestDashboards:
    def test_each_query_is_a_query(self) -> None:
        assert [query for query in monitoring.dashboard_queries() if not monitoring.metric_names(query.expr)] == [
            monitoring.Query("service: Alerts", 'count(ALERTS{alertstate="firing"}) or vector(0)')
        ]

    def test_ids_are_their_own_and_the_data_source_is_the_one_that_is_provisioned(self) -> None:
        (source,) = read_yaml("deploy/monitoring/grafana/provisioning/datasources/prometheus.yml")["datasources"]
        found = boards()
        assert sorted(board["uid"] for board in found.values()) == [
            "trainshed-fleet",
            "trainshed-jobs",
            "trainshed-service",
        ]
        for name, board in found.items():
            ids = [panel["id"] for panel in board["panels"]]
            assert len(ids) == len(set(ids)), name
            asked = {target["datasource"]["uid"] for panel in board["panels"] for target in panel["targets"]}
            assert asked == {source["uid"]}

    def test_panels_lie_side_by_side_within_the_24_columns_of_grafana(self) -> None:
        for name, board in boards().items():
            taken: set[tuple[int, int]] = set()
            for panel in board["panels"]:
                place = panel["gridPos"]
                columns = range(place["x"], place["x"] + place["w"])
                assert columns.stop <= 24, (name, panel["title"])
                cells = {(column, row) for column in columns for row in range(place["y"], place["y"] + place["h"])}
                assert not taken & cells, (name, panel["title"])
                taken |= cells

    def test_grafana_looks_where_compose_puts_them(self) -> None:
        (provider,) = read_yaml("deploy/monitoring/grafana/provisioning/dashboards/trainshed.yml")["providers"]
        mounted = f"./deploy/monitoring/grafana/dashboards:{provider['options']['path']}:ro"
        assert mounted in read_yaml("docker-compose.yml")["services"]["grafana"]["volumes"]


class TestScrapes:
    def test_each_target_is_a_service_of_compose_at_the_port_where_it_listens(self) -> None:
        compose = read_yaml("docker-compose.yml")
        port = compose["x-environment"]["TRAINSHED_METRICS_PORT"]
        jobs = read_yaml("deploy/monitoring/prometheus.yml")["scrape_configs"]
        targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in jobs}
        assert targets == {f"trainshed-{name}": [f"{name}:{port}"] for name in ("api", "control", "worker")}
        assert {"api", "control", "worker"} <= set(compose["services"])


class TestRules:
    def test_each_alert_says_how_bad_it_is_what_is_wrong_and_what_to_do(self) -> None:
        for rule in rules():
            assert rule["labels"]["severity"] in {"critical", "warning", "info"}, rule["alert"]
            assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]
            assert all(text.endswith((".", "}}.")) for text in rule["annotations"].values()), rule["alert"]

    def test_each_has_a_test_that_it_fires_and_one_that_it_does_not(self) -> None:
        tests = read_yaml("deploy/monitoring/tests/rules.yml")["tests"]
        names = {rule["alert"] for rule in rules()}
        fires = {test["name"] for test in tests if any(case["exp_alerts"] for case in test["alert_rule_test"])}
        quiet = {test["name"] for test in tests} - fires
        assert fires == {f"{name} fires" for name in names}
        given_up = {"TrainshedWorkerSilent is quiet about a host that was given up"}
        assert quiet == {f"{name} is quiet when all is well" for name in names} | given_up

    def test_each_is_on_the_page(self) -> None:
        told = set(re.findall(r"^\| `(Trainshed\w+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
        assert told == {rule["alert"] for rule in rules()}


class TestSelectors:
    def test_are_what_an_expression_reads(self) -> None:
        expr = 'max by (host) (trainshed_devices{state="free"}) * on (host) group_left trainshed_worker_info > 0'
        assert monitoring.selectors(expr) == ['trainshed_devices{state="free"}', "trainshed_worker_info"]
        assert monitoring.metric_names("sum(up) + rate(process_cpu_seconds_total[5m])") == {
            "up",
            "process_cpu_seconds_total",
        }

    def test_variables_of_grafana_are_filled_in(self) -> None:
        assert "$" not in "".join(monitoring.filled(query.expr) for query in monitoring.dashboard_queries())


class TestWithoutPrometheus:
    def test_it_says_skipped_and_why(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        assert monitoring.main() == 0
        assert capsys.readouterr().out.startswith("SKIPPED: prometheus and promtool not found on PATH")


@NEEDS_PROMETHEUS
class TestPrometheus:
    def test_promtool_is_content_with_configuration_rules_and_their_tests(self) -> None:
        assert [row for row in monitoring.check_files() if not row.well] == []

    @pytest.mark.e2e
    @pytest.mark.slow
    def test_every_query_and_every_rule_reads_something_of_a_running_service(self, tmp_path: Path) -> None:
        with monitoring.watched(tmp_path) as server:
            queries = [*monitoring.dashboard_queries(), *monitoring.rule_inputs()]
            rows = [*monitoring.check_series(server, queries), *monitoring.check_rules(server)]
        assert [row for row in rows if not row.well] == []
        assert len(rows) == len(queries) + len(rules())
