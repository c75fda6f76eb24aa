"""Webhook configurations, made of the rules of admission webhooks. No I/O."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

from appsdk_operator.resource import MutableObject
from appsdk_operator.resource.kinds import admissionregistration
from appsdk_operator.runtime import validation
from appsdk_operator.webhooks._rules import SUBDOMAIN, WebhookRule

_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_PEM: Final = b"-----BEGIN CERTIFICATE-----"

_MUTATING: Final = admissionregistration.v1.MutatingWebhookConfiguration
_VALIDATING: Final = admissionregistration.v1.ValidatingWebhookConfiguration
CONFIGURATION_KINDS: Final = {"mutating": _MUTATING, "validating": _VALIDATING}
"""The kinds of webhook configurations, by the type of a rule, in the order in which they are
called."""

_VERBS: Final = {"mutating": "default", "validating": "validate"}


class _HasRules(Protocol):
    @property
    def rules(self) -> Sequence[WebhookRule]:
        """The rules of its webhooks."""
        ...


class _Host(Protocol):
    @property
    def webhooks(self) -> _HasRules:
        """Its webhooks."""
        ...


RuleSource: TypeAlias = "_HasRules | _Host | Iterable[WebhookRule]"
"""The source of rules: :class:`Webhooks`, a host of them such as a Manager or a WebhookServer, or a
list of :class:`WebhookRule`."""


def rules_of(source: Any) -> tuple[WebhookRule, ...]:
    """The rules of a source, in the order of their registration.

    Raises:
        TypeError: it has none.
    """
    table = source if hasattr(source, "rules") else getattr(source, "webhooks", source)
    found = getattr(table, "rules", table)
    if isinstance(found, (str, bytes, WebhookRule)) or not isinstance(found, Iterable):
        raise TypeError(
            f"source={source!r} has no rules of webhooks: give Webhooks(), a WebhookServer, a "
            "Manager, or a list of WebhookRule"
        )
    rules = tuple(found)
    for rule in rules:
        validation.check_instance("rules", rule, WebhookRule, "WebhookRule(type='validating', …)")
    return rules


def webhook_configurations(
    source: RuleSource,
    *,
    name: str,
    service: tuple[str, str] | None = None,
    port: int = 443,
    url: str = "",
    prefix: str = "",
    ca: bytes | str = b"",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> list[MutableObject]:
    """The configurations that make an API server call these webhooks.

    The same arguments always give the same objects, down to the order. They also have the fields
    with the server's defaults, except selectors that select everything.

    >>> from appsdk_operator import kinds
    >>> rule = WebhookRule(type="validating", path="/validate", kinds=[kinds.apps.v1.Deployment])
    >>> service = ("widgets", "hooks")
    >>> (configuration,) = webhook_configurations([rule], name="widgets", service=service)
    >>> configuration["webhooks"][0]["name"]
    'validate.deployments.apps'

    Args:
        source: the source of the rules: :class:`Webhooks`, a host of them such as a Manager or a
            :class:`WebhookServer`, or a list of :class:`WebhookRule`.
        name: the name of the configurations.
        service: namespace and name of the Service of the webhook server.
        port: the port of the Service; default 443.
        url: the address of the webhook server instead of a Service:
            ``https://host.docker.internal:9443``; it must be reachable from the API server.
        prefix: a prefix of the paths, for webhooks that are mounted below a path of an application:
            ``/hooks``. Default: none.
        ca: the CA certificates for the server's certificate, in PEM, for ``caBundle``. Default:
            none, if something else injects it, such as ManagedCertificates or cert-manager, or if
            with ``url`` a public CA signed the certificate.
        labels: labels of the configurations.
        annotations: annotations of the configurations, such as
            ``{"cert-manager.io/inject-ca-from": "widgets/serving"}``.

    Returns:
        A MutatingWebhookConfiguration, if there are mutating webhooks, and a
        ValidatingWebhookConfiguration, if there are validating ones.

    Raises:
        ValueError: no rules, both or neither of ``service`` and ``url``, two webhooks with the same
            name, or an argument that no API server accepts; the text says what to write.
        TypeError: ``source`` has no rules.
    """
    _check_name(name)
    rules = rules_of(source)
    if not rules:
        raise ValueError(
            "there are no admission webhooks: add some first, with webhook_for(…) or with rule="
        )
    names = _names(rules)
    found = []
    for kind_of_rule, kind in CONFIGURATION_KINDS.items():
        webhooks = [
            _webhook(
                rule,
                names[index],
                client_config(rule.path, service=service, port=port, url=url, prefix=prefix, ca=ca),
            )
            for index, rule in enumerate(rules)
            if rule.type == kind_of_rule
        ]
        if webhooks:
            draft = MutableObject.new(kind, name, webhooks=webhooks)
            if labels:
                draft.labels.update(labels)
            if annotations:
                draft.annotations.update(annotations)
            found.append(draft)
    return found


def client_config(
    path: str,
    *,
    service: tuple[str, str] | None = None,
    port: int = 443,
    url: str = "",
    prefix: str = "",
    ca: bytes | str = b"",
) -> dict[str, Any]:
    """The ``clientConfig`` of a webhook at ``path``; see :func:`webhook_configurations`.

    Raises:
        ValueError: both or neither of ``service`` and ``url``, or one of them is wrong.
    """
    if (service is None) == (not url):
        raise ValueError(
            "give service=(namespace, name), or url='https://…' for a server without a Service"
        )
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"prefix={prefix!r}: write it as in '/hooks', without a slash at its end")
    full = prefix + path
    config: dict[str, Any]
    if service is not None:
        namespace, name = checked_service(service)
        validation.check_count("port", port)
        if not 1 <= port <= 65535:
            raise ValueError(f"port={port} is not a port: use 1 to 65535")
        config = {"service": {"namespace": namespace, "name": name, "path": full, "port": port}}
    else:
        _check_url(url)
        config = {"url": url + full}
    bundle = ca.encode() if isinstance(ca, str) else ca
    if bundle:
        if _PEM not in bundle:
            raise ValueError("ca holds no certificate: give PEM, -----BEGIN CERTIFICATE-----")
        config["caBundle"] = base64.b64encode(bundle).decode()
    return config


def checked_service(service: tuple[str, str]) -> tuple[str, str]:
    """Namespace and name of a Service.

    Raises:
        ValueError: it is not a pair of names.
    """
    given: Any = service
    is_pair = isinstance(given, (tuple, list)) and len(given) == 2
    if not is_pair or not all(isinstance(part, str) and part for part in given):
        raise ValueError(f"service={service!r}: give namespace and name, ('widgets', 'webhooks')")
    return service[0], service[1]


def _check_url(url: str) -> None:
    validation.check_text("url", url)
    parts = urlsplit(url)
    if (
        parts.scheme != "https"
        or not parts.hostname
        or parts.path
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise ValueError(
            f"url={url!r}: API servers call webhooks by https:// only; give host and port, such as "
            "'https://127.0.0.1:9443', and a path with prefix="
        )


def _check_name(name: str) -> None:
    validation.check_text("name", name)
    if not SUBDOMAIN.fullmatch(name) or len(name) > 253:
        raise ValueError(
            f"name={name!r} is not a name of an object: use lower-case letters, digits, '-' and '.'"
        )


def _names(rules: Sequence[WebhookRule]) -> list[str]:
    """The name of each rule's webhook; the version is in it where two would be the same.

    Raises:
        ValueError: two are the same all the same, or one is too long.
    """
    taken: dict[tuple[str, str], int] = {}
    found = []
    for index, rule in enumerate(rules):
        name = next(
            (each for each in _proposals(rule) if (rule.type, each) not in taken),
            None,
        )
        if name is None:
            raise ValueError(
                f"the webhooks at {rules[taken[rule.type, next(_proposals(rule))]].path} and "
                f"{rule.path} would have the same name: give one of them another with name="
            )
        if len(name) > 253:
            raise ValueError(
                f"the name {name} has more than 253 characters: give a shorter one with name="
            )
        taken[rule.type, name] = index
        found.append(name)
    return found


def _proposals(rule: WebhookRule) -> Iterator[str]:
    """Names of a rule's webhook, the first choice first."""
    if rule.name:
        yield rule.name
        return
    if not rule.kinds:
        raise ValueError(
            f"the webhook at {rule.path} is for all kinds, so its name cannot be made from a kind: "
            "give one with name="
        )
    kind = rule.kinds[0]
    resource = rule.resources[0] if rule.resources else kind.plural
    resource = resource.replace("/", "-").replace("*", "all")
    group = kind.group or "core"
    yield f"{_VERBS[rule.type]}.{resource}.{group}"
    yield f"{_VERBS[rule.type]}.{kind.version}.{resource}.{group}"


def _webhook(rule: WebhookRule, name: str, config: dict[str, Any]) -> dict[str, Any]:
    webhook: dict[str, Any] = {
        "name": name,
        "clientConfig": config,
        "rules": _rules(rule),
        "failurePolicy": rule.failure_policy,
        "matchPolicy": rule.match_policy,
        "sideEffects": rule.side_effects,
        "timeoutSeconds": rule.timeout_seconds,
        "admissionReviewVersions": ["v1"],
    }
    if rule.namespace_selector is not None:
        webhook["namespaceSelector"] = _selector(rule.namespace_selector)
    if rule.object_selector is not None:
        webhook["objectSelector"] = _selector(rule.object_selector)
    if rule.match_conditions:
        webhook["matchConditions"] = [
            {"name": key, "expression": text} for key, text in rule.match_conditions.items()
        ]
    if rule.type == "mutating":
        webhook["reinvocationPolicy"] = rule.reinvocation_policy
    return webhook


def _rules(rule: WebhookRule) -> list[dict[str, Any]]:
    """One entry for each group and version, with its resources."""
    entries: dict[tuple[str, str], list[str]] = {}
    for kind in rule.kinds:
        resources = entries.setdefault((kind.group, kind.version), [])
        resources += _new(resources, rule.resources or (kind.plural,))
    if not rule.kinds:
        entries["*", "*"] = list(rule.resources or ("*",))
    return [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": list(rule.operations),
            "resources": resources,
            "scope": rule.scope,
        }
        for (group, version), resources in entries.items()
    ]


def _new(present: Sequence[str], values: Iterable[str]) -> list[str]:
    return [value for value in values if value not in present]


def _selector(selector: Mapping[str, Any]) -> dict[str, Any]:
    # Servers leave out empty parts, and what they store should be what was made.
    return {key: _plain(part) for key, part in selector.items() if part}


def _plain(value: Any) -> Any:
    """JSON values of its own, which nobody else changes."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
