"""Validation of Deployments, ReplicaSets, StatefulSets, DaemonSets and controllers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from appsdk_operator.apiserver._builtin.checks import common as checks
from appsdk_operator.apiserver._builtin.checks.common import Errors, Object
from appsdk_operator.apiserver._builtin.checks.pods import template
from appsdk_operator.apiserver._builtin.checks.resources import quantity
from appsdk_operator.apiserver._builtin.checks.scheduling import tolerations
from appsdk_operator.apiserver._builtin.checks.volumes import claim_spec
from appsdk_operator.apiserver._values.go_text import parse_integer
from appsdk_operator.apiserver._values.status import FieldError

_NO_MATCH: Final = "`selector` does not match template `labels`"
_STATEFUL_MUTABLE: Final = (
    "minReadySeconds",
    "ordinals",
    "persistentVolumeClaimRetentionPolicy",
    "replicas",
    "revisionHistoryLimit",
    "template",
    "updateStrategy",
)


def deployment(new: Object, _old: Object | None) -> Errors:
    """A Deployment."""
    spec = new.get("spec") or {}
    yield from checks.not_negative(spec.get("replicas"), "spec.replicas")
    yield from _selected(spec, "deployment", "ReplicaSet", "invalid label selector")
    yield from _deployment_strategy(spec.get("strategy") or {}, "spec.strategy")
    ready = spec.get("minReadySeconds", 0)
    yield from checks.not_negative(ready, "spec.minReadySeconds")
    yield from checks.not_negative(spec.get("revisionHistoryLimit"), "spec.revisionHistoryLimit")
    deadline = spec.get("progressDeadlineSeconds")
    yield from checks.not_negative(deadline, "spec.progressDeadlineSeconds")
    if deadline is not None and deadline <= ready:
        detail = "must be greater than minReadySeconds"
        yield FieldError.invalid("spec.progressDeadlineSeconds", deadline, detail)


def replica_set(new: Object, _old: Object | None) -> Errors:
    """A ReplicaSet."""
    spec = new.get("spec") or {}
    yield from checks.not_negative(spec.get("replicas"), "spec.replicas")
    yield from checks.not_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    # The real server's error names a deployment here.
    yield from _selected(spec, "deployment", "ReplicaSet", "invalid label selector")


def controller(new: Object, _old: Object | None) -> Errors:
    """A ReplicationController."""
    spec = new.get("spec") or {}
    yield from checks.not_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    wanted = spec.get("selector")
    yield from checks.needed(wanted, "spec.selector")
    yield from checks.not_negative(spec.get("replicas"), "spec.replicas")
    made = spec.get("template")
    if made is None:
        yield FieldError.required("spec.template")
        return
    labels = (made.get("metadata") or {}).get("labels")
    if wanted and not checks.selects({"matchLabels": wanted}, labels):
        yield FieldError.invalid("spec.template.metadata.labels", labels, _NO_MATCH)
    yield from template(made, "spec.template")
    yield from _always(made, "ReplicationController")


def stateful_set(new: Object, old: Object | None) -> Errors:
    """A StatefulSet."""
    spec = new.get("spec") or {}
    if old is None:
        yield from _stateful_set(spec, created=True)
    else:
        before = old.get("spec") or {}
        # A template that was stored before it was refused may stay.
        tolerated = any(_stateful_set(before, created=False))
        yield from _stateful_set(spec, created=False, skips_template=tolerated)
        kept, other = (
            {name: value for name, value in part.items() if name not in _STATEFUL_MUTABLE}
            for part in (spec, before)
        )
        if kept != other:
            detail = (
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', "
                "'template', 'updateStrategy', 'revisionHistoryLimit', "
                "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
            )
            yield FieldError.forbidden("spec", detail)


def _stateful_set(spec: Object, *, created: bool, skips_template: bool = False) -> Errors:
    policy = spec.get("podManagementPolicy", "")
    if policy not in ("OrderedReady", "Parallel"):
        detail = "must be 'OrderedReady' or 'Parallel'"
        yield FieldError.invalid("spec.podManagementPolicy", policy, detail)
    yield from _stateful_strategy(spec.get("updateStrategy") or {}, "spec.updateStrategy")
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for name in ("whenDeleted", "whenScaled"):
        path = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
        yield from checks.one_of(retention.get(name), ("Retain", "Delete"), path)
    claims = spec.get("volumeClaimTemplates") or ()
    for index, claim in enumerate(claims if created else ()):
        at = f"spec.volumeClaimTemplates[{index}].spec"
        yield from claim_spec(claim.get("spec") or {}, at)
    yield from checks.not_negative(spec.get("replicas"), "spec.replicas")
    yield from checks.not_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    start = (spec.get("ordinals") or {}).get("start")
    yield from checks.not_negative(start, "spec.ordinals.start")
    if created and spec.get("serviceName"):
        yield from checks.label(spec["serviceName"], "spec.serviceName")
    checked = None if skips_template else _stateful_template(spec.get("template") or {}, claims)
    yield from _selected(spec, "statefulset", "StatefulSet", "", checked=checked)


def _stateful_template(made: Object, claims: Sequence[Object]) -> Object:
    """The template as its pods will have it: with a volume for each claim, and a name of their own.

    The volumes of the claims replace those of the same names.
    """
    spec = made.get("spec") or {}
    names = {(claim.get("metadata") or {}).get("name", ""): None for claim in claims}
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    volumes += [volume for volume in spec.get("volumes") or () if volume.get("name") not in names]
    kept = {name: part for name, part in spec.items() if name not in ("hostname", "subdomain")}
    return {**made, "spec": {**kept, "volumes": volumes}}


def daemon_set(new: Object, _old: Object | None) -> Errors:
    """A DaemonSet."""
    spec = new.get("spec") or {}
    wanted, made = spec.get("selector"), spec.get("template") or {}
    yield from checks.selector(wanted, "spec.selector")
    labels = (made.get("metadata") or {}).get("labels")
    if not checks.is_invalid_selector(wanted) and not checks.selects(wanted, labels):
        yield FieldError.invalid("spec.template.metadata.labels", labels, _NO_MATCH)
    if wanted is not None and not wanted:
        detail = "empty selector is invalid for daemonset"
        yield FieldError.invalid("spec.selector", {}, detail)
    yield from template(made, "spec.template")
    yield from _always(made, "DaemonSet")
    yield from checks.not_negative(spec.get("minReadySeconds"), "spec.minReadySeconds")
    yield from _daemon_strategy(spec.get("updateStrategy") or {}, "spec.updateStrategy")
    yield from checks.not_negative(spec.get("revisionHistoryLimit"), "spec.revisionHistoryLimit")


def pod_template(new: Object, _old: Object | None) -> Errors:
    """A PodTemplate."""
    yield from template(new.get("template") or {}, "template")


def runtime_class(new: Object, _old: Object | None) -> Errors:
    """A RuntimeClass."""
    yield from checks.label(new.get("handler", ""), "handler")
    for name, value in ((new.get("overhead") or {}).get("podFixed") or {}).items():
        yield from quantity(name, value, f"overhead.podFixed.limits[{name}]")
    scheduling = new.get("scheduling") or {}
    yield from checks.labels(scheduling.get("nodeSelector"), "scheduling.nodeSelector")
    given = scheduling.get("tolerations") or ()
    for index, toleration in enumerate(given):
        if toleration in given[:index]:
            yield FieldError.duplicate(f"scheduling.tolerations[{index}]", toleration)
    # The real server's path has the field twice.
    yield from tolerations(given, "scheduling.tolerations.tolerations")


_OWN: Final[Object] = {}


def _selected(
    spec: Object, kind: str, owner: str, complaint: str, checked: Object | None = _OWN
) -> Errors:
    """The selector, and the template whose pods it selects.

    Args:
        spec: has the selector and the template.
        kind: the name of the kind in an error about the selector.
        owner: the kind of the object.
        complaint: the error for a selector that cannot be used.
        checked: the template to validate; default: the one of ``spec``; None: it is not validated.
    """
    wanted, made = spec.get("selector"), spec.get("template") or {}
    if wanted is None:
        yield FieldError.required("spec.selector")
    else:
        yield from checks.selector(wanted, "spec.selector")
        if not wanted:
            detail = f"empty selector is invalid for {kind}"
            yield FieldError.invalid("spec.selector", {}, detail)
    labels = (made.get("metadata") or {}).get("labels")
    if checks.is_invalid_selector(wanted):
        error = FieldError.invalid("spec.selector", wanted, complaint)
        yield error if complaint else _bare(error)
        return
    if wanted != {} and not checks.selects(wanted, labels):
        yield FieldError.invalid("spec.template.metadata.labels", labels, _NO_MATCH)
    if checked is not None:
        yield from template(made if checked is _OWN else checked, "spec.template")
    yield from _always(made, owner)


def _bare(error: FieldError) -> FieldError:
    return FieldError(error.reason, error.field, error.message.removesuffix(": "))


def _always(made: Object, owner: str) -> Errors:
    spec = made.get("spec") or {}
    policy = spec.get("restartPolicy", "")
    if policy != "Always":
        yield FieldError.not_supported("spec.template.spec.restartPolicy", policy, ("Always",))
    if "activeDeadlineSeconds" in spec:
        detail = f"activeDeadlineSeconds in {owner} is not Supported"
        yield FieldError.forbidden("spec.template.spec.activeDeadlineSeconds", detail)


def _is_zero(value: Any) -> bool:
    """Whether a number or percentage is 0."""
    text = str(value)
    return text in ("0", "0%", "None") or (text[-1:] != "%" and not isinstance(value, int))


def _deployment_strategy(strategy: Object, at: str) -> Errors:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            detail = "may not be specified when strategy `type` is 'Recreate'"
            yield FieldError.forbidden(f"{at}.rollingUpdate", detail)
    elif kind == "RollingUpdate":
        at, rolling = f"{at}.rollingUpdate", rolling or {}
        unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
        yield from checks.number_or_percentage(unavailable, f"{at}.maxUnavailable")
        yield from checks.number_or_percentage(surge, f"{at}.maxSurge")
        if str(unavailable) in ("0", "0%") and str(surge) in ("0", "0%"):
            detail = "may not be 0 when `maxSurge` is 0"
            yield FieldError.invalid(f"{at}.maxUnavailable", unavailable, detail)
        if isinstance(unavailable, str) and (parse_integer(unavailable[:-1]) or 0) > 100:
            detail = "must not be greater than 100%"
            yield FieldError.invalid(f"{at}.maxUnavailable", unavailable, detail)
    else:
        shown = checks.internal(Type=kind, RollingUpdate=None)
        yield FieldError.not_supported(at, shown, ("Recreate", "RollingUpdate"))


def _stateful_strategy(strategy: Object, at: str) -> Errors:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        if rolling is not None:
            shown = checks.internal(
                Partition=rolling.get("partition", 0), MaxUnavailable=rolling.get("maxUnavailable")
            )
            detail = "only allowed for updateStrategy 'RollingUpdate'"
            yield FieldError.invalid(f"{at}.rollingUpdate", shown, detail)
    elif kind == "RollingUpdate":
        if rolling is not None:
            partition = rolling.get("partition", 0)
            yield from checks.not_negative(partition, f"{at}.rollingUpdate.partition")
            share = rolling.get("maxUnavailable")
            yield from checks.number_or_percentage(
                share, f"{at}.rollingUpdate.maxUnavailable", up_to_all=True
            )
    else:
        shown = checks.internal(Type=kind, RollingUpdate=None)
        yield FieldError.invalid(at, shown, "must be 'RollingUpdate' or 'OnDelete'")


def _daemon_strategy(strategy: Object, at: str) -> Errors:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate") or {}
    if kind == "OnDelete":
        return
    if kind != "RollingUpdate":
        shown = checks.internal(Type=kind, RollingUpdate=None)
        yield FieldError.not_supported(at, shown, ("RollingUpdate", "OnDelete"))
        return
    at = f"{at}.rollingUpdate"
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    yield from checks.number_or_percentage(unavailable, f"{at}.maxUnavailable", up_to_all=True)
    yield from checks.number_or_percentage(surge, f"{at}.maxSurge", up_to_all=True)
    if not _is_zero(unavailable) and not _is_zero(surge):
        detail = "may not be set when maxUnavailable is non-zero"
        yield FieldError.invalid(f"{at}.maxSurge", surge, detail)
    elif _is_zero(unavailable) and _is_zero(surge):
        yield FieldError.required(f"{at}.maxUnavailable", "cannot be 0 when maxSurge is 0")
