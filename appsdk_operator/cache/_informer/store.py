"""The store: the local copy of one kind, by namespace and name, with indexes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, final

from appsdk_operator._generics import SpecT, StatusT, subscript
from appsdk_operator.cache._events import Event, ResourceAction
from appsdk_operator.resource import (
    DecodeError,
    Kind,
    Object,
    ObjectKey,
    Undecodable,
    WatchEvent,
    WatchEventType,
    check_kind,
    is_older_version,
    label_selector_of,
)
from appsdk_operator.runtime import as_exception, fork_safe, get_logger
from appsdk_operator.runtime.validation import check_function, check_text

if TYPE_CHECKING:
    from appsdk_operator.resource import LabelSelection

# The classes below have a method called list.
Objects: TypeAlias = list[Object[SpecT, StatusT]]
Events: TypeAlias = list[Event[SpecT, StatusT]]

_log = get_logger("appsdk_operator.cache")

IndexFunction: TypeAlias = Callable[[Object[SpecT, StatusT]], Iterable[str]]
"""A pure function of an object that returns the values under which an index has it. A plain string
is one value."""

_NOTHING: frozenset[str] = frozenset()
_CREATE, _UPDATE, _DELETE = ResourceAction.CREATE, ResourceAction.UPDATE, ResourceAction.DELETE
_DELETED = WatchEventType.DELETED


def check_index(name: object, function: object) -> None:
    """Refuse an index without a name or a function."""
    check_text("name", name, empty=False)
    check_function("function", function, required=True)


def check_indexes(indexes: Mapping[Any, Any] | None) -> None:
    """Refuse indexes that are not mapping of names to functions."""
    if indexes is not None and not isinstance(indexes, Mapping):
        raise TypeError(f"indexes={indexes!r}: give a mapping of names to functions")
    for name, function in (indexes or {}).items():
        if not isinstance(name, str) or not callable(function):
            raise TypeError(
                f"indexes={{{name!r}: {function!r}}}: give functions by name, each from an object "
                "to its index values"
            )


class Lister(Protocol[SpecT, StatusT]):
    """Read access to a local copy. Thread-safe; results are snapshots."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    @property
    def kind(self) -> Kind[SpecT, StatusT]:
        """The kind of the objects."""
        ...

    def get(self, name: str, namespace: str = "") -> Object[SpecT, StatusT] | None:
        """The object of this name; None if there is none."""
        ...

    def list(
        self,
        *,
        namespace: str | None = None,
        label_selector: LabelSelection | None = None,
    ) -> Objects[SpecT, StatusT]:
        """The objects in ``namespace`` (default: in all) that the selector matches, in no order."""
        ...

    def by_index(self, index: str, value: str) -> Objects[SpecT, StatusT]:
        """The objects that ``index`` has under ``value``.

        Raises:
            KeyError: there is no such index; the text names the existing ones.
        """
        ...

    def index_values(self, index: str) -> Sequence[str]:
        """All values under which ``index`` has objects.

        Raises:
            KeyError: there is no such index; the text names the existing ones.
        """
        ...

    def values_of(self, index: str, obj: Object[SpecT, StatusT]) -> Sequence[str]:
        """The values of ``obj``, which need not be in the store, in ``index``.

        Raises:
            KeyError: there is no such index; the text names the existing ones.
        """
        ...

    def namespaces(self) -> Sequence[str]:
        """The namespaces with objects."""
        ...

    @property
    def json_bytes(self) -> int:
        """The size of the objects, in bytes of JSON."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Object[SpecT, StatusT]]: ...


class _Index:
    """One index: objects by value, and the values of each object."""

    __slots__ = ("function", "is_complete", "name", "objects", "values")

    def __init__(self, name: str, function: IndexFunction) -> None:
        self.name = name
        self.function = function
        self.is_complete = False
        self.objects: dict[str, dict[ObjectKey, Object]] = {}
        self.values: dict[ObjectKey, tuple[str, ...]] = {}

    def values_of(self, obj: Object) -> tuple[str, ...]:
        """The values of ``obj``, computed by user code: no lock may be held meanwhile."""
        values: Any = None
        try:
            values = self.function(obj)
            # A string is iterable too, but its letters are not meant.
            found = (values,) if isinstance(values, str) else values
            return tuple(dict.fromkeys(map(_plain, found)))
        except BaseException as raised:
            error = as_exception(f"index {self.name!r}", raised)
            if type(values) is CoroutineType:
                values.close()
                error = TypeError(f"index {self.name!r} returned a coroutine: make it no async def")
            # One object for which it fails must not keep the kind from syncing.
            _log.error(
                "index %r failed for %s: the index does not have the object",
                self.name,
                obj,
                exc_info=error,
            )
            return ()

    def put(self, obj: Object, values: tuple[str, ...]) -> None:
        key = obj.key
        for value in self.values.get(key, ()):
            if value not in values:
                self._drop(value, key)
        for value in values:
            self.objects.setdefault(value, {})[key] = obj
        if values:
            self.values[key] = values
        else:
            self.values.pop(key, None)

    def remove(self, key: ObjectKey) -> None:
        for value in self.values.pop(key, ()):
            self._drop(value, key)

    def _drop(self, value: str, key: ObjectKey) -> None:
        objects = self.objects[value]
        del objects[key]
        if not objects:
            del self.objects[value]


@final
class Store(Generic[SpecT, StatusT]):
    """The objects of one kind; methods that apply the server's events return the resulting events.

    Reads are thread-safe and never wait for user code. Only the informer writes, in one thread at a
    time. Index functions run without any lock, so they may read this and other stores, and take
    their own locks.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(
        self,
        kind: Kind[SpecT, StatusT],
        *,
        indexes: Mapping[str, IndexFunction[SpecT, StatusT]] | None = None,
        write_lock: threading.RLock | None = None,
    ) -> None:
        """An empty store with ``indexes`` by name.

        Args:
            kind: the kind of its objects.
            indexes: functions by index name.
            write_lock: held during writes, for a writer that does more under the same lock;
                default: a new lock.
        """
        check_indexes(indexes)
        self.kind: Kind = check_kind(kind)
        self._lock = fork_safe(threading.Lock())
        self._write_lock = write_lock or fork_safe(threading.RLock())
        self._namespaces: dict[str, dict[str, Object[SpecT, StatusT]]] = {}
        self._count = 0
        self._bytes = 0
        self._indexes: dict[str, _Index] = {}
        # The names in the running list so far. A list into an empty store, which is the usual case,
        # needs no such record.
        self._seen: dict[str, set[str]] | None = None
        # The index values of the objects that are being written; None outside of writes.
        self._values: dict[tuple[str, int], tuple[str, ...]] | None = None
        for name, function in (indexes or {}).items():
            self.add_index(name, function)

    # Reading.

    def get(self, name: str, namespace: str = "") -> Object[SpecT, StatusT] | None:
        """The object of this name; None if there is none."""
        objects = self._namespaces.get(namespace)
        return None if objects is None else objects.get(name)

    def list(
        self,
        *,
        namespace: str | None = None,
        label_selector: LabelSelection | None = None,
    ) -> Objects[SpecT, StatusT]:
        """The objects in ``namespace`` (default: in all) that the selector matches, in no order."""
        with self._lock:
            if namespace:
                found = list(self._namespaces.get(namespace, {}).values())
            else:
                found = [obj for objects in self._namespaces.values() for obj in objects.values()]
        return _selected(found, label_selector)

    def by_index(self, index: str, value: str) -> Objects[SpecT, StatusT]:
        """The objects that ``index`` has under ``value``.

        Raises:
            KeyError: there is no such index.
        """
        with self._lock:
            return list(self._index(index).objects.get(value, {}).values())

    def index_values(self, index: str) -> Sequence[str]:
        """All values under which ``index`` has objects."""
        with self._lock:
            return list(self._index(index).objects)

    def values_of(self, index: str, obj: Object[SpecT, StatusT]) -> Sequence[str]:
        """The values of ``obj``, which need not be in the store, in ``index``."""
        with self._lock:
            found = self._index(index)
        return found.values_of(obj)

    def namespaces(self) -> Sequence[str]:
        """The namespaces with objects."""
        with self._lock:
            return list(self._namespaces)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Object[SpecT, StatusT]]:
        return iter(self.list())

    @property
    def json_bytes(self) -> int:
        """The size of the objects, in bytes of JSON."""
        return self._bytes

    def add_index(self, name: str, function: IndexFunction[SpecT, StatusT]) -> None:
        """Add an index of existing and future objects.

        Raises:
            ValueError: there is an index of that name.
            TypeError: ``name`` is not text, or ``function`` is not a function of an object.
        """
        check_index(name, function)
        index = _Index(name, function)
        with self._write_lock, self._lock:
            if name in self._indexes:
                raise ValueError(
                    f"{self.kind.qualified_name} has an index {name!r} already: use it, or choose "
                    "another name"
                )
            # From now on the writer indexes what it changes; present objects are indexed below,
            # without the lock.
            self._indexes = {**self._indexes, name: index}
            present = [obj for space in self._namespaces.values() for obj in space.values()]
        computed = [(obj, index.values_of(obj)) for obj in present]
        with self._lock:
            for obj, values in computed:
                if self.get(obj.name, obj.namespace) is obj:
                    index.put(obj, values)
            index.is_complete = True

    # Writing, by one thread.

    @contextlib.contextmanager
    def writing(self, objects: Iterable[Object[SpecT, StatusT]]) -> Iterator[None]:
        """Compute the index values of ``objects``, then hold the write lock.

        In the block, write only these objects. Each writing method opens this block itself; a block
        around several of them computes the values once for all.

        Args:
            objects: the objects to write; not read if there is no index.
        """
        if self._values is not None:
            yield
            return
        written: Sequence[Object[SpecT, StatusT]] | None = None
        while True:
            indexes = self._indexes
            if indexes and written is None:
                written = list(objects)
            values = {
                (name, id(obj)): index.values_of(obj)
                for name, index in indexes.items()
                for obj in written or ()
            }
            with self._write_lock:
                # Again if an index was added meanwhile, which needs values of these objects too.
                if self._indexes is indexes:
                    self._values = values
                    try:
                        yield
                    finally:
                        self._values = None
                    return

    def begin_list(self) -> None:
        """Note that a complete list begins."""
        self._seen = {} if self._count else None

    def upsert(
        self, objects: Sequence[Object[SpecT, StatusT]], *, is_initial: bool
    ) -> Events[SpecT, StatusT]:
        """Apply objects of a list; returns the resulting events."""
        events: Events[SpecT, StatusT] = []
        append = events.append
        with self.writing(objects), self._lock:
            spaces = self._namespaces
            has_more_to_keep = self._seen is not None or self._indexes
            added = size = 0
            try:
                for obj in objects:
                    space = spaces.get(obj.namespace)
                    if space is None or has_more_to_keep or obj.name in space:
                        self._note_seen(obj)
                        old = self.get(obj.name, obj.namespace)
                        self._take(obj, old, events, is_initial=is_initial)
                    else:
                        # Nearly always, so without a call: an object that is not here yet.
                        space[obj.name] = obj
                        added += 1
                        size += len(obj.raw)
                        append(Event(_CREATE, obj, None, is_initial))
            finally:
                self._count += added
                self._bytes += size
        return events

    def unread(self, items: Iterable[Undecodable], *, are_deleted: bool) -> Events[SpecT, StatusT]:
        """Apply undecodable objects of a list or a watch; returns the resulting deletions.

        The stored state of such an object stays until the object is decodable again, is deleted, or
        another object has its name. An object whose name cannot be read may be any stored object.
        Then the running list deletes nothing, because a false deletion is worse than a late one.

        Args:
            items: the readable parts of the objects.
            are_deleted: whether the server deleted them.
        """
        events: Events[SpecT, StatusT] = []
        with self._lock:
            for item in items:
                old = self.get(item.name, item.namespace)
                seen = self._seen
                if not item.name:
                    self._seen = None
                elif old is None or (
                    seen is None and is_older_version(item.resource_version, old.resource_version)
                ):
                    continue
                elif are_deleted or item.uid not in ("", old.uid):
                    self._remove(old)
                    events.append(Event(_DELETE, old, None, False, True))
                elif seen is not None:
                    seen.setdefault(item.namespace, set()).add(item.name)
        return events

    def finish_list(self) -> Events[SpecT, StatusT]:
        """Note that the list is complete; returns deletions of the objects that are not in it."""
        seen, self._seen = self._seen, None
        if seen is None:
            return []
        events: Events[SpecT, StatusT] = []
        with self._lock:
            for namespace, objects in list(self._namespaces.items()):
                named = seen.get(namespace, _NOTHING)
                for name in [name for name in objects if name not in named]:
                    obj = objects[name]
                    self._remove(obj)
                    events.append(Event(_DELETE, obj, None, False, True))
        return events

    def change(self, changes: Sequence[WatchEvent[SpecT, StatusT]]) -> Events[SpecT, StatusT]:
        """Apply events of a watch; returns the resulting events, none for old states."""
        events: Events[SpecT, StatusT] = []
        append = events.append
        objects = (change.object for change in changes if change.object is not None)
        with self.writing(objects), self._lock:
            spaces = self._namespaces
            has_more_to_keep = self._seen is not None or self._indexes
            for change in changes:
                obj = change.object
                if obj is None:
                    continue
                space = spaces.get(obj.namespace)
                old = None if space is None else space.get(obj.name)
                if change.type is _DELETED:
                    self._deleted(obj, old, events)
                elif space is None or old is None or old.uid != obj.uid or has_more_to_keep:
                    self._changed(obj, old, events)
                else:
                    # Nearly always, so without a call: the next state of an object that is here.
                    new, before = obj.resource_version, old.resource_version
                    if new > before if len(new) == len(before) else len(new) > len(before):
                        space[obj.name] = obj
                        self._bytes += len(obj.raw) - len(old.raw)
                        append(Event(_UPDATE, obj, old))
                    else:
                        self._changed(obj, old, events)
        return events

    def _changed(
        self,
        obj: Object[SpecT, StatusT],
        old: Object[SpecT, StatusT] | None,
        events: Events[SpecT, StatusT],
    ) -> None:
        self._note_seen(obj)
        if old is None or not is_older_version(obj.resource_version, old.resource_version):
            self._take(obj, old, events)

    def _note_seen(self, obj: Object[SpecT, StatusT]) -> None:
        if self._seen is not None:
            self._seen.setdefault(obj.namespace, set()).add(obj.name)

    def _take(
        self,
        obj: Object[SpecT, StatusT],
        old: Object[SpecT, StatusT] | None,
        events: Events[SpecT, StatusT],
        *,
        is_initial: bool = False,
    ) -> None:
        """Store ``obj`` instead of ``old``, and append the resulting events."""
        if old is None:
            self._put(obj)
            events.append(Event(_CREATE, obj, None, is_initial))
        elif old.uid != obj.uid:
            self._put(obj, old)
            events.append(Event(_DELETE, old, None, False, True))
            events.append(Event(_CREATE, obj, None, is_initial))
        elif (
            old.resource_version != obj.resource_version
            or not obj.resource_version
            # A CRD has another default or conversion, or etcd was restored. Not where the bytes
            # alone differ: items of lists are without kind and apiVersion.
            or differ(old, obj)
        ):
            self._put(obj, old)
            events.append(Event(_UPDATE, obj, old))

    def _deleted(
        self,
        obj: Object[SpecT, StatusT],
        old: Object[SpecT, StatusT] | None,
        events: Events[SpecT, StatusT],
    ) -> None:
        if old is None or is_older_version(obj.resource_version, old.resource_version):
            return
        if self._seen is not None and obj.namespace in self._seen:
            self._seen[obj.namespace].discard(obj.name)
        self._remove(old)
        # The event has the final state, unless it is about another object of the same name.
        if old.uid != obj.uid:
            events.append(Event(_DELETE, old, None, False, True))
        else:
            events.append(Event(_DELETE, obj))

    def _put(self, obj: Object[SpecT, StatusT], old: Object[SpecT, StatusT] | None = None) -> None:
        objects = self._namespaces.get(obj.namespace)
        if objects is None:
            objects = self._namespaces[obj.namespace] = {}
        objects[obj.name] = obj
        self._bytes += len(obj.raw)
        if old is None:
            self._count += 1
        else:
            self._bytes -= len(old.raw)
        values = self._values or {}
        for index in self._indexes.values():
            index.put(obj, values[index.name, id(obj)])

    def _remove(self, obj: Object[SpecT, StatusT]) -> None:
        objects = self._namespaces[obj.namespace]
        del objects[obj.name]
        if not objects:
            del self._namespaces[obj.namespace]
        self._count -= 1
        self._bytes -= len(obj.raw)
        for index in self._indexes.values():
            index.remove(obj.key)

    def _index(self, name: str) -> _Index:
        index = self._indexes.get(name)
        if index is None or not index.is_complete:
            known = ", ".join(sorted(n for n, i in self._indexes.items() if i.is_complete))
            raise KeyError(
                f"{self.kind.qualified_name} has no index {name!r}; it has: {known or 'none'}"
            )
        return index


def differ(one: Object, other: Object) -> bool:
    """Whether two states of an object have other content, be it at one version."""
    try:
        return one != other
    except DecodeError:  # of one of which the metadata alone can be read
        return True


def _plain(value: Any) -> Any:
    """``value`` without the methods of a class of the user's: writes compare it and hash it."""
    return str.__str__(value) if isinstance(value, str) else value


def _selected(found: list[Object], selection: LabelSelection | None) -> Objects:
    selector = label_selector_of(selection)
    if selector is None:
        return found
    return [obj for obj in found if selector.matches(obj.labels)]
