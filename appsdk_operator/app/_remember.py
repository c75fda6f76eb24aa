"""Where the records of handled objects are: in an annotation, or in a place of the program's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, final, runtime_checkable

from appsdk_operator.app._handled import Handled
from appsdk_operator.client import ClientLike, NotFound, live_reader
from appsdk_operator.controllers import guarded_patch, uid_guard
from appsdk_operator.resource import Kind, Object, json_pointer
from appsdk_operator.runtime import as_exception, get_logger
from appsdk_operator.runtime.validation import no_awaitable
from appsdk_operator.watchers import RECORD_SUFFIX

_log: Final = get_logger("appsdk_operator.app")


@runtime_checkable
class HandledStates(Protocol):
    """A store for the states that an App has handled, for ``App(handled_states=…)``.

    It stores a text of at most 16 KiB for each object, in the App's own format. For objects without
    a finalizer the text is also the mark that they were added. The App's workers call the methods:
    for one object one at a time, for different objects at the same time. The methods may block. If
    one raises, the App retries the call for that object.
    """

    def load(self, obj: Object[Any, Any], /) -> str | None:
        """The text that was last stored for the object, by its uid; None: there is none.

        Each process calls it when it first sees the object.
        """
        ...

    def store(self, obj: Object[Any, Any], state: str | None, /) -> None:
        """Store the text in place of an earlier one; None: remove it, the object is gone."""
        ...


class RecordError(Exception):
    """What was handled of an object could not be recorded; ``__cause__`` has the reason."""


class Records:
    """The records of the objects of one kind, in a place of the program's. Thread-safe."""

    mark: bytes = b""
    """What stands in the JSON of an object with a record; empty: it does not show."""

    def __init__(
        self,
        kind: Kind[Any, Any],
        client: ClientLike,
        states: HandledStates | None,
        *,
        has_others: bool = False,
        keeps_states: bool = True,
    ) -> None:
        """Records of ``kind`` in ``states``.

        Args:
            kind: of the objects.
            client: tells whether an object is gone.
            states: the place.
            keeps_states: whether they have what updates have handled, and not only which objects
                were added.
            has_others: whether other replicas have written until shortly before, so that the cache
                may not show that yet.
        """
        self.keeps_states: Final = keeps_states
        self._kind = kind
        self._live = live_reader(client)
        self._states = states
        self._has_others = has_others
        self._digests_only = (kind.group, kind.kind) == ("", "Secret")

    def text_of(self, handled: Handled, obj: Object) -> str:
        """What is stored of ``obj``."""
        return handled.to_text(obj, digests_only=self._digests_only)

    def handled(self, text: str | None, obj: Object) -> Handled | None:
        """What the functions have handled of the object, by a text that was stored and by the
        object itself; None: nobody knows."""
        return None if text is None else Handled.from_text(text, obj)

    def newest(self, obj: Object) -> Object | None:
        """The object with what other replicas have recorded last; None where there are none."""
        return obj if self._has_others else None

    def stored(self, obj: Object) -> str | None:
        """The text that was stored last, as far as the object shows it."""
        assert self._states is not None
        found: object = _called("load", self._states.load, obj)
        if found is None or isinstance(found, str):
            return None if found is None else str.__str__(found)
        raise TypeError(
            f"load() of handled_states= returned {type(found).__name__}: return the text that was "
            "stored, or None"
        )

    def shown(self, obj: Object, loaded: str | None) -> str | None:
        """The text that stands where this process writes, as far as the object shows it."""
        del obj
        return loaded

    def store(
        self,
        obj: Object,
        text: str,
        check: Callable[[Object], None],
        also: Callable[[Object], list[dict[str, Any]]],
    ) -> Object | None:
        """Store the text, unless ``check`` of the state that it is written to raises.

        Args:
            obj: the object.
            text: the record.
            check: as above.
            also: returns further operations for a patch of this very state of the object.

        Returns:
            The new state of the object, if it was patched.

        Raises:
            Exception: what the program's ``store`` raised.
        """
        del check, also
        assert self._states is not None
        _called("store", self._states.store, obj, text)
        return None

    def gone(self, obj: Object) -> None:
        """The object has left the cache: forget it, unless the server still has it, as after a
        change of labels that the cache selects by. An error is logged."""
        if self._states is None:
            return
        try:
            if self._present(obj) is not None:
                return
        except Exception:
            _log.exception(
                "could not find out whether %r is gone. Its text stays in your store: delete it "
                "there if the object is gone",
                obj,
            )
            return
        try:
            _called("store", self._states.store, obj, None)
        except Exception:
            _log.exception(
                "store(%r, None) of handled_states= failed. The object is gone, but its text stays "
                "in your store: delete it there",
                obj,
            )

    def is_missing(self, obj: Object) -> bool:
        """Whether the object lacks what was stored on it."""
        del obj
        return False

    def _present(self, obj: Object) -> Object | None:
        """The object as the server has it; None: it is gone.

        Raises:
            ApiError, TransportError: it could not be read.
        """
        try:
            found = self._live.get(self._kind, obj.name, namespace=obj.namespace)
        except NotFound:
            return None
        return found if found.uid == obj.uid else None


def _called(name: str, method: Callable[..., Any], *args: Any) -> Any:
    """What a method of the program's store returns; an exit in it ends no worker."""
    what = f"{name}() of handled_states="
    try:
        return no_awaitable(what, method(*args))
    except BaseException as raised:
        raise as_exception(what, raised)  # noqa: B904 - often the same


@final
class AnnotationRecords(Records):
    """Records in an annotation of their objects."""

    def __init__(
        self,
        kind: Kind[Any, Any],
        client: ClientLike,
        name: str,
        previous_names: Sequence[str],
        *,
        has_others: bool,
        keeps_states: bool = True,
    ) -> None:
        """Records of the App ``name``, which had other names before.

        Args:
            kind: of the objects.
            client: writes the annotations.
            name: the App's.
            previous_names: its former names, whose records are replaced.
            has_others: as for :class:`Records`.
            keeps_states: as there.
        """
        super().__init__(kind, client, None, has_others=has_others, keeps_states=keeps_states)
        self._client = client
        self.key: Final = f"{name}{RECORD_SUFFIX}"
        self.mark = self.key.encode()
        self._previous = tuple(f"{each}{RECORD_SUFFIX}" for each in previous_names if each != name)

    def stored(self, obj: Object) -> str | None:
        """The text of the annotation."""
        annotations = obj.annotations
        for key in (self.key, *self._previous):
            if key in annotations:
                return annotations[key]
        return None

    def newest(self, obj: Object) -> Object | None:
        """Read from the server, where there are other replicas.

        Raises:
            ApiError, TransportError: it could not be read.
        """
        return self._present(obj) if self._has_others else None

    def shown(self, obj: Object, loaded: str | None) -> str | None:
        """The annotation, unless it has an earlier name of the App."""
        del loaded
        return obj.annotations.get(self.key)

    def store(
        self,
        obj: Object,
        text: str,
        check: Callable[[Object], None],
        also: Callable[[Object], list[dict[str, Any]]],
    ) -> Object | None:
        """Write the annotation, unless it has this text.

        Raises:
            ApiError, TransportError: it could not be written.
        """

        def change(present: Object) -> list[dict[str, Any]]:
            check(present)
            if present.is_deleting:
                return []  # its functions of updates are not called any more
            operations = self.operations(present, text)
            if not operations:
                return []
            further = also(present)
            guards = [*uid_guard(present), *([_version_test(present)] if further else ())]
            return [*guards, *operations, *further]

        return guarded_patch(
            obj,
            change,
            read=lambda: self._live.get(self._kind, obj.name, namespace=obj.namespace),
            write=lambda patch: self._client.patch(
                self._kind, obj.name, patch, namespace=obj.namespace
            ),
        )

    def is_missing(self, obj: Object) -> bool:
        """Whether the object has no record."""
        return self.key not in obj.annotations

    def operations(self, obj: Object, text: str) -> list[dict[str, Any]]:
        """The JSON patch that writes the annotation; none if the object has it.

        It tests what it replaces, so that a late one of an ended process fails.
        """
        annotations = obj.annotations
        present = annotations.get(self.key)
        if present == text:
            return []
        path = _path(self.key)
        if present is not None:
            return [
                {"op": "test", "path": path, "value": present},
                {"op": "replace", "path": path, "value": text},
            ]
        test = _version_test(obj)
        if not annotations:
            add = {"op": "add", "path": "/metadata/annotations", "value": {self.key: text}}
            return [test, add]
        removals = [
            {"op": "remove", "path": _path(key)} for key in self._previous if key in annotations
        ]
        return [test, *removals, {"op": "add", "path": path, "value": text}]


def _version_test(obj: Object) -> dict[str, Any]:
    return {"op": "test", "path": "/metadata/resourceVersion", "value": obj.resource_version}


def _path(key: str) -> str:
    return json_pointer(["metadata", "annotations", key])
