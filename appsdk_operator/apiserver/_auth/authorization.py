"""Authorization: the attributes of a request, authorizers, and the 403 error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, final

import attrs

from appsdk_operator.apiserver._values.routes import Route, verb_of
from appsdk_operator.apiserver._values.status import StatusError, forbidden
from appsdk_operator.apiserver._values.users import MASTERS, User


@final
@attrs.frozen(kw_only=True)
class RequestAttributes:
    """The attributes of a request that authorization looks at."""

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""
    """The path of a non-resource request; its ``resource`` is empty."""

    @classmethod
    def of(cls, user: User, method: str, path: str, route: Route | None, *, watch: bool) -> Any:
        """The attributes of a request with that method and path."""
        if route is None:
            return cls(user=user, verb=method.lower(), path=path)
        # A namespace counts as within itself, so that a role in it can allow to read it.
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
        """The attributes in the spec of an access review."""
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
        """The ``spec`` of a SubjectAccessReview with these attributes."""
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
    """The decision of an authorizer, with its reason."""

    allowed: bool
    reason: str = ""
    error: str = ""
    """Errors during the evaluation."""


class Authorizer(Protocol):
    """Decides whether users may make requests."""

    def decide(self, attributes: RequestAttributes) -> Decision:
        """Decide on a request; not called for members of ``system:masters``."""
        ...


@final
class AllowAll:
    """Allows every request."""

    def decide(self, attributes: RequestAttributes) -> Decision:  # noqa: ARG002 - the protocol's
        """Allow."""
        return Decision(True)


@final
class FunctionAuthorizer:
    """Lets a function decide."""

    def __init__(self, function: Callable[[Mapping[str, Any]], bool]) -> None:
        """``function`` is given the ``spec`` of a SubjectAccessReview."""
        self._function = function

    def decide(self, attributes: RequestAttributes) -> Decision:
        """The decision of the function."""
        return Decision(bool(self._function(attributes.spec())))


def check(authorizer: Authorizer, attributes: RequestAttributes) -> Decision:
    """Let ``authorizer`` decide; members of ``system:masters`` are always allowed."""
    if MASTERS in attributes.user.groups:
        return Decision(True)
    return authorizer.decide(attributes)


_HTML: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def forbidden_error(attributes: RequestAttributes, decision: Decision) -> StatusError:
    """403 for a request that is not allowed."""
    user = json.dumps(attributes.user.username, ensure_ascii=False)
    if attributes.path:
        text = f"User {user} cannot {attributes.verb} path {_quoted(attributes.path)}"
        why = f": {decision.reason}" if decision.reason else ""
        return StatusError(403, f"forbidden: {text.translate(_HTML)}{why}", details={})
    place = f"in the namespace {_quoted(attributes.namespace)}" if attributes.namespace else ""
    text = (
        f"User {user} cannot {attributes.verb} resource {_quoted(attributes.full_resource)} in "
        f"API group {_quoted(attributes.group)} {place or 'at the cluster scope'}"
    ).translate(_HTML)
    reasons = ": ".join(filter(None, (decision.error, decision.reason)))
    why = f"{text}: {reasons}" if reasons else text
    return forbidden(attributes.resource, attributes.group, attributes.name, why)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
