"""What functions have handled of an object, for the next process: a record as text, without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, final

import msgspec

from appsdk_operator.resource import (
    ChangeFilter,
    FilterScope,
    Kind,
    Object,
    decode_json,
    encode_json,
    equal_numbers,
    json_pointer,
    pointer_steps,
)
from appsdk_operator.watchers import without_records

MOST_BYTES: Final = 16 * 1024
"""The longest record; what does not fit is there as a digest."""
_VERSION: Final = 1
NO_CONTENT: Final = ("apiVersion", "kind", "metadata", "status")
_VOLATILE: Final = ("resourceVersion", "managedFields", "generation")
"""Metadata that changes with each write, that of a record included."""

Paths: TypeAlias = tuple[str, ...] | None
"""JSON pointers (RFC 6901) to the fields that a function names; None: all but metadata and
status."""


def kept_paths(when: ChangeFilter[Any, Any] | None, kind: Kind[Any, Any]) -> Paths:
    """The fields whose former values a filter of changes looks at.

    None where a part of it is a plain function, whose fields nobody knows, and where it has no part
    that looks at the old object. Items of lists are there as the whole list.
    """
    found: set[tuple[str, ...]] = set()
    for leaf in when.tree.leaves() if when is not None else ():
        if leaf.scope is FilterScope.OBJECT:
            continue
        if leaf.atom.steps is None:
            return None
        steps = leaf.atom.steps(kind)
        names = [step for step in steps if isinstance(step, str)]
        index = next((n for n, step in enumerate(steps) if not isinstance(step, str)), len(steps))
        found.add(tuple(names[:index]))
    outer = {path for path in found if not any(path[:n] in found for n in range(1, len(path)))}
    return tuple(sorted(map(json_pointer, outer))) or None


@final
class HandledState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an object that a function of updates has handled, as far as it is kept."""

    paths: Paths
    values: Mapping[str, Any] | None
    """By path, with None for a missing field; or all fields by name. None: too large, or secret."""
    digest: str = ""
    """Of the values that are not kept."""
    generation: int = 0
    """The object's, where all fields are kept; 0: not known."""

    @classmethod
    def of(cls, obj: Object, paths: Paths) -> HandledState:
        """What of ``obj`` is kept for a function with these paths."""
        return cls(
            paths=paths,
            values=_values(obj, paths),
            generation=obj.generation if paths is None else 0,
        )

    def covers(self, paths: Paths, obj: Object) -> bool:
        """Whether it has these fields of ``obj``, and maybe more, each with a path of its own or of
        what is around it."""
        if self.paths is None or self.values is None:
            return False
        if paths is None:
            paths = tuple(json_pointer([n]) for n in obj.to_dict() if n not in NO_CONTENT)
        return all(any(f"{path}/".startswith(f"{own}/") for own in self.paths) for path in paths)

    def is_of(self, obj: Object) -> bool:
        """Whether ``obj`` is in this state, as far as is known."""
        if self.generation not in (0, obj.generation):
            return False
        return self._has_values_of(obj)

    def _has_values_of(self, obj: Object) -> bool:
        values = _values(obj, self.paths)
        if self.values is None:
            return self.digest == _digest(values, obj.uid)
        return equal_numbers(self.values, values)

    def restored(self, present: Object) -> Object | None:
        """``present`` with the kept fields as they were; None where only a digest says that they
        differ, or where somebody has edited them so that they are those of no object."""
        try:
            return self._restored(present)
        except (ValueError, AttributeError, KeyError, TypeError):
            return None

    def _restored(self, present: Object) -> Object | None:
        data = present.to_dict()
        if self.values is None:
            if not self._has_values_of(present):
                return None
        elif self.paths is None:
            for name in [name for name in data if name not in NO_CONTENT]:
                del data[name]
            data.update(self.values)
        else:
            for path in self.paths:
                _set(data, pointer_steps(path), self.values.get(path))
        metadata = data["metadata"]
        metadata.pop("resourceVersion", None)
        metadata.pop("generation", None)
        if self.generation:
            metadata["generation"] = self.generation
        return Object.from_json(present.kind, encode_json(data))

    def as_digest(self, uid: str) -> HandledState:
        """The same without the values."""
        if self.values is None:
            return self
        return msgspec.structs.replace(self, values=None, digest=_digest(self.values, uid))

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        paths = None if self.paths is None else list(self.paths)
        if self.values is None:
            found: dict[str, Any] = {"digest": self.digest}
            if paths is not None:
                found["at"] = paths
        else:
            found = {"all" if paths is None else "at": dict(self.values)}
        if self.generation:
            found["g"] = self.generation
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HandledState:
        """The inverse of :meth:`to_json`.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is nothing of that kind.
        """
        generation = int(data.get("g", 0))
        if "digest" in data:
            paths = data.get("at")
            return cls(
                paths=None if paths is None else tuple(map(str, paths)),
                values=None,
                digest=str(data["digest"]),
                generation=generation,
            )
        if "all" in data:
            return cls(paths=None, values=dict(data["all"]), generation=generation)
        at = dict(data["at"])
        return cls(paths=tuple(sorted(at)), values=at, generation=generation)


@final
class Handled(msgspec.Struct, frozen=True, kw_only=True):
    """What the functions of a kind have handled of one object; each by its name."""

    done: frozenset[str] = frozenset()
    """The ``on_add`` that are not called any more."""
    due: frozenset[str] = frozenset()
    """The others."""
    held: frozenset[str] = frozenset()
    """The ``on_delete`` of which the object was one at some time."""
    states: Mapping[str, HandledState] = msgspec.field(default_factory=dict)
    """What each ``on_update`` has last succeeded with."""
    is_new: bool = False
    """Whether its first handling is not over."""

    def to_text(self, obj: Object, *, digests_only: bool = False) -> str:
        """The record for ``obj``, in at most :data:`MOST_BYTES`.

        Args:
            obj: the object; the record is valid for its uid and API version.
            digests_only: whether it has no values, as for a Secret.
        """
        states = dict(self.states)
        if digests_only:
            states = {name: each.as_digest(obj.uid) for name, each in states.items()}
        text = self._text(obj, states)
        # From the largest on, until the others fit.
        sizes = {name: len(_compact(each.to_json())) for name, each in states.items()}
        for name in sorted(states, key=lambda name: (-sizes[name], name)):
            if len(text.encode()) <= MOST_BYTES:
                break
            states[name] = states[name].as_digest(obj.uid)
            text = self._text(obj, states)
        return text

    def _text(self, obj: Object, states: Mapping[str, HandledState]) -> str:
        entries: list[dict[str, Any]] = []
        of: dict[str, int] = {}
        places: dict[str, int] = {}
        for name in sorted(states):
            entry = states[name].to_json()
            place = places.setdefault(_compact(entry), len(entries))
            if place == len(entries):
                entries.append(entry)
            of[name] = place
        whole = {
            "v": _VERSION,
            "uid": obj.uid,
            "api": obj.kind.version,
            "new": self.is_new,
            "done": sorted(self.done),
            "due": sorted(self.due),
            "held": sorted(self.held),
            "states": entries,
            "of": of,
        }
        return _compact({name: value for name, value in whole.items() if value})

    @classmethod
    def from_text(cls, text: str, obj: Object) -> Handled | None:
        """The record, if it is one of ``obj``; None for one of another object, such as that of
        which it is a copy, or in a form that this version does not know. A record of another API
        version has no states."""
        try:
            data = decode_json(text.encode())
            if (data["v"], data["uid"]) != (_VERSION, obj.uid):
                return None
            entries = [HandledState.from_json(each) for each in data.get("states", ())]
            # What another version has of an object cannot be compared.
            of = data.get("of", {}) if data["api"] == obj.kind.version else {}
            return cls(
                done=_names(data, "done"),
                due=_names(data, "due"),
                held=_names(data, "held"),
                states={str(name): entries[at] for name, at in of.items()},
                is_new=bool(data.get("new")),
            )
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return None  # somebody has edited it


def is_of_another(text: str, obj: Object) -> bool:
    """Whether it is the record of another object than ``obj``, of which this one is a copy."""
    try:
        uid = decode_json(text.encode())["uid"]
    except (ValueError, KeyError, TypeError):
        return False  # somebody has edited it
    return isinstance(uid, str) and uid != obj.uid


def _names(data: Mapping[str, Any], key: str) -> frozenset[str]:
    return frozenset(map(str, data.get(key, ())))


def _values(obj: Object, paths: Paths) -> dict[str, Any]:
    data = obj.to_dict()
    if paths is None:
        return {name: data[name] for name in data if name not in NO_CONTENT}
    metadata = data.get("metadata") or {}
    for name in _VOLATILE:
        metadata.pop(name, None)
    if "annotations" in metadata:
        metadata["annotations"] = without_records(metadata["annotations"] or {})
    return {path: _at(data, pointer_steps(path)) for path in paths}


def _at(data: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        data = data.get(step) if isinstance(data, Mapping) else None
    return data


def _set(data: dict[str, Any], steps: Sequence[str], value: Any) -> None:
    *above, last = steps
    for step in above:
        inner = data.get(step)
        if not isinstance(inner, dict):
            if value is None:
                return
            inner = data[step] = {}
        data = inner
    if value is None:
        data.pop(last, None)
    else:
        data[last] = value


def _compact(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _digest(values: Mapping[str, Any], uid: str) -> str:
    """With the uid, so that equal values of two objects do not show."""
    # Numbers that are equal to a server are equal here.
    import hashlib

    return hashlib.sha256((uid + _compact(_plain(values))).encode()).hexdigest()[:32]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
