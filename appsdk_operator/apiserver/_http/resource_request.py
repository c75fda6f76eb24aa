"""Parsed requests for resources and their responses, independent of HTTP."""

from __future__ import annotations

import attrs
from multidict import MultiMapping

from appsdk_operator.apiserver._http.representations import Representation
from appsdk_operator.apiserver._registry.write_requests import Target
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._values.routes import Route
from appsdk_operator.apiserver._values.users import ADMIN, User


@attrs.frozen(kw_only=True)
class ResourceRequest:
    """A request for a resource, parsed, with its whole body."""

    verb: str
    route: Route
    served: ServedVersion
    query: MultiMapping[str]
    body: bytes = b""
    content_type: str = ""
    representation: Representation
    user: User = ADMIN
    user_agent: str = ""
    cache_revision: int | None = None
    """The revision of a lagging watch cache to read from; None: read the newest state."""
    warnings: list[str] = attrs.field(factory=list)
    """Warnings for the response, also for an error."""

    @property
    def target(self) -> Target:
        """The addressed object."""
        return Target(self.served, self.route.namespace, self.route.name)


@attrs.frozen
class ResourceResponse:
    """HTTP status and body of a response."""

    status: int
    body: bytes
