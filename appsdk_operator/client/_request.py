"""A request to the API server, as a value that transport, retries and errors share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import msgspec

from appsdk_operator.resource import field_selector_of, label_selector_of

if TYPE_CHECKING:
    from appsdk_operator.resource import FieldSelection, LabelSelection

JSON = "application/json"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request, with the names that error texts and metrics show."""

    method: str
    """The HTTP method."""
    path: str
    """The quoted path, without the server's own prefix."""
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    verb: str = ""
    """The verb as RBAC rules name it, for example ``deletecollection``."""
    resource: str = ""
    """The resource as RBAC rules name it, for example ``deployments.apps/scale``."""
    namespace: str = ""
    name: str = ""
    answer_name: str = ""
    """The name that the object in the answer must have; empty: any."""
    answer_uid: str = ""
    """The uid that the object in the answer must have; empty: any."""
    repeatable: bool = False
    """Whether a retry does no harm when the server may have carried out the first attempt."""
    secret: bool = False
    """Whether it may write secrets. Errors then show only names and paths of the server's text."""
    retry: bool = True
    """Whether to retry transient failures; False: the caller has its own backoff."""

    @property
    def target(self) -> str:
        """Path and query, quoted."""
        if not self.query:
            return self.path
        query = "&".join(f"{_quoted(key)}={_quoted(value)}" for key, value in self.query)
        return f"{self.path}?{query}"

    def __repr__(self) -> str:
        return f"<request {self}>"  # no body, which may be a Secret

    def __str__(self) -> str:
        if not self.resource:
            return f"{self.method} {self.path}"
        name = f" {self.name!r}" if self.name else ""
        where = f" in namespace {self.namespace!r}" if self.namespace else ""
        return f"{self.verb or self.method} {self.resource}{name}{where}"


def _quoted(text: str) -> str:
    # Most need no quotes, which to find out is far cheaper.
    return text if text.isascii() and text.isalnum() else quote_plus(text)


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
    """Selectors as query parameters. Text is sent unparsed, and the server checks it.

    Raises:
        TypeError: a selector has another type.
        SelectorError: Kubernetes does not allow a key or a value of a mapping.

    >>> selectors_of({"tier": "front", "app": "web"}, "metadata.name=a")
    [('labelSelector', 'app=web,tier=front'), ('fieldSelector', 'metadata.name=a')]
    """
    given = {
        "labelSelector": labels if isinstance(labels, str) else label_selector_of(labels),
        "fieldSelector": fields if isinstance(fields, str) else field_selector_of(fields),
    }
    return [(key, str(value)) for key, value in given.items() if value is not None and str(value)]
