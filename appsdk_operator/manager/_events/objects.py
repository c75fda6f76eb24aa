"""Event objects, of events.k8s.io/v1 and of core/v1."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Hashable, Mapping
from typing import Any, Literal, TypeAlias

import attrs
import msgspec

from appsdk_operator.client import MergePatch
from appsdk_operator.manager._events.correlator import EventWrite, KeyedOccurrence
from appsdk_operator.resource import Kind, MutableObject, Object, kinds

EventType: TypeAlias = Literal["Normal", "Warning"]
"""The types of events in the API."""

_MAX_NOTE = 1024  # bytes, as the server counts
_MAX_WORD = 128
_MAX_NAME = 63
_MAX_PREFIX = 253
_MAX_OBJECT_NAME = 253
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@attrs.frozen
class ObjectReference:
    """A reference to the object of an event, for when the object itself is not available."""

    kind: Kind = attrs.field(validator=attrs.validators.instance_of(Kind))
    name: str = attrs.field(validator=attrs.validators.min_len(1))
    namespace: str = ""
    """Empty for cluster-scoped kinds."""
    uid: str = ""
    """Empty when unknown; kubectl then does not show the event with the object."""

    def to_dict(self) -> dict[str, str]:
        """The reference as a part of an event object."""
        fields = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
        }
        return {name: value for name, value in fields.items() if value}


Subject: TypeAlias = Object | MutableObject | ObjectReference
"""An object that an event can be about."""


class Occurrence(msgspec.Struct, frozen=True):
    """One occurrence, with all fields of its event."""

    controller: str
    instance: str
    regarding: ObjectReference
    related: ObjectReference | None
    type: EventType
    reason: str
    action: str
    note: str
    annotations: Mapping[str, str]
    time: float
    """Seconds since 1970."""
    number: int
    """The number of the occurrence, for different names within one microsecond."""

    def namespace(self, *, legacy: bool) -> str:
        """The namespace of its event: that of its object, or the one that the API requires."""
        # Checked by the server: an event without an eventTime belongs into default.
        return self.regarding.namespace or ("default" if legacy else "kube-system")

    @property
    def name(self) -> str:
        """The name of the event, a digest of the occurrence, so that retries have the same name."""
        import hashlib

        identity = (
            f"{self.controller}\n{self.instance}\n{self.regarding.to_dict()}\n"
            f"{self.reason}\n{self.action}\n{self.time!r}\n{self.number}"
        )
        digest = hashlib.blake2b(identity.encode("utf-8", "replace"), digest_size=10).hexdigest()
        # Names such as "system:node" are invalid in an event's name.
        stem = self.regarding.name[: _MAX_OBJECT_NAME - len(digest) - 1].rstrip("-.")
        if not _SUBDOMAIN.fullmatch(stem):
            stem = self.regarding.kind.kind.lower()
        return f"{stem}.{digest}"


def check_recorder_name(name: str) -> str:
    """Return ``name``.

    Raises:
        ValueError: the API does not allow it for a reporting controller.
    """
    prefix, slash, rest = name.rpartition("/")
    fits = _NAME.fullmatch(rest) and (not slash or _SUBDOMAIN.fullmatch(prefix))
    if not fits or len(rest) > _MAX_NAME or len(prefix) > _MAX_PREFIX or len(name) > _MAX_WORD:
        raise ValueError(
            f"event recorder {name!r}: use a qualified name such as 'widget-controller' or "
            f"'example.com/widgets', with at most {_MAX_NAME} characters after the '/' and "
            f"{_MAX_WORD} in all"
        )
    return name


def check_instance(instance: str) -> str:
    """Return ``instance``, cut to the bytes that the API allows.

    Raises:
        ValueError: it is empty.
    """
    if not instance:
        raise ValueError("the reporting instance is empty: give the name of the pod or the host")
    return instance.encode("utf-8", "replace")[:_MAX_WORD].decode("utf-8", "ignore")


def keyed_occurrence(
    controller: str,
    instance: str,
    regarding: Subject,
    type: EventType,  # noqa: A002 - the API's own word
    reason: str,
    action: str,
    note: str,
    *,
    related: Subject | None,
    annotations: Mapping[str, str] | None,
    time: float,
    number: int,
) -> KeyedOccurrence[Occurrence]:
    """Make an occurrence with the key of its series.

    Raises:
        ValueError: the server would reject the event.
    """
    if type not in ("Normal", "Warning"):
        raise ValueError(f"event type {type!r}: use 'Normal' or 'Warning'")
    for what, word in (("reason", reason), ("action", action)):
        if not word or len(word.encode("utf-8", "replace")) > _MAX_WORD:
            raise ValueError(
                f"event {what} {word[:40]!r}: use a short word for machines, such as 'Created', of "
                f"1 to {_MAX_WORD} bytes; put text for people into the note"
            )
        if any(letter.isspace() for letter in word):
            raise ValueError(
                f"event {what} {word[:40]!r} is a sentence: event(regarding, type, reason, action, "
                "note) takes two words for machines first, as in event(obj, 'Normal', 'Scaled', "
                "'Deploy', note='deployed 3 replicas')"
            )
    about = _reference(regarding)
    other = None if related is None else _reference(related)
    occurrence = Occurrence(
        controller,
        instance,
        about,
        other,
        type,
        reason,
        action,
        _shortened(note),
        dict(annotations or {}),
        time,
        number,
    )
    # Unlike client-go's key without the resource version: an object whose status changes at each
    # reconcile would never have a series.
    key: Hashable = (controller, instance, about, other, type, reason, action)
    return KeyedOccurrence(key, (controller, instance, about), occurrence)


def to_create(write: EventWrite[Occurrence], *, legacy: bool) -> MutableObject:
    """The event object to create."""
    first = write.first.fields
    kind = kinds.core.v1.Event if legacy else kinds.events.v1.Event
    event = MutableObject.new(kind, first.name, namespace=first.namespace(legacy=legacy))
    if first.annotations:
        event.annotations.update(first.annotations)
    event["reason"], event["type"], event["action"] = first.reason, first.type, first.action
    if first.related is not None:
        event["related"] = first.related.to_dict()
    if legacy:
        event["involvedObject"] = first.regarding.to_dict()
        event["source"] = {"component": first.controller, "host": first.instance}
        event["firstTimestamp"] = _seconds(first.time)
        event.data.update(_changes(write, legacy=True))
    else:
        event["regarding"] = first.regarding.to_dict()
        event["note"] = first.note
        event["eventTime"] = _micros(first.time)
        event["reportingController"] = first.controller
        event["reportingInstance"] = first.instance
        if write.count > 1:
            event.data.update(_changes(write, legacy=False))
    return event


def to_patch(write: EventWrite[Occurrence], *, legacy: bool) -> MergePatch:
    """The patch for a repetition."""
    return MergePatch(_changes(write, legacy=legacy))


def _changes(write: EventWrite[Occurrence], *, legacy: bool) -> dict[str, Any]:
    last = write.latest.fields
    if legacy:
        return {"count": write.count, "lastTimestamp": _seconds(last.time), "message": last.note}
    return {"series": {"count": write.count, "lastObservedTime": _micros(last.time)}}


def _reference(subject: Subject) -> ObjectReference:
    if isinstance(subject, ObjectReference):
        return subject
    if isinstance(subject, Object):
        uid = subject.uid
    elif isinstance(subject, MutableObject):
        uid = str((subject.data.get("metadata") or {}).get("uid") or "")
    else:
        raise TypeError(
            f"an event is about an Object, a MutableObject or an ObjectReference, not about "
            f"{subject!r}"
        )
    if not subject.name:
        raise ValueError(f"{subject!r} has no name yet: record events about it once it is created")
    return ObjectReference(subject.kind, subject.name, subject.namespace, uid)


def _shortened(note: str) -> str:
    raw = note.encode("utf-8", "replace")
    if len(raw) <= _MAX_NOTE:
        return raw.decode()
    end = "…"
    return raw[: _MAX_NOTE - len(end.encode())].decode("utf-8", "ignore") + end


def _micros(time: float) -> str:
    return f"{_utc(time):%Y-%m-%dT%H:%M:%S.%fZ}"


def _seconds(time: float) -> str:
    return f"{_utc(time):%Y-%m-%dT%H:%M:%SZ}"


def _utc(time: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(time, dt.UTC)
