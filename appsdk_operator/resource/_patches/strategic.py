"""Kubernetes' strategic merge patch: merge patches that merge lists by key.

The rules are those of ``k8s.io/apimachinery``'s ``strategicpatch``; the table of merge keys is that
of the OpenAPI documents of Kubernetes' built-in kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

import attrs

from appsdk_operator.resource._patches.apply import PatchError

_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_PRIMITIVES: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


@attrs.frozen
class MergeRule:
    """The rule for merging one field."""

    key: str = ""
    """The key field of a list's objects; ``""`` for a list of plain values that is a set."""
    retain_keys: bool = False
    """Whether a patch may list the keys to retain (``$retainKeys``)."""
    merges: bool = True
    """Whether the list is merged; False: it is replaced."""


class DirectiveError(PatchError):
    """An unknown ``$patch`` directive; :attr:`part` is the part of the patch that has it."""

    def __init__(self, text: str, part: Mapping[str, Any]) -> None:
        """An error with this text."""
        super().__init__(text)
        self.part = part


class MergeKeyError(PatchError):
    """An element of a merged list lacks the merge key."""

    def __init__(self, text: str, element: Any, key: str) -> None:
        """An error with this text."""
        super().__init__(text)
        self.element = element
        self.key = key


class OrderError(PatchError):
    """A list in a patch is not in the order that the patch gives for it."""

    def __init__(self, text: str, listed: Any, order: Any) -> None:
        """An error with this text."""
        super().__init__(text)
        self.listed = listed
        self.order = order


class MergeRules(Protocol):
    """The merge rules of a kind."""

    def rule(self, path: tuple[str, ...], /) -> MergeRule | None:
        """The rule for the field at ``path`` (list indexes left out); None: it is replaced."""
        ...


class MergeKeys:
    """Merge rules by the last parts of the fields' paths.

    ``"containers.ports"`` means the field ``ports`` directly below a field ``containers`` (or its
    elements), ``"finalizers"`` a field of that name anywhere. The longest match counts.
    """

    __slots__ = ("_rules",)

    def __init__(self, rules: Mapping[str, MergeRule]) -> None:
        """A table of ``rules``; lists without one are replaced."""
        self._rules = dict(rules)

    def rule(self, path: tuple[str, ...]) -> MergeRule | None:
        """The rule for the field at ``path`` (list indexes left out), if there is one."""
        for length in (2, 1):
            found = self._rules.get(".".join(path[-length:])) if len(path) >= length else None
            if found is not None:
                return found if found.merges else None
        return None

    def updated(self, rules: Mapping[str, MergeRule]) -> MergeKeys:
        """A copy with other ``rules`` for some fields."""
        return MergeKeys({**self._rules, **rules})


def _by(key: str) -> MergeRule:
    return MergeRule(key)


_REPLACED: Final = MergeRule(merges=False)

BUILTIN_MERGE_KEYS: Final = MergeKeys(
    {
        "metadata.finalizers": MergeRule(),
        "metadata.ownerReferences": _by("uid"),
        "status.addresses": _by("type"),
        "status.conditions": _by("type"),
        "status.hostIPs": _by("ip"),
        "status.podIPs": _by("ip"),
        "status.resourceClaimStatuses": MergeRule("name", retain_keys=True),
        "spec.containers": _by("name"),
        "spec.drivers": _by("name"),
        "spec.ephemeralContainers": _by("name"),
        "spec.hostAliases": _by("ip"),
        "spec.imagePullSecrets": _by("name"),
        "spec.initContainers": _by("name"),
        "spec.podCIDRs": MergeRule(),
        "spec.ports": _by("port"),
        "spec.resourceClaims": MergeRule("name", retain_keys=True),
        "spec.schedulingGates": _by("name"),
        "spec.topologySpreadConstraints": _by("topologyKey"),
        "spec.volumes": MergeRule("name", retain_keys=True),
        "spec.strategy": MergeRule(retain_keys=True),
        "containers.ports": _by("containerPort"),
        "initContainers.ports": _by("containerPort"),
        "ephemeralContainers.ports": _by("containerPort"),
        "containers.env": _by("name"),
        "initContainers.env": _by("name"),
        "ephemeralContainers.env": _by("name"),
        "containers.volumeDevices": _by("devicePath"),
        "initContainers.volumeDevices": _by("devicePath"),
        "ephemeralContainers.volumeDevices": _by("devicePath"),
        "containers.volumeMounts": _by("mountPath"),
        "initContainers.volumeMounts": _by("mountPath"),
        "ephemeralContainers.volumeMounts": _by("mountPath"),
        # Fields at the top of an object: service accounts and webhook configurations.
        "secrets": _by("name"),
        "webhooks": _by("name"),
        "projected.sources": _REPLACED,
        "imagePullSecrets": _REPLACED,
    }
)
"""The merge keys of the built-in kinds."""


def apply_strategic_merge_patch(
    document: Any, patch: Any, merge_keys: MergeRules = BUILTIN_MERGE_KEYS
) -> Any:
    """Apply a strategic merge patch and return the new document.

    Args:
        document: the object; it is not changed.
        patch: the patch, with its directives ``$patch`` (``merge``, ``replace``, ``delete``),
            ``$retainKeys``, ``$setElementOrder/<list>`` and ``$deleteFromPrimitiveList/<list>``.
        merge_keys: the merge rules.

    Raises:
        PatchError: an invalid directive, a list element without its merge key, or elements that are
            not in the order that the patch gives.

    >>> pod = {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]}}
    >>> apply_strategic_merge_patch(
    ...     pod, {"spec": {"containers": [{"name": "a", "image": "y"}]}}
    ... )["spec"]["containers"]
    [{'name': 'a', 'image': 'y'}, {'name': 'b'}]
    """
    if not isinstance(patch, Mapping) or not isinstance(document, Mapping):
        return _without_directives(patch)
    return _merge_object(document, patch, (), merge_keys)


def _merge_object(
    document: Mapping[str, Any], patch: Mapping[str, Any], path: tuple[str, ...], keys: MergeRules
) -> dict[str, Any]:
    directive = patch.get(_DIRECTIVE)
    if directive is not None:
        if directive == "replace":
            return _plain(patch)
        if directive == "delete":
            return {}
        if directive != "merge":
            text = (
                f"{directive!r} at {_shown(path)} is not a $patch directive: use merge, replace or "
                "delete"
            )
            raise DirectiveError(text, patch)
    merged = dict(document)
    if _RETAIN in patch:
        retained = set(_texts(patch[_RETAIN], path, _RETAIN))
        unknown = [name for name in patch if not name.startswith("$") and name not in retained]
        if unknown:
            raise PatchError(
                f"{_shown(path)} sets {', '.join(unknown)} which $retainKeys does not name: name "
                "every field that is set"
            )
        merged = {name: value for name, value in merged.items() if name in retained}
    _delete_primitives(merged, patch, path)
    for name, value in patch.items():
        if name.startswith("$"):
            continue
        order = patch.get(_ORDER + name)
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            present = merged.get(name)
            inner = present if isinstance(present, Mapping) else {}
            merged[name] = _merge_object(inner, value, (*path, name), keys)
        elif isinstance(value, list):
            merged[name] = _merge_list(merged.get(name), value, order, (*path, name), keys)
        else:
            merged[name] = value
    _reorder(merged, patch, path, keys)
    return merged


def _delete_primitives(
    merged: dict[str, Any], patch: Mapping[str, Any], path: tuple[str, ...]
) -> None:
    for name, gone in patch.items():
        if not name.startswith(_DELETE_PRIMITIVES):
            continue
        field = name.removeprefix(_DELETE_PRIMITIVES)
        if not isinstance(gone, list):
            raise PatchError(f"{name} at {_shown(path)} is not a list: list the values to delete")
        if isinstance(merged.get(field), list):
            merged[field] = [value for value in merged[field] if value not in gone]


def _reorder(
    merged: dict[str, Any], patch: Mapping[str, Any], path: tuple[str, ...], keys: MergeRules
) -> None:
    """Reorder lists for which the patch has an order and no changes."""
    for name, order in patch.items():
        field = name.removeprefix(_ORDER)
        if field == name or field in patch or not isinstance(merged.get(field), list):
            continue
        merged[field] = _merge_list(merged[field], [], order, (*path, field), keys)


def _merge_list(
    present: Any, patch: list[Any], order: Any, path: tuple[str, ...], keys: MergeRules
) -> list[Any]:
    rule = keys.rule(path)
    if rule is None or not isinstance(present, list):
        present = []
    if rule is None:
        return [_without_directives(item) for item in patch]
    if not rule.key:
        added = [item for item in patch if item not in present]
        return _ordered([*present, *added], present, patch, order, path, "")
    key = rule.key
    if any(isinstance(item, Mapping) and item.get(_DIRECTIVE) == "replace" for item in patch):
        # One such element replaces the whole list.
        return [_plain(item) for item in patch if _keyed(item, key)]
    merged: list[Any] = list(present)
    for item in patch:
        _merge_element(merged, item, key, path, keys)
    return _ordered(merged, present, patch, order, path, key)


def _merge_element(
    merged: list[Any], item: Any, key: str, path: tuple[str, ...], keys: MergeRules
) -> None:
    if not isinstance(item, Mapping) or key not in item:
        text = (
            f"an element of {_shown(path)} has no {key!r}: lists there are merged by it, so every "
            "element of the patch must have it"
        )
        raise MergeKeyError(text, item, key)
    places = [
        index
        for index, other in enumerate(merged)
        if isinstance(other, Mapping) and other.get(key) == item[key]
    ]
    if _is_deletion(item):
        for index in reversed(places):
            del merged[index]
    elif places:
        merged[places[0]] = _merge_object(merged[places[0]], item, path, keys)
    else:
        merged.append(_without_directives(item))


def _ordered(
    items: list[Any],
    before: list[Any],
    patch: list[Any],
    order: Any,
    path: tuple[str, ...],
    key: str,
) -> list[Any]:
    """``items`` in the patch's ``order``, by default that of its own elements.

    Elements that the order does not list keep their position relative to the others: each comes
    before the first listed element that it preceded in ``before``.
    """

    def identity(item: Any) -> Any:
        return item.get(key) if isinstance(item, Mapping) else item

    listed = [identity(item) for item in patch if not _is_deletion(item)]
    if order is not None and not isinstance(order, list):
        raise PatchError(f"{_ORDER}{path[-1]} at {_shown(path[:-1])} is not a list of elements")
    wanted = listed if order is None else [identity(item) for item in order]
    rest = iter(wanted)
    if wanted and not all(item in rest for item in listed):
        raise OrderError(
            f"the elements of {_shown(path)} are not in the order of {_ORDER}{path[-1]}: list "
            "there all that the patch sets, in the same order",
            patch,
            order,
        )
    places = [identity(item) for item in before]
    named = sorted(
        (item for item in items if identity(item) in wanted),
        key=lambda item: wanted.index(identity(item)),
    )
    others = [item for item in items if identity(item) not in wanted]
    merged: list[Any] = []
    while named and others:
        mine, other = identity(named[0]), identity(others[0])
        ahead = mine in places and places.index(other) < places.index(mine)
        merged.append(others.pop(0) if ahead else named.pop(0))
    return [*merged, *named, *others]


def _keyed(item: Any, key: str) -> bool:
    return not isinstance(item, Mapping) or key in item


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = _without_directives(value)
    return made


def _without_directives(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: _without_directives(item)
            for name, item in value.items()
            if not _is_directive(name)
        }
    if isinstance(value, list):
        return [_without_directives(item) for item in value if not _is_deletion(item)]
    return value


def _is_deletion(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get(_DIRECTIVE) == "delete"


def _is_directive(name: str) -> bool:
    return name in (_DIRECTIVE, _RETAIN) or name.startswith((_DELETE_PRIMITIVES, _ORDER))


def _texts(value: Any, path: tuple[str, ...], name: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise PatchError(f"{name} at {_shown(path)} is not a list of names")
    return value


def _shown(path: tuple[str, ...]) -> str:
    return ".".join(path) or "the top"
