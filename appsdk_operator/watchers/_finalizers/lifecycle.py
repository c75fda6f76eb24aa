"""The finalizer lifecycle: which callback an event leads to, and which finalizer writes go with it.

:class:`OpinionatedWatcher` and :class:`OpinionatedReconciler` are built on it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol, final

import msgspec
from msgspec.structs import replace

from appsdk_operator.cache import ResourceAction
from appsdk_operator.controllers import (
    FinalizerError,
    Finalizers,
    Outcome,
    PatchClient,
    check_finalizer,
)
from appsdk_operator.resource import DecodeError, Kind, Object, equal_numbers, is_older_version
from appsdk_operator.runtime import counted, get_logger
from appsdk_operator.runtime.validation import check_client, no_awaitable
from appsdk_operator.watchers._finalizers.names import (
    FinalizerSupplier,
    Spellings,
    finalizer_names,
    in_progress_finalizer,
    spellings,
    takes_operator_name,
)
from appsdk_operator.watchers._finalizers.transitions import (
    CALLBACK_BEFORE,
    NEW,
    Cause,
    Names,
    Pass,
    Record,
    Write,
    after_change,
    after_failure,
    goes_back,
)
from appsdk_operator.watchers._finalizers.uses import OperatorName
from appsdk_operator.watchers._records import has_other_records, without_records
from appsdk_operator.watchers._retry import RETRY_ANNOTATION

_log = get_logger("appsdk_operator.watchers")

Concerns = Callable[[Object, Object], bool]
_SHARED_FOR_SURE = 3
"""The number of objects that show that another process writes the same finalizer."""

_UPDATE = ResourceAction.UPDATE


class NotifyCallback(Protocol):
    """A function that calls the user's callback for an action."""

    def __call__(self, action: ResourceAction, obj: Object, old: Object | None, /) -> Outcome:
        """Call it, and wait for its result.

        Args:
            action: CREATE for an object that was not handled before, RESYNC for one that was,
                UPDATE for a change, DELETE for a clean-up.
            obj: the object.
            old: for an UPDATE, the state before it.

        Returns:
            A result with ``requeue_after``, 0 included, means unfinished: finalizers stay.
        """
        ...


class _End(msgspec.Struct, frozen=True):
    """How a pass over an object has ended."""

    outcome: Outcome
    """The result of its last call."""
    present: Object | None
    """The newest state of the object; None if it is gone."""


@final
class FinalizerLifecycle:
    """Decides on callbacks for the events of one kind, and writes its finalizers around them.

    An error of the user's callback is raised to the caller; finalizers then stay.
    Thread-safe for different objects.
    """

    def __init__(
        self,
        kind: Kind,
        client: PatchClient,
        finalizer: FinalizerSupplier,
        concerns: Concerns | None = None,
        *,
        foreign: str = "",
    ) -> None:
        """The lifecycle of the objects of a kind.

        Args:
            kind: the kind.
            client: writes the finalizers.
            finalizer: the finalizer of the kind.
            concerns: whether an update needs a callback; default: each does.
            foreign: the finalizer of another operator, whose objects these were; default: none.
        """
        if not isinstance(kind, Kind):
            raise TypeError(f"kind={kind!r} is not a Kind: give first the kind, then the client")
        if not callable(finalizer):
            raise TypeError(
                f"finalizer={finalizer!r} is not a function: give one of the kind, such as "
                "lambda kind: 'example.com/cleanup'"
            )
        self.kind = kind
        self.client = client
        self._supplier = finalizer
        self.takes_operator_name: bool = takes_operator_name(finalizer)
        """Whether the finalizer contains the operator's name, as the default one does."""
        self.foreign: tuple[str, ...] = (foreign,) if foreign else ()
        """The finalizer of the operator before this one, in place of which ours is put."""
        self._operator = ""
        self._set_names(spellings(finalizer, kind))
        if self.finalizer == in_progress_finalizer(kind):
            raise ValueError(
                f"finalizer {self.finalizer!r} is reserved for objects in progress: choose another"
            )
        check_client(client, "get", "patch")
        self._finalizers = Finalizers(kind, client)
        self._concerns = concerns
        self._lock = threading.Lock()
        # By uid; none for an object of which nothing is known. Replaced at each change by whoever
        # handles the object, and read by others.
        self._records: dict[str, Record] = {}
        self._times_stripped = 0
        self._times_shared = 0

    def _set_names(self, own: Spellings, previous: Iterable[Spellings] = ()) -> None:
        self._names = names = Names(own, tuple(previous), self.foreign)
        self._changed = tuple(Pass(Cause.CHANGED, names, is_news) for is_news in (False, True))
        self.finalizer: str = check_finalizer(own.finalizers[0], self.kind)
        self.in_progress_finalizer: str = check_finalizer(own.in_progress[0])
        self.names: frozenset[str] = frozenset(own.all_names)
        """Its finalizers under the operator's present name, in each spelling."""
        self.all_names: frozenset[str] = self.names.union(*(each.all_names for each in previous))
        """All of its finalizers, including those of earlier operator names."""

    def use_operator_name(self, operator: OperatorName) -> None:
        """Put the operator's name into the default finalizer; call it before the first event.

        Raises:
            ValueError: another operator's name is in it already.
        """
        if not self.takes_operator_name or not operator.name:
            return
        if self._operator not in ("", operator.name):
            raise ValueError(
                f"the watcher of {self.kind} with finalizer {self.finalizer} belongs to "
                f"{self._operator!r} already, and cannot belong to {operator.name!r} too: make a "
                "watcher for each"
            )
        self._operator = operator.name
        earlier = [name for name in operator.previous if name != operator.name]
        own, *previous = (
            spellings(self._supplier, self.kind, name) for name in (operator.name, *earlier)
        )
        self._set_names(own, previous)

    def names_for(self, operators: Iterable[str]) -> tuple[str, ...]:
        """Its finalizers in an operator of these names, the present one first."""
        if not self.takes_operator_name:
            return self._names.own.all_names
        return finalizer_names(self._supplier, self.kind, operators)

    def is_handled(self, obj: Object) -> bool:
        """Whether the object's finalizers show that it was handled before."""
        names = {self.finalizer, *self._names.superseded(obj)}
        return not names.isdisjoint(obj.finalizers)

    def shows_handled(self, obj: Object) -> bool:
        """:meth:`is_handled` for logs; False if the object's metadata cannot be read."""
        try:
            return self.is_handled(obj)
        except DecodeError:
            return False

    def on_add(self, obj: Object, notify: NotifyCallback) -> Outcome:
        """Handle an addition: a new object, or one of the initial list."""
        self._check_object(obj, "add")
        return self._run(Pass(Cause.ADDED, self._names), obj, notify).outcome

    def on_resync(self, obj: Object, notify: NotifyCallback) -> Outcome:
        """Handle a resync: the object is unchanged."""
        self._check_object(obj, "resync")
        return self._run(Pass(Cause.RESYNC, self._names), obj, notify).outcome

    def on_update(self, old: Object, new: Object, notify: NotifyCallback) -> Outcome:
        """Handle a change of the object."""
        self._check_object(old, "update")
        self._check_object(new, "update")
        try:
            is_news, is_stripped = self._is_news(old, new), self.is_stripped(old, new)
        except DecodeError:
            is_news, is_stripped = True, False  # with invalid metadata it was not handled
        if is_stripped:
            self._note_stripped(new)
        if not is_news and (new.is_deleting or not is_stripped):
            return None
        return self._run(self._changed[is_news], new, notify, old).outcome

    def on_present(
        self,
        obj: Object,
        notify: NotifyCallback,
        *,
        is_new: bool,
        is_marked: bool = False,
        also: Callable[[Object], list[dict[str, Any]]] | None = None,
    ) -> Object | None:
        """Handle the current state of an object, whatever has led to it.

        For a caller that keeps what it has handled itself: ``notify`` is called each time. Changes
        are to be given to :meth:`note_change` before.

        Args:
            obj: the object.
            notify: as for the other methods.
            is_new: whether it is not handled yet, although it may have the finalizer.
            is_marked: whether it had the finalizer, or the operator before this one has handled it,
                so that it gets the finalizer before any call.
            also: further operations for the patches that put the finalizers of a new object on,
                for the state on which they are based.

        Returns:
            The newest state that an answer has shown, which may be ``obj``; None if the object is
            gone. It may be in deletion although no event has shown that, so that no call was made.
        """
        self._check_object(obj, "a look")
        made = Pass(Cause.PRESENT, self._names, is_new=is_new, is_marked=is_marked)
        return self._run(made, obj, notify, also=also).present

    def own_on(self, obj: Object, *, previous: bool) -> Collection[str]:
        """Our finalizers on an object.

        Args:
            obj: the object.
            previous: whether one of an earlier name is ours, on an object with none of the present
                name.
        """
        present = obj.finalizers
        own = self.names.intersection(present) if present else frozenset[str]()
        return self.all_names.intersection(present) if previous and not own else own

    def removals(self, obj: Object, names: Collection[str]) -> list[dict[str, Any]]:
        """The operations that take finalizers off, for :meth:`release` or another patch."""
        return self._finalizers.removals(obj, names)

    def release(
        self, obj: Object, change: Callable[[Object], Sequence[dict[str, Any]]]
    ) -> Object | None:
        """Take finalizers off an object that nothing cleans up, or foreign ones that ours replaces.

        Args:
            obj: the object.
            change: returns the operations for a state of the object, with :meth:`removals` among
                them; if it returns none, nothing is written.

        Returns:
            Its new state; None when it is gone.

        Raises:
            FinalizerError: it could not be written.
        """
        return self._finalizers.release(obj, change)

    def note_change(self, old: Object, new: Object) -> bool:
        """Note a change of an object; returns whether another client removed our finalizer."""
        self._note_change(old, new)
        is_stripped = self.is_stripped(old, new)
        if is_stripped:
            self._note_stripped(new)
        return is_stripped

    def on_delete(self, obj: Object, notify: NotifyCallback) -> Outcome:
        """Handle the removal of an object; usually its clean-up is done by then.

        Two cases need one now: kube-apiserver may remove an object although a finalizer was put on
        it while it carried out the deletion; and another client may have removed our finalizer.
        An object that ``add`` was called for and that left the server without our clean-up is
        cleaned up here.
        """
        self._check_object(obj, "delete")
        return self._run(Pass(Cause.GONE, self._names), obj, notify).outcome

    def is_at_rest(self, obj: Object) -> bool:
        """Whether no write to the object is pending, or not seen yet."""
        record = self._records.get(obj.uid, NEW)
        return not record.is_earlier and record.unwritten is None and record.written is None

    def precedes_write(self, obj: Object) -> bool:
        """Whether ``obj`` is a state from before our write of the finalizer."""
        return self._record(obj).precedes_write(obj)

    def forget(self, obj: Object) -> None:
        """The object is gone, or no longer followed: then it is handled anew, as after a start."""
        self._records.pop(obj.uid, None)

    def concerns(self, old: Object, new: Object) -> bool:
        """Whether an update needs a callback or a finalizer write.

        Changes of the status, labels, annotations or our own finalizers alone need none. Otherwise
        our own write of the in-progress finalizer would end the retries of a failing first call.
        """
        try:
            if self.is_stripped(old, new):
                return True
            if not self._is_news(old, new):
                return False
        except DecodeError:
            return True  # the state before has invalid metadata
        if new.is_deleting:
            return True
        is_put = self.finalizer in new.finalizers or self._record(new).precedes_write(new)
        return not is_put or self._wants_update(old, new)

    def _is_news(self, old: Object, new: Object) -> bool:
        """Whether more than the status, labels, annotations or our own finalizers changed."""
        self._note_change(old, new)
        # After a restore the state differs, whatever the generation.
        if new.is_deleting != old.is_deleting or goes_back(old, new):
            return True
        if new.generation > 0:
            return new.generation != old.generation
        return not self.is_own_write(old, new)

    def differs(self, old: Object, new: Object) -> bool:
        """Whether two states of an object differ in more than status, labels and annotations.

        For kinds without generations: in anything but our own finalizers. Any two states differ if
        the later one is older, as after a restore of the server.
        """
        if old.resource_version == new.resource_version:
            return False
        if is_older_version(new.resource_version, old.resource_version):
            return True
        if new.generation > 0:
            return new.generation != old.generation
        return not self._are_equal(old, new)

    def _wants_update(self, old: Object, new: Object) -> bool:
        """Whether the user's ``concerns`` wants the update; yes if there is none or it fails."""
        if self._concerns is None:
            return True
        try:
            wanted = self._concerns(old.viewed_as(self.kind), new.viewed_as(self.kind))
            return no_awaitable("concerns", wanted)
        except BaseException:
            _log.exception(
                "concerns() of the watcher of %s failed: the event is delivered", self.kind
            )
            return True

    def is_stripped(self, old: Object, new: Object) -> bool:
        """Whether another client removed our finalizer between the two states."""
        if self.finalizer in new.finalizers or old.is_deleting:
            return False  # the clean-up handles it
        if self.finalizer in old.finalizers:
            return not (new.is_deleting and self.in_progress_finalizer in new.finalizers)
        if self._names.superseded(old):
            return not self._names.superseded(new)
        version = self._record(new).written
        return version is not None and _has_reached(new, version) and not _has_reached(old, version)

    def _note_stripped(self, obj: Object) -> None:
        record = self._record(obj)
        if not obj.uid or record.is_unprotected:
            return
        self._keep(obj, replace(record, is_unprotected=True))
        with self._lock:
            self._times_stripped += 1
            times = self._times_stripped
        if times & (times - 1) == 0:  # logs 1, 2, 4, …: it may go on for long
            _log.warning(
                "somebody took finalizer %s off %s (%s so far): the kit handles the object as a "
                "new one, or cleans up if it is being deleted. Find who writes whole lists of "
                "finalizers with kubectl get --show-managed-fields",
                self.finalizer,
                obj,
                counted(times, "object"),
                extra={"kind": str(self.kind), "namespace": obj.namespace, "object": obj.name},
            )

    def _note_shared(self, before: Object, obj: Object) -> None:
        """Record an object if another process has given it our finalizer since ``before``."""
        found = self.names.intersection(obj.finalizers).difference(before.finalizers)
        if not found:
            return
        with self._lock:
            self._times_shared += 1
            times = self._times_shared
        # A single one may be a write of ours whose answer was lost.
        if times == _SHARED_FOR_SURE or (times > _SHARED_FOR_SURE and times & (times - 1) == 0):
            _log.warning(
                "another process put finalizer %s on objects that this one was about to handle, "
                "%d so far, the last one %s: two processes run under one operator name, and the "
                "server deletes an object when one of them has cleaned up. Elect a leader with "
                "leader_election=, or give one of them another name",
                min(found),
                times,
                obj,
                extra={"kind": str(self.kind), "namespace": obj.namespace, "object": obj.name},
            )

    def _record(self, obj: Object) -> Record:
        return self._records.get(obj.uid, NEW)

    def _keep(self, obj: Object, record: Record) -> None:
        if not obj.uid:
            return
        if record == NEW:
            self._records.pop(obj.uid, None)
        else:
            self._records[obj.uid] = record

    def _note_change(self, old: Object, new: Object) -> None:
        """Forget our own write once an event shows it, or after a restore of the server."""
        before = self._record(new)
        if (record := after_change(before, self._names, old, new)) is not before:
            self._keep(new, record)

    def _run(
        self,
        made: Pass,
        obj: Object,
        notify: NotifyCallback,
        old: Object | None = None,
        also: Callable[[Object], list[dict[str, Any]]] | None = None,
    ) -> _End:
        """Carry out the steps of a pass.

        Raises:
            FinalizerError: a finalizer could not be written.
            Exception: what the callback raised.
        """
        outcome: Outcome = None
        present: Object | None = obj
        before = self._record(obj)
        record, step = made.begin(before, obj)
        while True:
            if record is not before:
                self._keep(obj, record)
            if step is None:
                return _End(outcome, present)
            if isinstance(step, ResourceAction):
                kind = self.kind  # its types, whatever the informer's are
                replaced = old and old.viewed_as(kind) if step is _UPDATE else None
                outcome = notify(step, obj.viewed_as(kind), replaced)
                is_finished = outcome is None or outcome.requeue_after is None
                before = self._record(obj)
                record, step = made.after_call(before, obj, step, is_finished=is_finished)
                continue
            present = self._write(step, obj, also)
            before = self._record(obj)
            is_added = step is Write.PROTECT
            record, step = made.after_write(before, obj, step, present)
            obj = obj if present is None else present
            if is_added and step is _UPDATE and old and not self._wants_update(old, obj):
                step = None

    def _write(
        self, write: Write, obj: Object, also: Callable[[Object], list[dict[str, Any]]] | None
    ) -> Object | None:
        """Carry out a write; returns the object's state after it, None if it is gone.

        Raises:
            FinalizerError: it failed.
        """
        names, finalizers = self._names, self._finalizers
        own, foreign = names.own, names.foreign
        try:
            if write is Write.ASK:
                return None if finalizers.is_gone(obj) else obj
            if write is Write.UNMARK:
                return finalizers.remove(obj, *own.in_progress)
            if write is Write.RELEASE:
                ours = names.ours(obj, self._record(obj))
                return finalizers.remove(obj, *self.names, *ours)
            if write is Write.MIGRATE:
                # All in one write: once the finalizer is replaced, nothing says the rest is ours.
                superseded = names.superseded(obj)
                return self._put(obj, self.finalizer, superseded) if superseded else obj
            if write is Write.MARK:
                mark = self.in_progress_finalizer
                return self._put(obj, mark, (*names.begun(obj), *foreign), also)
            return self._put(obj, self.finalizer, (*own.in_progress, *foreign), also)
        except FinalizerError as error:
            if (callback := CALLBACK_BEFORE.get(write)) is None:
                raise
            self._keep(obj, after_failure(self._record(obj), write))
            raise error.after(f"the {callback} callback succeeded, but then") from error

    def _put(
        self,
        obj: Object,
        name: str,
        instead_of: Sequence[str],
        also: Callable[[Object], list[dict[str, Any]]] | None = None,
    ) -> Object | None:
        """Write a finalizer.

        Raises:
            FinalizerError: it could not be written, or the server left it out.
        """
        record = self._record(obj)
        # Otherwise it may be our own write, which is newer than the object.
        is_first = not record.is_unprotected and record.written is None
        made = self._finalizers.put(
            obj,
            name,
            instead_of=instead_of,
            on_reread=functools.partial(self._note_shared, obj) if is_first else None,
            also=also,
        )
        if made is not None and not made.is_deleting and name not in made.finalizers:
            raise FinalizerError(
                f"could not put finalizer {name!r} on {obj!r}: the server accepted the write "
                "without the finalizer, so the watcher would miss a deletion: an admission webhook "
                "or a wrapper of the client strips finalizers, let it keep this one"
            )
        return made

    def is_own_write(self, old: Object, new: Object) -> bool:
        """Whether only our own finalizers and records changed."""
        before, after = set(old.finalizers), set(new.finalizers)
        ours = self.names.union(self.foreign)
        if ours.isdisjoint(before ^ after) and not has_other_records(old, new):
            return False
        return self._are_equal(old, new)

    def _are_equal(self, old: Object, new: Object) -> bool:
        # Not by Python's equality, to which 1 is True.
        return equal_numbers(self._without_own_fields(old), self._without_own_fields(new))

    def _without_own_fields(self, obj: Object) -> dict[str, Any]:
        data = obj.to_dict()
        metadata = data.get("metadata", {})
        for field in ("managedFields", "resourceVersion"):
            metadata.pop(field, None)
        if "annotations" in metadata:
            metadata["annotations"] = without_records(metadata["annotations"] or {})
            metadata["annotations"].pop(RETRY_ANNOTATION, None)
            if not metadata["annotations"]:
                del metadata["annotations"]
        ours = self.all_names.union(self.foreign)
        metadata["finalizers"] = [name for name in obj.finalizers if name not in ours]
        return data

    def _check_object(self, obj: object, action: str) -> None:
        if not isinstance(obj, Object):
            raise TypeError(f"{action} needs an object, and got {obj!r}")
        if obj.kind != self.kind:
            raise TypeError(f"{obj!r} is not of {self.kind}: add this watcher under its own kind")


def _has_reached(obj: Object, version: str) -> bool:
    """Whether the object has that version or a newer one, for comparable versions."""
    return obj.resource_version == version or is_older_version(version, obj.resource_version)
