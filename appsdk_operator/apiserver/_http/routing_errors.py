"""Routes to resources, and the 404 responses for unknown paths."""

from __future__ import annotations

from appsdk_operator.apiserver._storage.resources import Catalog, Resource, ServedVersion
from appsdk_operator.apiserver._values.routes import Route
from appsdk_operator.apiserver._values.status import StatusError, method_not_allowed, not_found


class PageNotFoundError(Exception):
    """404 in plain text: nothing is served at that path."""


def unknown_path(catalog: Catalog, path: str) -> Exception:
    """The error for an unknown path."""
    root, *rest = path.split("/")[1:] or [""]
    if len(rest) < (1 if root == "api" else 2):
        return PageNotFoundError()
    return _unknown(catalog, "" if root == "api" else rest[0])


def _unknown(catalog: Catalog, group: str) -> Exception:
    if catalog.is_builtin(group):
        return StatusError(404, "the server could not find the requested resource", details={})
    return PageNotFoundError()


def find(catalog: Catalog, route: Route) -> ServedVersion:
    """The served resource version of a route.

    Raises:
        StatusError: 404.
        PageNotFoundError: 404 without a Status, as the real server answers for an unknown group.
    """
    served = catalog.find(route.group, route.version, route.plural)
    if served is None or (route.namespace and not served.resource.namespaced):
        raise _unknown(catalog, route.group)
    if served.resource.namespaced and route.name and not route.namespace:
        raise not_found(route.plural, route.group, route.name)
    return served


def unsupported_verb(resource: Resource, verb: str) -> StatusError:
    """405: a resource or subresource does not have that verb."""
    if not resource.strategy.custom:
        return method_not_allowed()
    return method_not_allowed(
        f'{verb} is not supported on resources of kind "{resource.qualified_name}"',
        {"group": resource.group, "kind": resource.plural},
    )
