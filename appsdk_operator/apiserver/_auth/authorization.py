"""What a request asks to do, whether that is allowed, and how a refusal is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, final

import attrs

from appsdk_operator.apiserver._values.routes import Route, verb_of
from appsdk_operator.apiserver._values.status import StatusError, forbidden
from appsdk_operator.apiserver._values.users import MASTERS, User

__all__ = [
    "AllowAll",
    "Authorizer",
    "Decision",
    "FunctionAuthorizer",
    "RequestAttributes",
    "check",
    "forbidden_error",
]


@final
@attrs.frozen(kw_only=True)
class RequestAttributes:
    """Who wants to do what, in the words of authorization."""

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""
    """The path of a request that is not about a resource; such a request has no resource."""

    @classmethod
    def of(cls, user: User, method: str, path: str, route: Route | None, *, watch: bool) -> Any:
        """What a request asks for, given its method and path."""
        if route is None:
            return cls(user=user, verb=method.lower(), path=path)
        # A namespace is looked at as if it were within itself, so that its members can be let see.
        inside = route.name if (route.group, route.plural) == ("", "namespaces") else ""
        return cls(
            user=user,
            verb=verb_of(method, route, watch=watch),
            group=route.group,
            version=route.version,
            resource=route.plural,
            subresource=route.subresource,
            name=route.name,
            namespace=route.namespace or inside,
        )

    @classmethod
    def reviewed(cls, user: User, spec: Mapping[str, Any]) -> RequestAttributes:
        """What the spec of a review asks about."""
        found = spec.get("resourceAttributes")
        if found is None:
            found = spec.get("nonResourceAttributes") or {}
            return cls(user=user, verb=found.get("verb") or "", path=found.get("path") or "/")
        return cls(
            user=user,
            verb=found.get("verb") or "",
            group=found.get("group") or "",
            version=found.get("version") or "",
            resource=found.get("resource") or "",
            subresource=found.get("subresource") or "",
            name=found.get("name") or "",
            namespace=found.get("namespace") or "",
        )

    @property
    def full_resource(self) -> str:
        """``resource`` or ``resource/subresource``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def spec(self) -> dict[str, Any]:
        """The ``spec`` of a SubjectAccessReview that asks for it."""
        user = self.user.info()
        user["user"] = user.pop("username")
        if self.path:
            return {**user, "nonResourceAttributes": {"path": self.path, "verb": self.verb}}
        named = {
            "namespace": self.namespace,
            "verb": self.verb,
            "group": self.group,
            "version": self.version,
            "resource": self.resource,
            "subresource": self.subresource,
            "name": self.name,
        }
        return {**user, "resourceAttributes": {key: text for key, text in named.items() if text}}


@final
@attrs.frozen
class Decision:
    """Whether something is allowed, and why."""

    allowed: bool
    reason: str = ""
    error: str = ""
    """What went wrong while it was decided."""


class Authorizer(Protocol):
    """Decides what users may do."""

    def decide(self, asked: RequestAttributes) -> Decision:
        """Whether the user may; not asked about the members of ``system:masters``."""
        ...


@final
class AllowAll:
    """Everybody may do everything."""

    def decide(self, asked: RequestAttributes) -> Decision:  # noqa: ARG002 - whatever it is
        """Yes."""
        return Decision(True)


@final
class FunctionAuthorizer:
    """Asks a function, as it would be asked for reviews."""

    def __init__(self, function: Callable[[Mapping[str, Any]], bool]) -> None:
        """``function`` is given the ``spec`` of a SubjectAccessReview."""
        self._function = function

    def decide(self, asked: RequestAttributes) -> Decision:
        """What the function says."""
        return Decision(bool(self._function(asked.spec())))


def check(authorizer: Authorizer, asked: RequestAttributes) -> Decision:
    """Decide, with the one rule that nobody can change."""
    if MASTERS in asked.user.groups:
        return Decision(True)
    return authorizer.decide(asked)


_HTML: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def forbidden_error(asked: RequestAttributes, decision: Decision) -> StatusError:
    """403: the user may not."""
    user = json.dumps(asked.user.username, ensure_ascii=False)
    if asked.path:
        text = f"User {user} cannot {asked.verb} path {_quoted(asked.path)}"
        why = f": {decision.reason}" if decision.reason else ""
        return StatusError(403, f"forbidden: {text.translate(_HTML)}{why}", details={})
    place = f"in the namespace {_quoted(asked.namespace)}" if asked.namespace else ""
    text = (
        f"User {user} cannot {asked.verb} resource {_quoted(asked.full_resource)} in API group "
        f"{_quoted(asked.group)} {place or 'at the cluster scope'}"
    ).translate(_HTML)
    reasons = ": ".join(filter(None, (decision.error, decision.reason)))
    why = f"{text}: {reasons}" if reasons else text
    return forbidden(asked.resource, asked.group, asked.name, why)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
