"""The kinds that an App owns, and their CustomResourceDefinitions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from appsdk_operator.app._declarations import Converter, Declarations, Owned, name_of
from appsdk_operator.resource import (
    Kind,
    MutableObject,
    Versions,
    is_builtin,
)

_OF_ONE_VERSION: Final = ("printer_columns", "schema", "selectable_fields", "scale")
"""Options about fields, which other versions need not have: they are for the kind's version."""
_VERSION: Final = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


def kinds_of(declaration: Any) -> list[Kind[Any, Any]]:
    """The kinds that a declaration names."""
    if isinstance(declaration, Owned):
        return list(declaration.kinds)
    named = [getattr(declaration, name, None) for name in ("kind", "source", "target")]
    named += getattr(declaration, "owns", ())
    named += getattr(declaration, "watches", ())
    return [kind for kind in named if isinstance(kind, Kind)]


def check_names(kind: Kind[Any, Any], known: dict[tuple[str, str], Kind[Any, Any]]) -> None:
    """Check that a kind has the plural and scope that it was declared with before; notes it.

    Raises:
        ValueError: it has others, which would be two CRDs, or a client of paths that do not exist.
    """
    before = known.setdefault((kind.group, kind.kind), kind)
    for name in ("plural", "scope"):
        one, other = getattr(before, name), getattr(kind, name)
        if one != other:
            raise ValueError(
                f"{kind.kind}.{kind.group} is declared with {name}={str(one)!r} and with "
                f"{name}={str(other)!r}: a kind has one {name}, in all its versions; use one Kind "
                "everywhere"
            )


def check_version(kind: Kind[Any, Any], functions: Iterable[Any]) -> None:
    """Check that ``functions`` of objects, those declared before, handle no other version.

    Raises:
        ValueError: one does. Each version has a controller and a finalizer of its own, so calls for
            one object would overlap, and the object would wait for both.
    """
    name = kind.qualified_name
    other = next(
        (
            each
            for each in functions
            if each.kind is not None
            and each.kind.qualified_name == name
            and each.kind.version != kind.version
        ),
        None,
    )
    if other is not None:
        raise ValueError(
            f"{name} has functions for {other.kind.version}, such as {name_of(other.function)}, "
            f"so none can be for {kind.version}: declare all functions for one version, to which "
            "the API server converts every object"
        )


def other_versions(kind: Kind[Any, Any], declared: Declarations) -> tuple[str, ...]:
    """The other versions of a kind of which the App's CRD is made.

    Raises:
        ValueError: as :func:`owned_kinds`.
    """
    return tuple(
        each.version
        for owned in owned_kinds(declared)
        for each in owned.kinds
        if each.qualified_name == kind.qualified_name and each.version != kind.version
    )


def owned_kinds(declared: Declarations) -> list[Owned]:
    """The kinds whose CRDs are the app's, in the order of their first declaration.

    Raises:
        ValueError: a kind is handled in several versions, and nothing converts between them.
    """
    explicit = {each.hub.qualified_name: each for each in declared.owned}
    foreign = {each.kind.qualified_name for each in declared.uses if each.is_foreign}
    seen: dict[str, list[Kind[Any, Any]]] = {}
    for owned in declared.owned:
        seen[owned.hub.qualified_name] = list(owned.kinds)
    converted = [kind for each in declared.converters for kind in (each.source, each.target)]
    for kind in (*declared.handled, *converted):
        name = kind.qualified_name
        if name not in explicit and (is_builtin(kind) or name in foreign):
            continue
        versions = seen.setdefault(name, [])
        if all(other.version != kind.version for other in versions):
            versions.append(kind)
    return [_owned(name, kinds, explicit.get(name), declared) for name, kinds in seen.items()]


def _owned(
    name: str, kinds: list[Kind[Any, Any]], explicit: Owned | None, declared: Declarations
) -> Owned:
    converters = [each for each in declared.converters if each.source.qualified_name == name]
    if explicit is not None and isinstance(explicit.kind, Versions):
        missing = {each.version for each in kinds} - {e.version for e in explicit.kind.kinds}
        if missing or converters:
            raise ValueError(
                f"{name} is declared with Versions that have no {', '.join(sorted(missing))}: add "
                "it there"
                if missing
                else f"{name} is declared with Versions, and with convert(…) of single "
                "versions: use only one of them"
            )
        return explicit
    if len(kinds) == 1:
        return explicit or Owned(kind=kinds[0])
    hub = explicit.hub if explicit is not None else max(kinds, key=_newest)
    versions = _versions(hub, [kind for kind in kinds if kind != hub], converters)
    given = {} if explicit is None else explicit.options
    options = {
        name: {hub.version: value} if name in _OF_ONE_VERSION else value
        for name, value in given.items()
    }
    return Owned(kind=versions, options=options)


def _versions(
    hub: Kind[Any, Any], others: list[Kind[Any, Any]], converters: list[Converter]
) -> Versions[Any, Any]:
    by_kinds = {(each.source, each.target): each for each in converters}
    versions: Versions[Any, Any] = Versions(hub)
    for kind in others:
        up, down = by_kinds.pop((kind, hub), None), by_kinds.pop((hub, kind), None)
        if up is None or down is None:
            missing = (kind, hub) if up is None else (hub, kind)
            raise ValueError(
                f"{hub.qualified_name} is handled in {hub.version} and in {kind.version}: declare "
                f"a converter, @app.convert({missing[0]}, {missing[1]}), or use one version"
            )
        versions = versions.older(
            kind,
            up=up.function,
            down=down.function,
            deprecated=up.deprecated or down.deprecated,
            served=up.served and down.served,
            lossless=up.lossless or down.lossless,
        )
    if by_kinds:
        source, target = next(iter(by_kinds))
        raise ValueError(
            f"convert({source}, {target}) leads past the hub, which is {hub}: convert each version "
            "to it and from it"
        )
    return versions


def _newest(kind: Kind[Any, Any]) -> tuple[int, int, int]:
    """Orders versions as Kubernetes does: v2, v1, v1beta1, v1alpha1, others."""
    found = _VERSION.fullmatch(kind.version)
    if found is None:
        return (-1, 0, 0)
    stage = {None: 2, "beta": 1, "alpha": 0}[found[2]]
    return (stage, int(found[1]), int(found[3] or 0))


def crds_of(
    declared: Declarations, *, service: tuple[str, str] | None, url: str, ca: bytes
) -> list[MutableObject]:
    """The CRDs of the owned kinds.

    Raises:
        ValueError: a kind of which no CRD can be made.
    """
    from appsdk_operator.resource import custom_resource_definition

    where = {"service": service, "url": url, "ca": ca}
    given = {name: value for name, value in where.items() if value}
    found = []
    for owned in owned_kinds(declared):
        is_converted = isinstance(owned.kind, Versions) and bool(owned.kind.spokes)
        options = {**(given if is_converted else {}), **owned.options}
        found.append(custom_resource_definition(owned.kind, **options))
    return found


def conversions(declared: Declarations) -> list[Versions[Any, Any]]:
    """The owned kinds of several versions.

    Raises:
        ValueError: as :func:`owned_kinds`.
    """
    return [
        each.kind
        for each in owned_kinds(declared)
        if isinstance(each.kind, Versions) and each.kind.spokes
    ]
