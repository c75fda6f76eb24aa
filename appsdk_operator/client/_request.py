"""What is asked of the server: one value that transport, retries and errors share."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

import attrs

from appsdk_operator.resource import (
    FieldSelection,
    LabelSelection,
    field_selector_of,
    label_selector_of,
)

__all__ = ["Request", "query_of", "selectors_of"]

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
    answer_name: str = ""
    """The name of the object that the answer is about; empty: not known before."""
    answer_uid: str = ""
    """Its uid."""
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


def selectors_of(
    labels: LabelSelection | None, fields: FieldSelection | None
) -> list[tuple[str, str]]:
    """Selectors as query parameters. Text goes to the server as it is, which says what it thinks.

    Raises:
        TypeError: one is no selector.
        SelectorError: a key or a value of a mapping is one that Kubernetes does not allow.

    >>> selectors_of({"tier": "front", "app": "web"}, "metadata.name=a")
    [('labelSelector', 'app=web,tier=front'), ('fieldSelector', 'metadata.name=a')]
    """
    given = {
        "labelSelector": labels if isinstance(labels, str) else label_selector_of(labels),
        "fieldSelector": fields if isinstance(fields, str) else field_selector_of(fields),
    }
    return [(key, str(value)) for key, value in given.items() if value is not None and str(value)]
