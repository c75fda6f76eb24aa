"""RBAC rules: matching of requests, and whether rules cover others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, final

import attrs

from appsdk_operator.apiserver._auth.authorization import RequestAttributes


@final
@attrs.frozen
class Rule:
    """One rule of a role."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    @classmethod
    def of(cls, rule: Mapping[str, Any]) -> Rule:
        """Parse a rule of a role."""

        def listed(name: str) -> tuple[str, ...]:
            return tuple(map(str, rule.get(name) or ()))

        return cls(
            listed("verbs"),
            listed("apiGroups"),
            listed("resources"),
            listed("resourceNames"),
            listed("nonResourceURLs"),
        )

    def as_object(self) -> dict[str, Any]:
        """The rule as it is written in a role."""
        fields = {
            "verbs": self.verbs,
            "apiGroups": self.groups,
            "resources": self.resources,
            "resourceNames": self.names,
            "nonResourceURLs": self.urls,
        }
        return {name: list(values) for name, values in fields.items() if values}

    def allows(self, attributes: RequestAttributes) -> bool:
        """Whether it allows the request."""
        if "*" not in self.verbs and attributes.verb not in self.verbs:
            return False
        if attributes.path:
            return any(_url_covers(url, attributes.path) for url in self.urls)
        return (
            ("*" in self.groups or attributes.group in self.groups)
            and (
                "*" in self.resources
                or attributes.full_resource in self.resources
                or bool(attributes.subresource and f"*/{attributes.subresource}" in self.resources)
            )
            and (not self.names or attributes.name in self.names)
        )

    def parts(self) -> Iterator[Rule]:
        """Split it into rules with one verb, group, resource and at most one name each."""
        for group in self.groups:
            for resource in self.resources:
                for verb in self.verbs:
                    for name in self.names or ("",):
                        yield Rule((verb,), (group,), (resource,), (name,) if name else ())
        for url in self.urls:
            for verb in self.verbs:
                yield Rule(verbs=(verb,), urls=(url,))

    def covers(self, part: Rule) -> bool:
        """Whether it allows everything that one of :meth:`parts` allows."""
        return (
            _has(self.verbs, part.verbs)
            and _has(self.groups, part.groups)
            and all(_resource_covered(self.resources, resource) for resource in part.resources)
            and (not self.names or bool(part.names and set(part.names) <= set(self.names)))
            and all(any(_url_covers(own, url) for own in self.urls) for url in part.urls)
        )


EVERYTHING = (
    Rule(("*",), ("*",), ("*",)),
    Rule(verbs=("*",), urls=("*",)),
)
"""The rules of a cluster administrator."""


def _has(own: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return "*" in own or set(wanted) <= set(own)


def _resource_covered(own: tuple[str, ...], resource: str) -> bool:
    if "*" in own or resource in own:
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in own


def _url_covers(own: str, url: str) -> bool:
    return own == url or (own.endswith("*") and url.startswith(own.rstrip("*")))


def uncovered(own: Iterable[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """The parts of ``wanted`` that ``own`` rules do not cover, with verbs joined."""
    own_rules = list(own)
    joined: dict[Rule, dict[str, None]] = {}
    for rule in wanted:
        for part in rule.parts():
            if not any(each.covers(part) for each in own_rules):
                # The real server joins the verbs of resources, not those of URLs.
                key = part if part.urls else attrs.evolve(part, verbs=())
                joined.setdefault(key, {}).update(dict.fromkeys(part.verbs))
    return [attrs.evolve(key, verbs=tuple(verbs)) for key, verbs in joined.items()]


def rule_text(rule: Rule) -> str:
    """A rule as error messages show it."""
    fields = (
        ("APIGroups", rule.groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.urls),
        ("ResourceNames", rule.names),
        ("Verbs", rule.verbs),
    )
    listed = (
        f"{name}:[{' '.join(json.dumps(value, ensure_ascii=False) for value in values)}]"
        for name, values in fields
        if values
    )
    return f"{{{', '.join(listed)}}}"
