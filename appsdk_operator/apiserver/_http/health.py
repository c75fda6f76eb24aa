"""The health endpoints ``/healthz``, ``/livez`` and ``/readyz``; their checks always succeed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_STARTED: Final = """
start-apiserver-admission-initializer generic-apiserver-start-informers
priority-and-fairness-config-consumer priority-and-fairness-filter storage-object-count-tracker-hook
start-apiextensions-informers start-apiextensions-controllers crd-informer-synced
start-system-namespaces-controller peer-endpoint-reconciler-controller
start-cluster-authentication-info-controller start-kube-apiserver-identity-lease-controller
start-kube-apiserver-identity-lease-garbage-collector storage-readiness
start-legacy-token-tracking-controller start-service-ip-repair-controllers rbac/bootstrap-roles
scheduling/bootstrap-system-priority-classes priority-and-fairness-config-producer
bootstrap-controller start-kubernetes-service-cidr-controller start-kube-aggregator-informers
apiservice-status-local-available-controller apiservice-status-remote-available-controller
apiservice-registration-controller apiservice-discovery-controller kube-apiserver-autoregistration
"""
_LAST: Final = """
autoregister-completion poststarthook/apiservice-openapi-controller
poststarthook/apiservice-openapiv3-controller
"""
_COMMON: Final = (*(f"poststarthook/{name}" for name in _STARTED.split()), *_LAST.split())

CHECKS: Final = {
    "healthz": ("ping", "log", "loopback-serving-certificate", "etcd", *_COMMON),
    "livez": ("ping", "log", "loopback-serving-certificate", "etcd", *_COMMON),
    "readyz": ("ping", "log", "etcd", "etcd-readiness", "informer-sync", *_COMMON, "shutdown"),
}
"""The checks of each endpoint, in the order and with the names of kube-apiserver 1.36."""


def is_check(path: str) -> bool:
    """Whether ``path`` is a health endpoint or one of its checks."""
    endpoint, slash, check = path.removeprefix("/").partition("/")
    checks = CHECKS.get(endpoint)
    return checks is not None and (not slash or check in checks)


def health(path: str, *, verbose: bool, excluded: Sequence[str]) -> str:
    """The report of an endpoint, or of one of its checks."""
    endpoint, slash, _ = path.removeprefix("/").partition("/")
    if slash or not verbose:
        return "ok"
    checks = CHECKS[endpoint]
    lines = [
        f"[+]{check} excluded: ok" if check in excluded else f"[+]{check} ok" for check in checks
    ]
    unknown = [name for name in dict.fromkeys(excluded) if name not in checks]
    if unknown:
        names = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    return "\n".join([*lines, f"{endpoint} check passed\n"])
