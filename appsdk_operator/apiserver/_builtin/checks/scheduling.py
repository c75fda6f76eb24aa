"""Validation of tolerations, topology spread and affinity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from appsdk_operator.apiserver._builtin.checks import common as checks
from appsdk_operator.apiserver._builtin.checks.common import Errors, Object
from appsdk_operator.apiserver._values.status import FieldError

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_RANGE: Final = "must be in the range 1-100"


def tolerations(found: Sequence[Object], path: str) -> Errors:
    """The tolerations of a pod."""
    for index, toleration in enumerate(found):
        at, name = f"{path}[{index}]", toleration.get("key", "")
        operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
        if name:
            yield from checks.key(name, f"{at}.key")
        elif operator != "Exists":
            detail = (
                "operator must be Exists when `key` is empty, which means "
                '"match all values and all keys"'
            )
            yield FieldError.invalid(f"{at}.operator", operator, detail)
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield FieldError.invalid(f"{at}.effect", effect, detail)
        if operator in ("Equal", ""):
            yield from checks.labels({"a": toleration.get("value", "")}, f"{at}.operator")
        elif operator == "Exists":
            if toleration.get("value"):
                detail = "value must be empty when `operator` is 'Exists'"
                yield FieldError.invalid(f"{at}.operator", toleration["value"], detail)
        else:
            yield FieldError.not_supported(f"{at}.operator", operator, ("Equal", "Exists"))
        allowed = ("NoSchedule", "PreferNoSchedule", "NoExecute")
        yield from checks.one_of(effect, allowed, f"{at}.effect")


def spread(found: Sequence[Object], path: str) -> Errors:
    """The topology spread constraints of a pod."""
    for index, constraint in enumerate(found):
        at = f"{path}[{index}]"
        skew = constraint.get("maxSkew", 0)
        if skew <= 0:
            yield FieldError.invalid(f"{at}.maxSkew", skew, "must be greater than zero")
        if not constraint.get("topologyKey"):
            yield FieldError.required(f"{at}.topologyKey", "can not be empty")
        allowed = ("DoNotSchedule", "ScheduleAnyway")
        when = constraint.get("whenUnsatisfiable", "")
        if when not in allowed:
            yield FieldError.not_supported(f"{at}.whenUnsatisfiable", when, allowed)
        domains = constraint.get("minDomains")
        if domains is not None and domains <= 0:
            yield FieldError.invalid(f"{at}.minDomains", domains, "must be greater than zero")
        if domains is not None and when != "DoNotSchedule":
            detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}"
            yield FieldError.invalid(f"{at}.minDomains", domains, detail)
        identity = (constraint.get("topologyKey", ""), when)
        if identity in [
            (each.get("topologyKey", ""), each.get("whenUnsatisfiable", ""))
            for each in found[index + 1 :]
        ]:
            shown = f"{{{', '.join(identity)}}}"
            yield FieldError.duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", shown)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from checks.choice(constraint, name, ("Honor", "Ignore"), at)
        yield from checks.selector(constraint.get("labelSelector"), f"{at}.labelSelector")


def affinity(given: Object, path: str) -> Errors:
    """The affinity of a pod."""
    nodes = given.get("nodeAffinity")
    if nodes is not None:
        at = f"{path}.nodeAffinity"
        if _REQUIRED in nodes:
            terms = nodes[_REQUIRED].get("nodeSelectorTerms") or ()
            yield from node_terms(terms, f"{at}.{_REQUIRED}.nodeSelectorTerms")
        for index, term in enumerate(nodes.get(_PREFERRED) or ()):
            here = f"{at}.{_PREFERRED}[{index}]"
            if not 1 <= term.get("weight", 0) <= 100:
                yield FieldError.invalid(f"{here}.weight", term.get("weight", 0), _RANGE)
            yield from _node_term(term.get("preference") or {}, f"{here}.preference")
    for name in ("podAffinity", "podAntiAffinity"):
        pods = given.get(name) or {}
        for index, term in enumerate(pods.get(_REQUIRED) or ()):
            yield from _pod_term(term, f"{path}.{name}.{_REQUIRED}[{index}]")
        for index, weighted in enumerate(pods.get(_PREFERRED) or ()):
            here = f"{path}.{name}.{_PREFERRED}[{index}]"
            if not 1 <= weighted.get("weight", 0) <= 100:
                yield FieldError.invalid(f"{here}.weight", weighted.get("weight", 0), _RANGE)
            yield from _pod_term(weighted.get("podAffinityTerm") or {}, f"{here}.podAffinityTerm")


def node_terms(terms: Sequence[Object], path: str) -> Errors:
    """Node selector terms."""
    if not terms:
        yield FieldError.required(path, "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from _node_term(term, f"{path}[{index}]")


def _node_term(term: Object, path: str) -> Errors:
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        yield from checks.expression(requirement, f"{path}.matchExpressions[{index}]", orders=True)


def _pod_term(term: Object, at: str) -> Errors:
    yield from checks.selector(term.get("labelSelector"), f"{at}.labelSelector")
    yield from checks.selector(term.get("namespaceSelector"), f"{at}.namespaceSelector")
    for name in term.get("namespaces") or ():
        yield from checks.label(name, f"{at}.namespace")
    topology = term.get("topologyKey", "")
    if not topology:
        yield FieldError.required(f"{at}.topologyKey", "can not be empty")
    yield from checks.key(topology, f"{at}.topologyKey")
