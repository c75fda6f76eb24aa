"""What kopf has left on objects: the state that it has handled, its annotations, its finalizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, final

import attrs

from appsdk_operator.app._handled import NO_CONTENT, HandledState
from appsdk_operator.controllers import check_finalizer
from appsdk_operator.resource import Object, decode_json, equal_numbers, json_pointer
from appsdk_operator.runtime import validation
from appsdk_operator.watchers import without_records

_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""Among the annotations the one that kopf leaves out."""
_MARKERS: Final = ("touch-dummy", "kopf-managed")
"""The names of annotations without content."""
_OF_REPLICA_SET: Final = "-ofDRS"
"""The end of keys where Kubernetes copies annotations from the owner."""
_LABELS, _ANNOTATIONS = "/metadata/labels", "/metadata/annotations"


@final
@attrs.frozen(kw_only=True)
class Kopf:
    """The kopf operator that an App replaces: its annotations, finalizer and peering.

    Give it as ``App(adopt=Kopf())``.

    The defaults are kopf's own. Give the values that the operator has set in
    ``settings.persistence``.

    >>> Kopf(prefix="buckets.example.com", finalizer="buckets.example.com/cleanup").peering
    'default'
    """

    prefix: str = "kopf.zalando.org"
    """The prefix of its annotations, those of its progress storage included."""
    key: str = "last-handled-configuration"
    """The name of the annotation with the last handled state."""
    finalizer: str = "kopf.zalando.org/KopfFinalizerMarker"
    """Its finalizer."""
    peering: str | None = "default"
    """The name of the peering objects (ClusterKopfPeering and KopfPeering).

    The App does not start while they list a live peer. None: the App does not look, for an operator
    that ran with ``--standalone``."""

    def __attrs_post_init__(self) -> None:
        for name in ("prefix", "key"):
            validation.check_text(name, getattr(self, name), empty=False)
        if self.peering is not None:
            validation.check_text("peering", self.peering, empty=False)
        check_finalizer(self.finalizer)


@final
class KopfStates:
    """What an operator with kopf has left on objects. Without state."""

    def __init__(self, options: Kopf) -> None:
        self.finalizer: Final = options.finalizer
        self._start = f"{options.prefix}/"
        self._key = f"{self._start}{options.key}"
        self._mark = options.prefix.encode()

    def may_be_on(self, obj: Object) -> bool:
        """False where none of it surely is on the object; fast."""
        return self._mark in obj.raw or self.finalizer in obj.finalizers

    def is_handled(self, obj: Object) -> bool:
        """Whether kopf has handled the object."""
        return self._mark in obj.raw and self._essence(obj) is not None

    def handled(self, obj: Object) -> HandledState | None:
        """The state of the object that kopf has handled; None: it has not handled it."""
        essence = self._essence(obj)
        if essence is None:
            return None
        present = obj.to_dict()
        content = {name for name in (*essence, *present) if name not in NO_CONTENT}
        values = {json_pointer([name]): essence.get(name) for name in content}
        is_same = all(equal_numbers(essence.get(name), present.get(name)) for name in content)
        for part in ("metadata", "status"):
            values.update(_leaves(essence.get(part), [part]))
        # kopf leaves out empty ones, and some annotations.
        metadata, former = present["metadata"], _dict_of(essence.get("metadata"))
        values[_LABELS] = former.get("labels") or ({} if "labels" in metadata else None)
        annotations = without_records(_dict_of(former.get("annotations")))
        if _APPLIED in obj.annotations:
            annotations[_APPLIED] = obj.annotations[_APPLIED]
        values[_ANNOTATIONS] = annotations
        return HandledState(
            paths=tuple(sorted(values)),
            values=values,
            generation=obj.generation if is_same else 0,
        )

    def removals(self, obj: Object, *, handled: bool) -> list[dict[str, Any]]:
        """The JSON patch that removes kopf's annotations.

        Args:
            obj: the object.
            handled: whether the state that kopf has handled is removed, too.
        """
        if self._mark not in obj.raw:
            return []
        annotations = obj.annotations
        state = annotations.get(self._key_of(obj))
        return [
            {"op": "remove", "path": json_pointer(["metadata", "annotations", key])}
            for key, text in annotations.items()
            # As well as the second key, which older versions read.
            if key.startswith(self._start)
            and (handled if text == state else self._is_progress(key, text))
        ]

    def _key_of(self, obj: Object) -> str:
        is_copied = obj.kind.kind == "ReplicaSet" and any(
            owner.kind == "Deployment" for owner in obj.owner_references
        )
        return f"{self._key}{_OF_REPLICA_SET}" if is_copied else self._key

    def _is_progress(self, key: str, text: str) -> bool:
        name = key.removeprefix(self._start).removesuffix(_OF_REPLICA_SET)
        # Others of the operator may have the same prefix.
        return name in _MARKERS or "started" in (_mapping(text) or ())

    def _essence(self, obj: Object) -> Mapping[str, Any] | None:
        text = obj.annotations.get(self._key_of(obj))
        return None if text is None else _mapping(text)


def _mapping(text: str) -> Mapping[str, Any] | None:
    try:
        found = decode_json(text.encode())
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _dict_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _leaves(part: Any, steps: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The fields that kopf keeps because a handler names them, by JSON pointer."""
    for name, value in part.items() if isinstance(part, dict) else ():
        path = [*steps, name]
        pointer = json_pointer(path)
        if pointer in (_LABELS, _ANNOTATIONS):
            continue
        if isinstance(value, dict) and value:
            yield from _leaves(value, path)
        else:
            yield pointer, value
