"""The alerts of an operator: one table, for Prometheus' own rule files and for PrometheusRules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias, final

import attrs

Part: TypeAlias = Literal["", "leader election", "webhooks", "certificates"]
"""The part of an operator that an alert is about; empty: every operator has it."""

RUNBOOKS: Final = "docs/runbooks.md"
"""Where the runbooks are unless an operator says so."""

_OPERATOR: Final = "namespace, job"
_POD: Final = "namespace, job, pod, instance"
_IN_POD: Final = "{{ or $labels.pod $labels.instance }}"
_CERTIFICATE: Final = "{{ or $labels.secret $labels.file }}"
_WEEK: Final = "7 * 86400"


@final
@attrs.frozen(kw_only=True)
class Alert:
    """An alert, without the differences between operators."""

    name: str
    expression: str
    """PromQL. ``@`` after the name of a metric stands for the selection of an operator, and ``@,``
    for the same before further matchers."""
    duration: str
    """How long the expression has to hold."""
    severity: Literal["critical", "warning"]
    """``critical``: it wakes people; ``warning``: it can wait until they are at work."""
    summary: str
    description: str
    part: Part = ""

    def rule(self, job: str, runbooks: str) -> dict[str, Any]:
        """The rule, for the operator that Prometheus scrapes as ``job``; empty: for every one."""
        selected = f'job="{job}"' if job else ""
        expression = self.expression.replace("@,", f"{{{selected}," if job else "{")
        expression = expression.replace("@", f"{{{selected}}}" if job else "")
        return {
            "alert": self.name,
            "expr": expression,
            "for": self.duration,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{runbooks}#{self.name.lower()}",
            },
        }


_DOWN: Final = Alert(
    name="OperatorDown",
    # Every operator that was there within a day, because nothing else says which there should be.
    expression=f"group by ({_OPERATOR}) (last_over_time(appsdk_operator_info[1d])) "
    f"unless on ({_OPERATOR}) group by ({_OPERATOR}) (up == 1)",
    duration="5m",
    severity="critical",
    summary="No pod of {{ $labels.job }} answers Prometheus.",
    description="Nothing is reconciled, and its webhooks are not answered.",
)

ALERTS: Final[tuple[Alert, ...]] = (
    _DOWN,
    Alert(
        name="OperatorNotSynced",
        expression=f"sum by ({_POD}, kind) (informer_synced@) < sum by ({_POD}, kind) (informers@)",
        duration="10m",
        severity="critical",
        summary=f"An informer of {{{{ $labels.kind }}}} in {_IN_POD} has no complete local copy.",
        description="What needs this kind has not started. The log names the cause, most often a "
        "missing permission or a missing CRD.",
    ),
    Alert(
        name="OperatorInformerErrors",
        expression=f"sum by ({_OPERATOR}, kind, cause) (rate(informer_errors_total@[10m])) > 0.05",
        duration="15m",
        severity="critical",
        summary="Informers of {{ $labels.kind }} fail again and again: {{ $labels.cause }}.",
        description="The operator does not see changes of these objects, or sees them late.",
    ),
    Alert(
        name="OperatorObjectsUnreadable",
        expression=f"max by ({_OPERATOR}, kind) (informer_undecodable_objects@) > 0",
        duration="15m",
        severity="warning",
        summary="Objects of {{ $labels.kind }} cannot be read.",
        description="They are not reconciled. The health endpoint names some of them.",
    ),
    Alert(
        name="OperatorRetriesGrow",
        expression=f"sum by ({_POD}) (delta(retry_processor_pending_total@[30m])) > 10",
        duration="15m",
        severity="warning",
        summary=f"More and more failed calls wait for their retry in {_IN_POD}.",
        description="Calls fail faster than their retries succeed.",
    ),
    Alert(
        name="OperatorGaveUp",
        expression=f"sum by ({_OPERATOR}, kind) (increase(watcher_given_up_total@[15m])) > 0 "
        f"or sum by ({_OPERATOR}, kind) (increase(reconciler_given_up_total@[15m])) > 0 "
        f"or sum by ({_OPERATOR}, kind) (calls_given_up@) > 0",
        duration="0m",
        severity="warning",
        summary="Calls for {{ $labels.kind }} have failed for so long that they are not retried.",
        description="Their objects stay as they are until they change or the operator starts "
        "again, or outside of an App until the next resync.",
    ),
    Alert(
        name="OperatorCleanUpsGivenUp",
        expression=f"sum by ({_OPERATOR}, kind) (increase(cleanups_given_up_total@[15m])) > 0",
        duration="0m",
        severity="critical",
        summary="Clean-ups of deleted {{ $labels.kind }} have failed and are not retried.",
        description="What the objects stood for may be left behind, or they cannot go because of a "
        "finalizer.",
    ),
    Alert(
        name="OperatorReconcileErrors",
        expression=f"sum by ({_OPERATOR}, controller) "
        "(rate(controller_runtime_reconcile_errors_total@[10m])) > 0.1",
        duration="15m",
        severity="warning",
        summary="Reconciles of {{ $labels.controller }} fail again and again.",
        description="Its objects are not as they ask to be.",
    ),
    Alert(
        name="OperatorTerminalErrors",
        expression=f"sum by ({_OPERATOR}, controller) "
        "(increase(controller_runtime_terminal_reconcile_errors_total@[15m])) > 0",
        duration="0m",
        severity="warning",
        summary="Reconciles of {{ $labels.controller }} have failed and are not retried.",
        description="Their objects stay as they are until they change, or until the next resync.",
    ),
    Alert(
        name="OperatorPanics",
        expression=f"sum by ({_OPERATOR}, controller) "
        "(increase(controller_runtime_reconcile_panics_total@[15m])) > 0",
        duration="0m",
        severity="warning",
        summary="Reconciles of {{ $labels.controller }} ended with a bug.",
        description="An exception such as TypeError or KeyError; its traceback is in the log.",
    ),
    Alert(
        name="OperatorHangs",
        expression=f"max by ({_POD}, name) (workqueue_longest_running_processor_seconds@) > 600",
        duration="0m",
        severity="warning",
        summary=f"A call of {{{{ $labels.name }}}} in {_IN_POD} has run for ten minutes.",
        description="Its worker does nothing else meanwhile.",
    ),
    Alert(
        name="OperatorQueueOld",
        expression=f"max by ({_POD}, name) (workqueue_oldest_item_age_seconds@) > 300",
        duration="5m",
        severity="warning",
        summary=f"Work of {{{{ $labels.name }}}} in {_IN_POD} waits for more than five minutes.",
        description="More comes than its workers handle, or they wait for something.",
    ),
    Alert(
        name="OperatorRequestsFail",
        expression=f'sum by ({_OPERATOR}) (rate(rest_client_requests_total@,code=~"5..|<error>"}}'
        f"[10m])) / sum by ({_OPERATOR}) (rate(rest_client_requests_total@[10m])) > 0.1",
        duration="15m",
        severity="warning",
        summary="A tenth of the API requests of {{ $labels.job }} fail.",
        description="The API server is in trouble, or the way to it is.",
    ),
    Alert(
        name="OperatorServerLost",
        expression=f"max by ({_POD}, server) (api_server_unreachable_seconds@) > 120",
        duration="0m",
        severity="critical",
        summary=f"The API server {{{{ $labels.server }}}} does not answer {_IN_POD}.",
        description="The operator sees no changes and writes nothing until the server answers.",
    ),
    Alert(
        name="OperatorHasNoLeader",
        expression=f"sum by ({_OPERATOR}, name) (leader_election_master_status@) < 1",
        duration="5m",
        severity="critical",
        summary="No replica of {{ $labels.job }} holds the Lease {{ $labels.name }}.",
        description="None works.",
        part="leader election",
    ),
    Alert(
        name="OperatorHasTwoLeaders",
        expression=f"sum by ({_OPERATOR}, name) (leader_election_master_status@) > 1",
        duration="1m",
        severity="critical",
        summary="More than one replica of {{ $labels.job }} holds the Lease {{ $labels.name }}.",
        description="Two operators share a job of Prometheus, or a replica has been suspended.",
        part="leader election",
    ),
    Alert(
        name="OperatorLeaderFlaps",
        expression=f"max by ({_OPERATOR}, name) "
        "(max_over_time(leader_election_lease_transitions@[30m])) "
        f"- min by ({_OPERATOR}, name) "
        "(min_over_time(leader_election_lease_transitions@[30m])) > 4",
        duration="0m",
        severity="warning",
        summary="The Lease {{ $labels.name }} of {{ $labels.job }} changes hands again and again.",
        description="Each change stops all work for a moment and starts it anew.",
        part="leader election",
    ),
    Alert(
        name="OperatorShardsNotHeld",
        expression=f"sum by ({_OPERATOR}, name) (shards_held@) "
        f"< max by ({_OPERATOR}, name) (shards@)",
        duration="5m",
        severity="critical",
        summary="Shards of {{ $labels.name }} are held by no replica of {{ $labels.job }}.",
        description="Nobody reconciles their objects.",
    ),
    Alert(
        name="OperatorCertificateExpires",
        expression=f"min by ({_OPERATOR}, secret, certificate) "
        f"(managed_certificates_expiry_seconds@) < {_WEEK} "
        f"or min by ({_OPERATOR}, file) (certwatcher_certificate_expiry_seconds@) < {_WEEK}",
        duration="1h",
        severity="critical",
        summary=f"The certificate in {_CERTIFICATE} expires within a week and is not renewed.",
        description="After that the API server cannot call its webhooks, nor Prometheus read its "
        "metrics.",
        part="certificates",
    ),
    Alert(
        name="OperatorCertificateErrors",
        expression=f"sum by ({_OPERATOR}) "
        "(increase(certwatcher_read_certificate_errors_total@[30m])) > 0 "
        f"or sum by ({_OPERATOR}, secret, operation) "
        "(increase(managed_certificates_errors_total@[30m])) > 0",
        duration="30m",
        severity="warning",
        summary="A certificate of {{ $labels.job }} can be neither read nor renewed: "
        "{{ or $labels.operation `its files` }}.",
        description="The certificate in use stays until it expires.",
        part="certificates",
    ),
    Alert(
        name="OperatorWebhookErrors",
        expression=f"sum by ({_OPERATOR}, webhook) "
        '(rate(controller_runtime_webhook_requests_total@,code="500"}[10m])) > 0',
        duration="10m",
        severity="critical",
        summary="The webhook {{ $labels.webhook }} fails.",
        description="The API server refuses writes because of it, unless its failure policy is "
        "Ignore.",
        part="webhooks",
    ),
    Alert(
        name="OperatorWebhookSlow",
        expression=f"histogram_quantile(0.99, sum by ({_OPERATOR}, webhook, le) "
        "(rate(controller_runtime_webhook_latency_seconds_bucket@[10m]))) > 2",
        duration="10m",
        severity="warning",
        summary="The webhook {{ $labels.webhook }} takes more than two seconds.",
        description="Every write of its objects waits for it, and fails after its time-out.",
        part="webhooks",
    ),
)


def alert_rules(
    job: str = "", *, parts: Iterable[Part] | None = None, runbooks: str = RUNBOOKS
) -> list[dict[str, Any]]:
    """The rules of a group.

    Args:
        job: the operator's ``job`` label; default: rules for every operator that is scraped.
        parts: the parts that only some operators have; default: all of them.
        runbooks: the address of the page with a section for each alert.
    """
    wanted = None if parts is None else {"", *parts}
    alerts = [alert for alert in ALERTS if wanted is None or alert.part in wanted]
    if job:
        # An operator that has never been scraped is down, too.
        down = attrs.evolve(
            _DOWN,
            expression="absent(up@ == 1)",
            summary=f"No pod of {job.removesuffix('-metrics')} answers Prometheus.",
        )
        alerts = [down if alert is _DOWN else alert for alert in alerts]
    return [alert.rule(job, runbooks) for alert in alerts]
