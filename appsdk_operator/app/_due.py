"""Which function of an App is due for an object: a state machine without I/O, lock or clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, final

import msgspec

from appsdk_operator.app._handled import Handled, HandledState, Paths
from appsdk_operator.app._schedules import Schedule
from appsdk_operator.resource import Object, is_older_version
from appsdk_operator.watchers import is_asked_again

DueCause: TypeAlias = Literal["add", "sync", "update", "delete", "every"]
_ADDS: Final[tuple[DueCause, ...]] = ("add",)
_BEGINNINGS: Final[tuple[DueCause, ...]] = ("add", "sync")
MARKED: Final[tuple[DueCause, ...]] = (*_BEGINNINGS, "delete")
"""The causes of functions whose objects may have the finalizer."""


class Function(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A declared function of the objects of a kind, as the machine needs to know it."""

    cause: DueCause
    where: Callable[[Object], bool]
    """Whether it is called for an object in this state."""
    when: Callable[[Object, Object], bool]
    """Whether the change from one state to another is one for it; never for equal versions."""
    schedule: Schedule = msgspec.field(default_factory=Schedule)
    """For a timer: its times."""
    time: Callable[[], float] = float
    """For a timer with a crontab line: the time in seconds since the epoch."""
    function: Any = None
    """What is called."""
    name: str = ""
    """By which a record knows it; unique among those of its cause."""
    paths: Paths = None
    """For an update: what a record keeps of the state that it has handled."""


class Step(NamedTuple):
    """A call that is due."""

    number: int
    """The function's place in the order of declaration."""
    old: Object | None = None
    """For an update: the state that the function has handled."""


@final
class Progress(msgspec.Struct, eq=False):
    """What one function has done for one object."""

    is_done: bool = False
    """For add, sync and delete: whether it has succeeded, or is not to be called."""
    handled: Object | None = None
    """The state with which it last succeeded, where an update begins from it."""
    failed_at: Object | None = None
    """The state of its last call, if that failed."""
    attempt: int = 0
    """The number of failed calls in a row."""
    next_time: float | None = None
    """When it may be called again after a failure; None: not before the state differs from
    :attr:`failed_at`. For a timer: when it is due."""
    tick: float = 0.0
    """For a timer with a crontab line: the time for which the next call is, in seconds since the
    epoch."""
    retry_tick: float = 0.0
    """The same where the last call has failed and its retry is the next call: somebody who asks for
    another try before that has not asked for that call."""
    following: tuple[float, float] | None = None
    """For a timer whose call has failed: the time of the next one, as :attr:`tick`, and the seconds
    until then; None: not asked for."""
    is_concerned: bool = False
    """For delete: whether the object was one of its objects at some time, or may have been."""
    is_held: bool = False
    """For delete: whether it surely was, so that the object keeps the finalizer."""
    is_unsaved: bool = False
    """For an update: whether the record has to be written before its next call, because it or an
    add has succeeded."""
    is_changed: bool = False
    """For an update: whether the object differs from what an earlier process has handled, although
    nobody knows in what."""


@final
class ObjectState:
    """What the functions of a kind have handled of one object, and which is due.

    Inputs are the current state, the time, and the outcomes of calls; see the table at
    :class:`App`. Events are not inputs: the caller gives the current state.
    """

    __slots__ = (
        "_first",
        "_functions",
        "_has_strangers",
        "_idler",
        "_is_known",
        "_is_paused",
        "_keeps_states",
        "_others",
        "_relents",
        "_remembered",
        "_restored",
        "_unchanged_since",
        "has_changed",
        "has_news",
        "has_times",
        "is_begun",
        "is_gone",
        "present",
        "progress",
        "saves_at",
    )

    def __init__(
        self,
        functions: Sequence[Function],
        first: Object,
        now: float,
        *,
        is_known: bool,
        relents: Callable[[Object, Object], bool],
        is_paused: Callable[[Object], bool] | None = None,
        others: Collection[Callable[[Object], bool]] = (),
        remembered: Handled | None = None,
        keeps_states: bool = True,
    ) -> None:
        """The state at the first sight of an object.

        Args:
            functions: in the order of their declaration.
            first: the object.
            now: the monotonic time.
            is_known: whether an earlier process has handled it.
            relents: whether a function that gave up on the first state is called for the second.
            is_paused: whether nothing is called for an object in this state, not even ``delete``;
                None: none is paused.
            others: filters of the objects on which something else puts the finalizer.
            remembered: what an earlier process has recorded of it; None: nothing.
            keeps_states: whether a record has the states that updates have succeeded with.
        """
        self._functions = functions
        self._relents = relents
        self._is_paused = is_paused
        self._others = others
        self._keeps_states = keeps_states
        self._first: Object | None = first
        self.present: Object = first
        """The newest state that was seen."""
        self.is_gone = False
        """Whether the object has left the server, and is cleaned up all the same."""
        self.progress: tuple[Progress, ...] = tuple(Progress() for _ in functions)
        self._is_known = is_known
        self._remembered = remembered
        self._restored: dict[int, Object] = {}
        """The states with which updates begin, by number, of which more is remembered than those
        functions name: that is lost to no later process before they have succeeded."""
        self.has_changed: bool | None = None
        """Whether the object has changed since an earlier process has handled it; None: nobody
        knows."""
        self.has_news = True
        """Whether :meth:`record` may differ from what was recorded last."""
        self.saves_at = 0.0
        """When a record that could not be written may be tried again, in monotonic seconds. An
        update that it has to show waits until then."""
        # A finalizer does not say for which of several kinds of objects it was put.
        wheres = [*(f.where for f in functions if f.cause in MARKED), *others]
        is_one_where = len(set(map(id, wheres))) == 1
        for function, progress in zip(functions, self.progress, strict=True):
            if function.cause == "add":
                is_sure = is_one_where or function.where is always
                progress.is_done = is_known and is_sure and function.where(first)
            elif function.cause == "sync":
                progress.is_done = not is_known
            elif function.cause == "every":
                progress.tick, pause = function.schedule.first(function.time())
                progress.next_time = now + pause
            elif function.cause == "delete":
                progress.is_concerned = is_known and is_one_where
        if remembered is not None:
            self._remember(remembered, first)
        self._has_strangers = True
        """Whether it was no object of a ``delete`` yet."""
        self._idler = next((each for each in functions if each.schedule.idle), None)
        """A timer that waits until the object does not change; None: none does."""
        self._unchanged_since = first, now
        """The newest state that was noted, and when it last changed."""
        self.has_times = any(progress.next_time is not None for progress in self.progress)
        """Whether a function waits, for its time or a change."""
        self.is_begun = False
        """Whether each ``add`` or ``sync`` has succeeded, so that updates follow."""
        self.see(first)

    def _remember(self, remembered: Handled, first: Object) -> None:
        """Begin where an earlier process has ended."""
        deletes = {each.name for each in self._functions if each.cause == "delete"}
        # One that the program has no more may have another name now.
        is_other_held = not remembered.held <= deletes
        states = remembered.states.values()
        if states:
            self.has_changed = not all(state.is_of(first) for state in states)
        for number, function in enumerate(self._functions):
            name, progress = function.name, self.progress[number]
            if function.cause == "delete":
                progress.is_held = name in remembered.held or is_other_held
                progress.is_concerned |= progress.is_held
            elif function.cause == "add" and name in remembered.due:
                progress.is_done = False
            elif function.cause == "add" and not remembered.is_new:
                # One that is not named came with this release, for which the object is not new.
                progress.is_done |= name in remembered.done or function.where(first)
            elif function.cause == "update" and name in remembered.states:
                state = remembered.states[name]
                if state.is_of(first):
                    progress.handled = first
                    continue
                # None: nobody knows in what it differs; see _begin_updates.
                progress.handled = restored = state.restored(first)
                if restored is not None and state.covers(function.paths, first):
                    self._restored[number] = restored

    def record(self) -> Handled:
        """What the next process has to know."""
        named: dict[str, set[str]] = {"done": set(), "due": set(), "held": set()}
        states: dict[str, HandledState] = {}
        for number, function in enumerate(self._functions):
            name, progress = function.name, self.progress[number]
            if function.cause == "add":
                named["done" if progress.is_done else "due"].add(name)
            elif function.cause == "delete" and progress.is_concerned:
                named["held"].add(name)
            elif function.cause == "update" and self._keeps_states:
                handled = progress.handled
                is_remembered = progress.is_changed or handled is self._restored.get(number)
                if handled is not None and not is_remembered:
                    states[name] = HandledState.of(handled, function.paths)
                elif self._remembered is not None and name in self._remembered.states:
                    states[name] = self._remembered.states[name]
        return Handled(
            done=frozenset(named["done"]),
            due=frozenset(named["due"]),
            held=frozenset(named["held"]),
            states=states,
            is_new=not self._is_known and not self.is_begun,
        )

    def go_on_from(self, before: ObjectState) -> None:
        """Take over what concerns this process alone: timers, and which ``sync`` was called."""
        for function, old, new in zip(self._functions, before.progress, self.progress, strict=True):
            if function.cause == "every":
                new.next_time, new.tick = old.next_time, old.tick
                new.retry_tick = old.retry_tick
                new.failed_at, new.attempt = old.failed_at, old.attempt
            elif function.cause == "sync" and before._is_known:
                new.is_done |= old.is_done
        self._begin_updates()

    def is_new_concern(self, obj: Object) -> bool:
        """Whether a ``delete`` has to see the object from this state on."""
        return self._has_strangers and any(
            function.cause == "delete" and not progress.is_concerned and function.where(obj)
            for function, progress in zip(self._functions, self.progress, strict=True)
        )

    @property
    def has_clean_up(self) -> bool:
        """Whether a ``delete`` has to see the object."""
        return any(
            function.cause == "delete" and progress.is_concerned
            for function, progress in zip(self._functions, self.progress, strict=True)
        )

    def saved(self) -> None:
        """The present record was written."""
        self.has_news, self.saves_at = False, 0.0
        for progress in self.progress:
            progress.is_unsaved = False

    def unsaved(self) -> list[int]:
        """The numbers of the updates that have to wait for the record."""
        return [number for number, progress in enumerate(self.progress) if progress.is_unsaved]

    def see(self, obj: Object, *, goes_back: bool = False) -> Object:
        """Take the state of ``obj`` unless a newer one was seen; returns the newest.

        Args:
            obj: a state of the object.
            goes_back: whether the server has an older state than before, as after a restore.
        """
        present = self.present
        if goes_back or not is_older_version(obj.resource_version, present.resource_version):
            self.present = obj
            if self._has_strangers:
                self._concern_deletes(obj)
        if not self.is_begun:
            self._begin_updates()
        return self.present

    def note_time(self, obj: Object, now: float, *, goes_back: bool = False) -> None:
        """Take note of when the object changes, for timers that wait until it does not.

        Args:
            obj: a state of the object.
            now: the monotonic time.
            goes_back: as for :meth:`see`.
        """
        if self._idler is None:
            return
        before, since = self._unchanged_since
        if goes_back or not is_older_version(obj.resource_version, before.resource_version):
            self._unchanged_since = obj, now if self._idler.when(before, obj) else since

    def _concern_deletes(self, obj: Object) -> None:
        self._has_strangers = False
        for function, progress in zip(self._functions, self.progress, strict=True):
            if function.cause == "delete" and not progress.is_concerned:
                progress.is_concerned = progress.is_held = function.where(obj)
                self._has_strangers |= not progress.is_concerned
                self.has_news |= progress.is_concerned

    def next(self, now: float, obj: Object | None = None) -> Step | None:
        """The first call in the order of declaration that is due; None: none is.

        Args:
            now: the monotonic time.
            obj: a state that is not taken yet; default: the present one.
        """
        obj = self.present if obj is None else obj
        if self._is_paused is not None and self._is_paused(obj):
            return None
        for number, function in enumerate(self._functions):
            step = self._step(number, function, obj)
            if step is not None and not self._waits(number, function, obj, now):
                return step
        return None

    def look_at(self, obj: Object | None = None) -> float | None:
        """When a call becomes due by time alone; None: none does."""
        if not self.has_times:
            return None
        obj = self.present if obj is None else obj
        if self._is_paused is not None and self._is_paused(obj):
            return None
        times = [
            due
            for number, function in enumerate(self._functions)
            if (due := self.due_at(number)) is not None
            and self._step(number, function, obj) is not None
        ]
        return min(times, default=None)

    def earliest(self, due: float) -> int:
        """The number of the function that is due at this time."""
        return next(n for n in range(len(self._functions)) if self.due_at(n) == due)

    def due_at(self, number: int) -> float | None:
        """When time alone allows the call of a function; None: it waits for no time."""
        progress, idle = self.progress[number], self._functions[number].schedule.idle
        due = progress.next_time
        if due is None:
            return None
        if progress.is_unsaved:
            return max(due, self.saves_at)
        return max(due, self._unchanged_since[1] + idle) if idle else due

    def failing(self) -> list[int]:
        """The numbers of the functions whose last call failed, and which still want one."""
        if not self.has_times:
            return []
        return [
            number
            for number, progress in enumerate(self.progress)
            if progress.failed_at is not None
            and self._step(number, self._functions[number], self.present) is not None
        ]

    def _is_unclaimed(self, obj: Object) -> bool:
        """Whether no filter says for which function an earlier process has put the finalizer.

        The object has left its filter. Each ``delete`` is called then, so that none is missed.
        """
        return (
            self._is_known
            and not (self.is_marked_by(obj) or self.is_protected_by(obj))
            and not any(
                progress.is_concerned or (progress.is_done and function.cause != "delete")
                for function, progress in zip(self._functions, self.progress, strict=True)
            )
        )

    def is_protected_by(self, obj: Object) -> bool:
        """Whether a function has to clean up, or to end, before the object goes."""
        return any(
            function.cause == "delete" and (progress.is_held or function.where(obj))
            for function, progress in zip(self._functions, self.progress, strict=True)
        ) or any(matches(obj) for matches in self._others)

    def is_marked_by(self, obj: Object) -> bool:
        """Whether a function needs to know that the object was handled."""
        return any(
            function.cause in _BEGINNINGS and function.where(obj) for function in self._functions
        )

    @property
    def is_settled(self) -> bool:
        """Whether nothing but an update can become due before the object is being deleted, or the
        time of :meth:`look_at` has come."""
        return (
            self.is_begun
            and not (self.is_gone or self._has_strangers)
            and all(map(self._is_quiet, self._functions, self.progress))
        )

    @staticmethod
    def _is_quiet(function: Function, progress: Progress) -> bool:
        if progress.failed_at is not None or progress.is_changed:
            return False
        if function.cause == "every":
            return function.where is always
        return progress.is_done or function.cause not in _BEGINNINGS

    @property
    def is_complete(self) -> bool:
        """Whether each ``add`` that the current state asks for has succeeded."""
        return self.is_complete_for(self.present)

    def is_complete_for(self, obj: Object) -> bool:
        """:attr:`is_complete` for a state that is not taken yet."""
        return self._has_succeeded(_ADDS, obj)

    @property
    def owes_update(self) -> bool:
        """Whether an ``update`` has handled another state than the present one, if any, which an
        earlier process knew."""
        return any(
            function.cause == "update"
            and progress.handled is not None
            and self._is_update(function, progress, progress.handled, self.present)
            for function, progress in zip(self._functions, self.progress, strict=True)
        )

    @property
    def is_cleaned_up(self) -> bool:
        """Whether no ``delete`` has to be called any more."""
        obj = self.present
        return all(
            function.cause != "delete" or self._step(number, function, obj) is None
            for number, function in enumerate(self._functions)
        )

    def start(self, step: Step) -> None:
        """A call begins; after a change of the object its attempts are counted anew."""
        progress = self.progress[step.number]
        function, failed_at = self._functions[step.number], progress.failed_at
        progress.following = None
        if failed_at is None:
            return
        is_asked = is_asked_again(failed_at, self.present)
        if function.cause != "every":
            changed = is_asked or function.when(failed_at, self.present)
            if progress.next_time is None or changed:
                progress.attempt = 0
        elif progress.retry_tick:
            if not is_asked:
                progress.tick = progress.retry_tick
            progress.retry_tick = 0.0

    def succeeded(self, step: Step, obj: Object, now: float) -> None:
        """The call for ``obj`` has succeeded; the time matters only if :attr:`has_times`."""
        function, progress = self._functions[step.number], self.progress[step.number]
        progress.failed_at, progress.attempt, progress.next_time = None, 0, None
        if function.cause == "every":
            progress.tick, pause = function.schedule.after(progress.tick, function.time())
            progress.next_time = now + pause
        elif function.cause == "update":
            progress.handled, progress.is_changed = obj, False
            if self._keeps_states:
                progress.is_unsaved = self.has_news = True
        else:
            self.has_news = True
            progress.is_done = True
            if not self.is_begun:
                progress.handled = obj
                self._begin_updates()
            elif function.cause == "add":
                self._save_before_updates()
        if self.has_times:
            self.has_times = any(
                one.next_time is not None or one.failed_at is not None for one in self.progress
            )

    def failed(
        self, step: Step, obj: Object, delay: float | None, attempt: int, now: float
    ) -> None:
        """The call for ``obj`` has failed.

        Args:
            step: the call.
            obj: the object that it got.
            delay: seconds until it may be made again; None: not for this state.
            attempt: the number of the next attempt.
            now: the monotonic time.
        """
        progress = self.progress[step.number]
        progress.failed_at, progress.attempt = obj, attempt
        progress.next_time = None if delay is None else now + delay
        self.has_times = True
        longest = self.longest_retry(step.number)
        if progress.following is not None and longest is not None and delay is not None:
            progress.retry_tick = progress.following[0] if delay >= longest else 0.0

    def longest_retry(self, number: int) -> float | None:
        """Seconds after which a failed call is repeated at the latest; None: as its policy says."""
        function, progress = self._functions[number], self.progress[number]
        if function.cause != "every":
            return None
        if progress.following is None:
            progress.following = function.schedule.after(progress.tick, function.time())
        return progress.following[1]

    def _step(self, number: int, function: Function, obj: Object) -> Step | None:
        """The call of a function that the state asks for, whatever the time."""
        cause, progress = function.cause, self.progress[number]
        if self.is_gone or obj.is_deleting:
            is_wanted = (
                cause == "delete"
                and not progress.is_done
                and (progress.is_concerned or function.where(obj) or self._is_unclaimed(obj))
            )
            return Step(number) if is_wanted else None
        if cause == "delete" or progress.is_done:
            return None
        if cause == "update":
            if not self.is_begun and not self._has_begun(obj):
                return None
            handled = progress.handled
            if handled is None:
                handled = self._beginning
            is_due = self._is_update(function, progress, handled, obj)
            return Step(number, handled) if is_due else None
        if cause == "every" and not self._has_succeeded(_ADDS, obj):
            return None
        return Step(number) if function.where(obj) else None

    @staticmethod
    def _is_update(function: Function, progress: Progress, handled: Object, obj: Object) -> bool:
        is_change = (
            progress.failed_at is not None or progress.is_changed or function.when(handled, obj)
        )
        return is_change and function.where(obj)

    def _waits(self, number: int, function: Function, obj: Object, now: float) -> bool:
        """Whether a call that the state asks for has to wait for a time or a change."""
        progress = self.progress[number]
        due, failed_at = progress.next_time, progress.failed_at
        if progress.is_unsaved and now < self.saves_at:
            return True
        if failed_at is not None and is_asked_again(failed_at, obj):
            return False
        if function.cause == "every":
            due = self.due_at(number)
            return due is not None and now < due
        if failed_at is None:
            return False
        if due is not None:
            return now < due and not function.when(failed_at, obj)
        return not (self._relents(failed_at, obj) or function.when(failed_at, obj))

    def _has_succeeded(self, causes: Collection[DueCause], obj: Object) -> bool:
        """Whether each function of these causes for an object in this state has succeeded."""
        return all(
            progress.is_done or function.cause not in causes or not function.where(obj)
            for function, progress in zip(self._functions, self.progress, strict=True)
        )

    @property
    def _is_synced(self) -> bool:
        """Whether a ``sync`` has succeeded."""
        return self._is_known and any(
            function.cause == "sync" and progress.is_done
            for function, progress in zip(self._functions, self.progress, strict=True)
        )

    def _has_begun(self, obj: Object) -> bool:
        return self.is_begun or self._has_succeeded(_BEGINNINGS, obj)

    @property
    def _beginning(self) -> Object:
        """The oldest state that an ``add`` or ``sync`` succeeded with, or else the first one."""
        oldest: Object | None = None
        for function, progress in zip(self._functions, self.progress, strict=True):
            found = progress.handled if function.cause in _BEGINNINGS else None
            if found is not None and (
                oldest is None or is_older_version(found.resource_version, oldest.resource_version)
            ):
                oldest = found
        return oldest or self._first or self.present

    def _begin_updates(self) -> None:
        if self.is_begun or not self._has_begun(self.present):
            return
        beginning = self._beginning
        changed: Collection[str] = () if self._remembered is None else self._remembered.states
        if self._is_synced:
            changed = ()
        for function, progress in zip(self._functions, self.progress, strict=True):
            if function.cause != "update":
                progress.handled = None
            elif progress.handled is None:
                progress.handled, progress.is_changed = beginning, function.name in changed
        self.is_begun = self.has_news = True
        self._first = None
        if not self._is_known and any(each.cause == "add" for each in self._functions):
            self._save_before_updates()

    def _save_before_updates(self) -> None:
        """Make updates wait for the record: else a crash may repeat an add after its update."""
        for function, progress in zip(self._functions, self.progress, strict=True):
            progress.is_unsaved |= function.cause == "update"


def is_marked_by_record(
    functions: Sequence[Function], others: Collection[Callable[[Object], bool]]
) -> bool:
    """Whether only a record can show that some objects were handled, as nothing cleans them up.

    Args:
        functions: those of a kind.
        others: filters of the objects on which something else puts the finalizer.
    """
    protected = {*others, *(each.where for each in functions if each.cause == "delete")}
    return always not in protected and any(
        each.cause in _BEGINNINGS and each.where not in protected for each in functions
    )


def always(obj: Object) -> bool:
    """The filter of a function without one."""
    del obj
    return True
