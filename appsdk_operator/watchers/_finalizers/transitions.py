"""The transitions of the finalizer lifecycle, without I/O: which step an object needs next.

A pass over an object begins with :meth:`Pass.begin`. Whoever makes it carries out each step, and
asks for the next one with its outcome, until there is none. What lasts from one pass to the next is
the object's :class:`Record`.
"""

from __future__ import annotations

import enum
from typing import Final, TypeAlias, final

import msgspec
from msgspec.structs import replace

from appsdk_operator.cache import ResourceAction
from appsdk_operator.resource import Object, is_older_version
from appsdk_operator.watchers._finalizers.names import Spellings

_CREATE, _UPDATE, _DELETE, _RESYNC = (
    ResourceAction.CREATE,
    ResourceAction.UPDATE,
    ResourceAction.DELETE,
    ResourceAction.RESYNC,
)


@final
class Record(msgspec.Struct, frozen=True):
    """What a process knows of an object beyond what its events show."""

    written: str | None = None
    """The resourceVersion at which this process wrote the finalizer, until an event with that
    version arrives: earlier events show the object without the finalizer."""
    is_unprotected: bool = False
    """A callback was called for it and it may lack our finalizer, so that it is cleaned up when
    deleted although nothing on it says so."""
    unwritten: ResourceAction | None = None
    """The action whose callback succeeded, but whose finalizer write then failed. DELETE also after
    the clean-up, for events from before its write."""
    is_earlier: bool = False
    """Finalizers of an earlier spelling or name are on it, to be replaced, or removed by a
    clean-up."""

    def precedes_write(self, obj: Object) -> bool:
        """Whether ``obj`` is a state from before this process wrote the finalizer."""
        return self.written is not None and is_older_version(obj.resource_version, self.written)


NEW: Final = Record()
"""Nothing is known of the object, or nothing any more."""


@final
class Names(msgspec.Struct, frozen=True):
    """The finalizers of a watcher."""

    own: Spellings
    """Under the operator's present name."""
    previous: tuple[Spellings, ...] = ()
    """Under its earlier names."""
    foreign: tuple[str, ...] = ()
    """The finalizer of the operator before this one, in place of which ours is put."""

    def superseded(self, obj: Object) -> tuple[str, ...]:
        """What our finalizer replaces on the object; empty if it was not handled with such a one.

        The earlier spelling is always ours. A finalizer of an earlier name is only ours if the
        object has none of the present name: later it comes from another operator that uses the
        name.
        """
        present = obj.finalizers
        first, *earlier = self.own.finalizers
        if any(name in present for name in earlier):
            return tuple(name for name in self.own.all_names if name in present and name != first)
        if not self.previous or any(name in present for name in self.own.all_names):
            return ()
        for each in self.previous:
            if any(name in present for name in each.finalizers):
                return tuple(name for name in each.all_names if name in present)
        return ()

    def begun(self, obj: Object) -> tuple[str, ...]:
        """The in-progress finalizers of an earlier spelling or name that the object has."""
        for each in (self.own, *self.previous):
            if found := tuple(mark for mark in each.in_progress if mark in obj.finalizers):
                return found
        return ()

    def ours(self, obj: Object, record: Record) -> list[str]:
        """Our finalizers on the object; those of earlier names only if it has no present one.

        Nor if it was protected by a current one before: then they are another operator's. The
        foreign one is ours now.
        """
        present, names = obj.finalizers, self.own.all_names
        own = [name for name in present if name in names or name in self.foreign]
        if any(name in names for name in own) or (record.is_unprotected and not record.is_earlier):
            return own
        earlier = [name for each in self.previous for name in each.all_names]
        return [name for name in present if name in own or name in earlier]


class Cause(enum.Enum):
    """What a pass is made for."""

    ADDED = enum.auto()
    RESYNC = enum.auto()
    CHANGED = enum.auto()
    PRESENT = enum.auto()
    """A caller that keeps what it has handled itself looks at the object."""
    GONE = enum.auto()


class Write(enum.Enum):
    """A step that reads or writes the object on the server."""

    MIGRATE = enum.auto()
    """Replace finalizers of an earlier spelling or name, if there are any."""
    MARK = enum.auto()
    """Put the in-progress finalizer on."""
    PROTECT = enum.auto()
    """Put the finalizer on, in place of the in-progress one, after CREATE."""
    PUT_BACK = enum.auto()
    """The same for an object that is handled."""
    UNMARK = enum.auto()
    """Take a left-over in-progress finalizer off, after RESYNC."""
    RELEASE = enum.auto()
    """Take all of ours off, after DELETE."""
    ASK = enum.auto()
    """Read whether the object is gone from the server."""


Step: TypeAlias = ResourceAction | Write | None
"""A call, a write, or nothing: the pass is over."""


@final
class Pass(msgspec.Struct, frozen=True, eq=False):
    """What a pass is about, all the way through."""

    cause: Cause
    names: Names
    is_news: bool = True
    """CHANGED: more changed than our own finalizers, so that an update follows an ``add``."""
    is_new: bool = False
    """PRESENT: it is not handled yet, although it may have the finalizer."""
    is_marked: bool = False
    """PRESENT: it gets the finalizer before any call."""

    def begin(self, record: Record, obj: Object) -> tuple[Record, Step]:
        """The first step for an object."""
        if self.cause is Cause.GONE:
            return self._gone(record, obj)
        if obj.is_deleting:
            return self._clean_up(record, obj)
        if self.cause in (Cause.ADDED, Cause.PRESENT) and self.names.superseded(obj):
            record = replace(record, is_earlier=True)
        return (record, Write.MIGRATE) if record.is_earlier else self._handle(record, obj)

    def after_call(
        self, record: Record, obj: Object, action: ResourceAction, *, is_finished: bool
    ) -> tuple[Record, Step]:
        """The step after a call that raised nothing.

        Args:
            record: the object's record.
            obj: its newest state.
            action: what was called.
            is_finished: whether the call is not to be repeated.
        """
        if action is _RESYNC:
            return self._synced(record, obj)
        if action is _CREATE and is_finished:
            return record, Write.PROTECT
        if action is _DELETE and is_finished:
            return (NEW, None) if self.cause is Cause.GONE else (record, Write.RELEASE)
        return record, None

    def after_write(
        self, record: Record, obj: Object, write: Write, made: Object | None
    ) -> tuple[Record, Step]:
        """The step after a write.

        Args:
            record: the object's record.
            obj: its state before.
            write: what was written.
            made: its state since; None: it is gone.
        """
        if write is Write.ASK:
            return (record, _DELETE) if made is None else (NEW, None)
        if write is Write.RELEASE:
            return Record(unwritten=_DELETE), None
        if write is Write.UNMARK:
            return record, None
        if made is not None and made.is_deleting:
            # Its in-progress finalizer holds it, if one does, until the event leads to the
            # clean-up. It stays unprotected: no event may ever show that finalizer, if another
            # client removes it.
            return after_failure(record, write), None
        finalizer, mark = self.names.own.finalizers[0], self.names.own.in_progress[0]
        if write is Write.MIGRATE:
            record = replace(record, is_earlier=False)
            if made is not None and finalizer in made.finalizers:
                record = replace(record, written=made.resource_version)
            return self._handle(record, obj if made is None else made)
        if made is None:
            return after_failure(record, write), None
        if write is Write.MARK:
            is_held = mark in made.finalizers
            return (replace(record, is_unprotected=True), _CREATE) if is_held else (record, None)
        record = replace(record, is_unprotected=False, written=made.resource_version)
        if write is Write.PUT_BACK:
            return self._known(record, made)
        return record, _UPDATE if self.cause is Cause.CHANGED and self.is_news else None

    def _handle(self, record: Record, obj: Object) -> tuple[Record, Step]:
        """The first call for an object that is not being deleted."""
        is_put = self.names.own.finalizers[0] in obj.finalizers
        # An event from before our write shows the object without the finalizer.
        is_bare = not is_put and not record.precedes_write(obj)
        if self.cause is Cause.PRESENT:
            record = _kept(record)
            if self.is_marked and not self.is_new and is_bare:
                return record, Write.PUT_BACK
            is_bare = self.is_new or (is_bare and not self.is_marked)
        if is_bare:
            return self._new(record, obj)
        if self.cause is Cause.CHANGED:
            return record, _UPDATE
        if self.cause is Cause.ADDED and not is_put:
            return record, None  # another event of it led to add, which has succeeded
        return self._known(record, obj)

    def _new(self, record: Record, obj: Object) -> tuple[Record, Step]:
        if record.unwritten is _CREATE:
            return _kept(record), Write.PROTECT
        if self.names.own.in_progress[0] not in obj.finalizers:
            return _kept(record), Write.MARK
        return replace(record, unwritten=None, is_unprotected=True), _CREATE

    def _known(self, record: Record, obj: Object) -> tuple[Record, Step]:
        if record.unwritten is _RESYNC:
            return self._synced(_kept(record), obj)
        if record.unwritten is _CREATE and self.cause is Cause.ADDED:
            # Another process has made the write that was missing.
            return replace(record, unwritten=None, is_unprotected=False), None
        return _kept(record), _RESYNC

    def _synced(self, record: Record, obj: Object) -> tuple[Record, Step]:
        own, present = self.names.own, obj.finalizers
        is_marked = own.finalizers[0] in present and any(
            mark in present for mark in own.in_progress
        )
        # Our write of the finalizer has removed the mark.
        return record, Write.UNMARK if is_marked and not record.precedes_write(obj) else None

    def _clean_up(self, record: Record, obj: Object) -> tuple[Record, Step]:
        ours = self.names.ours(obj, record)
        if not ours and not record.is_unprotected:
            return _kept(record), None  # this event shows our clean-up
        is_done, names = record.unwritten is _DELETE, self.names.own.all_names
        # The finalizer may be removed before this succeeds; and for the next attempt, should it
        # fail, those of earlier names are ours.
        is_earlier = record.is_earlier or (bool(ours) and not any(name in names for name in ours))
        record = replace(record, unwritten=None, is_unprotected=True, is_earlier=is_earlier)
        return record, Write.RELEASE if is_done else _DELETE

    def _gone(self, record: Record, obj: Object) -> tuple[Record, Step]:
        if record.written is not None:
            # No event has shown the finalizer that we wrote: another client removed it, as our
            # clean-up would have left a record of its own.
            record = replace(record, written=None, is_unprotected=True)
        is_held = not obj.is_deleting and bool(self.names.ours(obj, record))
        if record.unwritten is _DELETE or not (is_held or record.is_unprotected):
            return NEW, None
        return record, Write.ASK  # one that left the informer's selector looks the same


_CALL_BEFORE = {Write.PROTECT: _CREATE, Write.UNMARK: _RESYNC, Write.RELEASE: _DELETE}
CALLBACK_BEFORE: Final = {Write.PROTECT: "add", Write.UNMARK: "sync", Write.RELEASE: "delete"}
"""The callbacks after which finalizers are written."""


def after_failure(record: Record, write: Write) -> Record:
    """The record after a write failed: a retry repeats only the write, not the call before it."""
    action = _CALL_BEFORE.get(write)
    return record if action is None else replace(record, unwritten=action)


def goes_back(old: Object, new: Object) -> bool:
    """Whether the server was restored between two states of an object: nothing else ends a
    deletion, although the object may have been written since."""
    is_older = is_older_version(new.resource_version, old.resource_version)
    return is_older or (old.is_deleting and not new.is_deleting)


def after_change(record: Record, names: Names, old: Object, new: Object) -> Record:
    """The record after an event: it may show our own write, or the server was restored."""
    if record is NEW:
        return record
    if goes_back(old, new):
        return replace(record, written=None, unwritten=None)
    if names.own.finalizers[0] not in new.finalizers:
        return record  # if another client removed it, it is written again
    written = record.written if record.precedes_write(new) else None
    unwritten = None if record.unwritten is _CREATE else record.unwritten
    return replace(record, written=written, unwritten=unwritten)


def _kept(record: Record) -> Record:
    """Without what a failed write left: the object has moved on since, or back."""
    return record if record.unwritten is None else replace(record, unwritten=None)
