"""The finalizer lifecycle: which callback an event leads to, and which finalizer writes go with it.

:class:`OpinionatedWatcher` and :class:`OpinionatedReconciler` are built on it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol, final

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
from appsdk_operator.watchers._finalizers.uses import OperatorName
from appsdk_operator.watchers._records import has_other_records, without_records
from appsdk_operator.watchers._retry import RETRY_ANNOTATION

_log = get_logger("appsdk_operator.watchers")

Concerns = Callable[[Object, Object], bool]
_SHARED_FOR_SURE = 3
"""The number of objects that show that another process writes the same finalizer."""

_CREATE, _UPDATE, _DELETE, _RESYNC = (
    ResourceAction.CREATE,
    ResourceAction.UPDATE,
    ResourceAction.DELETE,
    ResourceAction.RESYNC,
)


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
        self._operator = ""
        self._set_names(spellings(finalizer, kind))
        if self.finalizer == in_progress_finalizer(kind):
            raise ValueError(
                f"finalizer {self.finalizer!r} is reserved for objects in progress: choose another"
            )
        check_client(client, "get", "patch")
        # The finalizers of this operator's earlier names; and, by uid, the objects on which these
        # or the earlier spelling still have to be replaced, or removed by a clean-up.
        self._previous: tuple[Spellings, ...] = ()
        self._legacy: set[str] = set()
        self._finalizers = Finalizers(kind, client)
        self._concerns = concerns
        self.foreign: tuple[str, ...] = (foreign,) if foreign else ()
        """The finalizer of the operator before this one, in place of which ours is put."""
        self._lock = threading.Lock()
        # By uid, the resourceVersion at which this process wrote the finalizer, until an event
        # with that version arrives: earlier events show the object without the finalizer.
        self._finalizer_versions: dict[str, str] = {}
        # Objects that a callback was called for and that may lack our finalizer: they are cleaned
        # up when deleted although nothing on them says so.
        self._unprotected: set[str] = set()
        # Objects whose callback succeeded for the action, but whose finalizer write then failed.
        self._write_pending: dict[str, ResourceAction] = {}
        self._times_stripped = 0
        self._times_shared = 0

    def _set_names(self, own: Spellings) -> None:
        self._own = own
        self.finalizer: str = check_finalizer(own.finalizers[0], self.kind)
        self.in_progress_finalizer: str = check_finalizer(own.in_progress[0])
        self.names: frozenset[str] = frozenset(own.all_names)
        """Its finalizers under the operator's present name, in each spelling."""

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
        self._set_names(spellings(self._supplier, self.kind, operator.name))
        self._previous = tuple(
            spellings(self._supplier, self.kind, name)
            for name in operator.previous
            if name != operator.name
        )

    @property
    def all_names(self) -> frozenset[str]:
        """All of its finalizers, including those of earlier operator names."""
        return self.names.union(*(each.all_names for each in self._previous))

    def names_for(self, operators: Iterable[str]) -> tuple[str, ...]:
        """Its finalizers in an operator of these names, the present one first."""
        if not self.takes_operator_name:
            return self._own.all_names
        return finalizer_names(self._supplier, self.kind, operators)

    def is_handled(self, obj: Object) -> bool:
        """Whether the object's finalizers show that it was handled before."""
        names = {self.finalizer, *self._superseded(obj)}
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
        if obj.is_deleting:
            return self._clean_up(obj, notify)
        if self._superseded(obj):
            with self._lock:
                self._legacy.add(obj.uid)
            obj = self._migrated(obj)
            if obj.is_deleting:
                return None  # the event of that leads to the clean-up
        if self.finalizer not in obj.finalizers:
            if self._is_before_our_write(obj):
                return None  # another event of it led to add, which has succeeded
            return self._on_new(obj, notify)[1]
        return self._on_known(obj, notify)

    def on_resync(self, obj: Object, notify: NotifyCallback) -> Outcome:
        """Handle a resync: the object is unchanged."""
        self._check_object(obj, "resync")
        if obj.is_deleting:
            return self._clean_up(obj, notify)
        if self._legacy:
            obj = self._migrated(obj)
            if obj.is_deleting:
                return None
        if self.finalizer not in obj.finalizers and not self._is_before_our_write(obj):
            return self._on_new(obj, notify)[1]
        return self._on_known(obj, notify)

    def on_update(self, old: Object, new: Object, notify: NotifyCallback) -> Outcome:
        """Handle a change of the object."""
        self._check_object(old, "update")
        self._check_object(new, "update")
        is_news, is_stripped = self._is_news(old, new), self.is_stripped(old, new)
        if is_stripped:
            self._note_stripped(new)
        if new.is_deleting:
            return self._clean_up(new, notify) if is_news else None
        if not is_news and not is_stripped:
            return None
        if self._legacy:
            new = self._migrated(new)
            if new.is_deleting:
                return None
        # An event from before our write shows the object without the finalizer.
        if self.finalizer in new.finalizers or self._is_before_our_write(new):
            return self._call(notify, _UPDATE, new, old)
        added, outcome = self._on_new(new, notify)
        if added is None or not is_news or not self._wants_update(old, new):
            return outcome
        return self._call(notify, _UPDATE, added, old)

    def on_present(
        self,
        obj: Object,
        notify: NotifyCallback,
        *,
        is_new: bool,
        is_marked: bool = False,
        also: Callable[[Object], list[dict[str, Any]]] | None = None,
    ) -> Outcome:
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
        """
        self._check_object(obj, "a look")
        if obj.is_deleting:
            return self._clean_up(obj, notify)
        if obj.uid in self._legacy or self._superseded(obj):
            with self._lock:
                self._legacy.add(obj.uid)
            obj = self._migrated(obj)
            if obj.is_deleting:
                return None  # the event of that leads to the clean-up
        with self._lock:
            self._write_pending.pop(obj.uid, None)
        if is_marked and not is_new:
            present = self._put_back(obj, also)
            return None if present is None else self._on_known(present, notify)
        if is_new or (self.finalizer not in obj.finalizers and not self._is_before_our_write(obj)):
            return self._on_new(obj, notify, also)[1]
        return self._on_known(obj, notify)

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
        self._forget_seen_write(old, new)
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
        with self._lock:
            if self._finalizer_versions.pop(obj.uid, None) is not None and not obj.is_deleting:
                # No event has shown the finalizer that we wrote: who removed it was not seen.
                self._unprotected.add(obj.uid)
            is_done = self._write_pending.get(obj.uid) is _DELETE
            is_unprotected = obj.uid in self._unprotected
        outcome: Outcome = None
        is_held = not obj.is_deleting and bool(self._our_finalizers_on(obj))
        # An object that left the informer's selector looks the same, but still exists.
        if (is_held or is_unprotected) and not is_done and self._finalizers.is_gone(obj):
            outcome = self._call(notify, _DELETE, obj, None)
        if not _is_unfinished(outcome):
            self.forget(obj)
        return outcome

    def is_at_rest(self, obj: Object) -> bool:
        """Whether no write to the object is pending, or not seen yet."""
        uid = obj.uid
        with self._lock:
            return not (
                uid in self._legacy or uid in self._write_pending or uid in self._finalizer_versions
            )

    def forget(self, obj: Object) -> None:
        """The object is gone, or no longer followed: then it is handled anew, as after a start."""
        uid = obj.uid
        with self._lock:
            self._finalizer_versions.pop(uid, None)
            self._write_pending.pop(uid, None)
            self._unprotected.discard(uid)
            self._legacy.discard(uid)

    def concerns(self, old: Object, new: Object) -> bool:
        """Whether an update needs a callback or a finalizer write.

        Changes of the status, labels, annotations or our own finalizers alone need none. Otherwise
        our own write of the in-progress finalizer would end the retries of a failing first call.
        """
        if self.is_stripped(old, new):
            return True
        if not self._is_news(old, new):
            return False
        if new.is_deleting:
            return True
        is_bare = self.finalizer not in new.finalizers and not self._is_before_our_write(new)
        return is_bare or self._wants_update(old, new)

    def _is_news(self, old: Object, new: Object) -> bool:
        """Whether more than the status, labels, annotations or our own finalizers changed."""
        self._forget_seen_write(old, new)
        # After a restore the state differs, whatever the generation.
        if new.is_deleting != old.is_deleting or _goes_back(old, new):
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
        if self._superseded(old):
            return not self._superseded(new)
        with self._lock:
            version = self._finalizer_versions.get(new.uid)
        return version is not None and _has_reached(new, version) and not _has_reached(old, version)

    def _note_stripped(self, obj: Object) -> None:
        with self._lock:
            if not obj.uid or obj.uid in self._unprotected:
                return
            self._unprotected.add(obj.uid)
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

    def _superseded(self, obj: Object) -> tuple[str, ...]:
        """What our finalizer replaces on the object; empty if it was not handled with such a one.

        The earlier spelling is always ours. A finalizer of an earlier name is only ours if the
        object has none of the present name: later it comes from another operator that uses the
        name.
        """
        present = obj.finalizers
        first, *earlier = self._own.finalizers
        if any(name in present for name in earlier):
            return tuple(name for name in self._own.all_names if name in present and name != first)
        if not self._previous or not self.names.isdisjoint(present):
            return ()
        for each in self._previous:
            if any(name in present for name in each.finalizers):
                return tuple(name for name in each.all_names if name in present)
        return ()

    def _migrated(self, obj: Object) -> Object:
        """Replace finalizers of an earlier spelling or name, if it has any; returns the new state.

        On an object that is being deleted by now they stay, for the clean-up.

        Raises:
            FinalizerError: it could not be written.
        """
        if obj.uid not in self._legacy:
            return obj
        superseded = self._superseded(obj)
        # All in one write: once the finalizer is replaced, nothing says that the rest is ours.
        made = self._put(obj, self.finalizer, instead_of=superseded) if superseded else obj
        if made is not None and made.is_deleting:
            return made
        with self._lock:
            self._legacy.discard(obj.uid)
            if made is not None and made.uid and self.finalizer in made.finalizers:
                self._finalizer_versions[made.uid] = made.resource_version
        return obj if made is None else made

    def _put_back(
        self, obj: Object, also: Callable[[Object], list[dict[str, Any]]] | None
    ) -> Object | None:
        """Put the finalizer on a handled object, unless it is there, in place of a foreign one.

        Returns:
            The new state; None if it is gone or being deleted.

        Raises:
            FinalizerError: it could not be written.
        """
        if self.finalizer in obj.finalizers or self._is_before_our_write(obj):
            return obj
        replaced = (*self.foreign, *self._own.in_progress)
        made = self._put(obj, self.finalizer, instead_of=replaced, also=also)
        if made is None or made.is_deleting:
            return None
        with self._lock:
            self._unprotected.discard(obj.uid)
            if made.uid:
                self._finalizer_versions[made.uid] = made.resource_version
        return made

    def _on_known(self, obj: Object, notify: NotifyCallback) -> Outcome:
        """Resync an object that was handled before, and remove its in-progress finalizer."""
        outcome: Outcome = None
        if not self._pop_write_pending(obj, _RESYNC):
            outcome = self._call(notify, _RESYNC, obj, None)
        marks, present = self._own.in_progress, obj.finalizers
        is_marked = self.finalizer in present and any(mark in present for mark in marks)
        # Our write of the finalizer has removed the mark.
        if is_marked and not self._is_before_our_write(obj):
            with self._retry_write_only(obj, _RESYNC, "sync"):
                self._finalizers.remove(obj, *marks)
        return outcome

    def _on_new(
        self,
        obj: Object,
        notify: NotifyCallback,
        also: Callable[[Object], list[dict[str, Any]]] | None = None,
    ) -> tuple[Object | None, Outcome]:
        """Write the in-progress finalizer, call ``add``, then write the finalizer.

        When an earlier attempt failed only at the last write, only that is repeated.

        Returns:
            The object's new state, or None if it is unfinished or being deleted; and the result.
        """
        present = obj
        outcome: Outcome = None
        if not self._pop_write_pending(obj, _CREATE):
            if self.in_progress_finalizer not in obj.finalizers:
                replaced = (*self._begun_with(obj), *self.foreign)
                marked = self._put(obj, self.in_progress_finalizer, instead_of=replaced, also=also)
                if marked is None or self.in_progress_finalizer not in marked.finalizers:
                    return None, None
                present = marked
            if obj.uid:
                with self._lock:
                    self._unprotected.add(obj.uid)
            outcome = self._call(notify, _CREATE, present, None)
            if _is_unfinished(outcome):
                return None, outcome
        with self._retry_write_only(obj, _CREATE, "add"):
            replaced = (*self._own.in_progress, *self.foreign)
            done = self._put(present, self.finalizer, instead_of=replaced, also=also)
        if done is None or done.is_deleting:
            # The in-progress finalizer holds it until the delete callback has succeeded. It stays
            # unprotected: no event may ever show that finalizer, if another client removes it.
            return None, outcome
        with self._lock:
            self._unprotected.discard(obj.uid)
            if done.uid:
                self._finalizer_versions[done.uid] = done.resource_version
        return done, outcome

    def _begun_with(self, obj: Object) -> tuple[str, ...]:
        """The in-progress finalizers of an earlier spelling or name that the object has."""
        for each in (self._own, *self._previous):
            if found := tuple(mark for mark in each.in_progress if mark in obj.finalizers):
                return found
        return ()

    def _put(
        self,
        obj: Object,
        name: str,
        *,
        instead_of: Sequence[str],
        also: Callable[[Object], list[dict[str, Any]]] | None = None,
    ) -> Object | None:
        """Write a finalizer.

        Raises:
            FinalizerError: it could not be written, or the server left it out.
        """
        with self._lock:
            # Otherwise it may be our own write, which is newer than the object.
            is_first = obj.uid not in self._unprotected and obj.uid not in self._finalizer_versions
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

    def _clean_up(self, obj: Object, notify: NotifyCallback) -> Outcome:
        names = self._our_finalizers_on(obj)
        with self._lock:
            if not names and obj.uid not in self._unprotected:
                self._write_pending.pop(obj.uid, None)  # this event shows our clean-up
                return None
            if obj.uid:
                self._unprotected.add(obj.uid)  # the finalizer may be removed before this succeeds
                if names and not any(name in self.names for name in names):
                    self._legacy.add(obj.uid)  # for the next attempt, should this one fail
        outcome: Outcome = None
        if not self._pop_write_pending(obj, _DELETE):
            outcome = self._call(notify, _DELETE, obj, None)
            if _is_unfinished(outcome):
                return outcome
        with self._retry_write_only(obj, _DELETE, "delete"):
            self._finalizers.remove(obj, *self.names, *names)
        with self._lock:
            self._finalizer_versions.pop(obj.uid, None)
            self._unprotected.discard(obj.uid)
            self._legacy.discard(obj.uid)
            if obj.uid:
                self._write_pending[obj.uid] = _DELETE  # for events from before our write
        return outcome

    def _our_finalizers_on(self, obj: Object) -> list[str]:
        """Our finalizers on the object; those of earlier names only if it has no present one.

        Nor if it was protected by a current one before: then they are another operator's. The
        foreign one is ours now.
        """
        present = obj.finalizers
        own = [name for name in present if name in self.names or name in self.foreign]
        is_ours = not self.names.isdisjoint(own)
        if is_ours or (obj.uid in self._unprotected and obj.uid not in self._legacy):
            return own
        ours = self.all_names.union(self.foreign)
        return [name for name in present if name in ours]

    def _call(
        self, notify: NotifyCallback, action: ResourceAction, obj: Object, old: Object | None
    ) -> Outcome:
        """Call the callback with the types of our own kind, whatever the informer's are."""
        kind = self.kind
        return notify(action, obj.viewed_as(kind), old and old.viewed_as(kind))

    def _pop_write_pending(self, obj: Object, action: ResourceAction) -> bool:
        """Whether the callback succeeded before and only its finalizer write is missing."""
        with self._lock:
            # Dropped for any other action: the object has moved on since, or back.
            return self._write_pending.pop(obj.uid, None) is action

    @contextlib.contextmanager
    def _retry_write_only(
        self, obj: Object, action: ResourceAction, callback: str
    ) -> Iterator[None]:
        """For the write after a callback: when it fails, a retry repeats only the write."""
        try:
            yield
        except FinalizerError as error:
            if obj.uid:
                with self._lock:
                    self._write_pending[obj.uid] = action
            raise error.after(f"the {callback} callback succeeded, but then") from error

    def _is_before_our_write(self, obj: Object) -> bool:
        """Whether ``obj`` is a state from before this process wrote the finalizer."""
        with self._lock:
            version = self._finalizer_versions.get(obj.uid)
        return version is not None and is_older_version(obj.resource_version, version)

    def _forget_seen_write(self, old: Object, new: Object) -> None:
        """Forget our own write once an event shows it, or after a restore of the server."""
        goes_back = _goes_back(old, new)
        with self._lock:
            version = self._finalizer_versions.get(new.uid)
            has_caught_up = version is not None and not is_older_version(
                new.resource_version, version
            )
            # Without the finalizer: another client removed it, and it is written again.
            if goes_back or (has_caught_up and self.finalizer in new.finalizers):
                self._finalizer_versions.pop(new.uid, None)
            is_written = self.finalizer in new.finalizers
            if goes_back or (is_written and self._write_pending.get(new.uid) is _CREATE):
                self._write_pending.pop(new.uid, None)

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


class HasFinalizerLifecycle:
    """The finalizer properties of OpinionatedWatcher and OpinionatedReconciler."""

    def __init__(self, lifecycle: FinalizerLifecycle) -> None:
        self._finalizer_lifecycle = lifecycle

    @property
    def finalizer(self) -> str:
        """The finalizer on handled objects. The default one gets the operator's name when this is
        added to a controller that has a name, of its own or from its operator."""
        return self._finalizer_lifecycle.finalizer

    @property
    def in_progress_finalizer(self) -> str:
        """The finalizer on objects whose first call has not succeeded yet."""
        return self._finalizer_lifecycle.in_progress_finalizer

    @property
    def finalizer_lifecycle(self) -> FinalizerLifecycle:
        """For controllers: what decides on callbacks and writes the finalizers."""
        return self._finalizer_lifecycle


def _has_reached(obj: Object, version: str) -> bool:
    """Whether the object has that version or a newer one, for comparable versions."""
    return obj.resource_version == version or is_older_version(version, obj.resource_version)


def _goes_back(old: Object, new: Object) -> bool:
    return is_older_version(new.resource_version, old.resource_version)


def _is_unfinished(outcome: Outcome) -> bool:
    return outcome is not None and outcome.requeue_after is not None
