"""Key-value access to the objects of one kind, as in grafana-app-sdk's resource package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, final, overload

from appsdk_operator._generics import SpecT, StatusT, subscript
from appsdk_operator.client._api.live import live_reader
from appsdk_operator.client._errors import AlreadyExists, Conflict, NotFound
from appsdk_operator.resource import AnyObject, Kind, MutableObject, Object, ObjectKey, check_kind
from appsdk_operator.runtime.validation import check_client

_ATTEMPTS = 5

if TYPE_CHECKING:
    from typing_extensions import TypeVar as _TypeVar

    _ValueT = _TypeVar("_ValueT", default=Any)
else:
    _ValueT = TypeVar("_ValueT")


class StoreClient(Protocol):
    """The part of a client that the stores use."""

    def get(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ...
    ) -> Object[SpecT, StatusT]:
        """As :meth:`Client.get`."""
        ...

    def list(
        self, kind: Kind[SpecT, StatusT], *, namespace: str = ...
    ) -> Iterator[Object[SpecT, StatusT]]:
        """As :meth:`Client.list`."""
        ...

    def create(self, obj: AnyObject[SpecT, StatusT]) -> Object[SpecT, StatusT]:
        """As :meth:`Client.create`."""
        ...

    def update(self, obj: AnyObject[SpecT, StatusT]) -> Object[SpecT, StatusT]:
        """As :meth:`Client.update`."""
        ...

    def delete(
        self, kind: Kind[SpecT, StatusT], name: str, *, namespace: str = ...
    ) -> Object[SpecT, StatusT] | None:
        """As :meth:`Client.delete`."""
        ...

    @property
    def status(self) -> Any:
        """As :attr:`Client.status`."""
        ...


@final
class ObjectStore(Generic[SpecT, StatusT]):
    """The objects of one kind by key. Thread-safe if its client is."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(self, client: StoreClient, kind: Kind[SpecT, StatusT]) -> None:
        """A store of ``kind``; typed if the kind's spec and status are typed.

        Raises:
            TypeError: ``client`` is not a client, or ``kind`` is not a Kind.
        """
        check_client(client, "get", "list", "create", "update", "delete")
        check_kind(kind)
        self._client = client
        # For writes: a cache may be behind, and its transform may have dropped fields.
        self._live = live_reader(client)
        self.kind = kind

    def get(self, key: ObjectKey) -> Object[SpecT, StatusT]:
        """The object.

        Raises:
            NotFound: there is none.
        """
        return self._client.get(self.kind, key.name, namespace=key.namespace)

    def add(self, obj: AnyObject[SpecT, StatusT]) -> Object[SpecT, StatusT]:
        """Create it; returns it as the server stored it.

        Raises:
            AlreadyExists: the key is taken.
        """
        return self._client.create(obj)

    def update(self, obj: AnyObject[SpecT, StatusT]) -> Object[SpecT, StatusT]:
        """Replace it; returns it as the server stored it.

        Raises:
            NotFound: there is none.
            Conflict: it has changed since it was read.
        """
        return self._client.update(obj)

    def upsert(self, obj: AnyObject[SpecT, StatusT]) -> Object[SpecT, StatusT]:
        """Create it, or replace the existing object of any version.

        Raises:
            Conflict, NotFound, AlreadyExists: other writers were faster in five attempts.
        """
        draft = obj.mutable_copy() if isinstance(obj, Object) else obj
        metadata = draft.metadata
        failure: Exception | None = None
        for _ in range(_ATTEMPTS):
            try:
                present = self._live.get(self.kind, draft.name, namespace=draft.namespace)
            except NotFound:
                metadata.pop("resourceVersion", None)
                metadata.pop("uid", None)
                try:
                    return self._client.create(draft)
                except AlreadyExists as error:
                    failure = error
                    continue
            metadata["resourceVersion"] = present.resource_version
            metadata.pop("uid", None)
            try:
                return self._client.update(draft)
            except (Conflict, NotFound) as error:
                failure = error
        raise failure or AssertionError

    def delete(self, key: ObjectKey) -> None:
        """Delete it, if it exists."""
        try:
            self._client.delete(self.kind, key.name, namespace=key.namespace)
        except NotFound:
            return

    def list(self, namespace: str = "") -> Iterator[Object[SpecT, StatusT]]:
        """The objects in ``namespace``, default: in all, page by page."""
        return self._client.list(self.kind, namespace=namespace)


@final
class SpecStore(Generic[_ValueT]):
    """The spec, or the status, of the objects of one kind by key.

    For programs that work with values and not with objects. Writes do not change the rest of an
    object.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    @overload
    def __init__(
        self: SpecStore[SpecT],
        client: StoreClient,
        kind: Kind[SpecT, Any],
        *,
        part: Literal["spec"] = "spec",
    ) -> None: ...
    @overload
    def __init__(
        self: SpecStore[StatusT],
        client: StoreClient,
        kind: Kind[Any, StatusT],
        *,
        part: Literal["status"],
    ) -> None: ...
    def __init__(
        self, client: StoreClient, kind: Kind, *, part: Literal["spec", "status"] = "spec"
    ) -> None:
        """A store of ``part`` of the objects of ``kind``.

        Raises:
            ValueError: ``part`` is neither ``"spec"`` nor ``"status"``.
        """
        if part not in ("spec", "status"):
            raise ValueError(f"part={part!r}: use 'spec' or 'status'")
        self._objects = ObjectStore(client, kind)
        self._client = client
        self._live = live_reader(client)  # as there
        self._part = part
        self.kind = kind

    def get(self, key: ObjectKey) -> _ValueT:
        """The part, in the kind's type.

        Raises:
            NotFound: there is no such object.
            DecodeError: the part does not fit the type.
        """
        value: _ValueT = getattr(self._objects.get(key), self._part)
        return value

    def add(self, key: ObjectKey, value: _ValueT) -> _ValueT:
        """Create an object with this spec; returns the spec as the server stored it.

        Raises:
            AlreadyExists: the key is taken.
            ValueError: this is a store of statuses, which cannot exist without a spec.
        """
        if self._part != "spec":
            raise ValueError("a status cannot be added: create the object, then update its status")
        new = MutableObject.new(self.kind, key.name, namespace=key.namespace, spec=value)
        made: _ValueT = self._client.create(new).spec
        return made

    def update(self, key: ObjectKey, value: _ValueT) -> _ValueT:
        """Replace the part; other changes to the object stay.

        Raises:
            NotFound: there is no such object.
            Conflict: other writers were faster in five attempts.
        """
        failure: Exception | None = None
        for _ in range(_ATTEMPTS):
            present = self._live.get(self.kind, key.name, namespace=key.namespace)
            draft = present.mutable_copy()
            setattr(draft, self._part, value)
            try:
                is_status = self._part == "status"
                written = (self._client.status if is_status else self._client).update(draft)
                value_now: _ValueT = getattr(written, self._part)
                return value_now
            except Conflict as error:
                failure = error
        raise failure or AssertionError

    def upsert(self, key: ObjectKey, value: _ValueT) -> _ValueT:
        """Replace the part, or create the object with it.

        Raises:
            Conflict, AlreadyExists: other writers were faster in five attempts.
            ValueError: this is a store of statuses, and there is no such object.
        """
        failure: Exception | None = None
        for _ in range(_ATTEMPTS):
            try:
                return self.update(key, value)
            except NotFound:
                pass
            try:
                return self.add(key, value)
            except AlreadyExists as error:
                failure = error
        raise failure or AssertionError

    def delete(self, key: ObjectKey) -> None:
        """Delete the object, if it exists."""
        self._objects.delete(key)

    def list(self, namespace: str = "") -> Iterator[tuple[ObjectKey, _ValueT]]:
        """Keys and parts in ``namespace``, default: in all."""
        for obj in self._objects.list(namespace):
            yield obj.key, getattr(obj, self._part)
