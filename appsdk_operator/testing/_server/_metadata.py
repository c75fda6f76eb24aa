"""Object metadata: what the server sets, what may not change, and what is not valid."""

from __future__ import annotations

import datetime as dt
import random
import re
import uuid
from collections.abc import Iterator
from typing import Any, Final

from appsdk_operator.testing._server._names import NameStyle
from appsdk_operator.testing._server._status import (
    FieldError,
    StatusError,
    Verbatim,
    bad_request,
)

__all__ = [
    "carry_over",
    "check_shape",
    "generated_name",
    "mark_deleting",
    "prepare_create",
    "timestamp",
    "validate",
    "validate_update",
]

_SUBDOMAIN: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SERVICE: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_QUALIFIED})?"

_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN}')"
)
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{_LABEL}')"
)
_SERVICE_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{_SERVICE}')"
)
_QUALIFIED_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{_QUALIFIED}')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    f"or '12345', regex used for validation is '{_VALUE}')"
)
_STYLES: Final = {
    NameStyle.SUBDOMAIN: (re.compile(_SUBDOMAIN), 253, _SUBDOMAIN_TEXT),
    NameStyle.LABEL: (re.compile(_LABEL), 63, _LABEL_TEXT),
    NameStyle.SERVICE: (re.compile(_SERVICE), 63, _SERVICE_TEXT),
}
_QUALIFIED_RE: Final = re.compile(_QUALIFIED)
_VALUE_RE: Final = re.compile(_VALUE)
_SUBDOMAIN_RE: Final = re.compile(_SUBDOMAIN)

_STANDARD_FINALIZERS: Final = frozenset({"orphan", "foregroundDeletion", "kubernetes"})
_ANNOTATIONS_LIMIT: Final = 256 * 1024
# Without vowels and without what looks like another character, as the real server has it.
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_BASE: Final = 58

# The type of each field of metadata that the server relies on.
_SHAPE: Final[dict[str, tuple[type, ...]]] = {
    "name": (str,),
    "generateName": (str,),
    "namespace": (str,),
    "uid": (str,),
    "resourceVersion": (str,),
    "generation": (int,),
    "creationTimestamp": (str,),
    "deletionTimestamp": (str,),
    "deletionGracePeriodSeconds": (int,),
    "labels": (dict,),
    "annotations": (dict,),
    "finalizers": (list,),
    "ownerReferences": (list,),
    "managedFields": (list,),
    "selfLink": (str,),
}


def timestamp(seconds: float) -> str:
    """Seconds since 1970 as Kubernetes writes times."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def generated_name(base: str) -> str:
    """A fresh name that starts with ``base``."""
    return base[:_GENERATED_BASE] + "".join(random.choices(_ALPHABET, k=5))


def check_shape(obj: dict[str, Any], kind: str, version: str) -> dict[str, Any]:
    """The metadata of ``obj``, with nulls and empty collections gone.

    Raises:
        StatusError: 400, a field of metadata has a type the server cannot work with.
    """
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = {}
    wrong = not isinstance(metadata, dict)
    if not wrong:
        metadata = {
            key: value
            for key, value in metadata.items()
            if value is not None and value != {} and value != []
        }
        wrong = any(
            name in metadata
            and (not isinstance(metadata[name], types) or isinstance(metadata[name], bool))
            for name, types in _SHAPE.items()
        ) or not _members_fit(metadata)
    if wrong:
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: metadata is malformed: '
            "names, labels and annotations are text, finalizers a list of texts and "
            "ownerReferences a list of objects"
        )
    obj["metadata"] = metadata
    return metadata


def _members_fit(metadata: dict[str, Any]) -> bool:
    texts = (
        value for name in ("labels", "annotations") for value in metadata.get(name, {}).values()
    )
    return (
        all(isinstance(value, str) for value in texts)
        and all(isinstance(value, str) for value in metadata.get("finalizers", ()))
        and all(
            isinstance(owner, dict)
            and all(
                isinstance(owner.get(name, ""), str)
                for name in ("apiVersion", "kind", "name", "uid")
            )
            for owner in metadata.get("ownerReferences", ())
        )
    )


def prepare_create(metadata: dict[str, Any], now: float, *, generation: bool) -> None:
    """Set what the server sets on a new object."""
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
        metadata.pop(name, None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = timestamp(now)
    if generation:
        metadata["generation"] = 1


def carry_over(new: dict[str, Any], old: dict[str, Any]) -> None:
    """Take over from the old metadata what an update cannot take away."""
    new["creationTimestamp"] = old["creationTimestamp"]
    new.setdefault("uid", old["uid"])
    new.pop("selfLink", None)
    new.pop("generation", None)
    if "generation" in old:
        new["generation"] = old["generation"]
    if "deletionTimestamp" in old:
        new.setdefault("deletionTimestamp", old["deletionTimestamp"])
        if "deletionGracePeriodSeconds" in old:
            new["deletionGracePeriodSeconds"] = old["deletionGracePeriodSeconds"]


def mark_deleting(metadata: dict[str, Any], now: float, grace: int | None = 0) -> None:
    """Note that the object's deletion was asked for, and that it counts as a change.

    A ``grace`` of None is for kinds that the server itself clears away: they tell no grace period
    and do not count.
    """
    if "deletionTimestamp" not in metadata:
        if metadata.get("generation", 0) > 0 and grace is not None:
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = timestamp(now + (grace or 0))
    if grace is not None:
        metadata["deletionGracePeriodSeconds"] = grace


def validate_finalizers(metadata: dict[str, Any]) -> Iterator[FieldError]:
    """What built-in kinds ask of finalizers beyond a valid name."""
    finalizers = metadata.get("finalizers") or ()
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            yield FieldError.invalid(
                f"metadata.finalizers[{index}]",
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            )
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        shown = ", ".join(f'"{finalizer}"' for finalizer in finalizers)
        yield FieldError.invalid(
            "metadata.finalizers",
            Verbatim(f"[]string{{{shown}}}"),
            "finalizer orphan and foregroundDeletion cannot be both set",
        )


def validate(metadata: dict[str, Any], style: NameStyle) -> Iterator[FieldError]:
    """What is not valid in the metadata of a new or changed object."""
    name = metadata.get("name", "")
    if not name:
        detail = "name or generateName is required"
        yield FieldError.required("metadata.name", detail)
    else:
        yield from _validate_name(name, style)
    for key, value in metadata.get("labels", {}).items():
        yield from _validate_key("metadata.labels", key)
        if len(value) > 63:
            yield FieldError.invalid("metadata.labels", value, "must be no more than 63 characters")
        if not _VALUE_RE.fullmatch(value):
            yield FieldError.invalid("metadata.labels", value, _VALUE_TEXT)
    size = 0
    for key, value in metadata.get("annotations", {}).items():
        yield from _validate_key("metadata.annotations", key)
        size += len(key) + len(value.encode())
    if size > _ANNOTATIONS_LIMIT:
        yield FieldError(
            "FieldValueTooLong",
            "metadata.annotations",
            f"Too long: must have at most {_ANNOTATIONS_LIMIT} bytes",
        )
    for finalizer in metadata.get("finalizers", ()):
        yield from _validate_key("metadata.finalizers", finalizer)
    yield from _validate_owners(metadata.get("ownerReferences", ()))


def _validate_name(name: str, style: NameStyle) -> Iterator[FieldError]:
    if style is NameStyle.PATH_SEGMENT:
        if name in (".", ".."):
            yield FieldError.invalid("metadata.name", name, f"may not be '{name}'")
        for char in "/%":
            if char in name:
                yield FieldError.invalid("metadata.name", name, f"may not contain '{char}'")
        return
    pattern, limit, text = _STYLES[style]
    if len(name) > limit:
        yield FieldError.invalid("metadata.name", name, f"must be no more than {limit} characters")
    if not pattern.fullmatch(name):
        yield FieldError.invalid("metadata.name", name, text)


def _validate_key(field: str, key: str) -> Iterator[FieldError]:
    prefix, slash, name = key.rpartition("/")
    if slash:
        if not prefix:
            yield FieldError.invalid(field, key, "prefix part must be non-empty")
        elif not _SUBDOMAIN_RE.fullmatch(prefix):
            yield FieldError.invalid(field, key, f"prefix part {_SUBDOMAIN_TEXT}")
    if not name:
        yield FieldError.invalid(field, key, "name part must be non-empty")
    elif len(name) > 63:
        yield FieldError.invalid(field, key, "name part must be no more than 63 characters")
    if name and not _QUALIFIED_RE.fullmatch(name):
        yield FieldError.invalid(field, key, _QUALIFIED_TEXT)


def _validate_owners(owners: Any) -> Iterator[FieldError]:
    controllers: list[str] = []
    for owner in owners:
        for name, words in (
            ("apiVersion", "version must not be empty"),
            ("kind", "kind must not be empty"),
            ("name", "name must not be empty"),
            ("uid", "uid must not be empty"),
        ):
            if not owner.get(name):
                yield FieldError.invalid(f"metadata.ownerReferences.{name}", "", words)
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        yield FieldError.invalid(
            "metadata.ownerReferences",
            Verbatim("[]"),
            "Only one reference can have Controller set to true. Found "
            f'"true" in references for {" and ".join(controllers)}',
        )


def validate_update(new: dict[str, Any], old: dict[str, Any]) -> Iterator[FieldError]:
    """What an update changes and may not change."""
    for name in ("name", "namespace", "uid"):
        if new.get(name, "") != old.get(name, ""):
            yield FieldError.invalid(f"metadata.{name}", new.get(name, ""), "field is immutable")
    if new.get("deletionTimestamp") != old.get("deletionTimestamp"):
        shown = re.sub(r"T(.*)Z", r" \1 +0000 UTC", new.get("deletionTimestamp", ""))
        yield FieldError.invalid(
            "metadata.deletionTimestamp", Verbatim(shown), "field is immutable"
        )
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
    """The number in a resourceVersion an object carries.

    Raises:
        StatusError: 500 as on the real server, it is no number.
    """
    try:
        return int(text) if text else 0
    except ValueError:
        raise StatusError(
            500, f'strconv.ParseUint: parsing "{text}": invalid syntax', reason=""
        ) from None
