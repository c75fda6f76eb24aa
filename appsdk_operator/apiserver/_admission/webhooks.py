"""Webhooks as their configurations describe them, and which writes they match."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._admission.match_conditions import MatchConditions
from appsdk_operator.apiserver._admission.reviews import REVIEW_VERSIONS, ReviewedResource
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._storage.storage import Collection
from appsdk_operator.resource import LabelSelector

_CONFIGURATIONS: Final = frozenset(
    {
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    }
)


def is_exempt(reviewed: ReviewedResource) -> bool:
    """Whether webhooks are never called for it: the admission configurations themselves."""
    resource = reviewed.served.resource
    return resource.group == "admissionregistration.k8s.io" and resource.plural in _CONFIGURATIONS


@attrs.frozen
class _Rule:
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    operations: frozenset[str]
    scope: str

    @classmethod
    def read(cls, rule: Mapping[str, Any]) -> _Rule:
        parts = [text.partition("/") for text in rule.get("resources") or ()]
        return cls(
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("apiVersions") or ()),
            tuple((resource, sub) for resource, _, sub in parts),
            frozenset(rule.get("operations") or ()),
            rule.get("scope") or "*",
        )

    def matches(self, reviewed: ReviewedResource, served: ServedVersion) -> bool:
        resource = served.resource
        if self.scope != "*":
            inside = bool(reviewed.namespace) and resource.namespaced
            if inside != (self.scope == "Namespaced"):
                return False
        return (
            _has(self.operations, reviewed.operation)
            and _has(self.groups, resource.group)
            and _has(self.versions, served.version)
            and any(
                name in ("*", resource.plural) and sub in ("*", reviewed.subresource)
                for name, sub in self.resources
            )
        )


def _has(names: frozenset[str], name: str) -> bool:
    return name in names or "*" in names


@final
@attrs.frozen(kw_only=True, eq=False)
class Webhook:
    """One webhook of one configuration."""

    name: str
    client: Mapping[str, Any]
    rules: tuple[_Rule, ...]
    is_equivalent: bool
    namespaces: LabelSelector
    objects: LabelSelector
    ignores_failures: bool
    seconds: int
    is_reinvoked: bool
    review_version: str
    conditions: MatchConditions

    @classmethod
    def read(cls, webhook: Mapping[str, Any]) -> Webhook:
        """The webhook of a valid configuration."""
        versions = webhook.get("admissionReviewVersions") or ()
        return cls(
            name=webhook["name"],
            client=webhook["clientConfig"],
            rules=tuple(_Rule.read(rule) for rule in webhook.get("rules") or ()),
            is_equivalent=webhook.get("matchPolicy") != "Exact",
            namespaces=LabelSelector.from_object(webhook.get("namespaceSelector")),
            objects=LabelSelector.from_object(webhook.get("objectSelector")),
            ignores_failures=webhook.get("failurePolicy") == "Ignore",
            seconds=webhook.get("timeoutSeconds", 10),
            is_reinvoked=webhook.get("reinvocationPolicy") == "IfNeeded",
            review_version=next(name for name in versions if name in REVIEW_VERSIONS),
            conditions=MatchConditions.read(webhook.get("matchConditions") or ()),
        )

    def version_for(self, reviewed: ReviewedResource) -> ServedVersion | None:
        """The resource version that one of its rules matches; None when none does."""
        if any(rule.matches(reviewed, reviewed.served) for rule in self.rules):
            return reviewed.served
        if not self.is_equivalent:
            return None
        others = [
            version
            for version in reviewed.served.resource.versions.values()
            if version is not reviewed.served and version.served
        ]
        for rule in self.rules:
            for version in others:
                if rule.matches(reviewed, version):
                    return version
        return None

    def selects(self, *objects: Mapping[str, Any]) -> bool:
        """Whether its ``objectSelector`` matches one of these; an empty one is absent."""
        return self.objects.empty or any(
            obj and self.objects.matches(_labels(obj)) for obj in objects
        )


def _labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    labels: Mapping[str, str] = (obj.get("metadata") or {}).get("labels") or {}
    return labels


def webhooks_of(configurations: Collection) -> Iterable[Webhook]:
    """The webhooks of all configurations, ordered by the names of the configurations."""
    for record in configurations.scan(""):
        for webhook in record.decode().get("webhooks") or ():
            yield Webhook.read(webhook)
