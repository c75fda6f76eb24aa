"""The paths of OpenAPI documents: operations with their parameters, bodies and responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from appsdk_operator.apiserver._storage.resources import ServedVersion

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_GVK: Final = "x-kubernetes-group-version-kind"
# Custom resources do not support the last one.
_PATCHES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_WRITING: Final = ("dryRun", "fieldManager", "fieldValidation")
_DELETING: Final = (
    "dryRun",
    "gracePeriodSeconds",
    "orphanDependents",
    "propagationPolicy",
)
_LISTING: Final = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
)
_TYPES: Final = {
    "allowWatchBookmarks": "boolean",
    "force": "boolean",
    "gracePeriodSeconds": "integer",
    "limit": "integer",
    "orphanDependents": "boolean",
    "sendInitialEvents": "boolean",
    "timeoutSeconds": "integer",
    "watch": "boolean",
}


class Dialect:
    """The syntax of one version of OpenAPI."""

    def __init__(self, *, is_v3: bool) -> None:
        """``is_v3``: version 3, else version 2."""
        self.is_v3 = is_v3
        self.prefix = "#/components/schemas/" if is_v3 else "#/definitions/"

    def reference(self, name: str) -> dict[str, Any]:
        """A reference to a schema."""
        return {"$ref": self.prefix + name}

    def parameter(self, name: str, *, place: str = "query") -> dict[str, Any]:
        """A parameter of a request."""
        kind: dict[str, Any] = {"type": _TYPES.get(name, "string"), "uniqueItems": True}
        made: dict[str, Any] = {"name": name, "in": place}
        if place == "path":
            made["required"] = True
        return {**made, "schema": kind} if self.is_v3 else {**made, **kind}

    def body(self, name: str, types: tuple[str, ...] = ("*/*",)) -> dict[str, Any]:
        """The request body, to be merged into its operation."""
        if self.is_v3:
            content = {kind: {"schema": self.reference(name)} for kind in types}
            return {"requestBody": {"content": content, "required": True}}
        body = {"name": "body", "in": "body", "required": True, "schema": self.reference(name)}
        return {"consumes": list(types), "body": body}

    def responses(self, name: str, *codes: str) -> dict[str, Any]:
        """The responses of an operation."""
        words = {"200": "OK", "201": "Created", "202": "Accepted"}
        schema: dict[str, Any] = {"schema": self.reference(name)}
        if self.is_v3:
            schema = {"content": {"application/json": schema}}
        found = {code: {"description": words[code], **schema} for code in codes or ("200",)}
        return {**found, "401": {"description": "Unauthorized"}}


def operations(served: ServedVersion, name: str, dialect: Dialect) -> dict[str, Any]:
    """The paths of a resource; ``name`` is that of its definition."""
    return dict(_paths(served, name, _Maker(served, dialect)))


def _paths(served: ServedVersion, name: str, made: _Maker) -> Iterator[tuple[str, dict[str, Any]]]:
    resource = served.resource
    base = (
        f"/apis/{resource.group}/{served.version}" if resource.group else f"/api/{served.version}"
    )
    inside = [made.dialect.parameter("namespace", place="path")] if resource.namespaced else []
    collection = f"{base}/{resource.plural}"
    if resource.namespaced:
        if "list" in resource.verbs:
            lists = made("list", f"{name}List", suffix="ForAllNamespaces", parameters=_LISTING)
            yield collection, {"get": lists}
        collection = f"{base}/namespaces/{{namespace}}/{resource.plural}"
    verbs: dict[str, Callable[[], dict[str, Any]]] = {
        "get": lambda: made("list", f"{name}List", parameters=_LISTING),
        "post": lambda: made("create", name, body=name, parameters=_WRITING),
        "delete": lambda: made("deletecollection", f"{META}Status", parameters=_DELETING),
    }
    wanted = {"get": "list", "post": "create", "delete": "deletecollection"}
    found = {method: verbs[method]() for method in verbs if wanted[method] in resource.verbs}
    yield collection, {**found, "parameters": inside}
    named = [made.dialect.parameter("name", place="path"), *inside]
    item = f"{collection}/{{name}}"
    if "get" in resource.verbs:
        yield item, {**_item(name, made, ""), "parameters": named}
    for subresource in served.subresources:
        definition = _SUBRESOURCES.get(subresource, "") or name
        title = subresource.capitalize()
        if subresource in ("status", "scale"):
            yield (
                f"{item}/{subresource}",
                {**_item(definition, made, title, whole=False), "parameters": named},
            )


_SUBRESOURCES: Final = {"scale": "io.k8s.api.autoscaling.v1.Scale"}


def _item(name: str, made: _Maker, suffix: str, *, whole: bool = True) -> dict[str, Any]:
    found = {
        "get": made("read", name, suffix=suffix),
        "put": made("replace", name, body=name, suffix=suffix, parameters=_WRITING),
        "patch": made(
            "patch",
            name,
            body=f"{META}Patch",
            types=_PATCHES[:-1] if made.custom else _PATCHES,
            suffix=suffix,
            parameters=(*_WRITING, "force"),
        ),
    }
    if whole:
        found["delete"] = made("delete", f"{META}Status", parameters=_DELETING)
    return found


_ACTIONS: Final[Mapping[str, str]] = {"create": "post", "read": "get", "replace": "put"}
_CODES: Final = {
    "create": ("200", "201", "202"),
    "replace": ("200", "201"),
    "patch": ("200", "201"),
    "delete": ("200", "202"),
}


class _Maker:
    """Makes the operations of one resource."""

    def __init__(self, served: ServedVersion, dialect: Dialect) -> None:
        resource = served.resource
        self.dialect = dialect
        self.custom = resource.strategy.custom
        self._kind = {
            "group": resource.group,
            "version": served.version,
            "kind": resource.kind,
        }
        first = (resource.group or "core").partition(".")[0]
        self._tag = f"{resource.group or 'core'}_{served.version}"
        if not resource.strategy.custom:
            self._tag = f"{first}_{served.version}"
        place = "Namespaced" if resource.namespaced else ""
        dots = "".join(part.capitalize() for part in first.split("-"))
        self._title = f"{dots}{served.version.capitalize()}", place, resource.kind

    def __call__(
        self,
        verb: str,
        answer: str,
        *,
        body: str = "",
        types: tuple[str, ...] = ("*/*",),
        suffix: str = "",
        parameters: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """One operation."""
        group, place, kind = self._title
        if suffix == "ForAllNamespaces":
            place = ""
        prefix, part = verb, ""
        if verb == "deletecollection":
            prefix, part = "delete", "Collection"
        made: dict[str, Any] = {
            "tags": [self._tag],
            "operationId": prefix + group + part + place + kind + suffix,
            "parameters": [self.dialect.parameter(name) for name in parameters],
            "responses": self.dialect.responses(answer, *_CODES.get(verb, ())),
            "x-kubernetes-action": _ACTIONS.get(verb, verb),
            _GVK: self._kind,
        }
        if body:
            carried = self.dialect.body(body, types)
            if "body" in carried:
                made["parameters"].insert(0, carried.pop("body"))
            made.update(carried)
        return made
