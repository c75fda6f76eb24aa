"""What is asked of the server: one value that transport, retries and errors share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import attrs

from appsdk_operator.resource import DecodeError, Kind, decode_json

__all__ = ["Request", "check_path_segment", "query_of", "selector_text"]

JSON = "application/json"


@attrs.frozen(kw_only=True)
class Request:
    """One request, with what error texts and metrics need to know of it."""

    method: str
    """The HTTP method."""
    path: str
    """The quoted path, without the server's own prefix."""
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = attrs.field(default=None, repr=False)
    """Not in the repr: it may be a Secret."""
    content_type: str = JSON
    accept: str = JSON
    verb: str = ""
    """The verb as RBAC rules name it, for example ``deletecollection``."""
    resource: str = ""
    """The resource as RBAC rules name it, for example ``deployments.apps/scale``."""
    namespace: str = ""
    name: str = ""
    repeatable: bool = False
    """Whether it does no harm to send it again when it is unknown if the first was carried out."""
    retry: bool = True
    """Whether failures that pass are waited for; False: the caller has a backoff of its own."""

    @property
    def target(self) -> str:
        """Path and query as they go on the wire."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def __str__(self) -> str:
        if not self.resource:
            return f"{self.method} {self.path}"
        name = f" {self.name!r}" if self.name else ""
        where = f" in namespace {self.namespace!r}" if self.namespace else ""
        return f"{self.verb or self.method} {self.resource}{name}{where}"


def query_of(**parameters: str | float | bool | None) -> list[tuple[str, str]]:
    """Query parameters in the API's spelling, without those that are None, False or empty.

    >>> query_of(labelSelector="app=web", limit=500, watch=True, dryRun=None)
    [('labelSelector', 'app=web'), ('limit', '500'), ('watch', 'true')]
    """
    query = []
    for key, value in parameters.items():
        if value is True:
            query.append((key, "true"))
        elif value is None or value is False or value == "":
            continue
        else:
            query.append((key, str(value)))
    return query


def selector_text(selector: object) -> str | None:
    """A selector as the API writes it: text as it is, a mapping as equalities.

    >>> selector_text({"app": "web", "tier": "front"})
    'app=web,tier=front'
    """
    if selector is None or isinstance(selector, str):
        return selector
    if isinstance(selector, Mapping):
        return ",".join(f"{key}={value}" for key, value in selector.items())
    return str(selector)


def check_path_segment(what: str, value: str) -> None:
    """Refuse what cannot be one segment of a path.

    Raises:
        ValueError: the API server accepts no such name, and a proxy on the way may take it for
            another path.
    """
    if not value or value in {".", ".."} or "/" in value or "%" in value:
        raise ValueError(
            f"{what} {value!r} cannot be part of a path on the API server: it must not be empty, "
            "'.' or '..', nor contain '/' or '%'"
        )


def check_namespace(kind: Kind, namespace: str) -> None:
    """Refuse a request for one object whose namespace does not fit the scope of its kind.

    Raises:
        ValueError: the namespace is missing, or the kind has none.
    """
    if kind.is_namespaced:
        if not namespace:
            raise ValueError(
                f"{kind.qualified_name} live in namespaces: give namespace=…, set "
                "metadata.namespace, or use a NamespacedClient"
            )
        check_path_segment("namespace", namespace)
    elif namespace:
        raise ValueError(
            f"{kind.qualified_name} are cluster-scoped, but namespace {namespace!r} was given: "
            "leave it out, or declare the kind with scope=Scope.NAMESPACED"
        )


def json_or_none(body: bytes) -> Any:
    """The body as JSON, None when it is something else."""
    try:
        return decode_json(body)
    except DecodeError:
        return None
