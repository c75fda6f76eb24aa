"""A change of one object in a block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, final

from appsdk_operator._generics import SpecT, StatusT, subscript
from appsdk_operator.client._api.client_like import ClientLike
from appsdk_operator.client._api.edits import (
    Steps,
    Writing,
    check_key,
    content_of,
    draft_of,
    is_older,
    plain,
    run_steps,
)
from appsdk_operator.client._errors import Conflict, NotFound
from appsdk_operator.resource import MutableObject, Object
from appsdk_operator.runtime import get_logger
from appsdk_operator.runtime.validation import check_instance

_log = get_logger("appsdk_operator.client")


@final
class Edit(Generic[SpecT, StatusT]):
    """A change of one object in a ``with`` or ``async with`` block; ``App.edit`` returns it."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(
        self, client: ClientLike, obj: Object[SpecT, StatusT], *, live: Any = None
    ) -> None:
        """An edit of ``obj``.

        Args:
            client: reads the newest state of the object, and writes.
            obj: the object, as a server returned it.
            live: the client that reads from the server; default: ``client``, without a cache.

        Raises:
            TypeError: ``obj`` is not an object.
            ValueError: ``obj`` was not read from a server.
        """
        check_instance("obj", obj, Object, "the object that the function got")
        if not obj.resource_version:
            raise ValueError(
                f"{obj!r} has no resource version: edit what a client has returned, or create it "
                "with client.create(…)"
            )
        self._client = client
        self._live = client if live is None else live
        self._given = obj
        self._base = self._given
        self._draft: MutableObject[SpecT, StatusT] | None = None
        self.object: Object[SpecT, StatusT] | None = self._given
        """The object after the block; None when it is gone."""

    def __enter__(self) -> MutableObject[SpecT, StatusT]:
        return run_steps(self._begin(), self._client, self._live)

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            run_steps(self._end(), self._client, self._live)

    async def __aenter__(self) -> MutableObject[SpecT, StatusT]:
        from appsdk_operator.client._api import aio

        return await aio.run_steps(self._begin(), self._client, self._live)

    async def __aexit__(self, error: type[BaseException] | None, *_: object) -> None:
        from appsdk_operator.client._api import aio

        if error is None:
            await aio.run_steps(self._end(), self._client, self._live)

    def _begin(self) -> Steps[MutableObject[SpecT, StatusT]]:
        """Make the draft of the newest state that is known."""
        given = self._given
        writing = self._writing()
        newest: Object | None = given
        if self._live is not self._client or given.is_transformed:
            try:
                newest = yield from writing.read()
            except LookupError:  # the cache does not hold the kind
                newest = yield from writing.read(live=True)
        if newest is None or newest.uid != given.uid or is_older(newest, given):
            newest = given
        self._base = newest
        self._draft = draft_of(newest, given.kind)
        return self._draft

    def _end(self) -> Steps[None]:
        base, draft = self._base, self._draft
        assert draft is not None
        before = plain(base)
        check_key(draft, base.key)
        ours = content_of(draft, before)
        writing = self._writing()
        present: Object | None = base
        while True:
            if present is None or present.uid != base.uid:
                _log.debug("%s is gone: its edit is dropped", base)
                self.object = None
                return
            is_base = present is base
            wanted = ours if is_base else writing.merged(before, ours, present)
            try:
                self.object = (yield from writing.patch(present, wanted)).object
                return
            except (Conflict, NotFound) as error:
                yield from writing.after(error)
            present = yield from writing.read()

    def _writing(self) -> Writing:
        given = self._given
        return Writing(given.kind, given.name, given.namespace)
