"""Webhook configurations: defaults and validation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from appsdk_operator.apiserver._admission.match_conditions import match_condition_errors
from appsdk_operator.apiserver._builtin.checks import common as checks
from appsdk_operator.apiserver._storage.resources import Strategy
from appsdk_operator.apiserver._values.names import (
    label_problems,
    subdomain_problems,
)
from appsdk_operator.apiserver._values.status import FieldError
from appsdk_operator.apiserver._webhooks.client_configs import client_config_errors

_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES: Final = ("*", "Cluster", "Namespaced")
_REVIEW_VERSIONS: Final = ("v1", "v1beta1")


# -- defaults --------------------------------------------------------------------------------


def _fill_in(obj: dict[str, Any], *, mutating: bool) -> None:
    for webhook in _objects(obj.get("webhooks")):
        defaults: dict[str, Any] = {
            "clientConfig": {},
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "timeoutSeconds": 10,
        }
        if mutating:
            defaults["reinvocationPolicy"] = "Never"
        for name, value in defaults.items():
            if webhook.get(name) is None:
                webhook[name] = value
        for rule in _objects(webhook.get("rules")):
            rule.setdefault("scope", "*")
        config = webhook["clientConfig"]
        service = config.get("service") if isinstance(config, dict) else None
        if isinstance(service, dict):
            service.setdefault("port", 443)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    yield from (item for item in value or () if isinstance(item, dict))


# -- validation ------------------------------------------------------------------------------


def _validate(obj: dict[str, Any], *, mutating: bool) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, webhook in enumerate(_objects(obj.get("webhooks"))):
        at = f"webhooks[{index}]"
        yield from _validate_webhook(webhook, at, mutating=mutating)
        yield from _validate_review_versions(webhook.get("admissionReviewVersions") or [], at)
        name = webhook.get("name") or ""
        if name and name in names:
            yield FieldError.duplicate(f"{at}.name", name)
        names.add(name)


def _validate_webhook(webhook: dict[str, Any], at: str, *, mutating: bool) -> Iterator[FieldError]:
    yield from _validate_name(webhook.get("name") or "", f"{at}.name")
    for index, rule in enumerate(_objects(webhook.get("rules"))):
        yield from _validate_rule(rule, f"{at}.rules[{index}]")
    yield from checks.choice(webhook, "failurePolicy", ("Fail", "Ignore"), at)
    yield from checks.choice(webhook, "matchPolicy", ("Equivalent", "Exact"), at)
    if webhook.get("sideEffects") is None:
        detail = "must specify one of None, NoneOnDryRun"
        yield FieldError.required(f"{at}.sideEffects", detail)
    else:
        yield from checks.choice(webhook, "sideEffects", ("None", "NoneOnDryRun"), at)
    seconds = webhook.get("timeoutSeconds")
    if isinstance(seconds, int) and not 1 <= seconds <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        yield FieldError.invalid(f"{at}.timeoutSeconds", seconds, detail)
    for name in ("namespaceSelector", "objectSelector"):
        yield from checks.selector(webhook.get(name), f"{at}.{name}")
    if mutating:
        yield from checks.choice(webhook, "reinvocationPolicy", ("IfNeeded", "Never"), at)
    yield from client_config_errors(webhook.get("clientConfig") or {}, f"{at}.clientConfig")
    conditions = webhook.get("matchConditions") or []
    yield from match_condition_errors(conditions, f"{at}.matchConditions")


def _validate_name(name: str, field: str) -> Iterator[FieldError]:
    if not name:
        yield FieldError.required(field)
    elif problems := subdomain_problems(name):
        yield FieldError.invalid(field, name, ",".join(problems))
    elif name.count(".") < 2:
        detail = "should be a domain with at least three segments separated by dots"
        yield FieldError.invalid(field, name, detail)


def _validate_rule(rule: dict[str, Any], at: str) -> Iterator[FieldError]:
    operations = rule.get("operations") or []
    yield from _listed(
        rule, at, "operations", "if '*' is present, must not specify other operations"
    )
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield FieldError.not_supported(f"{at}.operations[{index}]", operation, _OPERATIONS)
    yield from _listed(
        rule, at, "apiGroups", "if '*' is present, must not specify other API groups"
    )
    detail = "if '*' is present, must not specify other API versions"
    yield from _listed(rule, at, "apiVersions", detail, named=True)
    yield from _validate_resources(rule.get("resources") or [], f"{at}.resources")
    yield from checks.choice(rule, "scope", _SCOPES, at)


def _listed(
    rule: Mapping[str, Any], at: str, name: str, alone: str, *, named: bool = False
) -> Iterator[FieldError]:
    values = rule.get(name) or []
    if not values:
        yield FieldError.required(f"{at}.{name}")
    if len(values) > 1 and "*" in values:
        yield FieldError.invalid(f"{at}.{name}", values, alone)
    if named:
        yield from _named(values, f"{at}.{name}")


def _named(values: Iterable[str], at: str) -> Iterator[FieldError]:
    for index, value in enumerate(values):
        if not value:
            yield FieldError.required(f"{at}[{index}]")


def _validate_resources(resources: list[str], at: str) -> Iterator[FieldError]:
    if not resources:
        yield FieldError.required(at)
    whole, parts = set[str](), set[str]()
    for index, name in enumerate(resources):
        field = f"{at}[{index}]"
        if not name:
            yield FieldError.required(field)
            continue
        resource, slash, part = name.partition("/")
        if not slash:
            continue
        if resource in whole or part in parts:
            wider = f"{resource}/*" if resource in whole else f"*/{part}"
            detail = f"if '{wider}' is present, must not specify {name}"
            yield FieldError.invalid(field, name, detail)
        if part == "*":
            whole.add(resource)
        if resource == "*":
            parts.add(part)
    if len(resources) > 1 and "*/*" in resources:
        detail = "if '*/*' is present, must not specify other resources"
        yield FieldError.invalid(at, resources, detail)
    if "*" in resources and any(name != "*" and "/" not in name for name in resources):
        detail = "if '*' is present, must not specify other resources without subresources"
        yield FieldError.invalid(at, resources, detail)


def _validate_review_versions(versions: list[str], at: str) -> Iterator[FieldError]:
    at = f"{at}.admissionReviewVersions"
    known = ", ".join(_REVIEW_VERSIONS)
    if not versions:
        yield FieldError.required(at, f"must specify one of {known}")
        return
    seen: set[str] = set()
    for index, version in enumerate(versions):
        if version in seen:
            yield FieldError.invalid(f"{at}[{index}]", version, "duplicate version")
        for problem in label_problems(version):
            yield FieldError.invalid(f"{at}[{index}]", version, problem)
        seen.add(version)
    if seen.isdisjoint(_REVIEW_VERSIONS):
        detail = f"must include at least one of {known}"
        yield FieldError.invalid(at, versions, detail)


def _strategy(*, mutating: bool) -> Strategy:
    def compile_ahead(new: dict[str, Any], _old: dict[str, Any] | None) -> None:
        _fill_in(new, mutating=mutating)
        # Keeps the programs of its match conditions.
        for _problem in _validate(new, mutating=mutating):
            pass

    return Strategy(
        generation=True,
        unconditional_update=False,
        prepare_create=lambda obj: _fill_in(obj, mutating=mutating),
        prepare_update=lambda new, _old: _fill_in(new, mutating=mutating),
        compile_ahead=compile_ahead,
        validate=lambda new, _old: _validate(new, mutating=mutating),
    )


STRATEGIES: Final = {
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _strategy(mutating=True),
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _strategy(mutating=False),
}
"""The strategies of webhook configurations, by resource."""
