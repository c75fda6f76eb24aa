"""Table columns of pods and workloads."""

from __future__ import annotations

from typing import Any, Final

from appsdk_operator.apiserver._builtin.tables.columns import (
    SELECTOR,
    Ago,
    Object,
    TableColumn,
    columns,
    condition_of,
    containers,
    get,
    join_first,
    labels_text,
    reference_text,
)


def _ended(state: Object) -> str:
    if state.get("reason"):
        return str(state["reason"])
    if state.get("signal"):
        return f"Signal:{state['signal']}"
    return f"ExitCode:{state.get('exitCode', 0)}"


def _initializing(pod: Object) -> str:
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


def _running(pod: Object, reason: str) -> tuple[str, int]:
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


def _is_true(obj: Object, kind: str) -> bool:
    return condition_of(obj, kind).get("status") == "True"


def _ready_containers(pod: Object) -> str:
    ready = 0 if _initializing(pod) else _running(pod, "")[1]
    return f"{ready}/{len(get(pod, 'spec', 'containers', default=()))}"


def _pod_state(pod: Object) -> str:
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Failed", "Succeeded"):
            return "Terminating"
    reason = status.get("reason") or status.get("phase", "")
    if condition_of(pod, "PodScheduled").get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    return _initializing(pod) or _running(pod, reason)[0]


def _restarts(pod: Object, ago: Ago) -> str:
    own = get(pod, "status", "containerStatuses", default=())
    firsts = get(pod, "status", "initContainerStatuses", default=())
    ended = [get(each, "lastState", "terminated", "finishedAt") for each in own]
    last = max(filter(None, ended), default=None)
    count = sum(each.get("restartCount", 0) for each in (firsts if _initializing(pod) else own))
    return f"{count} ({ago(last)} ago)" if count and last else str(count)


def _readiness_gates(pod: Object) -> str | None:
    gates = get(pod, "spec", "readinessGates")
    if not gates:
        return None
    return f"{sum(_is_true(pod, gate['conditionType']) for gate in gates)}/{len(gates)}"


def _ready_replicas(obj: Object) -> str:
    ready = get(obj, "status", "readyReplicas", default=0)
    return f"{ready}/{get(obj, 'spec', 'replicas', default=0)}"


def _job_state(job: Object) -> str:
    for kind in ("Complete", "Failed"):
        if _is_true(job, kind):
            return kind
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for kind in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if _is_true(job, kind):
            return kind
    return "Running"


def _completions(job: Object) -> str:
    wanted = get(job, "spec", "completions")
    succeeded = get(job, "status", "succeeded", default=0)
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    parallel = get(job, "spec", "parallelism", default=0)
    return f"{succeeded}/1 of {parallel}" if parallel > 1 else f"{succeeded}/1"


def _duration(status: Object) -> Any:
    start, end = status.get("startTime"), status.get("completionTime")
    return start if start is None or end is None else (start, end)


def _target(metric: Object, current: Object) -> str:
    kind = str(metric.get("type", ""))
    source = metric.get(kind[:1].lower() + kind[1:]) or {}
    target = source.get("target") or {}
    now = (current.get(kind[:1].lower() + kind[1:]) or {}).get("current") or {}
    if target.get("averageUtilization") is not None:
        used = now.get("averageUtilization")
        shown = f"{'<unknown>' if used is None else f'{used}%'}/{target['averageUtilization']}%"
    else:
        name = "averageValue" if target.get("averageValue") is not None else "value"
        average = " (avg)" if name == "averageValue" and kind in ("Object", "External") else ""
        shown = f"{now.get(name, '<unknown>')}/{target.get(name, '')}{average}"
    return f"{source['name']}: {shown}" if kind == "Resource" else shown


def _targets(autoscaler: Object) -> str:
    metrics = get(autoscaler, "spec", "metrics", default=())
    current = get(autoscaler, "status", "currentMetrics", default=())
    percentage = get(autoscaler, "spec", "targetCPUUtilizationPercentage")
    if percentage is not None:
        target = {"type": "Utilization", "averageUtilization": percentage}
        metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    shown = [
        _target(metric, current[place] if place < len(current) else {})
        for place, metric in enumerate(metrics)
    ]
    return join_first(shown, 2, ", ")


_CONTAINERS: Final = containers()
_REPLICAS: Final = (
    "Name, Desired:integer=spec.replicas|0, Current:integer=status.replicas|0, "
    "Ready:integer=status.readyReplicas|0, Age"
)

COLUMNS: Final[dict[str, tuple[TableColumn, ...]]] = {
    "cronjobs.batch": columns(
        "Name, Schedule=spec.schedule, Timezone=spec.timeZone|<none>",
        ("Suspend:boolean=spec.suspend|False", str),
        ("Active:integer=status.active|0", len),
        "Last Schedule=~status.lastScheduleTime|<none>, Age",
        *containers("spec.jobTemplate.spec.template"),
        ("*Selector=spec.jobTemplate.spec.selector||<none>", SELECTOR[1]),
    ),
    "daemonsets.apps": columns(
        "Name, Desired:integer=status.desiredNumberScheduled|0",
        "Current:integer=status.currentNumberScheduled|0, Ready:integer=status.numberReady|0",
        "Up-to-date:integer=status.updatedNumberScheduled|0",
        "Available:integer=status.numberAvailable|0",
        ("Node Selector=spec.template.spec.nodeSelector||<none>", labels_text),
        "Age",
        *_CONTAINERS,
        SELECTOR,
    ),
    "deployments.apps": columns(
        "Name",
        ("Ready", _ready_replicas),
        "Up-to-date=status.updatedReplicas|0, Available=status.availableReplicas|0, Age",
        *_CONTAINERS,
        SELECTOR,
    ),
    "horizontalpodautoscalers.autoscaling": columns(
        "Name",
        ("Reference=spec.scaleTargetRef", reference_text),
        ("Targets=||<none>", _targets),
        ("MinPods=spec.minReplicas|<unset>", str),
        "MaxPods=spec.maxReplicas|0, Replicas=status.currentReplicas|0, Age",
    ),
    "jobs.batch": columns(
        "Name",
        ("Status", _job_state),
        ("Completions", _completions),
        ("Duration=~status", _duration),
        "Age",
        *_CONTAINERS,
        SELECTOR,
    ),
    "poddisruptionbudgets.policy": columns(
        "Name",
        ("Min Available=spec.minAvailable|N/A", str),
        ("Max Unavailable=spec.maxUnavailable|N/A", str),
        "Allowed Disruptions:integer=status.disruptionsAllowed|0, Age",
    ),
    "pods": columns(
        "Name",
        ("Ready", _ready_containers),
        ("Status", _pod_state),
        TableColumn("Restarts", "string", 0, _restarts),
        "Age",
        ("*IP=status.podIPs||<none>", lambda ips: ips[0].get("ip") if ips else None),
        "*Node=spec.nodeName||<none>, *Nominated Node=status.nominatedNodeName||<none>",
        ("*Readiness Gates=|<none>", _readiness_gates),
    ),
    "replicasets.apps": columns(_REPLICAS, *_CONTAINERS, SELECTOR),
    "replicationcontrollers": columns(
        _REPLICAS, *_CONTAINERS, ("*Selector=spec.selector||<none>", labels_text)
    ),
    "statefulsets.apps": columns("Name", ("Ready", _ready_replicas), "Age", *_CONTAINERS),
}
