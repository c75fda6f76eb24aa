"""HorizontalPodAutoscalers in autoscaling/v1, which has one metric: CPU utilization.

As on the real server, annotations carry what the version has no field for, metrics in the form of
autoscaling/v1. An annotation that cannot be decoded counts as absent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from appsdk_operator.apiserver._schema import builtin_types as types
from appsdk_operator.apiserver._values import go_json

_Object = dict[str, Any]
_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
# The fields of each metric source in autoscaling/v1 and their places in autoscaling/v2. "@" is the
# amount: "target" in a spec, "current" in a status.
_SOURCES: Final[dict[str, dict[str, str]]] = {
    "object": {
        "target": "describedObject",
        "metricName": "metric.name",
        "@Value": "@.value",
        "selector": "metric.selector",
        "averageValue": "@.averageValue",
    },
    "pods": {
        "metricName": "metric.name",
        "@AverageValue": "@.averageValue",
        "selector": "metric.selector",
    },
    "resource": {
        "name": "name",
        "@AverageUtilization": "@.averageUtilization",
        "@AverageValue": "@.averageValue",
    },
    "containerResource": {
        "name": "name",
        "@AverageUtilization": "@.averageUtilization",
        "@AverageValue": "@.averageValue",
        "container": "container",
    },
    "external": {
        "metricName": "metric.name",
        "metricSelector": "metric.selector",
        "@Value": "@.value",
        "@AverageValue": "@.averageValue",
    },
}
_REFERENCE: Final = ("kind", "name", "apiVersion")
_DEFINITIONS: Final = {"target": "MetricSpec", "current": "MetricStatus"}
_RULES: Final = ("StabilizationWindowSeconds", "SelectPolicy", "Policies", "Tolerance")


def to_v1(obj: _Object) -> _Object:
    """Convert from autoscaling/v2."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    metrics = [metric for metric in spec.get("metrics") or () if _cpu(metric, "target") is None]
    current = status.get("currentMetrics") or ()
    carried = {
        "metrics": [_metric_to_v1(metric, "target") for metric in metrics],
        "current-metrics": [_metric_to_v1(metric, "current") for metric in current],
        "behavior": _behavior_to_v1(spec["behavior"]) if spec.get("behavior") else None,
        "conditions": status.get("conditions"),
    }
    annotations = {f"{_PREFIX}{name}": _text(value) for name, value in carried.items() if value}
    for part, name, found, amount in (
        (spec, "targetCPUUtilizationPercentage", spec.get("metrics") or (), "target"),
        (status, "currentCPUUtilizationPercentage", current, "current"),
    ):
        cpu = [number for metric in found if (number := _cpu(metric, amount)) is not None]
        if cpu:
            part[name] = cpu[0]
    obj = {**without_annotations(obj), "apiVersion": "autoscaling/v1"}
    if annotations:
        metadata = obj["metadata"]
        metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
    # Decoding drops the fields that the version does not have.
    return types.read("autoscaling", "v1", "HorizontalPodAutoscaler", obj)[0]


def from_v1(obj: _Object) -> _Object:
    """Convert from autoscaling/v1."""
    return types.read("autoscaling", "v2", "HorizontalPodAutoscaler", without_defaults(obj))[0]


def without_defaults(obj: _Object) -> _Object:
    """Convert from autoscaling/v1 as validation sees it: without the defaults of autoscaling/v2."""
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    carry = (obj.get("metadata") or {}).get("annotations") or {}
    usage = _cpu_metric(status.pop("currentCPUUtilizationPercentage", None), "current")
    cpu = _cpu_metric(spec.pop("targetCPUUtilizationPercentage", None), "target")
    for part, name, value in (
        (spec, "metrics", [*_metrics(carry, "metrics", "target"), *cpu]),
        (spec, "behavior", _behavior(carry)),
        (status, "currentMetrics", _metrics(carry, "current-metrics", "current") or usage),
        (status, "conditions", _conditions(carry)),
    ):
        if value:
            part[name] = value
    parts = {"spec": spec, "status": status, "apiVersion": "autoscaling/v2"}
    return without_annotations({**obj, **parts})


def normalize_v1(obj: _Object) -> _Object:
    """The object with the annotations as they would be written."""
    return to_v1(without_defaults(obj))


def without_annotations(obj: _Object) -> _Object:
    """The object without the annotations, which belong to autoscaling/v1."""
    metadata = obj.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    kept = {name: text for name, text in annotations.items() if name not in _ANNOTATIONS}
    if len(kept) == len(annotations):
        return obj
    metadata = {name: value for name, value in metadata.items() if name != "annotations"}
    return {**obj, "metadata": {**metadata, "annotations": kept} if kept else metadata}


def create(obj: _Object) -> None:
    """Drop the annotations of a status, which a new object has not."""
    keep_status(obj, {"metadata": {}})


def keep_spec(new: _Object, old: _Object) -> None:
    """Restore what belongs to the spec after an update of the status."""
    _keep(new, old, ("metrics", "behavior"))


def keep_status(new: _Object, old: _Object) -> None:
    """Restore what belongs to the status after an update."""
    _keep(new, old, ("current-metrics", "conditions"))


_ANNOTATIONS: Final = frozenset(
    f"{_PREFIX}{name}" for name in ("metrics", "behavior", "current-metrics", "conditions")
)


def _keep(new: _Object, old: _Object, names: Iterable[str]) -> None:
    if new["apiVersion"] != "autoscaling/v1":
        return
    before = old["metadata"].get("annotations") or {}
    kept = dict(new["metadata"].get("annotations") or {})
    for name in (f"{_PREFIX}{name}" for name in names):
        kept.pop(name, None)
        if name in before:
            kept[name] = before[name]
    new["metadata"].pop("annotations", None)
    if kept:
        new["metadata"]["annotations"] = kept


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _decoded(
    annotations: _Object, name: str, convert: Callable[[Any], Any], definition: str
) -> list[Any]:
    """The values of autoscaling/v2 that an annotation carries; none without one that is valid."""
    try:
        values = convert(go_json.decode(annotations[f"{_PREFIX}{name}"].encode()))
        definition = f"io.k8s.api.autoscaling.v2.{definition}"
        return [types.read_definition(definition, value)[0] for value in values]
    except (KeyError, ValueError):
        return []


def _conditions(annotations: _Object) -> list[_Object]:
    def convert(value: Any) -> list[_Object]:
        return [_checked(each, dict) for each in _checked(value, list)]

    return _decoded(annotations, "conditions", convert, "HorizontalPodAutoscalerCondition")


# -- metrics ---------------------------------------------------------------------------------


def _cpu(metric: _Object, amount: str) -> int | None:
    """The utilization of a metric that autoscaling/v1 has a field for."""
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    found: int | None = (resource.get(amount) or {}).get("averageUtilization")
    return found


def _cpu_metric(utilization: int | None, amount: str) -> list[_Object]:
    if utilization is None:
        return []
    value = {"averageUtilization": utilization}
    made = {"type": "Utilization", **value} if amount == "target" else value
    return [{"type": "Resource", "resource": {"name": "cpu", amount: made}}]


def _metric_to_v1(metric: _Object, amount: str) -> _Object:
    made: _Object = {"type": metric.get("type", "")}
    for source, fields in _SOURCES.items():
        if source in metric:
            found = {
                old.replace("@", amount): _at(metric[source], new.replace("@", amount))
                for old, new in fields.items()
            }
            made[source] = {name: value for name, value in found.items() if value is not None}
    return made


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if value is not None else None
    # The order of Go's fields.
    return {k: value.get(k) for k in _REFERENCE} if path == "describedObject" else value


def _metrics(annotations: _Object, name: str, amount: str) -> list[_Object]:
    def convert(value: Any) -> list[_Object]:
        return [_metric_from_v1(metric, amount) for metric in _checked(value, list)]

    return _decoded(annotations, name, convert, _DEFINITIONS[amount])


def _metric_from_v1(metric: Any, amount: str) -> _Object:
    metric = _checked(metric, dict)
    made = {"type": metric.get("type")}
    for source, fields in _SOURCES.items():
        if metric.get(source) is None:
            continue
        given, found = _checked(metric[source], dict), dict[str, Any]()
        for old, new in fields.items():
            value = given.get(old.replace("@", amount))
            if value is not None:
                place, _, name = new.replace("@", amount).rpartition(".")
                (found.setdefault(place, {}) if place else found)[name] = value
        if amount == "target":
            found.setdefault(amount, {})["type"] = _target_type(source, found[amount])
        made[source] = found
    return made


def _target_type(source: str, target: _Object) -> str:
    if "averageUtilization" in target:
        return "Utilization"
    if source == "external":
        return "Value" if "value" in target else "AverageValue"
    return "Value" if source == "object" and "averageValue" not in target else "AverageValue"


def _checked(value: Any, type_: type) -> Any:
    value = type_() if value is None else value
    if not isinstance(value, type_):
        raise types.DecodeError(f"{value!r} is not of type {type_.__name__}")
    return value


# -- behavior --------------------------------------------------------------------------------


def _behavior_to_v1(behavior: _Object) -> _Object:
    """The behavior with the names of Go's fields, which have no other in the annotation."""
    rules = {name: behavior.get(name) for name in ("scaleUp", "scaleDown")}
    made: _Object = _first_letters(str.upper)(rules)
    for name, given in made.items():
        if given is not None:
            made[name] = {field: given.get(field) for field in _RULES}
    return made


def _behavior(annotations: _Object) -> _Object:
    def convert(value: Any) -> list[_Object]:
        return [_first_letters(str.lower)(_checked(value, dict))]

    found = _decoded(annotations, "behavior", convert, "HorizontalPodAutoscalerBehavior")
    return found[0] if found else {}


def _first_letters(case: Callable[[str], str]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            return {case(key[:1]) + key[1:]: convert(item) for key, item in value.items()}
        return [convert(item) for item in value] if isinstance(value, list) else value

    return convert
