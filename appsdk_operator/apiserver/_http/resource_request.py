"""Requests that are understood, and their answers, before and after they are HTTP."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from appsdk_operator.apiserver._http.representations import Representation
from appsdk_operator.apiserver._registry.write_requests import Target
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._values.routes import Route
from appsdk_operator.apiserver._values.users import ADMIN, User

__all__ = ["ResourceRequest", "ResourceResponse"]


@attrs.frozen(kw_only=True)
class ResourceRequest:
    """A request for a resource, all of it read."""

    verb: str
    route: Route
    served: ServedVersion
    query: Mapping[str, str]
    body: bytes = b""
    content_type: str = ""
    representation: Representation
    user: User = ADMIN
    user_agent: str = ""
    cache_revision: int | None = None
    """The revision that a lagging cache is at; None: nothing lags."""
    warnings: list[str] = attrs.field(factory=list)
    """What is to be told besides the answer, whatever that is."""

    @property
    def target(self) -> Target:
        """What it is about."""
        return Target(self.served, self.route.namespace, self.route.name)


@attrs.frozen
class ResourceResponse:
    """What is sent back."""

    status: int
    body: bytes
