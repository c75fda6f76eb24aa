"""Validation of Jobs and CronJobs."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from appsdk_operator.apiserver._builtin.checks import common as checks
from appsdk_operator.apiserver._builtin.checks.common import Errors, Object
from appsdk_operator.apiserver._builtin.checks.pods import template
from appsdk_operator.apiserver._values.go_text import go_quote, parse_integer
from appsdk_operator.apiserver._values.status import FieldError, Verbatim
from appsdk_operator.apiserver._values.times import parse_duration

_MAX_PARALLEL: Final = 100_000
_MOST_RULES: Final = 20
_MOST_EXIT_CODES: Final = 255
_OWN: Final = "batch.kubernetes.io/controller-uid"


def job(new: Object, old: Object | None) -> Errors:
    """A Job."""
    spec = new.get("spec") or {}
    yield from _counts(spec, "spec")
    yield from _job_spec(spec, "spec")
    wanted, made = spec.get("selector"), spec.get("template") or {}
    labels = (made.get("metadata") or {}).get("labels")
    if wanted is None:
        yield FieldError.required("spec.selector")
    else:
        yield from checks.selector(wanted, "spec.selector")
    if not spec.get("manualSelector") and old is None:
        yield from _generated(new, wanted)
    if not checks.selects(wanted, labels):
        detail = "`selector` does not match template `labels`"
        yield FieldError.invalid("spec.template.metadata.labels", labels, detail)
    if old is not None:
        yield from _job_update(new, old)


def _generated(new: Object, wanted: Object | None) -> Errors:
    uid = new["metadata"].get("uid")
    if (wanted or {}).get("matchLabels") != {_OWN: uid} and wanted is not None:
        yield FieldError.invalid("spec.selector", wanted, "`selector` not auto-generated")


def _job_update(new: Object, old: Object) -> Errors:
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if spec.get("completions") != before.get("completions") and not (
        spec.get("completionMode") == "Indexed"
        and spec.get("completions") == spec.get("parallelism")
    ):
        detail = "field is immutable"
        if spec.get("completionMode") == "Indexed":
            detail = "can only be modified in tandem with spec.parallelism"
        yield FieldError.invalid("spec.completions", spec.get("completions"), detail)
    made, other = spec.get("template") or {}, before.get("template") or {}
    if before.get("suspend") and not (old.get("status") or {}).get("startTime"):
        made, other = _without_scheduling(made), _without_scheduling(other)
    # The real server prints its internal form of the template here, which no client reads.
    yield from checks.unchanged(made, other, "spec.template")


def _without_scheduling(template: Object) -> Object:
    """A pod template without what changes while the Job is suspended and was never started."""
    metadata, spec = (dict(template.get(part) or {}) for part in ("metadata", "spec"))
    for name in ("annotations", "labels"):
        metadata.pop(name, None)
    for name in ("nodeSelector", "schedulingGates", "tolerations"):
        spec.pop(name, None)
    affinity = {**spec.pop("affinity", {}), "nodeAffinity": None}
    for name in ("containers", "initContainers"):
        spec[name] = [{**each, "resources": None} for each in spec.get(name) or ()]
    return {"metadata": metadata, "spec": spec, "affinity": affinity}


def _counts(spec: Object, at: str) -> Errors:
    for name in (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ):
        yield from checks.not_negative(spec.get(name), f"{at}.{name}")


def _job_spec(spec: Object, at: str) -> Errors:
    mode = spec.get("completionMode")
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        detail = "when maxFailedIndexes is specified"
        yield FieldError.required(f"{at}.backoffLimitPerIndex", detail)
    manager = spec.get("managedBy")
    if manager is not None:
        yield from checks.domain_path(manager, f"{at}.managedBy")
    yield from checks.one_of(mode, ("NonIndexed", "Indexed"), f"{at}.completionMode")
    if mode == "Indexed":
        yield from _indexed(spec, at)
    elif mode in (None, "NonIndexed"):
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if name in spec:
                detail = "requires indexed completion mode"
                yield FieldError.invalid(f"{at}.{name}", spec[name], detail)
    if "podFailurePolicy" in spec:
        yield from _failures(spec, f"{at}.podFailurePolicy")
    if "successPolicy" in spec and mode != "Indexed":
        shown = checks.internal(Rules=spec["successPolicy"].get("rules") or [])
        detail = "requires indexed completion mode"
        yield FieldError.invalid(f"{at}.successPolicy", shown, detail)
    allowed: tuple[str, ...] = ("Failed", "TerminatingOrFailed")
    if "podFailurePolicy" in spec:
        allowed = ("Failed",)
    path = f"{at}.podReplacementPolicy"
    yield from checks.one_of(spec.get("podReplacementPolicy"), allowed, path)
    made = spec.get("template") or {}
    yield from template(made, f"{at}.template")
    policy, path = (made.get("spec") or {}).get("restartPolicy"), f"{at}.template.spec"
    if policy in (None, "", "Always"):
        yield FieldError.required(f"{path}.restartPolicy", 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield FieldError.not_supported(f"{path}.restartPolicy", policy, ("OnFailure", "Never"))
    elif "podFailurePolicy" in spec and policy != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        yield FieldError.invalid(f"{path}.restartPolicy", policy, detail)


def _indexed(spec: Object, at: str) -> Errors:
    if "completions" not in spec:
        yield FieldError.required(f"{at}.completions", "when completion mode is Indexed")
    if spec.get("parallelism", 0) > _MAX_PARALLEL:
        detail = f"must be less than or equal to {_MAX_PARALLEL} when completion mode is Indexed"
        yield FieldError.invalid(f"{at}.parallelism", spec["parallelism"], detail)
    if spec.get("maxFailedIndexes", 0) > spec.get("completions", 2**31):
        detail = "must be less than or equal to completions"
        yield FieldError.invalid(f"{at}.maxFailedIndexes", spec["maxFailedIndexes"], detail)


def _failures(spec: Object, path: str) -> Errors:
    rules = spec["podFailurePolicy"].get("rules") or ()
    yield from _at_most(_MOST_RULES, rules, f"{path}.rules")
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = {
        each.get("name")
        for name in ("containers", "initContainers")
        for each in pod.get(name) or ()
    }
    for index, rule in enumerate(rules):
        yield from _failure_rule(spec, rule, f"{path}.rules[{index}]", containers)


def _failure_rule(spec: Object, rule: Object, at: str, containers: set[Any]) -> Errors:
    action, allowed = rule.get("action"), ("Count", "FailIndex", "FailJob", "Ignore")
    if not action:
        yield FieldError.required(f"{at}.action", f"valid values: {_listed(allowed)}")
    elif action == "FailIndex" and "backoffLimitPerIndex" not in spec:
        detail = "requires the backoffLimitPerIndex to be set"
        yield FieldError.invalid(f"{at}.action", action, detail)
    yield from checks.one_of(action, allowed, f"{at}.action")
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    if codes is not None:
        yield from _exit_codes(codes, f"{at}.onExitCodes", containers)
    yield from _at_most(_MOST_RULES, conditions, f"{at}.onPodConditions")
    for index, condition in enumerate(conditions):
        path = f"{at}.onPodConditions[{index}]"
        yield from checks.key(condition.get("type") or "", f"{path}.type")
        yield from checks.one_of(
            condition.get("status"), ("False", "True", "Unknown"), f"{path}.status"
        )
    if (codes is None) != (not conditions):
        return
    text = "specifying one of OnExitCodes and OnPodConditions is required"
    if conditions:
        text = "specifying both OnExitCodes and OnPodConditions is not supported"
    yield FieldError("FieldValueInvalid", at, f"Invalid value: {text}")


def _exit_codes(codes: Object, at: str, containers: set[Any]) -> Errors:
    operator, values = codes.get("operator"), codes.get("values")
    allowed = ("In", "NotIn")
    if not operator:
        yield FieldError.required(f"{at}.operator", f"valid values: {_listed(allowed)}")
    yield from checks.one_of(operator, allowed, f"{at}.operator")
    name = codes.get("containerName")
    if name is not None and name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        yield FieldError.invalid(f"{at}.containerName", name, detail)
    if not values:
        yield FieldError.invalid(f"{at}.values", values, "at least one value is required")
        return
    yield from _at_most(_MOST_EXIT_CODES, values, f"{at}.values")
    for index, code in enumerate(values):
        path = f"{at}.values[{index}]"
        if operator == "In" and code == 0:
            yield FieldError.invalid(path, code, "must not be 0 for the In operator")
        if code in values[:index]:
            yield FieldError.duplicate(path, code)
    if values != sorted(values):
        yield FieldError.invalid(f"{at}.values", values, "must be ordered")


def _at_most(limit: int, found: Sequence[Any], path: str) -> Errors:
    if len(found) > limit:
        text = f"Too many: {len(found)}: must have at most {limit} items"
        yield FieldError("FieldValueTooMany", path, text)


def _listed(names: Iterable[str]) -> str:
    return f"[{' '.join(map(go_quote, names))}]"


# -- cron jobs -------------------------------------------------------------------------------

_NAME_LIMIT: Final = 52
_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec"
_DAYS: Final = "sun mon tue wed thu fri sat"
# The bounds of each field of a schedule, and the names of its values from the lower bound on.
_FIELDS: Final = ((0, 59, ""), (0, 23, ""), (1, 31, ""), (1, 12, _MONTHS), (0, 6, _DAYS))
_DESCRIPTORS: Final = (
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
)


def cron_job(new: Object, old: Object | None) -> Errors:
    """A CronJob."""
    spec, name = new.get("spec") or {}, new["metadata"].get("name", "")
    yield from _cron_spec(spec)
    if old is None and len(name) > _NAME_LIMIT:
        detail = f"must be no more than {_NAME_LIMIT} characters"
        yield FieldError.invalid("metadata.name", name, detail)


def _cron_spec(spec: Object) -> Errors:
    schedule, zone = spec.get("schedule", ""), spec.get("timeZone")
    yield from checks.needed(schedule, "spec.schedule", _schedule)
    if zone is not None:
        yield from _zone(zone, "spec.timeZone")
    yield from checks.not_negative(
        spec.get("startingDeadlineSeconds"), "spec.startingDeadlineSeconds"
    )
    allowed = ("Allow", "Forbid", "Replace")
    yield from checks.one_of(spec.get("concurrencyPolicy"), allowed, "spec.concurrencyPolicy")
    inner, at = (spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec"
    if inner.get("manualSelector"):
        path = f"{at}.manualSelector"
        yield FieldError.not_supported(path, Verbatim("true"), ("nil", "false"))
    yield from _counts(inner, at)
    yield from _job_spec(inner, at)
    for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from checks.not_negative(spec.get(name), f"spec.{name}")


def _zone(zone: str, path: str) -> Errors:
    detail = ""
    if not zone:
        detail = "timeZone must be nil or non-empty string"
    elif zone.lower() == "local":
        detail = (
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        )
    else:
        try:
            zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            detail = f"unknown time zone {zone}"
    if detail:
        yield FieldError.invalid(path, zone, detail)


def _schedule(schedule: str, path: str) -> Errors:
    """A schedule in the syntax of robfig/cron."""
    detail = ""
    if "TZ" in schedule:
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
    else:
        try:
            _parse_schedule(schedule)
        except ValueError as error:
            detail = str(error)
    if detail:
        yield FieldError.invalid(path, schedule, detail)


def _parse_schedule(schedule: str) -> None:
    if schedule.startswith("@every "):
        duration = schedule.removeprefix("@every ")
        try:
            parse_duration(duration)
        except ValueError as error:
            raise ValueError(f"failed to parse duration {schedule}: {error}") from None
    elif schedule.startswith("@"):
        if schedule not in _DESCRIPTORS:
            raise ValueError(f"unrecognized descriptor: {schedule}")
    else:
        fields = schedule.split()
        if len(fields) != len(_FIELDS):
            found = f"found {len(fields)}: [{' '.join(fields)}]"
            raise ValueError(f"expected exactly {len(_FIELDS)} fields, {found}")
        for field, bounds in zip(fields, _FIELDS, strict=True):
            for part in filter(None, field.split(",")):
                _parse_range(part, *bounds)


def _parse_range(part: str, least: int, most: int, names: str) -> None:
    numbers = {name: number for number, name in enumerate(names.split(), least)}
    limits, *steps = part.split("/")
    first, *rest = limits.split("-")
    start, end = least, most
    if first not in ("*", "?"):
        start = end = _number(first, numbers)
        if rest:
            end = _number(rest[0], numbers)
        elif steps:
            end = most
        if len(rest) > 1:
            raise ValueError(f"too many hyphens: {part}")
    step = _number(steps[0], {}) if len(steps) == 1 else 1
    if len(steps) > 1:
        raise ValueError(f"too many slashes: {part}")
    if start < least:
        raise ValueError(f"beginning of range ({start}) below minimum ({least}): {part}")
    if end > most:
        raise ValueError(f"end of range ({end}) above maximum ({most}): {part}")
    if start > end:
        raise ValueError(f"beginning of range ({start}) beyond end of range ({end}): {part}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {part}")


def _number(text: str, names: Mapping[str, int]) -> int:
    number = names.get(text.lower(), parse_integer(text))
    if number is None:
        why = f'strconv.Atoi: parsing "{text}": invalid syntax'
        raise ValueError(f"failed to parse int from {text}: {why}")
    if number < 0:
        raise ValueError(f"negative number ({number}) not allowed: {text}")
    return number
