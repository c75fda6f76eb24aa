"""The validation function of each built-in kind, by ``plural.group``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from appsdk_operator.apiserver._builtin.checks import core, jobs, network, volumes, workloads
from appsdk_operator.apiserver._builtin.checks.autoscalers import autoscaler
from appsdk_operator.apiserver._builtin.checks.pods import pod
from appsdk_operator.apiserver._values.status import FieldError

__all__ = ["CHECKS"]

Check = Callable[[Mapping[str, Any], Mapping[str, Any] | None], list[FieldError]]
"""Returns the errors of a new object, given the old one; None on create."""

CHECKS: Final[dict[str, Check]] = {
    "configmaps": core.config_map,
    "cronjobs.batch": jobs.cron_job,
    "daemonsets.apps": workloads.daemon_set,
    "deployments.apps": workloads.deployment,
    "endpoints": network.endpoints,
    "endpointslices.discovery.k8s.io": network.endpoint_slice,
    "events": core.event,
    "events.events.k8s.io": core.event,
    "horizontalpodautoscalers.autoscaling": autoscaler,
    "ingresses.networking.k8s.io": network.ingress,
    "jobs.batch": jobs.job,
    "leases.coordination.k8s.io": core.lease,
    "limitranges": core.limit_range,
    "namespaces": core.namespace,
    "networkpolicies.networking.k8s.io": network.network_policy,
    "nodes": core.node,
    "persistentvolumeclaims": volumes.claim,
    "persistentvolumes": volumes.persistent_volume,
    "poddisruptionbudgets.policy": core.disruption_budget,
    "pods": pod,
    "priorityclasses.scheduling.k8s.io": core.priority_class,
    "replicasets.apps": workloads.replica_set,
    "replicationcontrollers": workloads.controller,
    "resourcequotas": core.quota,
    "secrets": core.secret,
    "services": network.service,
    "statefulsets.apps": workloads.stateful_set,
    "storageclasses.storage.k8s.io": volumes.storage_class,
}
