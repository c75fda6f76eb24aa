"""Validation of HorizontalPodAutoscalers, in both versions."""

from __future__ import annotations

from typing import Final

from appsdk_operator.apiserver._builtin import autoscaler_versions
from appsdk_operator.apiserver._builtin.checks import common as checks
from appsdk_operator.apiserver._builtin.checks.common import Errors, Object
from appsdk_operator.apiserver._values.status import FieldError

_SOURCES: Final = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_LONGEST_WINDOW: Final = 3600
_LONGEST_PERIOD: Final = 1800


def autoscaler(new: Object, _old: Object | None) -> Errors:
    """A HorizontalPodAutoscaler."""
    if new.get("apiVersion") == "autoscaling/v1":
        new = autoscaler_versions.without_defaults(dict(new))
    spec = new.get("spec") or {}
    least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if least is not None and least < 1:
        detail = "must be greater than or equal to 1"
        yield FieldError.invalid("spec.minReplicas", least, detail)
    if most < 1:
        yield FieldError.required("spec.maxReplicas", "must be set and greater than 0")
    if least is not None and most < least:
        detail = "must be greater than or equal to `minReplicas`"
        yield FieldError.invalid("spec.maxReplicas", most, detail)
    yield from _target(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef")
    for index, metric in enumerate(spec.get("metrics") or ()):
        yield from _metric(metric, f"spec.metrics[{index}]")
    kinds = {metric.get("type") for metric in spec.get("metrics") or ()}
    if least == 0 and not kinds & {"Object", "External"}:
        detail = (
            "must specify at least one Object or External metric to support scaling to zero "
            "replicas"
        )
        yield FieldError.forbidden("spec.metrics", detail)
    for name in ("scaleUp", "scaleDown"):
        rules = (spec.get("behavior") or {}).get(name)
        if rules is not None:
            yield from _rules(rules, f"spec.behavior.{name}")


def _target(reference: Object, at: str) -> Errors:
    for name in ("kind", "name"):
        text = reference.get(name, "")
        yield from checks.needed(text, f"{at}.{name}")
        for char in "/%":
            if char in text:
                yield FieldError.invalid(f"{at}.{name}", text, f"may not contain '{char}'")
    version = reference.get("apiVersion", "")
    if "/" not in version and version != "v1":
        detail = "apiVersion must specify API group"
        yield FieldError.invalid(f"{at}.apiVersion", version, detail)


def _metric(metric: Object, at: str) -> Errors:
    kind = metric.get("type", "")
    if not kind:
        yield FieldError.required(f"{at}.type", "must specify a metric source type")
    if kind not in _SOURCES:
        yield FieldError.not_supported(f"{at}.type", kind, sorted(_SOURCES))
    for name in _SOURCES.values():
        if name in metric and name == _SOURCES.get(kind):
            yield from _source(metric[name], name, f"{at}.{name}")
    if kind in _SOURCES and _SOURCES[kind] not in metric:
        detail = "must populate information for the given metric source"
        yield FieldError.required(f"{at}.{_SOURCES[kind]}", detail)


def _source(source: Object, name: str, at: str) -> Errors:
    if name in ("resource", "containerResource"):
        if not source.get("name"):
            yield FieldError.required(f"{at}.name", "must specify a resource name")
    else:
        metric = (source.get("metric") or {}).get("name", "")
        if not metric:
            yield FieldError.required(f"{at}.metric.name", "must specify a metric name")
        for char in "/%":
            if char in metric:
                yield FieldError.invalid(f"{at}.metric.name", metric, f"may not contain '{char}'")
    target, at = source.get("target") or {}, f"{at}.target"
    yield from _amounts(target, at)
    given = {part for part in ("value", "averageValue", "averageUtilization") if part in target}
    if name in ("resource", "containerResource"):
        if not given & {"averageValue", "averageUtilization"}:
            detail = "must set either a target raw value or a target utilization"
            yield FieldError.required(f"{at}.averageUtilization", detail)
    elif name == "pods":
        if "averageValue" not in given:
            detail = "must specify a positive target averageValue"
            yield FieldError.required(f"{at}.averageValue", detail)
    elif not given & {"value", "averageValue"}:
        detail = "must set either a target value for metric or a per-pod target"
        yield FieldError.required(f"{at}.averageValue", detail)


def _amounts(target: Object, at: str) -> Errors:
    kind = target.get("type", "")
    if not kind:
        yield FieldError.required(f"{at}.type", "must specify a metric target type")
    elif kind not in ("AverageValue", "Utilization", "Value"):
        detail = "must be either Utilization, Value, or AverageValue"
        yield FieldError.invalid(f"{at}.type", kind, detail)
    for name in ("value", "averageValue"):
        if name in target and checks.amount_of(target[name]) <= 0:
            yield FieldError.invalid(f"{at}.{name}", target[name], "must be positive")
    if target.get("averageUtilization", 1) < 1:
        detail = "must be greater than 0"
        yield FieldError.invalid(f"{at}.averageUtilization", target["averageUtilization"], detail)


def _rules(rules: Object, at: str) -> Errors:
    window = rules.get("stabilizationWindowSeconds", 0)
    if window < 0:
        detail = "must be greater than or equal to zero"
        yield FieldError.invalid(f"{at}.stabilizationWindowSeconds", window, detail)
    if window > _LONGEST_WINDOW:
        detail = f"must be less than or equal to {_LONGEST_WINDOW}"
        yield FieldError.invalid(f"{at}.stabilizationWindowSeconds", window, detail)
    allowed = ("Disabled", "Max", "Min")
    yield from checks.one_of(rules.get("selectPolicy"), allowed, f"{at}.selectPolicy")
    policies = rules.get("policies") or ()
    if not policies:
        yield FieldError.required(f"{at}.policies", "must specify at least one Policy")
    for index, policy in enumerate(policies):
        path = f"{at}.policies[{index}]"
        yield from checks.one_of(policy.get("type"), ("Percent", "Pods"), f"{path}.type")
        for name in ("value", "periodSeconds"):
            if policy.get(name, 0) <= 0:
                yield FieldError.invalid(
                    f"{path}.{name}", policy.get(name, 0), "must be greater than zero"
                )
        if policy.get("periodSeconds", 0) > _LONGEST_PERIOD:
            detail = f"must be less than or equal to {_LONGEST_PERIOD}"
            yield FieldError.invalid(f"{path}.periodSeconds", policy["periodSeconds"], detail)
