"""Table rows of pods and workloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from appsdk_operator.apiserver._builtin.tables.cells import (
    NONE,
    UNKNOWN,
    UNSET,
    Ago,
    age_of,
    condition_of,
    containers_of,
    get,
    labels_text,
    name_of,
    number,
    selector_text,
)

__all__ = [
    "autoscaler",
    "cron_job",
    "daemon_set",
    "deployment",
    "disruption_budget",
    "job",
    "pod",
    "replica_set",
    "stateful_set",
]


def _ended(state: Mapping[str, Any]) -> str:
    if state.get("reason"):
        return str(state["reason"])
    if state.get("signal"):
        return f"Signal:{state['signal']}"
    return f"ExitCode:{state.get('exitCode', 0)}"


def _initializing(pod: Mapping[str, Any]) -> str:
    """The state of the init containers; empty when all are done."""
    always = {
        each["name"]
        for each in get(pod, "spec", "initContainers", default=())
        if each.get("restartPolicy") == "Always"
    }
    total = len(get(pod, "spec", "initContainers", default=()))
    for place, each in enumerate(get(pod, "status", "initContainerStatuses", default=())):
        state = each.get("state") or {}
        if "terminated" in state:
            if not state["terminated"].get("exitCode"):
                continue
            return f"Init:{_ended(state['terminated'])}"
        if each.get("name") in always and each.get("started"):
            continue
        waiting = get(state, "waiting", "reason", default="")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{place}/{total}"
    return ""


def _running(pod: Mapping[str, Any], reason: str) -> tuple[str, int]:
    """The state of the containers, and the number of ready ones."""
    ready, has_running, has_failed = 0, False, False
    for each in reversed(get(pod, "status", "containerStatuses", default=())):
        state = each.get("state") or {}
        if get(state, "waiting", "reason"):
            reason = state["waiting"]["reason"]
        elif "terminated" in state:
            # A failed container is reported rather than a completed one.
            if state["terminated"].get("exitCode") or not has_failed:
                reason = _ended(state["terminated"])
            has_failed = has_failed or bool(state["terminated"].get("exitCode"))
        elif each.get("ready") and "running" in state:
            has_running = True
            ready += 1
    if reason == "Completed" and has_running:
        is_ready = condition_of(pod, "Ready").get("status") == "True"
        reason = "Running" if is_ready else "NotReady"
    return reason, ready


def pod(pod: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A pod."""
    status = pod.get("status") or {}
    reason = status.get("reason") or status.get("phase", "")
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled.get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    own = status.get("containerStatuses") or ()
    restarts = sum(each.get("restartCount", 0) for each in own)
    ready = 0
    initializing = _initializing(pod)
    if initializing:
        reason = initializing
        firsts = status.get("initContainerStatuses") or ()
        restarts = sum(each.get("restartCount", 0) for each in firsts)
    else:
        reason, ready = _running(pod, reason)
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in ("Failed", "Succeeded"):
            reason = "Terminating"
    ended = [get(each, "lastState", "terminated", "finishedAt") for each in own]
    last = max(filter(None, ended), default=None)
    restarts_text: Any = f"{restarts} ({ago(last)} ago)" if restarts and last else str(restarts)
    gates = get(pod, "spec", "readinessGates", default=())
    met = sum(condition_of(pod, gate["conditionType"]).get("status") == "True" for gate in gates)
    addresses = [each.get("ip", "") for each in status.get("podIPs") or ()]
    return [
        name_of(pod),
        f"{ready}/{len(get(pod, 'spec', 'containers', default=()))}",
        reason,
        restarts_text,
        age_of(pod, ago),
        (addresses[0] if addresses else "") or NONE,
        get(pod, "spec", "nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{met}/{len(gates)}" if gates else NONE,
    ]


def deployment(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A deployment."""
    return [
        name_of(obj),
        f"{number(obj, 'status', 'readyReplicas')}/{number(obj, 'spec', 'replicas')}",
        number(obj, "status", "updatedReplicas"),
        number(obj, "status", "availableReplicas"),
        age_of(obj, ago),
        *containers_of(get(obj, "spec", "template")),
        selector_text(get(obj, "spec", "selector")),
    ]


def replica_set(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A replica set or replication controller."""
    selector = get(obj, "spec", "selector")
    is_old = obj.get("kind") == "ReplicationController"
    return [
        name_of(obj),
        number(obj, "spec", "replicas"),
        number(obj, "status", "replicas"),
        number(obj, "status", "readyReplicas"),
        age_of(obj, ago),
        *containers_of(get(obj, "spec", "template")),
        labels_text(selector) if is_old else selector_text(selector),
    ]


def stateful_set(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A stateful set."""
    return [
        name_of(obj),
        f"{number(obj, 'status', 'readyReplicas')}/{number(obj, 'spec', 'replicas')}",
        age_of(obj, ago),
        *containers_of(get(obj, "spec", "template")),
    ]


def daemon_set(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A daemon set."""
    names = (
        *("desiredNumberScheduled", "currentNumberScheduled", "numberReady"),
        *("updatedNumberScheduled", "numberAvailable"),
    )
    return [
        name_of(obj),
        *(number(obj, "status", name) for name in names),
        labels_text(get(obj, "spec", "template", "spec", "nodeSelector")),
        age_of(obj, ago),
        *containers_of(get(obj, "spec", "template")),
        selector_text(get(obj, "spec", "selector")),
    ]


def _job_status(obj: Mapping[str, Any]) -> str:
    def has(kind: str) -> bool:
        return condition_of(obj, kind).get("status") == "True"

    for kind in ("Complete", "Failed"):
        if has(kind):
            return kind
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for kind in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if has(kind):
            return kind
    return "Running"


def job(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A job."""
    wanted, succeeded = get(obj, "spec", "completions"), number(obj, "status", "succeeded")
    parallel = number(obj, "spec", "parallelism")
    if wanted is not None:
        completions = f"{succeeded}/{wanted}"
    else:
        completions = f"{succeeded}/1 of {parallel}" if parallel > 1 else f"{succeeded}/1"
    start, end = get(obj, "status", "startTime"), get(obj, "status", "completionTime")
    duration = "" if start is None else ago(start) if end is None else ago((start, end))
    return [
        name_of(obj),
        _job_status(obj),
        completions,
        duration,
        age_of(obj, ago),
        *containers_of(get(obj, "spec", "template")),
        selector_text(get(obj, "spec", "selector")),
    ]


def cron_job(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A cron job."""
    last = get(obj, "status", "lastScheduleTime")
    template = get(obj, "spec", "jobTemplate", "spec")
    return [
        name_of(obj),
        get(obj, "spec", "schedule", default=""),
        get(obj, "spec", "timeZone", default=NONE),
        "True" if get(obj, "spec", "suspend") else "False",
        len(get(obj, "status", "active", default=())),
        NONE if last is None else ago(last),
        age_of(obj, ago),
        *containers_of(get(template, "template")),
        selector_text(get(template, "selector")),
    ]


def disruption_budget(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A disruption budget."""
    return [
        name_of(obj),
        str(get(obj, "spec", "minAvailable", default="N/A")),
        str(get(obj, "spec", "maxUnavailable", default="N/A")),
        number(obj, "status", "disruptionsAllowed"),
        age_of(obj, ago),
    ]


def _target(metric: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    kind = str(metric.get("type", ""))
    source = metric.get(kind[:1].lower() + kind[1:]) or {}
    target = source.get("target") or {}
    now = (current.get(kind[:1].lower() + kind[1:]) or {}).get("current") or {}
    if target.get("averageUtilization") is not None:
        used = now.get("averageUtilization")
        shown = f"{UNKNOWN if used is None else f'{used}%'}/{target['averageUtilization']}%"
    else:
        name = "averageValue" if target.get("averageValue") is not None else "value"
        average = " (avg)" if name == "averageValue" and kind in ("Object", "External") else ""
        shown = f"{now.get(name, UNKNOWN)}/{target.get(name, '')}{average}"
    return f"{source['name']}: {shown}" if kind == "Resource" else shown


def autoscaler(obj: Mapping[str, Any], ago: Ago) -> list[Any]:
    """A horizontal autoscaler of pods."""
    metrics = get(obj, "spec", "metrics", default=())
    current = get(obj, "status", "currentMetrics", default=())
    percentage = get(obj, "spec", "targetCPUUtilizationPercentage")
    if percentage is not None:
        target = {"type": "Utilization", "averageUtilization": percentage}
        metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    shown = [
        _target(metric, current[place] if place < len(current) else {})
        for place, metric in enumerate(metrics)
    ]
    more = f" + {len(shown) - 2} more..." if len(shown) > 2 else ""
    reference = get(obj, "spec", "scaleTargetRef", default={})
    return [
        name_of(obj),
        f"{reference.get('kind', '')}/{reference.get('name', '')}",
        ", ".join(shown[:2]) + more if shown else NONE,
        str(get(obj, "spec", "minReplicas", default=UNSET)),
        number(obj, "spec", "maxReplicas"),
        number(obj, "status", "currentReplicas"),
        age_of(obj, ago),
    ]
