"""The webhooks of an App's declarations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from appsdk_operator.app._declarations import Declarations, Validator, name_of
from appsdk_operator.app._kinds import conversions
from appsdk_operator.resource import Kind

if TYPE_CHECKING:
    from appsdk_operator.webhooks import WebhookBuilder, WebhookHost


def add_webhooks(host: WebhookHost, declared: Declarations) -> None:
    """Have ``host`` serve all webhooks.

    Raises:
        TypeError, ValueError: as ``webhook_for``.
    """
    builders: dict[Kind[Any, Any], WebhookBuilder[Any, Any]] = {}

    def builder(kind: Kind[Any, Any]) -> WebhookBuilder[Any, Any]:
        if kind not in builders:
            from appsdk_operator.webhooks import webhook_for

            builders[kind] = webhook_for(host, kind)
        return builders[kind]

    for defaulter in declared.defaulters:
        builder(defaulter.kind).default(
            defaulter.target, path=defaulter.path, **dict(defaulter.options)
        )
    by_kind: dict[Kind[Any, Any], list[Validator]] = {}
    for validator in declared.validators:
        by_kind.setdefault(validator.kind, []).append(validator)
    for kind, validators in by_kind.items():
        path, options = _joined(kind, validators)
        functions: dict[str, Any] = {
            operation: _called(each, operation)
            for each in validators
            for operation in each.operations
        }
        builder(kind).validate(path=path, **functions, **options)
    for versions in conversions(declared):
        builder(versions.hub).convert(versions)
    for each in builders.values():
        each.complete()
    for webhook in declared.webhooks:
        host.webhooks.add(webhook.path, webhook.handler, rule=webhook.rule)


def _called(validator: Validator, operation: str) -> Callable[..., Any]:
    function = validator.function
    if operation == "update" and not validator.takes_old:
        return _of_new(function)
    return function


def _of_new(function: Callable[..., Any]) -> Callable[..., Any]:
    def validate(_: Any, new: Any) -> Any:
        return function(new)

    # For logs; its signature is its own.
    validate.__name__ = name_of(function)
    validate.__qualname__ = getattr(function, "__qualname__", name_of(function))
    return validate


def _joined(
    kind: Kind[Any, Any], validators: list[Validator]
) -> tuple[str | None, Mapping[str, Any]]:
    """Path and options of the one webhook.

    Raises:
        ValueError: two functions give different ones.
    """
    given = [(each.path, dict(each.options)) for each in validators if each.path or each.options]
    if not given:
        return None, {}
    if any(each != given[0] for each in given):
        raise ValueError(
            f"the functions that validate {kind} are one webhook, but have different options: give "
            "the options with one of the functions"
        )
    return given[0]
