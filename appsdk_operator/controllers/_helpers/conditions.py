"""Status conditions: reading, setting and patching the standard list."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, Protocol, TypeAlias, TypeVar

import attrs
import msgspec

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.client import JsonPatch, NotFound, SubresourceLike, live_reader
from appsdk_operator.controllers._helpers.guarded import (
    Operations,
    guarded_patch,
    uid_guard,
)
from appsdk_operator.controllers._mutables import check_objects, metadata_of, mutable
from appsdk_operator.resource import Kind, ListType, MutableObject, Object
from appsdk_operator.runtime import Clock, present_clock
from appsdk_operator.runtime.validation import (
    check_client,
    check_count,
    check_environment,
    check_instance,
    check_text,
    checked_texts,
)

ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]
"""The status of a condition."""

_LABEL = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_TYPE = re.compile(rf"({_SUBDOMAIN}/)?{_LABEL}")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_MAX_TYPE = 316
_MAX_REASON = 1024
_MAX_MESSAGE = 32768
# As schemas write them. Names, because Sphinx reads no f-string in an annotation.
_TYPE_PATTERN = f"^{_TYPE.pattern}$"
_REASON_PATTERN = f"^{_REASON.pattern}$"


def _check_type(_: object, __: object, value: str) -> None:
    check_text("condition type", value)
    if len(value) > _MAX_TYPE or not _TYPE.fullmatch(value):
        raise ValueError(
            f"condition type {value[:80]!r}: use a name such as 'Ready' or 'example.com/Synced' of "
            f"at most {_MAX_TYPE} characters"
        )


def _check_status(_: object, __: object, value: str) -> None:
    if value not in ("True", "False", "Unknown"):
        raise ValueError(f"condition status {value!r}: use 'True', 'False' or 'Unknown', as text")


def _check_reason(_: object, __: object, value: str) -> None:
    check_text("condition reason", value)
    if len(value) > _MAX_REASON or not _REASON.fullmatch(value):
        raise ValueError(
            f"condition reason {value[:80]!r}: use one word for machines, such as 'PodsReady', of "
            f"1 to {_MAX_REASON} characters; put text for people into the message"
        )


def _check_message(_: object, __: object, value: str) -> None:
    check_text("condition message", value)
    if len(value) > _MAX_MESSAGE:
        raise ValueError(
            f"condition message of {len(value)} characters: the most is {_MAX_MESSAGE}, shorten it"
        )


def _unset_if_none(value: int | msgspec.UnsetType | None) -> int | msgspec.UnsetType:
    return msgspec.UNSET if value is None else value


def _unset_if_empty(value: str | msgspec.UnsetType | None) -> str | msgspec.UnsetType:
    return value or msgspec.UNSET


_T = TypeVar("_T")


def _in_schema(validator: Callable[[object, object, _T], None]) -> Any:
    """A validator whose demands the annotation of its field says in a schema."""
    validator.is_in_schema = True  # type: ignore[attr-defined]
    return validator


@ListType.MAP("type")
@attrs.frozen
class Condition:
    """One entry of ``status.conditions``, validated as in the API's schema.

    >>> Condition("Ready", "False", "Waiting", "2 of 3 pods are up").status
    'False'

    A status class may have several: ``conditions: tuple[Condition, ...] = ()``. The schema of the
    CRD has the limits of ``metav1.Condition``, and each type once.
    """

    type: Annotated[
        str,
        msgspec.Meta(extra_json_schema={"maxLength": _MAX_TYPE, "pattern": _TYPE_PATTERN}),
    ] = attrs.field(validator=_in_schema(_check_type))
    """Its type, for example ``Ready``."""
    status: ConditionStatus = attrs.field(validator=_in_schema(_check_status))
    """``"True"``, ``"False"`` or ``"Unknown"``."""
    reason: Annotated[
        str,
        msgspec.Meta(
            extra_json_schema={
                "minLength": 1,
                "maxLength": _MAX_REASON,
                "pattern": _REASON_PATTERN,
            }
        ),
    ] = attrs.field(validator=_in_schema(_check_reason))
    """The reason for machines, one word."""
    message: Annotated[str, msgspec.Meta(extra_json_schema={"maxLength": _MAX_MESSAGE})] = (
        attrs.field(default="", validator=_in_schema(_check_message))
    )
    """The reason for people."""
    # The API's names, because status classes with conditions read and write them, and the CRD's
    # schema has them. Unset fields are left out.
    observedGeneration: Annotated[  # noqa: N815
        int | msgspec.UnsetType | None,
        msgspec.Meta(extra_json_schema={"format": "int64", "minimum": 0, "nullable": False}),
    ] = attrs.field(default=msgspec.UNSET, alias="observed_generation", converter=_unset_if_none)
    lastTransitionTime: Annotated[  # noqa: N815
        str | msgspec.UnsetType, msgspec.Meta(extra_json_schema={"format": "date-time"})
    ] = attrs.field(
        default=msgspec.UNSET, alias="last_transition_time", converter=_unset_if_empty, eq=False
    )

    @property
    def observed_generation(self) -> int | None:
        """The observed generation; None: the generation of the object that gets the condition."""
        generation = self.observedGeneration
        return None if isinstance(generation, msgspec.UnsetType) else generation

    @property
    def last_transition_time(self) -> str:
        """The time of the last change of the status, RFC 3339; ignored when the condition is
        set."""
        since = self.lastTransitionTime
        return "" if isinstance(since, msgspec.UnsetType) else since


def set_condition(
    obj: MutableObject,
    type: str,  # noqa: A002 - the API's own word
    status: ConditionStatus,
    reason: str,
    message: str = "",
    *,
    observed_generation: int | None = None,
    clock: Clock | None = None,
) -> bool:
    """Set a condition in the status of a mutable copy; the caller writes it.

    ``lastTransitionTime`` stays unless the status changes, as in the ``meta`` package of
    Kubernetes. The order of the list and unknown fields stay, too.

    Args:
        obj: the copy.
        type: the condition's type, for example ``Ready``.
        status: ``"True"``, ``"False"`` or ``"Unknown"``.
        reason: the reason for machines, one word.
        message: the reason for people.
        observed_generation: default: the generation of ``obj``, if its kind has one.
        clock: the clock for a new transition's time.

    Returns:
        Whether the copy changed; if not, you need not write it.

    Raises:
        ValueError: the API would not accept the condition.
        ReadOnlyError: ``obj`` is not a mutable copy.
    """
    check_environment(clock=clock)
    if observed_generation is not None:
        check_count("observed_generation", observed_generation, 0)
    condition = Condition(type, status, reason, message, observed_generation)
    return _set(mutable(obj), condition, present_clock(clock))


def remove_condition(obj: MutableObject, type: str) -> bool:  # noqa: A002
    """Remove a condition from the status of a mutable copy; returns whether it was there."""
    check_text("type", type)
    conditions = _conditions(mutable(obj))
    left = [entry for entry in conditions if entry.get("type") != type]
    if len(left) == len(conditions):
        return False
    obj.data["status"]["conditions"] = left
    return True


def get_condition(obj: Object | MutableObject, type: str) -> Condition | None:  # noqa: A002
    """The condition of this type, not validated; None if there is none."""
    check_objects(obj=obj)
    check_text("type", type)
    return next((_read(entry) for entry in _conditions(obj) if entry.get("type") == type), None)


def is_condition_true(obj: Object | MutableObject, type: str) -> bool:  # noqa: A002
    """Whether the condition exists with status True."""
    condition = get_condition(obj, type)
    return condition is not None and condition.status == "True"


def is_condition_false(obj: Object | MutableObject, type: str) -> bool:  # noqa: A002
    """Whether the condition exists with status False; Unknown is neither."""
    condition = get_condition(obj, type)
    return condition is not None and condition.status == "False"


class StatusClient(Protocol):
    """The part of a client that :func:`patch_conditions` needs."""

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ...
    ) -> Object[SpecT, StatusT]:
        """The object's current state."""
        ...

    @property
    def status(self) -> SubresourceLike:
        """The subresource ``status``."""
        ...


def patch_conditions(
    client: StatusClient,
    obj: Object[SpecT, StatusT],
    *conditions: Condition,
    remove: Iterable[str] = (),
    clock: Clock | None = None,
) -> Object[SpecT, StatusT] | None:
    """Set conditions on the server, through the status subresource, if they differ.

    The patch only has the list of conditions and a test that the list has not changed. After a
    concurrent write the kit reads the object and makes the patch again, up to 10 times. So several
    controllers can each write their own conditions.

    Args:
        client: the client; the account needs ``get`` on the kind and ``patch`` on its status.
        obj: the object as read, even from a cache. Its generation is the observed generation, even
            if the server has a newer one.
        conditions: the conditions to set, each type once.
        remove: the types of the conditions to remove.
        clock: the clock for a new transition's time.

    Returns:
        The object's new state, or ``obj`` if nothing was written; None when it is gone.

    Raises:
        Conflict: other clients kept writing.
        ApiError: the server refused.
        ValueError: a type is given twice, or the kind has no status subresource.
    """
    check_client(client, "get")
    check_objects(obj=obj)
    check_environment(clock=clock)
    for condition in conditions:
        check_instance("condition", condition, Condition, 'Condition("Ready", "True", "PodsReady")')
    removed = checked_texts("remove", remove)
    types = [*(condition.type for condition in conditions), *removed]
    if len(set(types)) < len(types):
        raise ValueError(f"conditions {', '.join(types)}: name each type once")
    wanted = [
        condition
        if condition.observed_generation is not None or not obj.generation
        else attrs.evolve(condition, observed_generation=obj.generation)
        for condition in conditions
    ]

    def change(present: Object) -> Operations:
        draft = present.mutable_copy()
        changes = [_set(draft, condition, present_clock(clock)) for condition in wanted]
        changes += [remove_condition(draft, name) for name in removed]
        return _operations(present, draft.data["status"]["conditions"]) if any(changes) else []

    def read() -> Object:
        return live_reader(client).get(obj.kind, obj.name, namespace=obj.namespace)

    def write(patch: JsonPatch) -> Object:
        try:
            return client.status.patch(obj.kind, obj.name, patch, namespace=obj.namespace)
        except NotFound:
            # Servers give the same answer for a missing object and a missing subresource.
            if read().uid != obj.uid:
                raise
        raise ValueError(
            f"{obj!r} exists, but its kind has no status to write: enable subresources.status in "
            f"the CRD of {obj.kind.qualified_name}; ConfigMaps, for example, cannot have a status"
        )

    return guarded_patch(obj, change, read=read, write=write, removes=bool(removed))


def _operations(present: Object, conditions: list[Any]) -> Operations:
    guards = uid_guard(present)
    status = present.get("status")
    if isinstance(status, Mapping) and isinstance(status.get("conditions"), list):
        path = "/status/conditions"
        guards.append({"op": "test", "path": path, "value": status["conditions"]})
        return [*guards, {"op": "replace", "path": path, "value": conditions}]
    # Without a list of conditions there is only the resourceVersion to test.
    if present.resource_version:
        version = present.resource_version
        guards.append({"op": "test", "path": "/metadata/resourceVersion", "value": version})
    if isinstance(status, Mapping):
        return [*guards, {"op": "add", "path": "/status/conditions", "value": conditions}]
    return [*guards, {"op": "add", "path": "/status", "value": {"conditions": conditions}}]


def _set(obj: MutableObject, condition: Condition, clock: Clock) -> bool:
    generation = condition.observed_generation
    if generation is None:
        generation = metadata_of(obj).get("generation") or None
    entries = _conditions(obj)
    known = next((e for e in entries if e.get("type") == condition.type), None)
    fields: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
    if generation is not None:
        fields["observedGeneration"] = generation
    is_transition = known is None or known.get("status") != condition.status
    if is_transition or not (known or {}).get("lastTransitionTime"):
        now = dt.datetime.fromtimestamp(clock.time(), dt.UTC)
        fields["lastTransitionTime"] = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    # Servers may omit an empty message, and a generation of 0.
    if known is not None and all(
        (known.get(name) or "") == (value or "") for name, value in fields.items()
    ):
        return False
    status = obj.data.get("status")
    if not isinstance(status, dict):
        status = obj.data["status"] = {}
    status["conditions"] = (
        [*entries, fields]
        if known is None
        else [{**entry, **fields} if entry is known else entry for entry in entries]
    )
    return True


def _conditions(obj: Object | MutableObject) -> list[Any]:
    status = obj.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    if not isinstance(conditions, list):
        return []
    return [entry for entry in conditions if isinstance(entry, Mapping)]


def _read(entry: Mapping[str, Any]) -> Condition:
    # Not validated: built-in kinds have conditions without a reason.
    condition = object.__new__(Condition)
    for name in ("type", "status", "reason", "message"):
        object.__setattr__(condition, name, str(entry.get(name) or ""))
    since = _unset_if_empty(str(entry.get("lastTransitionTime") or ""))
    object.__setattr__(condition, "lastTransitionTime", since)
    generation = entry.get("observedGeneration")
    object.__setattr__(
        condition,
        "observedGeneration",
        generation if isinstance(generation, int) else msgspec.UNSET,
    )
    return condition
