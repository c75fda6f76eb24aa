"""The entries of ``metadata.managedFields``: decoding, encoding, and the cap on their number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs
import msgspec

from appsdk_operator.apiserver._managed_fields import field_sets
from appsdk_operator.apiserver._managed_fields.field_sets import FieldSet
from appsdk_operator.apiserver._managed_fields.ownership import Manager, Owner, Owners
from appsdk_operator.apiserver._values.status import FieldError, Verbatim

Times: TypeAlias = dict[Manager, str | None]

SERVER: Final = "kube-apiserver"
"""The field manager of the server's own writes."""

_TYPE: Final = "FieldsV1"
_MAX_NAME: Final = 128
_MAX_UPDATERS: Final = 10
_ANCIENT: Final = "ancient-changes"
_canonical: Final = msgspec.json.Encoder(order="sorted").encode

# Fields without owner: the server sets them, or they identify the object.
_SERVER_FIELDS: Final[FieldSet] = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        field_sets.SELF: {},
        **{
            f"f:{name}": {}
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "clusterName",
                "generation",
                "managedFields",
                "resourceVersion",
            )
        },
    },
}


@attrs.define
class ManagedFields:
    """The owners of an object's fields, and the time of each owner's last write."""

    owners: Owners = attrs.field(factory=dict)
    times: Times = attrs.field(factory=dict)


def is_server_field(name: str) -> bool:
    """Whether a metadata field has no owner."""
    return f"f:{name}" in _SERVER_FIELDS["f:metadata"]


def strip_server_fields(fields: FieldSet) -> FieldSet:
    """The set without the fields that have no owner."""
    return field_sets.difference(fields, _SERVER_FIELDS)


# -- entries -------------------------------------------------------------------------------


def decode(entries: Iterable[Mapping[str, Any]], *, trusted: bool) -> ManagedFields:
    """Decode the entries of an object.

    Args:
        entries: the entries.
        trusted: whether :func:`encode` has written them.

    Raises:
        ValueError: an entry is not valid.
    """
    managed = ManagedFields()
    for entry in entries:
        operation, api_version = entry.get("operation"), entry.get("apiVersion")
        if not trusted:
            _check(entry)
        fields = entry.get("fieldsV1")
        if not trusted:
            fields = field_sets.parse(fields or {})
            fields.pop(field_sets.SELF, None)
        applied = operation == "Apply"
        manager = Manager(
            entry.get("manager") or "",
            operation or "",
            "" if applied else api_version or "",
            entry.get("subresource") or "",
        )
        managed.owners[manager] = Owner(fields or {}, api_version or "", applied)
        managed.times[manager] = entry.get("time")
    return managed


def _check(entry: Mapping[str, Any]) -> None:
    if entry.get("operation") not in ("Apply", "Update"):
        raise ValueError("operation must be `Apply` or `Update`")
    texts = ("manager", "apiVersion", "subresource", "time", "fieldsType")
    if any(not isinstance(entry.get(name) or "", str) for name in texts):
        raise ValueError("not an entry of managedFields")
    if not entry.get("apiVersion"):
        raise ValueError("apiVersion must not be empty")
    if entry.get("fieldsType") != _TYPE:
        raise ValueError("fieldsType must be FieldsV1")


def encode(managed: ManagedFields, *, by_text: bool) -> list[dict[str, Any]]:
    """Encode the entries.

    Args:
        managed: the owners.
        by_text: the order of custom resources, see :func:`ordered`.
    """
    entries = [
        _entry(manager, owner, managed.times.get(manager), by_text=by_text)
        for manager, owner in managed.owners.items()
    ]
    if len(entries) > 1:
        entries.sort(key=_sort_key)
    return entries


def _entry(manager: Manager, owner: Owner, time: str | None, *, by_text: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "manager": manager.name,
        "operation": "Apply" if owner.applied else manager.operation,
        "apiVersion": owner.api_version,
    }
    if time:
        entry["time"] = time
    entry["fieldsType"] = _TYPE
    entry["fieldsV1"] = field_sets.ordered(owner.fields, by_text=by_text)
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def _sort_key(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        entry["operation"],
        entry.get("time") or "",
        entry["manager"],
        entry["apiVersion"],
        entry.get("subresource", ""),
    )


def is_reset(entries: Any, *, custom: bool) -> bool:
    """Whether the entries in a request reset ``managedFields``."""
    if entries == []:
        # In a custom resource the real server cannot tell an empty list from a missing one.
        return not custom
    return bool(entries == [{}])


def without_times(entries: Any) -> Any:
    """The entries without their times."""
    return [
        {name: value for name, value in entry.items() if name != "time"} for entry in entries or ()
    ]


def discard_time_changes(new: dict[str, Any], old: dict[str, Any]) -> None:
    """Restore the old times if nothing else of the object has changed."""
    ours, theirs = new["metadata"].get("managedFields"), old["metadata"].get("managedFields")
    if not ours or not theirs or len(ours) != len(theirs) or ours == theirs:
        return
    if without_times(ours) != without_times(theirs):
        return
    before, after = without_entries(old), without_entries(new)
    # As JSON: to Python 1, 1.0 and True are equal. The cheap comparison comes first.
    if before == after and _canonical(before) == _canonical(after):
        new["metadata"]["managedFields"] = theirs


def without_entries(obj: dict[str, Any]) -> dict[str, Any]:
    """The object without ``managedFields``."""
    metadata = {name: item for name, item in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


# -- the cap -------------------------------------------------------------------------------


def cap_updaters(managed: ManagedFields) -> None:
    """Merge the oldest entries of updates until at most ten are left."""
    updaters = [manager for manager, owner in managed.owners.items() if not owner.applied]
    over = len(updaters) - _MAX_UPDATERS
    if over <= 0:
        return
    owners, times = managed.owners, managed.times
    updaters.sort(key=lambda manager: (times.get(manager) or "", manager))
    first: dict[str, Manager] = {}
    for manager in updaters:
        if over <= 0:
            return
        owner = owners[manager]
        version = owner.api_version
        if version not in first:
            first[version] = manager
            continue
        bucket = Manager(_ANCIENT, "Update", version)
        if bucket not in owners:
            owners[bucket] = owners.pop(first[version])
        fields = field_sets.union(owner.fields, owners[bucket].fields)
        owners[bucket] = attrs.evolve(owner, fields=fields)
        if manager != bucket:
            owners.pop(manager, None)
        times[bucket] = times.get(manager)
        over -= 1


# -- names ---------------------------------------------------------------------------------


def manager_name(given: str, user_agent: str) -> str:
    """The field manager of a request: as given, else the program in the User-Agent."""
    if given:
        return given
    first = user_agent.partition("/")[0]
    if first.isascii() and first.isprintable() and len(first) <= _MAX_NAME:
        return first or "unknown"
    name = ""
    size = 0
    # Bytes of the header that are not UTF-8 become replacement characters.
    text = user_agent.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    for char in text.partition("/")[0]:
        if not char.isprintable():
            continue
        size += len(char.encode())
        if size > _MAX_NAME:
            break
        name += char
    return name or "unknown"


def manager_problems(name: str) -> Iterator[FieldError]:
    """The errors of the ``fieldManager`` of a request."""
    if len(name.encode()) > _MAX_NAME:
        yield FieldError(
            "FieldValueTooLong",
            "fieldManager",
            f"Too long: may not be more than {_MAX_NAME} bytes",
        )
    position = 0
    for char in name:
        if not char.isprintable():
            yield FieldError.invalid(
                "fieldManager",
                Verbatim(f'"{_escaped(name)}"'),
                f"invalid character U+{ord(char):04X} (at position {position})",
            )
        position += len(char.encode())


def _escaped(text: str) -> str:
    """Escape a string as between Go's quotes."""
    return text.encode("unicode_escape").decode().replace('"', '\\"')
