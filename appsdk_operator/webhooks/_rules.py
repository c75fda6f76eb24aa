"""The rule of an admission webhook: which requests the API server asks it about, and how."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, TypedDict

import attrs

from appsdk_operator.resource import Kind, check_expression
from appsdk_operator.runtime import validation

Selector: TypeAlias = Mapping[str, Any]
"""A label selector as JSON: ``{"matchLabels": {"app": "web"}}``, also ``matchExpressions``."""

_OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT", "*")
SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A domain name of Kubernetes."""
_RESOURCE: Final = re.compile(r"(\*|[a-z0-9][-a-z0-9]*)(/(\*|[a-z0-9][-a-z0-9]*))?")
_PATH: Final = re.compile(r"/[!-~]*")
_SELECTOR_FIELDS: Final = frozenset({"matchLabels", "matchExpressions"})


class WebhookRuleOptions(TypedDict, total=False):
    """The options of a :class:`WebhookRule` that ``.default(…)`` and ``.validate(…)`` take."""

    name: str
    resources: Iterable[str]
    failure_policy: Literal["Fail", "Ignore"]
    match_policy: Literal["Equivalent", "Exact"]
    side_effects: Literal["None", "NoneOnDryRun"]
    timeout_seconds: int
    object_selector: Selector | None
    namespace_selector: Selector | None
    match_conditions: Mapping[str, str]
    reinvocation_policy: Literal["Never", "IfNeeded"]
    scope: Literal["*", "Cluster", "Namespaced"]


def _operations(values: Iterable[str]) -> tuple[str, ...]:
    return validation.checked_texts("operations", values)


def _resources(values: Iterable[str]) -> tuple[str, ...]:
    return validation.checked_texts("resources", values)


def _one_of(*choices: str) -> Any:
    def check(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if not (isinstance(value, str) and value in choices):
            raise ValueError(f"{attribute.name}={value!r}: use {' or '.join(map(repr, choices))}")

    return check


def _kinds(values: Iterable[Kind]) -> tuple[Kind, ...]:
    if isinstance(values, Kind):
        return (values,)
    return tuple(values)


def _check_kinds(_: object, __: object, value: tuple[Kind, ...]) -> None:
    for kind in value:
        validation.check_instance("kinds", kind, Kind, "kinds.core.v1.Pod")


def _check_path(_: object, __: object, value: str) -> None:
    validation.check_text("path", value)
    if not _PATH.fullmatch(value) or {"?", "#"} & set(value):
        raise ValueError(f"path={value!r}: begin with a slash, without spaces, '?' and '#'")


def _check_operations(_: object, __: object, value: tuple[str, ...]) -> None:
    if not value:
        raise ValueError("operations is empty: name some of CREATE, UPDATE, DELETE, CONNECT")
    for operation in value:
        if operation not in _OPERATIONS:
            raise ValueError(f"operation {operation!r}: use one of {', '.join(_OPERATIONS)}")
    if len(set(value)) < len(value):
        raise ValueError(f"operations={list(value)}: one is given twice")
    if "*" in value and len(value) > 1:
        raise ValueError(f"operations={list(value)}: '*' includes all others: leave them out")


def _check_resources(_: object, __: object, value: tuple[str, ...]) -> None:
    for resource in value:
        if not _RESOURCE.fullmatch(resource):
            raise ValueError(
                f"resource {resource!r}: write the plural, as in 'pods', with a subresource after "
                "a slash, as in 'pods/exec'; '*' is any"
            )


def _check_name(_: object, __: object, value: str) -> None:
    validation.check_text("name", value)
    if value and (not SUBDOMAIN.fullmatch(value) or value.count(".") < 2 or len(value) > 253):
        raise ValueError(
            f"name={value!r}: Kubernetes needs a domain name of at least three parts, for example "
            "'default.widgets.example.com'"
        )


def _check_timeout(_: object, __: object, value: int) -> None:
    validation.check_count("timeout_seconds", value)
    if not 1 <= value <= 30:
        raise ValueError(f"timeout_seconds={value}: use 1 to 30")


def _check_selector(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping) or not set(value) <= _SELECTOR_FIELDS:
        raise ValueError(
            f"{attribute.name}={value!r}: give a label selector as JSON, for example "
            "{'matchLabels': {'app': 'web'}}"
        )


def _conditions(values: Mapping[str, str]) -> Mapping[str, str]:
    if not isinstance(values, Mapping):
        raise TypeError(
            f"match_conditions={values!r}: give CEL expressions by name, for example "
            "{'not-dry': '!request.dryRun'}"
        )
    for name, expression in values.items():
        validation.check_text(f"match_conditions[{name!r}]", expression, empty=False)
    return MappingProxyType(dict(values))


@attrs.frozen(kw_only=True)
class WebhookRule:
    """The requests for which the API server calls an admission webhook, and how it calls it.

    ``webhook_configurations`` makes a configuration from rules. The fields are those of
    ``admissionregistration.k8s.io/v1``. The defaults are the server's, except for ``side_effects``,
    for which the server has no default.

    Raises:
        ValueError, TypeError: a field that no API server accepts; the text says what to write.
    """

    type: Literal["mutating", "validating"] = attrs.field(
        validator=_one_of("mutating", "validating")
    )
    """Whether it may change objects. Mutating webhooks are called first."""
    path: str = attrs.field(validator=_check_path)
    """Its path at the webhook server."""
    kinds: tuple[Kind, ...] = attrs.field(default=(), converter=_kinds, validator=_check_kinds)
    """The kinds for which it is called; default: every kind in every group."""
    operations: tuple[str, ...] = attrs.field(
        default=("CREATE", "UPDATE"), converter=_operations, validator=_check_operations
    )
    """Some of ``CREATE``, ``UPDATE``, ``DELETE`` and ``CONNECT``, or ``*``; default: the first
    two."""
    name: str = attrs.field(default="", validator=_check_name)
    """Its name in the configuration and in the errors that users see; default: made from type and
    kind, such as ``default.widgets.example.com``."""
    resources: tuple[str, ...] = attrs.field(
        default=(), converter=_resources, validator=_check_resources
    )
    """The plurals of the resources, with their subresources: ``("widgets", "widgets/status")``;
    default: the plurals of ``kinds`` without subresources."""
    failure_policy: Literal["Fail", "Ignore"] = attrs.field(
        default="Fail", validator=_one_of("Fail", "Ignore")
    )
    """What happens to a request that the webhook does not answer. ``Fail`` (default): it fails.
    ``Ignore``: it goes on, so nothing is checked while the webhook is down."""
    match_policy: Literal["Equivalent", "Exact"] = attrs.field(
        default="Equivalent", validator=_one_of("Equivalent", "Exact")
    )
    """``Equivalent`` (default): it is also called for requests in other versions of a kind, with
    the converted object. ``Exact``: it is not."""
    side_effects: Literal["None", "NoneOnDryRun"] = attrs.field(
        default="None", validator=_one_of("None", "NoneOnDryRun")
    )
    """``None`` (default): it changes nothing outside of its response. ``NoneOnDryRun``: it changes
    nothing else at a dry run, see :attr:`AdmissionRequest.dry_run`."""
    timeout_seconds: int = attrs.field(default=10, validator=_check_timeout)
    """Seconds, 1 to 30, after which the server counts a call as failed; default 10."""
    object_selector: Selector | None = attrs.field(
        default=None, validator=_check_selector, hash=False
    )
    """Only objects with such labels, before or after the change; default: all. Users choose the
    labels of their objects, so do not rely on it to enforce a policy."""
    namespace_selector: Selector | None = attrs.field(
        default=None, validator=_check_selector, hash=False
    )
    """Only objects in namespaces with such labels; default: all. Objects without a namespace
    always match."""
    match_conditions: Mapping[str, str] = attrs.field(
        factory=dict, converter=_conditions, hash=False
    )
    """CEL expressions by name; the webhook is called only if all are true. Default: none. Older
    servers than Kubernetes 1.28 ignore them."""
    reinvocation_policy: Literal["Never", "IfNeeded"] = attrs.field(
        default="Never", validator=_one_of("Never", "IfNeeded")
    )
    """``IfNeeded``: a mutating webhook is called again if a later one changed the object. Default
    ``Never``."""
    scope: Literal["*", "Cluster", "Namespaced"] = attrs.field(
        default="*", validator=_one_of("*", "Cluster", "Namespaced")
    )
    """Only resources of this scope; default: any."""

    def __attrs_post_init__(self) -> None:
        for name, expression in self.match_conditions.items():
            for kind in self.kinds:
                check_expression(f"match_conditions[{name!r}]", kind, expression)
        if self.type == "validating" and self.reinvocation_policy != "Never":
            raise ValueError("reinvocation_policy is for mutating webhooks: leave it out")
        if self.resources and len({kind.group for kind in self.kinds}) > 1:
            raise ValueError(
                "resources= does not fit kinds in several groups: make a WebhookRule for each group"
            )
