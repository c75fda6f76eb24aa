"""Object metadata: the fields that the server sets, validation, and immutable fields."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from appsdk_operator.apiserver._values.go_text import parse_integer
from appsdk_operator.apiserver._values.names import (
    NameStyle,
    key_problems,
    name_problems,
    validate_key,
    value_problems,
)
from appsdk_operator.apiserver._values.status import FieldError, StatusError, Verbatim

__all__ = [
    "carry_over",
    "generated_name",
    "mark_deleting",
    "new_uid",
    "prepare_create",
    "timestamp",
    "validate",
    "validate_key",
    "validate_update",
    "warnings",
    "wipe_system_fields",
]

_STANDARD_FINALIZERS: Final = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
_ANNOTATIONS_LIMIT: Final = 256 * 1024
# Without vowels and characters that look alike, as on the real server.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_BASE: Final = 58


def timestamp(seconds: float) -> str:
    """Format seconds since the Unix epoch as Kubernetes does."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def generated_name(base: str, rng: random.Random) -> str:
    """A random name that starts with ``base``."""
    return base[:_GENERATED_BASE] + "".join(rng.choices(_ALPHABET, k=5))


def new_uid(rng: random.Random) -> str:
    """A random uid."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def wipe_system_fields(metadata: dict[str, Any]) -> None:
    """Drop the fields that clients cannot set on a new object."""
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        metadata.pop(name, None)


def prepare_create(
    metadata: dict[str, Any], now: float, rng: random.Random, *, generation: bool
) -> None:
    """Set the metadata that the server sets on a new object.

    Kinds without generations keep the one from the client, as on the real server.
    """
    wipe_system_fields(metadata)
    metadata["uid"] = new_uid(rng)
    metadata["creationTimestamp"] = timestamp(now)
    if generation:
        metadata["generation"] = 1


def carry_over(new: dict[str, Any], old: dict[str, Any]) -> None:
    """Copy the metadata that an update cannot remove."""
    new["creationTimestamp"] = old["creationTimestamp"]
    new.setdefault("uid", old["uid"])
    new.pop("selfLink", None)
    new.pop("generation", None)
    if "generation" in old:
        new["generation"] = old["generation"]
    if "deletionTimestamp" in old:
        new["deletionTimestamp"] = old["deletionTimestamp"]
        if "deletionGracePeriodSeconds" in old:
            new.setdefault("deletionGracePeriodSeconds", old["deletionGracePeriodSeconds"])


def mark_deleting(metadata: dict[str, Any], now: float, grace: int | None = 0) -> None:
    """Set the deletion timestamp, which increments the generation, or shorten the grace period.

    A ``grace`` of None is for kinds that the server itself finalizes: they get no grace period and
    no new generation.
    """
    if "deletionTimestamp" not in metadata:
        if metadata.get("generation", 0) > 0 and grace is not None:
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = timestamp(now + (grace or 0))
    elif grace is not None and grace < metadata.get("deletionGracePeriodSeconds", 0):
        ends = dt.datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp()
        begun = ends - metadata["deletionGracePeriodSeconds"]
        metadata["deletionTimestamp"] = timestamp(begun + grace)
    if grace is not None:
        metadata["deletionGracePeriodSeconds"] = grace


def warnings(metadata: dict[str, Any], old: dict[str, Any] | None, *, custom: bool) -> list[str]:
    """The warnings for the metadata of a write. Removes duplicate owner references."""
    messages = _distinct_owners(metadata)
    if custom:
        before = (old or {}).get("finalizers") or ()
        messages += [
            f'metadata.finalizers: "{finalizer}": prefer a domain-qualified finalizer name to '
            "avoid accidental conflicts with other finalizer writers"
            for finalizer in metadata.get("finalizers") or ()
            if "/" not in finalizer
            and finalizer not in _STANDARD_FINALIZERS
            and finalizer not in before
            # An invalid finalizer is refused, so it needs no warning.
            and not any(key_problems(finalizer))
        ]
    return messages


def _distinct_owners(metadata: dict[str, Any]) -> list[str]:
    """Remove duplicate owner references; the warnings for them."""
    owners = metadata.get("ownerReferences") or []
    distinct = [owner for at, owner in enumerate(owners) if owner not in owners[:at]]
    if len(distinct) == len(owners):
        return []
    metadata["ownerReferences"] = distinct
    duplicate_uids = dict.fromkeys(
        str(owner.get("uid", "")) for at, owner in enumerate(owners) if owner in owners[:at]
    )
    messages = (
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references "
        "in 1.20+, and may reject such requests as early as 1.24; please fix your requests; "
        f"duplicate UID(s) observed: {', '.join(duplicate_uids)}"
    )
    return [messages]


def validate_finalizers(metadata: dict[str, Any]) -> Iterator[FieldError]:
    """Validate finalizers of built-in kinds, beyond the syntax of their names."""
    finalizers = metadata.get("finalizers") or ()
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            yield FieldError.invalid(
                f"metadata.finalizers[{index}]",
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            )
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        yield FieldError.invalid(
            "metadata.finalizers",
            _json_text(finalizers),
            "finalizer orphan and foregroundDeletion cannot be both set",
        )


def validate(metadata: dict[str, Any], style: NameStyle) -> Iterator[FieldError]:
    """Validate the metadata of a new or changed object."""
    base = metadata.get("generateName", "")
    # The suffix starts with a letter or a digit, so the base may end with a dash.
    for problem in name_problems(f"{base[:-1]}a" if base.endswith("-") else base, style):
        if base:
            yield FieldError.invalid("metadata.generateName", base, problem)
    name = metadata.get("name", "")
    if not name:
        detail = "name or generateName is required"
        yield FieldError.required("metadata.name", detail)
    else:
        for problem in name_problems(name, style):
            yield FieldError.invalid("metadata.name", name, problem)
    for key, value in metadata.get("labels", {}).items():
        yield from validate_key("metadata.labels", key)
        for problem in value_problems(value):
            yield FieldError.invalid("metadata.labels", value, problem)
    size = 0
    for key, value in metadata.get("annotations", {}).items():
        yield from validate_key("metadata.annotations", key.lower(), key)
        size += len(key.encode()) + len(value.encode())
    if size > _ANNOTATIONS_LIMIT:
        yield FieldError(
            "FieldValueTooLong",
            "metadata.annotations",
            f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes",
        )
    for finalizer in metadata.get("finalizers", ()):
        yield from validate_key("metadata.finalizers", finalizer)
    yield from _validate_owners(metadata.get("ownerReferences", ()))
    for index, entry in enumerate(metadata.get("managedFields", ())):
        path, operation = f"metadata.managedFields[{index}]", entry.get("operation", "")
        if operation not in ("Apply", "Update"):
            problem = "must be `Apply` or `Update`"
            yield FieldError.invalid(f"{path}.operation", operation, problem)
        if (kind := entry.get("fieldsType", "FieldsV1")) != "FieldsV1":
            yield FieldError.invalid(f"{path}.fieldsType", kind, "must be `FieldsV1`")


def _validate_owners(owners: Any) -> Iterator[FieldError]:
    path = "metadata.ownerReferences"
    controllers: list[str] = []
    for owner in owners:
        version = owner.get("apiVersion") or ""
        if not version or version.count("/") > 1:
            yield FieldError.invalid(f"{path}.apiVersion", version, "version must not be empty")
        for name in ("kind", "name", "uid"):
            if not owner.get(name):
                yield FieldError.invalid(f"{path}.{name}", "", "must not be empty")
        if (version, owner.get("kind")) == ("v1", "Event"):
            what = "/v1, Kind=Event is disallowed from being an owner"
            yield FieldError.invalid(path, _json_text(_in_go_order(owner)), what)
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        yield FieldError.invalid(
            path,
            _json_text([_in_go_order(owner) for owner in owners]),
            "Only one reference can have Controller set to true. Found "
            f'"true" in references for {" and ".join(controllers[:2])}',
        )


def _in_go_order(owner: dict[str, Any]) -> dict[str, Any]:
    """The fields of an owner reference in the order in which Go writes them."""
    return {name: owner.get(name) or "" for name in ("apiVersion", "kind", "name", "uid")} | {
        name: owner[name] for name in ("controller", "blockOwnerDeletion") if name in owner
    }


def _json_text(value: Any) -> Verbatim:
    return Verbatim(msgspec.json.encode(value).decode())


def validate_update(new: dict[str, Any], old: dict[str, Any]) -> Iterator[FieldError]:
    """The errors of an update that changes immutable metadata."""
    for name in ("name", "namespace", "uid"):
        if new.get(name, "") != old.get(name, ""):
            yield FieldError.invalid(f"metadata.{name}", new.get(name, ""), "field is immutable")
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if new.get(name) != old.get(name):
            yield FieldError.invalid(f"metadata.{name}", new.get(name), "field is immutable")
    if "deletionTimestamp" in old:
        added = [f for f in new.get("finalizers", ()) if f not in old.get("finalizers", ())]
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            yield FieldError.forbidden(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, found new "
                f"finalizers []string{{{listed}}}",
            )


def parse_revision(text: str) -> int:
    """Parse the resourceVersion of an object.

    Raises:
        StatusError: 500 as on the real server: it is not a number of 64 bits.
    """
    if not text:
        return 0
    number = parse_integer(text) if text[0] not in "+-" else None
    if number is not None and number < 2**64:
        return number
    why = "invalid syntax" if number is None else "value out of range"
    raise StatusError(500, f'strconv.ParseUint: parsing "{text}": {why}', reason="")
