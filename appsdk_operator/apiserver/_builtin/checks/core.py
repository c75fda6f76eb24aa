"""Validation of the small kinds: configuration, nodes, events, leases, limits and budgets."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from appsdk_operator.apiserver._builtin.checks import common as checks
from appsdk_operator.apiserver._builtin.checks.common import Errors, Object
from appsdk_operator.apiserver._builtin.checks.resources import STANDARD, quantity, resource_name
from appsdk_operator.apiserver._builtin.priorities import SYSTEM_CLASSES
from appsdk_operator.apiserver._values import go_json
from appsdk_operator.apiserver._values.status import FieldError

_DATA_LIMIT: Final = 1024 * 1024


def _immutable(new: Object, old: Object | None, *names: str) -> Errors:
    if old is None or not old.get("immutable"):
        return
    detail = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield FieldError.forbidden("immutable", detail)
    for name in names:
        if (new.get(name) or {}) != (old.get(name) or {}):
            yield FieldError.forbidden(name, detail)


def config_map(new: Object, old: Object | None) -> Errors:
    """A ConfigMap."""
    yield from _immutable(new, old, "data", "binaryData")
    data, binary = new.get("data") or {}, new.get("binaryData") or {}
    size = 0
    for name, value in data.items():
        yield from checks.config_key(name, f"data[{name}]")
        if name in binary:
            detail = "duplicate of key present in binaryData"
            yield FieldError.invalid(f"data[{name}]", name, detail)
        size += len(value.encode())
    for name, value in binary.items():
        yield from checks.config_key(name, f"binaryData[{name}]")
        size += _decoded_size(value)
    if size > _DATA_LIMIT:
        yield _too_long("[]", _DATA_LIMIT)


def _decoded_size(encoded: str) -> int:
    return len(encoded) * 3 // 4 - encoded.count("=")


def _too_long(path: str, limit: int) -> FieldError:
    return FieldError("FieldValueTooLong", path, f"Too long: may not be more than {limit} bytes")


_REQUIRED_DATA: Final = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_ACCOUNT: Final = "kubernetes.io/service-account.name"


def secret(new: Object, old: Object | None) -> Errors:
    """A Secret."""
    kind, data = new.get("type", ""), new.get("data") or {}
    if old is not None:
        yield from _immutable(new, old, "data")
    for name in data:
        yield from checks.config_key(name, f"data[{name}]")
    if sum(map(_decoded_size, data.values())) > _DATA_LIMIT:
        yield _too_long("data", _DATA_LIMIT)
    if kind == "kubernetes.io/service-account-token":
        yield from checks.needed(
            (new["metadata"].get("annotations") or {}).get(_ACCOUNT),
            f"metadata.annotations[{_ACCOUNT}]",
        )
    elif kind == "kubernetes.io/basic-auth":
        names = ("username", "password")
        if not any(name in data for name in names):
            yield from (FieldError.required(f"data[{name}]") for name in names)
    else:
        for name in _REQUIRED_DATA.get(kind, ()):
            if name not in data:
                yield FieldError.required(f"data[{name}]")
            elif name.startswith(".docker"):
                yield from _json_text(data[name], f"data[{name}]")


def _json_text(encoded: str, path: str) -> Errors:
    body = base64.b64decode(encoded)
    try:
        json.loads(body.decode(errors="replace"))
    except json.JSONDecodeError:
        detail = go_json.syntax_error(body)
        yield FieldError.invalid(path, "<secret contents redacted>", detail)


def namespace(new: Object, _old: Object | None) -> Errors:
    """A Namespace."""
    for name in (new.get("spec") or {}).get("finalizers") or ():
        problems = list(checks.key(name, "spec.finalizers"))
        if not problems and "/" not in name and name not in ("kubernetes", "orphan"):
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            problems = [FieldError.invalid("spec.finalizers", name, detail)]
        yield from problems


def node(new: Object, old: Object | None) -> Errors:
    """A Node."""
    spec, status = new.get("spec") or {}, new.get("status") or {}
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(spec.get("taints") or ()):
        at, effect = f"metadata.taints[{index}]", taint.get("effect", "")
        yield from checks.key(taint.get("key", ""), f"{at}.key")
        yield from checks.needed(effect, f"{at}.effect")
        allowed = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        yield from checks.one_of(effect, allowed, f"{at}.effect")
        identity = (taint.get("key", ""), effect)
        if identity in seen:
            shown = checks.internal(
                Key=identity[0], Value=taint.get("value", ""), Effect=effect, TimeAdded=None
            )
            error = FieldError.duplicate(at, shown)
            detail = ": taints must be unique by key and effect pair"
            yield FieldError(error.reason, at, error.message + detail)
        seen.add(identity)
    for index, text in enumerate(spec.get("podCIDRs") or ()):
        yield from checks.network(text, f"spec.podCIDRs[{index}]")
    for part in ("capacity", "allocatable"):
        for name, value in (status.get(part) or {}).items():
            yield from quantity(name, value, f"status.{part}.{name}")
    if old is not None:
        before = old.get("spec") or {}
        if spec.get("externalID") != before.get("externalID"):
            detail = (
                "node updates may only change labels, taints, or capacity (or configSource, if "
                "the DynamicKubeletConfig feature gate is enabled)"
            )
            yield FieldError.forbidden("[]", detail)
        if before.get("podCIDRs") and spec.get("podCIDRs") != before["podCIDRs"]:
            detail = 'node updates may not change podCIDR except from "" to valid'
            yield FieldError.forbidden("spec.podCIDRs", detail)
        if before.get("providerID") and spec.get("providerID") != before["providerID"]:
            detail = 'node updates may not change providerID except from "" to valid'
            yield FieldError.forbidden("spec.providerID", detail)


def lease(new: Object, _old: Object | None) -> Errors:
    """A Lease."""
    spec = new.get("spec") or {}
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield FieldError.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    yield from checks.not_negative(spec.get("leaseTransitions"), "spec.leaseTransitions")


def priority_class(new: Object, old: Object | None) -> Errors:
    """A PriorityClass."""
    name, value = new["metadata"].get("name", ""), new.get("value", 0)
    if old is not None:
        if value != old.get("value", 0):
            yield FieldError.forbidden("value", "may not be changed in an update.")
        return
    if name.startswith("system-"):
        if why := _unknown_class(name, value, bool(new.get("globalDefault"))):
            reserved = "priority class names with 'system-' prefix are reserved for system use only"
            yield FieldError.forbidden("metadata.name", f"{reserved}. error: {why}")
    elif value > 1_000_000_000:
        detail = "maximum allowed value of a user defined priority is 1000000000"
        yield FieldError.forbidden("value", detail)
    allowed = ("PreemptLowerPriority", "Never")
    yield from checks.one_of(new.get("preemptionPolicy"), allowed, "preemptionPolicy")


def _unknown_class(name: str, value: int, is_default: bool) -> str:
    """Why this is none of the PriorityClasses that every cluster has; empty if it is."""
    for known in SYSTEM_CLASSES:
        if known["metadata"]["name"] == name:
            if value != known["value"]:
                return f"value of {name} PriorityClass must be {known['value']}"
            return f"globalDefault of {name} PriorityClass must be false" if is_default else ""
    return f"{name} is not a known system priority class"


# -- events ----------------------------------------------------------------------------------


_LONGEST_NOTE: Final = 1024


def event(new: Object, old: Object | None) -> Errors:
    """An Event of either group; the newer one asks more."""
    newer = "regarding" in new or new.get("apiVersion", "").startswith("events.k8s.io")
    yield from _event(new, newer=newer)
    if newer and (old is None or old.get("series") != new.get("series")):
        yield from _series(new)
    if newer and old is None:
        yield from _newer_event(new)


def _event(new: Object, *, newer: bool) -> Errors:
    involved = new.get("regarding" if newer else "involvedObject") or {}
    where, place = involved.get("namespace", ""), new["metadata"].get("namespace", "")
    # Events of cluster-scoped objects are in the namespace "default".
    allowed = {"", "default", "kube-system"} if new.get("eventTime") else {"", "default"}
    if (not where and place not in allowed) or (
        where and where != place and not new.get("eventTime")
    ):
        detail = "does not match event.namespace"
        yield FieldError.invalid("involvedObject.namespace", where, detail)
    if not new.get("eventTime"):
        return
    reporter = "reportingController" if newer else "reportingComponent"
    yield from checks.needed(new.get(reporter), reporter)
    yield from checks.key(new.get(reporter, ""), reporter)
    for name in ("reportingInstance", "action", "reason"):
        yield from checks.needed(new.get(name), name)
        yield from _at_most(128, new.get(name, ""), name)
    yield from _at_most(_LONGEST_NOTE, new.get("note" if newer else "message", ""), "message")


def _at_most(limit: int, text: str, path: str) -> Errors:
    if len(text.encode()) > limit:
        yield FieldError.invalid(path, "", f"can have at most {limit} characters")


def _series(new: Object) -> Errors:
    series = new.get("series")
    if series is not None and series.get("count", 0) < 2:
        yield FieldError.invalid("series.count", "", "should be at least 2")
    if series is not None and not series.get("lastObservedTime"):
        yield FieldError.required("series.lastObservedTime")


def _newer_event(new: Object) -> Errors:
    yield from checks.needed(new.get("eventTime"), "eventTime")
    if new.get("type") not in ("Normal", "Warning"):
        yield FieldError.invalid("type", "", f"has invalid value: {new.get('type', '')}")
    for name, shown in (
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource", "source"),
    ):
        if new.get(name):
            yield FieldError.invalid(shown, "", "needs to be unset")


# -- limits and budgets ----------------------------------------------------------------------

_SCOPES: Final = (
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
)


def quota(new: Object, old: Object | None) -> Errors:
    """A ResourceQuota."""
    spec = new.get("spec") or {}
    hard = spec.get("hard") or {}
    for name, value in hard.items():
        at = f"spec.hard[{name}]"
        yield from resource_name(name, at)
        if "/" not in name and name not in STANDARD and not name.startswith("hugepages-"):
            detail = "must be a standard resource for quota"
            yield FieldError.invalid(at, name, detail)
        yield from quantity(name, value, at)
    scopes = spec.get("scopes") or []
    for scope in scopes:
        if scope not in _SCOPES:
            yield FieldError.invalid("spec.scopes", scopes, "unsupported scope")
        elif scope == "BestEffort" and set(hard) - {"pods"}:
            detail = "unsupported scope applied to resource"
            yield from (
                FieldError.invalid("spec.scopes", scopes, detail) for name in hard if name != "pods"
            )
    for pair in ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"}):
        if pair <= set(scopes):
            yield FieldError.invalid("spec.scopes", scopes, "conflicting scopes")
    if old is not None and set(scopes) != set((old.get("spec") or {}).get("scopes") or ()):
        yield FieldError.invalid("spec.scopes", scopes, "field is immutable")
    for requirement in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        operator, values = requirement.get("operator", ""), requirement.get("values")
        at = "spec.scopeSelector.matchExpressions"
        if requirement.get("scopeName") not in _SCOPES:
            name = requirement.get("scopeName", "")
            yield FieldError.invalid(f"{at}.scopeName", name, "unsupported scope")
        if operator in ("In", "NotIn") and not values:
            detail = (
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            )
            yield FieldError.required(f"{at}.values", detail)
        elif operator in ("Exists", "DoesNotExist") and values:
            detail = (
                "must be no value when `operator` is 'Exists' or 'DoesNotExist' for scope selector"
            )
            yield FieldError.invalid(f"{at}.values", values, detail)
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            detail = "not a valid selector operator"
            yield FieldError.invalid(f"{at}.operator", operator, detail)


_LIMITED: Final = ("Container", "PersistentVolumeClaim", "Pod")


def limit_range(new: Object, _old: Object | None) -> Errors:
    """A LimitRange."""
    seen: set[str] = set()
    for index, item in enumerate((new.get("spec") or {}).get("limits") or ()):
        at, kind = f"spec.limits[{index}]", item.get("type", "")
        if kind not in _LIMITED and "/" not in kind:
            detail = "must be a standard limit type or fully qualified"
            yield FieldError.invalid(f"{at}.type", kind, detail)
        if kind in seen:
            yield FieldError.duplicate(f"{at}.type", kind)
        seen.add(kind)
        yield from _limits(item, at, kind)


def _limits(item: Object, at: str, kind: str) -> Errors:
    for part in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
        if kind == "Pod" and part.startswith("default") and item.get(part):
            detail = "may not be specified when `type` is 'Pod'"
            yield FieldError.forbidden(f"{at}.{part}", detail)
            continue
        for name in item.get(part) or {}:
            path = f"{at}.{part}[{name}]"
            yield from resource_name(name, path)
            if "/" not in name and name not in ("cpu", "memory", "ephemeral-storage", "storage"):
                detail = "must be a standard resource for containers"
                yield FieldError.invalid(path, name, detail)
    if kind == "PersistentVolumeClaim" and not any(
        "storage" in (item.get(part) or {}) for part in ("min", "max")
    ):
        detail = "either minimum or maximum storage value is required, but neither was provided"
        yield FieldError.required(f"{at}.limits", detail)
    names = {
        name
        for part in ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")
        for name in item.get(part) or {}
    }
    for name in sorted(names):
        yield from _bounds(item, at, name)


def _bounds(item: Object, at: str, name: str) -> Errors:
    least, most, request, default, ratio = (
        (item.get(part) or {}).get(name)
        for part in ("min", "max", "defaultRequest", "default", "maxLimitRequestRatio")
    )

    def more(one: Any, other: Any) -> bool:
        return (
            one is not None
            and other is not None
            and checks.amount_of(one) > checks.amount_of(other)
        )

    # Each bound and the one it must not exceed, as texts, with field and value of the error.
    asked = "default request value"
    for low, of_low, high, of_high, field, blamed in (
        (least, "min value", most, "max value", "min", least),
        (least, "min value", request, asked, "defaultRequest", request),
        (request, asked, most, "max value", "defaultRequest", request),
        (request, asked, default, "default limit value", "defaultRequest", request),
        (least, "min value", default, "default value", "default", least),
        (default, "default value", most, "max value", "default", most),
    ):
        if more(low, high):
            detail = f"{of_low} {low} is greater than {of_high} {high}"
            yield FieldError.invalid(f"{at}.{field}[{name}]", blamed, detail)
    if ratio is not None and checks.amount_of(ratio) < 1:
        detail = f"ratio {ratio} is less than 1"
        yield FieldError.invalid(f"{at}.maxLimitRequestRatio[{name}]", ratio, detail)


def disruption_budget(new: Object, _old: Object | None) -> Errors:
    """A PodDisruptionBudget."""
    spec = new.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        shown = checks.internal(
            MinAvailable=spec["minAvailable"],
            Selector=spec.get("selector"),
            MaxUnavailable=spec["maxUnavailable"],
            UnhealthyPodEvictionPolicy=spec.get("unhealthyPodEvictionPolicy"),
        )
        detail = "minAvailable and maxUnavailable cannot be both set"
        yield FieldError.invalid("spec", shown, detail)
    for name in ("minAvailable", "maxUnavailable"):
        yield from checks.number_or_percentage(spec.get(name), f"spec.{name}", up_to_all=True)
    allowed = ("AlwaysAllow", "IfHealthyBudget")
    policy = spec.get("unhealthyPodEvictionPolicy")
    yield from checks.one_of(policy, allowed, "spec.unhealthyPodEvictionPolicy")
    yield from checks.selector(spec.get("selector"), "spec.selector")
