"""The paths of OpenAPI documents: operations with their parameters, bodies and responses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from appsdk_operator.apiserver._storage.resources import ServedVersion

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_GVK: Final = "x-kubernetes-group-version-kind"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
# Custom resources do not support the strategic one.
_PATCHES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    _STRATEGIC,
    "application/apply-patch+yaml",
)
_TEXTS: Final = ("application/json", "application/yaml")
_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_STREAMS: Final = ("application/json;stream=watch", f"{_PROTOBUF};stream=watch")
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

    def body(self, name: str, types: tuple[str, ...], *, required: bool) -> dict[str, Any]:
        """The request body, to be merged into its operation."""
        needed = {"required": True} if required else {}
        if self.is_v3:
            content = {kind: {"schema": self.reference(name)} for kind in types}
            return {"requestBody": {"content": content, **needed}}
        return {"body": {"name": "body", "in": "body", **needed, "schema": self.reference(name)}}

    def responses(
        self, name: str, codes: tuple[str, ...] = ("200",), types: tuple[str, ...] = _TEXTS[:1]
    ) -> dict[str, Any]:
        """The responses of an operation."""
        words = {"200": "OK", "201": "Created", "202": "Accepted"}
        schema: dict[str, Any] = {"schema": self.reference(name)}
        if self.is_v3:
            schema = {"content": dict.fromkeys(types, schema)}
        found = {code: {"description": words[code], **schema} for code in codes}
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
        "delete": lambda: made(
            "deletecollection",
            f"{META}Status",
            body="" if made.custom else _OPTIONS,
            parameters=_DELETING,
        ),
    }
    wanted = {"get": "list", "post": "create", "delete": "deletecollection"}
    found = {method: verbs[method]() for method in verbs if wanted[method] in resource.verbs}
    yield collection, {**found, "parameters": inside}
    named = [made.dialect.parameter("name", place="path"), *inside]
    item = f"{collection}/{{name}}"
    if "get" in resource.verbs:
        whole = _item(name, made, "")
        served_ones = {
            method: whole[method] for method in whole if _VERBS[method] in resource.verbs
        }
        yield item, {**served_ones, "parameters": named}
    for subresource in served.subresources:
        definition = _SUBRESOURCES.get(subresource, "") or name
        title = subresource.capitalize()
        if subresource in ("status", "scale"):
            yield (
                f"{item}/{subresource}",
                {**_item(definition, made, title, whole=False), "parameters": named},
            )


_VERBS: Final = {"get": "get", "put": "update", "patch": "patch", "delete": "delete"}
_SCALE: Final = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
_OPTIONS: Final = f"{META}DeleteOptions"
_SUBRESOURCES: Final = {"scale": "io.k8s.api.autoscaling.v1.Scale"}


def _item(name: str, made: _Maker, suffix: str, *, whole: bool = True) -> dict[str, Any]:
    found = {
        "get": made("read", name, suffix=suffix),
        "put": made("replace", name, body=name, suffix=suffix, parameters=_WRITING),
        "patch": made(
            "patch",
            name,
            body=f"{META}Patch",
            types=tuple(kind for kind in _PATCHES if not made.custom or kind != _STRATEGIC),
            suffix=suffix,
            parameters=(*_WRITING, "force"),
        ),
    }
    if whole:
        answer = name if made.returns_deleted else f"{META}Status"
        found["delete"] = made("delete", answer, body=_OPTIONS, parameters=_DELETING)
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
        # The real server documents a Status for namespaces, which it does not answer with.
        is_namespace = resource.qualified_name == "namespaces"
        self.returns_deleted = resource.strategy.returns_deleted and not is_namespace
        self._kind = {
            "group": resource.group,
            "version": served.version,
            "kind": resource.kind,
        }
        words = re.split(r"[^A-Za-z0-9_]+", (resource.group or "core").removesuffix(".k8s.io"))
        name = "".join(word[:1].upper() + word[1:] for word in words)
        self._tag = f"{name[:1].lower()}{name[1:]}_{served.version}"
        place = "Namespaced" if resource.namespaced else ""
        self._title = f"{name}{served.version.capitalize()}", place, resource.kind

    def __call__(
        self,
        verb: str,
        answer: str,
        *,
        body: str = "",
        types: tuple[str, ...] = (),
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
        consumed = types or (_TEXTS if self.custom else ("*/*",))
        produced: tuple[str, ...] = _TEXTS
        if not self.custom:
            produced = (*_TEXTS, _PROTOBUF, *(_STREAMS if verb == "list" else ()))
        codes = ("200",) if verb == "patch" and self.custom else _CODES.get(verb, ("200",))
        made: dict[str, Any] = {
            "description": self._description(verb, suffix.lower()),
            "tags": [self._tag],
            "operationId": prefix + group + part + place + kind + suffix,
            "parameters": [self.dialect.parameter(name) for name in parameters],
            "responses": self.dialect.responses(answer, codes, produced),
            "x-kubernetes-action": _ACTIONS.get(verb, verb),
            _GVK: _SCALE if suffix == "Scale" and not self.custom else self._kind,
        }
        if not self.dialect.is_v3:
            made["consumes"], made["produces"] = list(consumed), list(produced)
            made["schemes"] = ["https"]
        if body:
            required = not verb.startswith("delete")
            carried = self.dialect.body(body, consumed, required=required)
            if "body" in carried:
                made["parameters"].insert(0, carried.pop("body"))
            made.update(carried)
        return made

    def _description(self, verb: str, subresource: str) -> str:
        kind = self._title[-1]
        match verb:
            case "list":
                return f"{'list' if self.custom else 'list or watch'} objects of kind {kind}"
            case "deletecollection":
                return f"delete collection of {kind}"
            case "create" | "delete":
                return f"{verb} {_article(kind)}{kind}"
        part = f"{subresource} of " if subresource else ""
        return f"{'partially update' if verb == 'patch' else verb} {part}the specified {kind}"


def _article(kind: str) -> str:
    """The article, by the rule of k8s.io/apiserver: names that end with an s have none."""
    if kind.endswith("s") and not kind.endswith("ss"):
        return ""
    return "an " if kind[:1].lower() in tuple("aeiou") else "a "
