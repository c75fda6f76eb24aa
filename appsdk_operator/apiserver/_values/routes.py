"""The route of a request: the resource that its path names, and its verb."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import attrs

from appsdk_operator.resource import FieldSelector, SelectorError


@attrs.frozen(kw_only=True)
class Route:
    """The path of a resource, an object or a subresource, in its parts."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(raw_path: str) -> Route | None:
    """Parse a path as it was sent; None if it is not the path of a resource.

    As on the real server an encoded slash counts as a slash; names have none. The path may be a
    whole URL, as clients of proxies send it.
    """
    path = raw_path.split("?", 1)[0] if raw_path.startswith("/") else urlsplit(raw_path).path
    parts = unquote(path).split("/")[1:]
    if parts and not parts[-1]:
        parts.pop()
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    # A third part is one of the two subresources of a namespace, or a resource in it.
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
        if not namespace:
            return None
    if not 1 <= len(rest) <= 3 or not all(rest):
        return None
    rest += [""] * (3 - len(rest))
    return Route(
        group=group,
        version=version,
        namespace=namespace,
        plural=rest[0],
        name=rest[1],
        subresource=rest[2],
    )


def verb_of(method: str, route: Route, *, watch: bool) -> str:
    """The RBAC verb of a request; ``""`` for a method without one."""
    match method:
        case "GET" | "HEAD":
            # A path with a name is a get, whatever the query says.
            if route.name:
                return "get"
            return "watch" if watch else "list"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "PATCH":
            return "patch"
        case "DELETE":
            return "delete" if route.name else "deletecollection"
        case _:
            return ""


def selected_name(field_selector: str) -> str:
    """The name that a list selects, which authorization by ``resourceNames`` checks."""
    if not field_selector:
        return ""
    try:
        terms = FieldSelector.parse(field_selector).terms
    except SelectorError:
        return ""
    found = [t.value for t in terms if t.path == "metadata.name" and not t.negated]
    return found[0] if found else ""
