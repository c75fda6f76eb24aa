"""The alerts: when each fires and when it does not, by Prometheus' own evaluation of its rules."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from appsdk_operator.project import ManifestOptions, helm_chart, manifests
from appsdk_operator.project._manifests.alerts import ALERTS, alert_rules
from tests.docs.test_observability_page import on_the_page
from tests.project.operators import full, small

ROOT = Path(__file__).parents[2]
RULES = ROOT / "dashboards/alerts.yaml"
RUNBOOKS = ROOT / "docs/runbooks.md"
NAMES = [alert.name for alert in ALERTS]

POD = {"namespace": "ns", "job": "op", "pod": "op-1", "instance": "10.0.0.1:8080"}
OTHER_POD = {**POD, "pod": "op-2", "instance": "10.0.0.2:8080"}


def series(metric: str, values: str, labels: dict[str, str] | None = None, /, **own: str) -> Any:
    """An input series of promtool: one value a minute."""
    text = ",".join(f'{key}="{value}"' for key, value in {**(labels or POD), **own}.items())
    return {"series": f"{metric}{{{text}}}", "values": values}


@attrs.frozen
class Case:
    """What brings an alert about: its series, and the last minute of silence and one of alarm."""

    alert: str
    silent: int
    fires: int
    given: tuple[Any, ...]


CASES = (
    Case(
        "OperatorDown",
        33,
        37,
        (series("up", "1x30 0x90"), series("appsdk_operator_info", "1x30 stale", version="1")),
    ),
    Case(
        "OperatorNotSynced",
        9,
        11,
        (
            series("informers", "1x90", kind="pods.v1"),
            series("informer_synced", "0x90", kind="pods.v1"),
            series("informers", "1x90", kind="nodes.v1"),
            series("informer_synced", "1x90", kind="nodes.v1"),
        ),
    ),
    Case(
        "OperatorInformerErrors",
        15,
        19,
        (series("informer_errors_total", "0+12x90", kind="pods.v1", cause="Forbidden"),),
    ),
    Case(
        "OperatorObjectsUnreadable",
        14,
        16,
        (series("informer_undecodable_objects", "1x90", kind="pods.v1"),),
    ),
    Case("OperatorRetriesGrow", 20, 30, (series("retry_processor_pending_total", "0+1x90"),)),
    Case(
        "OperatorGaveUp",
        5,
        7,
        (series("watcher_given_up_total", "0x5 1x90", kind="pods.v1", event_type="CREATE"),),
    ),
    Case(
        "OperatorGaveUp",
        5,
        7,
        (series("reconciler_given_up_total", "0x5 1x90", kind="pods.v1", event_type="CREATE"),),
    ),
    Case("OperatorGaveUp", 5, 45, (series("calls_given_up", "0x5 1x90", kind="pods.v1"),)),
    Case(
        "OperatorCleanUpsGivenUp",
        5,
        7,
        (series("cleanups_given_up_total", "0x5 1x90", kind="pods.v1"),),
    ),
    Case(
        "OperatorReconcileErrors",
        15,
        22,
        (series("controller_runtime_reconcile_errors_total", "0+12x90", controller="web"),),
    ),
    Case(
        "OperatorTerminalErrors",
        5,
        7,
        (
            series(
                "controller_runtime_terminal_reconcile_errors_total", "0x5 1x90", controller="web"
            ),
        ),
    ),
    Case(
        "OperatorPanics",
        5,
        7,
        (series("controller_runtime_reconcile_panics_total", "0x5 1x90", controller="web"),),
    ),
    Case(
        "OperatorHangs",
        10,
        11,
        (series("workqueue_longest_running_processor_seconds", "0+60x90", name="web"),),
    ),
    Case(
        "OperatorQueueOld",
        10,
        12,
        (series("workqueue_oldest_item_age_seconds", "0+60x90", name="web"),),
    ),
    Case(
        "OperatorRequestsFail",
        15,
        18,
        (
            series("rest_client_requests_total", "0+8x90", code="200", method="GET", host="h"),
            series("rest_client_requests_total", "0+1x90", code="503", method="GET", host="h"),
            series("rest_client_requests_total", "0+1x90", code="<error>", method="PUT", host="h"),
        ),
    ),
    Case(
        "OperatorServerLost",
        2,
        3,
        (series("api_server_unreachable_seconds", "0+60x90", server="https://10.0.0.1:443"),),
    ),
    Case(
        "OperatorHasNoLeader",
        4,
        6,
        (
            series("leader_election_master_status", "0x90", name="op"),
            series("leader_election_master_status", "0x90", OTHER_POD, name="op"),
        ),
    ),
    Case(
        "OperatorHasTwoLeaders",
        0,
        2,
        (
            series("leader_election_master_status", "1x90", name="op"),
            series("leader_election_master_status", "1x90", OTHER_POD, name="op"),
        ),
    ),
    Case(
        "OperatorLeaderFlaps",
        8,
        10,
        (
            # The pods come and go as well: none of them sees all five changes.
            series("leader_election_lease_transitions", "3x5 4 5 6 stale", name="op"),
            series("leader_election_lease_transitions", "_x7 6 7 8 9x90", OTHER_POD, name="op"),
        ),
    ),
    Case(
        "OperatorShardsNotHeld",
        4,
        6,
        (
            series("shards", "6x90", name="op"),
            series("shards", "6x90", OTHER_POD, name="op"),
            series("shards_held", "3x90", name="op"),
            series("shards_held", "2x90", OTHER_POD, name="op"),
        ),
    ),
    Case(
        "OperatorCertificateExpires",
        59,
        61,
        (series("certwatcher_certificate_expiry_seconds", "600000-60x90", file="/tls.crt"),),
    ),
    Case(
        "OperatorCertificateExpires",
        59,
        61,
        (
            series(
                "managed_certificates_expiry_seconds",
                "600000-60x90",
                secret="ns/tls",
                certificate="ca",
            ),
        ),
    ),
    Case(
        "OperatorCertificateErrors",
        30,
        33,
        (series("certwatcher_read_certificate_errors_total", "0+1x90"),),
    ),
    Case(
        "OperatorCertificateErrors",
        30,
        33,
        (
            series(
                "managed_certificates_errors_total", "0+1x90", secret="ns/tls", operation="inject"
            ),
        ),
    ),
    Case(
        "OperatorWebhookErrors",
        10,
        12,
        (series("controller_runtime_webhook_requests_total", "0+1x90", webhook="/v", code="500"),),
    ),
    Case(
        "OperatorWebhookSlow",
        10,
        12,
        tuple(
            series("controller_runtime_webhook_latency_seconds_bucket", values, webhook="/v", le=le)
            for le, values in {"1.0": "0x90", "5.0": "0+6x90", "+Inf": "0+6x90"}.items()
        ),
    ),
)

# What happens to operators that are well: restarts, a change of the leader, an error now and then.
WELL = (
    series("up", "1x20 0x2 1x120"),
    series("appsdk_operator_info", "1x150", version="1"),
    series("informers", "1x150", kind="pods.v1"),
    series("informer_synced", "0x3 1x150", kind="pods.v1"),
    series("informer_errors_total", "0x10 1x10 2x10 3x150", kind="pods.v1", cause="transport"),
    series("informer_undecodable_objects", "0x150", kind="pods.v1"),
    series("retry_processor_pending_total", "50x30 55x30 50x30 53x60"),
    series("watcher_given_up_total", "0x150", kind="pods.v1", event_type="CREATE"),
    series("cleanups_given_up_total", "7x150", kind="pods.v1"),
    series("controller_runtime_reconcile_errors_total", "0+1x150", controller="web"),
    series("controller_runtime_terminal_reconcile_errors_total", "5x150", controller="web"),
    series("controller_runtime_reconcile_panics_total", "0x150", controller="web"),
    series("workqueue_longest_running_processor_seconds", "0x9 500 0x150", name="web"),
    series("workqueue_oldest_item_age_seconds", "0x9 400 400 0x150", name="web"),
    series("rest_client_requests_total", "0+60x150", code="200", method="GET", host="h"),
    series("rest_client_requests_total", "0+1x150", code="503", method="GET", host="h"),
    series("rest_client_requests_total", "0+20x150", code="404", method="GET", host="h"),
    series("leader_election_master_status", "1x20 0x130", name="op"),
    series("leader_election_master_status", "0x22 1x130", OTHER_POD, name="op"),
    series("leader_election_lease_transitions", "41x20 42x130", name="op"),
    series("shards", "6x150", name="op"),
    series("shards_held", "6x20 4x3 6x130", name="op"),
    series("certwatcher_certificate_expiry_seconds", "2000000-60x150", file="/tls.crt"),
    series("certwatcher_read_certificate_errors_total", "0x30 1x150"),
    series("managed_certificates_errors_total", "3x150", secret="ns/tls", operation="read"),
    series("controller_runtime_webhook_requests_total", "0+1x150", webhook="/v", code="200"),
    series("controller_runtime_webhook_requests_total", "0x150", webhook="/v", code="500"),
    series("controller_runtime_webhook_latency_seconds_bucket", "0+6x150", webhook="/v", le="1.0"),
    series("controller_runtime_webhook_latency_seconds_bucket", "0+6x150", webhook="/v", le="+Inf"),
)


def expected(minute: int, *alerts: str) -> dict[str, Any]:
    """A check of promtool: these alerts fire at that minute, and no others."""
    return {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{minute}m",
        "exp_samples": [
            {"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)
        ],
    }


def run_promtool(promtool: str, folder: Path, rules: Path, tests: Iterable[Any]) -> str:
    path = folder / f"{rules.stem}-tests.yaml"
    content = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": list(tests)}
    path.write_text(yaml.safe_dump(content))
    done = subprocess.run(
        [promtool, "test", "rules", str(path)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return "" if done.returncode == 0 else f"{done.stdout}\n{done.stderr}"


def rules_of_manifests(folder: Path) -> Path:
    """The rules of a PrometheusRule that manifests have, as a rule file."""
    app = full()
    text = manifests(app, ManifestOptions(certificates="managed"))[
        "components/monitoring/prometheus_rule.yaml"
    ]
    path = folder / "of-manifests.yaml"
    path.write_text(text.replace(f'job="{app.name}-metrics"', 'job="op"'))
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text())["spec"]))
    return path


@pytest.mark.programs
@pytest.mark.parametrize("source", ["the rule file", "the manifests"])
def test_each_alert_fires_after_its_time_and_no_other_does(
    promtool: str, tmp_path: Path, source: str
) -> None:
    rules, cases = RULES, CASES
    if source == "the manifests":
        # Only this one differs.
        rules, cases = rules_of_manifests(tmp_path), CASES[:1]
    subprocess.run([promtool, "check", "rules", str(rules)], check=True, capture_output=True)
    alive = series("up", "1x150")
    tests = [
        {
            "interval": "1m",
            "input_series": [*([] if case.alert == "OperatorDown" else [alive]), *case.given],
            "promql_expr_test": [
                expected(case.silent),
                expected(case.fires, case.alert),
            ],
        }
        for case in cases
    ]
    well = {
        "interval": "1m",
        "input_series": list(WELL),
        "promql_expr_test": [expected(minute) for minute in range(0, 140, 2)],
    }
    assert run_promtool(promtool, tmp_path, rules, [*tests, well]) == ""


def test_each_alert_has_a_case() -> None:
    assert {case.alert for case in CASES} == set(NAMES)


def test_the_rules_of_one_operator_select_its_series_alone() -> None:
    for rule in alert_rules("op-metrics"):
        for metric in metrics_of(rule["expr"]):
            selected = re.findall(rf"\b{metric}(?:_bucket)?\b(.{{0,18}})", rule["expr"])
            assert all(text.startswith('{job="op-metrics"') for text in selected), rule["expr"]
    assert "job=" not in str([rule["expr"] for rule in alert_rules()])


def metrics_of(expression: str) -> set[str]:
    """The metrics of the kit in an expression, and ``up``."""
    words = {word.removesuffix("_bucket") for word in re.findall(r"[a-z_]+", expression)}
    return words & {"up", *(name for name, _, _ in on_the_page())}


def test_alerts_are_of_metrics_and_labels_that_there_are() -> None:
    labels = {name: set(labels) for name, _, labels in on_the_page()}
    labels["up"] = set()
    of_prometheus = {"namespace", "job", "pod", "instance", "le"}
    for rule in alert_rules():
        used = metrics_of(rule["expr"])
        assert used, rule["expr"]
        there = of_prometheus.union(*(labels[metric] for metric in used))
        for grouped in re.findall(r"(?:by|on) \(([^)]*)\)", rule["expr"]):
            assert set(grouped.split(", ")) <= there, rule["expr"]
        for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
            assert re.search(rf"by \([^)]*\b{label}\b", rule["expr"]), rule


def test_operators_have_the_rules_of_the_rule_file_for_themselves() -> None:
    found = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]
    for rule, own in zip(found, alert_rules("op"), strict=True):
        if rule["alert"] != "OperatorDown":
            own["expr"] = own["expr"].replace('job="op",', "").replace('{job="op"}', "")
            assert own == rule


def test_operators_have_the_alerts_of_the_parts_that_they_have() -> None:
    def names(texts: dict[str, str], path: str = "components/monitoring/prometheus_rule.yaml"):
        return set(re.findall(r"alert: (\w+)", texts[path]))

    assert names(manifests(full(), ManifestOptions(certificates="managed"))) == set(NAMES)
    assert names(helm_chart(full()), "chart/templates/prometheus_rule.yaml") == set(NAMES)
    parts = {alert.name for alert in ALERTS if alert.part}
    assert names(manifests(small())) == set(NAMES) - parts


def test_each_alert_has_a_runbook_and_says_where_it_is() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == NAMES
    for rule in alert_rules():
        page, anchor = rule["annotations"]["runbook_url"].split("#")
        assert page == "docs/runbooks.md"
        assert anchor == rule["alert"].lower()


def test_the_page_of_metrics_lists_the_alerts_with_their_severity() -> None:
    text = (ROOT / "docs/observability.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(Operator\w+)` \| (\w+) \|", text, re.MULTILINE)
    assert listed == [(alert.name, alert.severity) for alert in ALERTS]


def test_runbooks_may_be_elsewhere() -> None:
    options = ManifestOptions(runbooks="https://wiki.example.com/operators")
    text = manifests(small(), options)["components/monitoring/prometheus_rule.yaml"]
    assert "runbook_url: https://wiki.example.com/operators#operatordown" in text
