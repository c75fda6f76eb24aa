"""The functions of an App for one kind: one reconciler that makes the calls that are due."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, final

import attrs
import msgspec

from appsdk_operator.app._background import BackgroundRunner, Backgrounds, Relents
from appsdk_operator.app._declarations import Background, Handler, Timer, name_of
from appsdk_operator.app._due import (
    MARKED,
    Function,
    ObjectState,
    Step,
    always,
    is_marked_by_record,
)
from appsdk_operator.app._each import Parts
from appsdk_operator.app._handled import Handled, is_of_another, kept_paths
from appsdk_operator.app._kopf import KopfStates
from appsdk_operator.app._remember import AnnotationRecords, RecordError, Records
from appsdk_operator.app._results import ResultWriter
from appsdk_operator.app._returned import nothing_of
from appsdk_operator.cache import Event, NotCachedError, ResourceAction
from appsdk_operator.client import ClientLike
from appsdk_operator.controllers import (
    HOT_CALLS,
    HOT_TIME,
    FinalizerError,
    Outcome,
    PatchAbandonedError,
    Result,
)
from appsdk_operator.resource import (
    DecodeError,
    FieldPath,
    Kind,
    Object,
    ObjectKey,
    is_older_version,
)
from appsdk_operator.runtime import Clock, as_exception, call_limited, get_logger, safe_text, settle
from appsdk_operator.runtime.validation import no_awaitable
from appsdk_operator.watchers import (
    CalledFunction,
    FailedFunction,
    FinalizerLifecycle,
    JoinedFinalizer,
    ReconcileRequest,
    RetryPolicy,
    SteadyCall,
    SteadyFunction,
    Waiting,
    goes_back,
    has_other_records,
    object_without_records,
    without_records,
)

_log = get_logger("appsdk_operator.app")
_UNFINISHED: Final = Result(requeue_after=0.0)
_FIRST_LOOK: Final = 0.05
_LAST_LOOK: Final = 1.0
"""Seconds between two looks at whether the background functions of a deleted object have ended."""
_LONGEST_WRITE_RETRY: Final = 300.0
"""Seconds between two attempts to write a finalizer, whatever the retry policy says."""
_CAUSES: Final = {
    "add": "CREATE",
    "sync": "SYNC",
    "update": "UPDATE",
    "delete": "DELETE",
    "every": "TIMER",
}


class _Write(msgspec.Struct, frozen=True, eq=False):
    """The attempts to write an object's finalizer, or its record, or to take off kopf's."""

    error: Exception | None = None
    attempt: int = 0
    next_time: float = 0.0


_WRITTEN: Final = _Write()


class _Begun(NamedTuple):
    """What unfinished calls of a function have done."""

    object: Object
    """The state for which they were made."""
    parts: Parts
    until: float
    """The monotonic time at which all is done again."""


@final
@attrs.frozen(eq=False)
class _Update:
    """A function that is called for updates."""

    call: SteadyFunction
    function: Function
    is_plain: bool = attrs.field(kw_only=True)
    """Whether each change of the spec of each object is one for it."""
    is_written: bool = attrs.field(kw_only=True)
    """Whether what it returns is written."""


@final
class _Recording(msgspec.Struct, eq=False):
    """What is known of an object's record."""

    is_loaded: bool = False
    """Whether it was asked what an earlier process has recorded."""
    first: Object | None = None
    """Until then: the first state of the object that was seen."""
    loaded: str | None = None
    """That record."""
    is_sure: bool = False
    """Whether this process has gone on from it, and no other one."""
    tried: str | None = None
    """The record that this process has tried to write last."""
    sent: str | None = None
    """The one that the present pass has sent with a finalizer."""
    written: str | None = None
    """The one that was written last; None: what the object shows."""
    shown_in: str | None = None
    """A version of the object that has it; None: none is known."""
    write: _Write = _WRITTEN
    """The attempts to write it."""
    has_failed: bool = False
    """Whether the pass ends because it could not be written."""


@final
class _Known(msgspec.Struct, eq=False):
    """What is known of one object."""

    state: ObjectState
    running: Step | None = None
    """The call that runs, or has just failed."""
    foreseen: tuple[Object, Step] | None = None
    """A state, and the first call that is due for it, until it is made."""
    called: int | None = None
    """The number of the function that the present pass has called."""
    errors: dict[int, Exception] = msgspec.field(default_factory=dict)
    """The last errors of failing functions, by number."""
    parts: dict[int, _Begun] | None = None
    """What unfinished calls of functions have done, by number."""
    write: _Write = _WRITTEN
    release: _Write = _WRITTEN
    """The attempts to take off what kopf has left; no function waits for it."""
    is_releasing: bool = False
    """Whether the pass ends because that could not be written."""
    look_now: bool = False
    """Whether the last pass has changed what is due, so that another one follows at once."""
    pause: float = 0.0
    """Seconds until the next look at whether its background functions have ended; 0: it does not
    wait for them."""
    is_marked: bool = False
    """Whether a pass has ended with all finalizers in place."""
    recording: _Recording | None = None
    """None where nothing is recorded."""
    has_left: bool = False
    """Whether it is in the server no more."""
    is_absent: bool = False
    """Whether an answer of the present pass says so, before any event."""
    is_settled: bool = False
    """Whether a change of it leads to nothing but updates, as long as its finalizers stay."""
    until: float | None = None
    """When that may end by time alone; None: never."""
    pauses: int = 0
    """The pauses of the operator at whose end its newest state was taken."""
    calls: int = 0
    """The calls for the object since :attr:`counted_since`."""
    counted_since: float = 0.0


_WriteResult: TypeAlias = Callable[[Object, Any], None]
"""Writes what a function has returned for an object."""


def _writing(writer: ResultWriter, path: FieldPath) -> _WriteResult:
    return lambda obj, value: writer.write(obj, path, value)


@final
class KindFunctions:
    """A reconciler that calls the functions of an App for the objects of one kind.

    What is due is computed from the states that the functions have handled and the present one;
    an event, a due time and a resync only say when to look. Each pass makes one call.

    One mark shows the next process that an object was added, for all functions. Where something
    cleans up, or ends before the object goes, it is the finalizer; elsewhere the record, and the
    object has no finalizer. Where there is no ``add`` and no ``sync`` nobody needs a mark.

    Calls for one object must not overlap; otherwise thread-safe.
    """

    def __init__(
        self,
        kind: Kind[Any, Any],
        client: ClientLike,
        declared: Sequence[Handler | Timer],
        *,
        function_of: Callable[[Handler | Timer], Callable[..., Any]],
        clock: Clock,
        finalizer: JoinedFinalizer,
        is_ready: Callable[[Object], bool] | None = None,
        time_limit: float | None = None,
        paused: Callable[[Object], bool] | None = None,
        backgrounds: Sequence[Background] = (),
        runner_of: Callable[[Background, Relents], BackgroundRunner] | None = None,
        records: Records | None = None,
        adopted: KopfStates | None = None,
        result_of: Callable[[Handler | Timer, _WriteResult], _WriteResult] = lambda _, write: write,
        newest_of: Callable[[Object], Object | None] = lambda obj: obj,
    ) -> None:
        """The reconciler of ``kind``.

        Args:
            kind: the kind.
            client: writes finalizers and results.
            declared: the functions in the order of their declaration; timers alone put on no
                finalizer, and remove none.
            function_of: what is called for a declaration.
            clock: the controller's.
            finalizer: the finalizer of the kind.
            is_ready: for timers in a controller of their own: whether they may be called for an
                object, from then on.
            time_limit: seconds for a call of a function that has no limit of its own; None: none.
            paused: the objects for which nothing is called and nothing is written; None: none are.
            backgrounds: the functions that run as long as an object exists.
            runner_of: makes the runner of one.
            records: where what was handled is recorded for the next process, if it has to be; None:
                nowhere.
            adopted: what an operator with kopf has left on the objects; None: there was none.
            result_of: wraps what writes the results of a declaration.
            newest_of: the object of that name in the cache.
        """
        self.kind = kind
        self._clock = clock
        self._adopted = adopted
        self._lifecycle = FinalizerLifecycle(
            kind, client, finalizer, foreign="" if adopted is None else adopted.finalizer
        )
        self._writes = (
            bool(backgrounds)
            or adopted is not None
            or any(isinstance(each, Handler) for each in declared)
        )
        self._wheres: list[tuple[Any, Callable[[Object], bool]]] = []
        self._is_ready = is_ready
        self._ready = set[str]()
        names = _names_of(declared)
        self._functions = tuple(
            self._function(each, function_of(each), name)
            for each, name in zip(declared, names, strict=True)
        )
        writer = ResultWriter(kind, client)
        self._results = tuple(
            None if each.result is None else result_of(each, _writing(writer, each.result))
            for each in declared
        )
        self._policies: tuple[RetryPolicy | None, ...] = tuple(e.options.retry for e in declared)
        self._limits = tuple(
            time_limit if each.options.time_limit is None else each.options.time_limit
            for each in declared
        )
        self.has_time_limits: bool = any(limit is not None for limit in self._limits)
        """For the controller: whether a call may have a time limit."""
        self._background_wheres = tuple(map(self._where_of, backgrounds))
        self.backgrounds = Backgrounds(
            [
                (runner_of(each, self._relents), where)
                for each, where in zip(backgrounds, self._background_wheres, strict=True)
            ]
            if runner_of is not None
            else ()
        )
        self._has_backgrounds = bool(backgrounds)
        self._has_idle = any(each.schedule.idle for each in self._functions)
        self._protects = self._has_backgrounds or any(e.cause == "delete" for e in self._functions)
        self._takes_off = self._writes and not self._protects
        """Whether no object needs our finalizer, so that it is taken off."""
        self._marks = records is not None and is_marked_by_record(
            self._functions, self._background_wheres
        )
        """Whether the record is the mark of some objects."""
        self._keeps_states = records is not None and records.keeps_states
        claims = {e.where for e in self._functions if e.cause == "delete"}
        # With one filter the finalizer says of which clean-up an object is.
        holds = bool(claims) and len(claims.union(self._background_wheres)) > 1
        self._stores = self._keeps_states or self._marks or (records is not None and holds)
        """Whether this App writes records; an earlier version of it may have left some."""
        is_read = self._stores or any(e.cause in ("add", "sync") for e in self._functions)
        self._records = records if is_read else None
        # What is in the JSON of an object at rest; a change may remove it.
        self._mark = b"" if self._records is None or self._protects else self._records.mark
        self._has_mark = self._protects or bool(self._mark)
        self._is_paused: Callable[[Object], bool] | None = None
        if paused is not None:
            self._is_paused = self._filtered("paused", repr(kind), paused, on_failure=False)
        self._updates = tuple(
            _Update(
                _steady_function(declared[number], function.function, self._limits[number], number),
                function,
                is_plain=declared[number].options.when is None and function.where is always,
                is_written=self._results[number] is not None,
            )
            for number, function in enumerate(self._functions)
            if function.cause == "update"
        )
        self._has_one_update = len(self._updates) == 1
        self._steady_finalizers: tuple[str, ...] = ()
        self._may_settle = not (self._has_backgrounds or self._keeps_states)
        self._newest_of = newest_of
        self._pauses = 0
        self._paused: dict[str, ObjectKey] = {}
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    @property
    def finalizer_lifecycle(self) -> FinalizerLifecycle | None:
        """What writes the finalizer; None for timers alone, which have none."""
        return self._lifecycle if self._writes else None

    @property
    def level_based(self) -> KindFunctions:
        """For the dispatcher: itself, as what knows which call is due."""
        return self

    def is_handled(self, obj: Object) -> bool:
        """Whether each ``add`` has succeeded for the object, as far as its mark tells.

        An object that no function with a mark handles needs none.
        """
        if self._lifecycle.finalizer in obj.finalizers:
            return True
        marking = {e.cause for e in self._functions if e.cause in MARKED and e.where(obj)}
        if "delete" in marking or any(matches(obj) for matches in self._background_wheres):
            return False
        if not marking or self._records is None:
            return True
        handled = self._records.handled(self._records.stored(obj), obj)
        return handled is not None and not handled.is_new

    def _where_of(self, declared: Handler | Timer | Background) -> Callable[[Object], bool]:
        where = declared.options.where
        if where is None:
            return always
        # One for each filter: that shows which functions have the same objects.
        found = [wrapped for given, wrapped in self._wheres if given.tree.is_same(where.tree)]
        name = getattr(declared.function, "__qualname__", "a function")
        matches = found[0] if found else self._filtered("where", name, where)
        self._wheres.append((where, matches))
        return matches

    def _function(
        self, declared: Handler | Timer, function: Callable[..., Any], key: str
    ) -> Function:
        when = declared.options.when
        name = getattr(declared.function, "__qualname__", "a function")
        matches = self._where_of(declared)
        changes: Callable[[Object, Object], bool] = self._lifecycle.differs
        if when is not None:
            changes = self._change(name, when)
        if isinstance(declared, Handler):
            return Function(
                cause=declared.cause,
                where=matches,
                when=changes,
                function=function,
                name=key,
                paths=kept_paths(when, self.kind),
            )
        return Function(
            cause="every",
            where=matches if self._is_ready is None else self._once_ready(self._is_ready, matches),
            when=changes,
            schedule=declared.schedule,
            time=self._clock.time,
            function=function,
        )

    def _once_ready(
        self, is_ready: Callable[[Object], bool], matches: Callable[[Object], bool]
    ) -> Callable[[Object], bool]:
        """The objects of a timer, once they are ready."""
        # It may read a store of the program's: only until the object is ready.
        asked = self._filtered("handled_states", repr(self.kind), is_ready, on_failure=False)

        def where(obj: Object) -> bool:
            if obj.uid not in self._ready:
                if not asked(obj):
                    return False
                self._ready.add(obj.uid)
            return matches(obj)

        return where

    def _filtered(
        self, option: str, name: str, given: Callable[..., bool], *, on_failure: bool = True
    ) -> Callable[..., bool]:
        """A filter of the user's; one that fails does not keep functions from being called."""
        is_logged = False

        def passes(*objects: Object) -> bool:
            nonlocal is_logged
            try:
                return bool(no_awaitable(option, given(*objects)))
            except BaseException as raised:
                # Not in a worker, which sys.exit() must not end.
                as_exception(f"{option}= of {name}", raised)
                if not is_logged:
                    is_logged = True
                    _log.exception(
                        "%s= of %s failed: the kit takes it for %s each time it fails, and logs "
                        "only the first time. Correct the filter",
                        option,
                        name,
                        str(on_failure).lower(),
                    )
                return on_failure

        return passes

    def _change(self, name: str, when: Callable[..., bool]) -> Callable[[Object, Object], bool]:
        wanted, lifecycle = self._filtered("when", name, when), self._lifecycle

        def is_change(old: Object, new: Object) -> bool:
            if old.resource_version == new.resource_version:
                return False
            if not wanted(old, new) or lifecycle.is_own_write(old, new):
                return False
            return not has_other_records(old, new) or wanted(
                object_without_records(old), object_without_records(new)
            )

        return is_change

    def catch_up(self) -> None:
        """A pause of the operator ends: one look at each object takes all changes during it."""
        with self._lock:
            self._pauses += 1
            for known in self._known.values():
                known.is_settled = False

    def _caught_up(self, known: _Known, obj: Object) -> Object:
        """The newest state of the object, at the first look after a pause."""
        known.pauses = self._pauses
        try:
            found = self._newest_of(obj)
        except NotCachedError:  # its namespace has just been left
            return obj
        if found is None or found.uid != obj.uid:
            return obj
        is_older = is_older_version(found.resource_version, obj.resource_version)
        return obj if is_older else found.viewed_as(self.kind)

    # Events.

    def concerns(self, old: Object, new: Object) -> bool:
        """Whether the change makes a call due now, or earlier than one would be."""
        known = self._known.get(new.uid)
        old, new = old.viewed_as(self.kind), new.viewed_as(self.kind)
        was_paused = new.uid in self._paused
        is_paused = self._note_paused(new)
        is_stripped = (
            self._protects
            and not (self._is_steady(old) and self._is_steady(new))
            and self._lifecycle.note_change(old, new)
        )
        if known is None:
            return True
        state = known.state
        if self._stores and known.recording is not None and known.recording.shown_in is None:
            self._note_record(known.recording, old)
        is_restored = goes_back(old, new)
        if self._has_idle:
            state.note_time(new, self._clock.monotonic(), goes_back=is_restored)
        if is_restored:
            if known.recording is not None:
                known.recording.written = known.recording.shown_in = None
                state.has_news = True
            if state.is_gone:
                self.forget(new)  # what was cleaned up is there again
            else:
                state.see(new, goes_back=True)
            return True
        if is_stripped or new.is_deleting != old.is_deleting or is_paused != was_paused:
            return True
        if known.pauses != self._pauses:
            return True
        if is_older_version(new.resource_version, state.present.resource_version):
            return False  # from before what a pass has seen, in the answer to a write
        if self._protects and not self._is_steady(new) and self._is_unprotected(known, new):
            return True  # the finalizer is due, before a deletion can come
        if not state.is_complete and state.is_complete_for(new):
            return True  # it is handled now, without a call
        if state.is_new_concern(new):
            return True  # a delete has to know of this state, even if the next one does not match
        if self._has_backgrounds and self.backgrounds.wants_to_see(
            new, may_run=self._may_run(new), may_begin=known.state.is_complete
        ):
            return True
        step = state.next(self._clock.monotonic(), new)
        if step is not None:
            known.foreseen = new, step
            return True
        if self._owes_mark(known, new):
            return True
        if known.recording is not None and self._is_record_due(known, new):
            return True
        look_at, before = state.look_at(new), state.look_at()
        return look_at is not None and (before is None or look_at < before)

    def steady(self, event: Event, /) -> SteadyCall | Literal[False] | None:
        """For the dispatcher: the update that is due for a settled object."""
        obj, old = event.object, event.old
        known = self._known.get(obj.uid)
        if known is None or not known.is_settled or old is None:
            return None
        state, version, before = known.state, obj.resource_version, old.resource_version
        try:
            if (
                obj.kind is not self.kind
                or obj.deletion_timestamp is not None
                or old.deletion_timestamp is not None
                # Most are newer, which needs no call.
                or (
                    (version < before or len(version) != len(before))
                    and is_older_version(version, before)
                )
                or (
                    old is not state.present
                    and is_older_version(version, state.present.resource_version)
                )
                or (
                    self._has_mark
                    and (
                        obj.finalizers != self._steady_finalizers
                        if self._protects
                        else self._mark not in obj.raw
                    )
                )
            ):
                return None
        except DecodeError:
            return None  # its finalizers cannot be read, which whoever looks logs
        if self._is_paused is not None and (obj.uid in self._paused or self._is_paused(obj)):
            return None
        if known.until is not None:  # or there is no clock to read
            now = self._clock.monotonic()
            if now >= known.until:
                return None
            if self._has_idle:
                state.note_time(obj, now)
        update = self._due_update(state, obj)
        if update is None:
            return False
        if update is True or update.is_written:
            return None
        state.present = obj
        handled = state.progress[update.call.number].handled
        assert handled is not None
        return update.call, handled, known

    def _due_update(self, state: ObjectState, obj: Object) -> _Update | Literal[True] | None:
        """The first update that is due for this state of a settled object.

        True: the object cannot be read, which whoever looks logs.
        """
        try:
            for update in self._updates:
                handled = state.progress[update.call.number].handled
                if handled is None or handled is obj:
                    continue
                if (
                    update.is_plain
                    and 0 < obj.generation != handled.generation
                    and obj.resource_version != handled.resource_version
                ):
                    return update
                function = update.function
                if function.when(handled, obj) and function.where(obj):
                    return update
        except Exception:
            return True
        return None

    def made(
        self, call: SteadyCall, obj: Object, started: float, /
    ) -> Literal["more", "hot"] | None:
        """For the dispatcher: that call has succeeded."""
        known: _Known
        function, _, known = call
        known.state.progress[function.number].handled = obj
        known.calls = calls = known.calls + 1
        if self._has_one_update and calls < HOT_CALLS:
            return None
        if self._due_update(known.state, obj) is not None:
            known.is_settled, known.look_now = False, True
            return "more"
        if calls < HOT_CALLS:
            return None
        return "hot" if _begin_count(known, started) < HOT_TIME else None

    def is_hot(self, obj: Object, now: float, /) -> bool:
        """For the dispatcher: count a call that :meth:`steady` did not name."""
        known = self._known.get(obj.uid)
        if known is None:
            return False
        known.calls += 1
        return known.calls >= HOT_CALLS and _begin_count(known, now) < HOT_TIME

    def broke(self, call: SteadyCall, obj: Object, memory: Any, /) -> None:
        """For the dispatcher: that call has failed."""
        known: _Known
        function, old, known = call
        known.is_settled = False
        known.running, known.called = Step(function.number, old), function.number
        if isinstance(memory, Parts):
            self._keep_parts(known, function.number, obj, memory)

    def _settle(self, known: _Known) -> None:
        state, obj = known.state, known.state.present
        known.foreseen, known.until = None, state.look_at()
        # Not in __init__: the operator's name, which is in it, comes with the run.
        self._steady_finalizers = (self._lifecycle.finalizer,)
        known.is_settled = (
            self._may_settle
            and known.pauses == self._pauses
            and state.is_settled
            and known.write is _WRITTEN
            and (known.recording is None or (known.is_marked and not state.has_news))
            and not (known.pause or known.parts or known.has_left)
            and state.next(self._clock.monotonic()) is None
            and self._lifecycle.is_at_rest(obj)
            and (
                (known.is_marked and self._is_steady(obj))
                if self._protects
                else self._lifecycle.all_names.isdisjoint(obj.finalizers)
            )
        )

    def reconcile(self, request: ReconcileRequest | Event, /) -> Outcome:
        """Make the first call that is due, and the writes of the finalizer around it.

        Args:
            request: for an event, that may be it.

        Raises:
            FinalizerError: the finalizer could not be written.
            Exception: what the function raised.
        """
        obj = request.object.viewed_as(self.kind)
        known = self._known_of(obj)
        known.is_settled = False
        if known.has_left and request.action is not ResourceAction.DELETE:
            self.forget(obj)  # a restore of the server has brought it back
            known = self._known_of(obj)
        known.look_now, known.is_absent, known.running = False, False, None
        if known.pauses != self._pauses and request.action is not ResourceAction.DELETE:
            obj = self._caught_up(known, obj)
        if self._is_paused is not None and self._note_paused(present := known.state.see(obj)):
            self.backgrounds.see(present, may_run=False)
            known.write = _WRITTEN
            if request.action is ResourceAction.DELETE:  # nothing is cleaned up
                known.has_left = True
                self.forget(obj)
            return None
        if known.recording is not None:
            self._load(known, known.recording, obj)
        if request.action is ResourceAction.DELETE:
            self._go(known, obj)
            return None
        try:
            self._look_at(known, obj)
        except PatchAbandonedError as abandoned:
            self._begin_again(known, abandoned.present.viewed_as(self.kind))
        return None

    def _look_at(self, known: _Known, obj: Object) -> None:
        if self._has_idle:
            known.state.note_time(obj, self._clock.monotonic())
        obj, write = known.state.see(obj), _WRITTEN
        if self._has_backgrounds:
            self.backgrounds.see(obj, may_run=self._may_run(obj), may_begin=known.state.is_complete)
        if known.is_marked and self._is_steady(obj) and known.state.is_complete:
            self._call_next(known)
        elif self._lacks_finalizer(known) and self._clock.monotonic() < known.write.next_time:
            self._call_next(known)
            write = known.write
        elif self._needs_lifecycle(known, obj):
            try:
                present = self._lifecycle.on_present(
                    obj,
                    lambda *call: self._notify(known, *call),
                    is_new=not known.state.is_complete,
                    is_marked=known.is_marked
                    or (self._adopted is not None and self._adopted.is_handled(obj)),
                    also=self._addition(known),
                )
            except FinalizerError:
                known.look_now = True  # for functions that do not wait for it
                raise
            if not known.is_marked and known.state.is_begun:
                known.is_marked = known.look_now = True
            if known.recording is not None and known.recording.sent is not None:
                self._note_record(known.recording, present)
            if present is None:
                known.is_absent = True
            elif present.is_deleting:
                known.state.see(present.viewed_as(self.kind))
        elif not obj.is_deleting:
            self._call_next(known)
            if self._owes_mark(known, known.state.present):
                self._mark_by_record(known)
        known.write = write
        if known.recording is not None:
            self._record(known, known.recording)
        is_left = self._takes_off and (obj.finalizers or known.release is not _WRITTEN)
        if is_left or self._adopted is not None:
            self._release(known)
        recording = known.recording
        if recording is not None and recording.written is not None and known.release is _WRITTEN:
            # From now on a finalizer of an earlier name is that of another operator.
            recording.loaded = recording.written

    # What the next process has to know.

    def _load(self, known: _Known, recording: _Recording, obj: Object) -> None:
        """Begin where an earlier process has ended, at the first sight of an object."""
        assert self._records is not None
        recording.sent = None
        if recording.is_loaded:
            return
        known.foreseen = None  # by what was known without the record, which could not be read
        # It may have changed since, while it was paused or the record could not be read.
        first = recording.first
        if first is None or is_older_version(obj.resource_version, first.resource_version):
            first = obj
        remembered: Handled | None = None
        if self._stores or not self._lifecycle.is_handled(obj):
            recording.loaded = self._records.stored(obj)
            remembered = self._records.handled(recording.loaded, obj)
        if remembered is not None and not self._keeps_states:
            kopfs = self._handled_by_kopf(obj)
            states = {} if kopfs is None else kopfs.states
            remembered = msgspec.structs.replace(remembered, states=states)
        if remembered is None:
            is_copy = recording.loaded is not None and is_of_another(recording.loaded, obj)
            # Another process may have handled it since.
            if is_copy or (self._is_known(obj) and not self._is_known(first)):
                known.state = self._first_state_of(obj, is_copy=is_copy)
        else:
            is_in_progress = self._lifecycle.in_progress_finalizer in obj.finalizers
            # Somebody may have taken the finalizer off meanwhile.
            is_known = self._is_known(obj) or not (remembered.is_new or is_in_progress)
            known.is_marked = is_known
            known.state = self._state_of(first, is_known=is_known, remembered=remembered)
        recording.is_loaded, recording.first = True, None
        if not self._stores:
            known.recording = None

    def _begin_again(self, known: _Known, obj: Object) -> None:
        """Go on from what another process has recorded, which the cache did not show yet."""
        before, recording = known.state, _Recording()
        known.look_now = True
        self._load(known, recording, obj)
        known.recording = recording  # if it could be read
        known.state.go_on_from(before)

    def _addition(self, known: _Known) -> Callable[[Object], list[dict[str, Any]]] | None:
        """The operations that go with a finalizer: they write the record, and remove kopf's."""
        records, recording, adopted = self._records, known.recording, self._adopted
        writes_record = isinstance(records, AnnotationRecords)
        if adopted is None and not writes_record:
            return None
        has_states = writes_record and self._keeps_states

        def operations(obj: Object) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            if recording is not None and isinstance(records, AnnotationRecords):
                self._check_sure(recording, obj)
                recording.sent = recording.tried = records.text_of(known.state.record(), obj)
                found += records.operations(obj, recording.sent)
            if adopted is not None:
                handled = has_states or self._is_recorded(known)
                found += adopted.removals(obj, handled=handled)
            return found

        return operations

    # What an operator with kopf has left.

    def _handled_by_kopf(self, obj: Object) -> Handled | None:
        """What counts as handled of an object that kopf has handled; None for others."""
        state = None if self._adopted is None else self._adopted.handled(obj)
        if state is None:
            return None
        old = obj if state.is_of(obj) else (state.restored(obj) or obj)
        named = {
            cause: frozenset(
                each.name
                for each in self._functions
                if each.cause == cause and (each.where(old) or each.where(obj))
            )
            for cause in ("add", "delete")
        }
        updates = [each.name for each in self._functions if each.cause == "update"]
        return Handled(
            done=named["add"], held=named["delete"], states=dict.fromkeys(updates, state)
        )

    def _is_recorded(self, known: _Known) -> bool:
        """Whether nobody needs what kopf has recorded of the object any more."""
        if known.recording is not None and self._keeps_states:
            return known.recording.written is not None and not known.state.has_news
        return known.state.is_complete and not known.state.owes_update

    # What no function needs.

    def _removals(self, known: _Known, obj: Object, *, handled: bool) -> list[dict[str, Any]]:
        """The operations that take off finalizers that no function needs, and what kopf has left.

        Args:
            known: of the object.
            obj: the state that is patched.
            handled: whether nobody needs the state that kopf has handled.
        """
        adopted, lifecycle = self._adopted, self._lifecycle
        names, found = set(self._own_leftovers(known, obj)), list[dict[str, Any]]()
        if adopted is not None:
            if known.state.is_protected_by(obj) and lifecycle.names.isdisjoint(obj.finalizers):
                return []  # ours takes its place first
            found = adopted.removals(obj, handled=handled)
            names.add(adopted.finalizer)
        return [*found, *lifecycle.removals(obj, names)]

    def _own_leftovers(self, known: _Known, obj: Object) -> Collection[str]:
        """Our finalizers on an object of a kind that needs none: an earlier version of the App has
        set them."""
        if not self._takes_off:
            return ()
        records, recording = self._records, known.recording
        # If there is a record under our name, an earlier name is that of another operator by now.
        is_first = (
            records is not None
            and recording is not None
            and records.shown(obj, recording.loaded) is None
        )
        return self._lifecycle.own_on(obj, previous=is_first)

    def _release(self, known: _Known) -> None:
        """Take off what no function needs, unless the patch of a record has taken it off.

        Raises:
            FinalizerError: it could not be written.
        """

        def operations(obj: Object) -> list[dict[str, Any]]:
            return self._removals(known, obj, handled=self._is_recorded(known))

        state, adopted = known.state, self._adopted
        obj = state.present
        is_left = (
            not obj.is_deleting
            and (bool(obj.finalizers) or (adopted is not None and adopted.may_be_on(obj)))
            and not self._owes_mark(known, obj)
            and bool(operations(obj))
        )
        if is_left and self._clock.monotonic() < known.release.next_time:
            return
        if is_left:
            known.is_releasing = True
            made = self._lifecycle.release(obj, operations)
            if made is not None:
                state.see(made.viewed_as(self.kind))
        known.is_releasing, known.release = False, _WRITTEN

    # The mark where nothing cleans up.

    def _owes_mark(self, known: _Known, obj: Object) -> bool:
        """Whether a record has to show that an object in this state was handled."""
        if not self._marks or known.is_marked:
            return False
        is_left = bool(self._own_leftovers(known, obj))
        if not known.state.is_complete:
            # The record takes the place of the finalizer; it says which functions are to come.
            return is_left and self._is_known(obj)
        return is_left or known.state.is_marked_by(obj)

    def _mark_by_record(self, known: _Known) -> None:
        """Write the record of an object that is handled from now on.

        Raises:
            RecordError: it could not be written.
        """
        recording = known.recording
        assert recording is not None
        if self._clock.monotonic() >= recording.write.next_time:
            self._save(known, recording, known.state.record())
            known.is_marked = True

    def _check_sure(self, recording: _Recording, present: Object) -> None:
        """Check that no other process has handled the object after the record that was loaded.

        Raises:
            PatchAbandonedError: one has.
        """
        assert self._records is not None
        if recording.is_sure:
            return
        text = self._records.stored(present)
        # The answer to an own write may be lost.
        is_other = text not in (recording.loaded, recording.tried)
        if is_other and self._records.handled(text, present) is not None:
            raise PatchAbandonedError(present)

    def _note_record(self, recording: _Recording, obj: Object | None) -> None:
        """Note that a state of the object shows its record, if it does."""
        assert self._records is not None
        if obj is None or self._records.is_missing(obj):
            return
        shown_in, version = recording.shown_in, obj.resource_version
        if shown_in is None or not is_older_version(version, shown_in):
            recording.shown_in = version

    def _is_record_removed(self, recording: _Recording, obj: Object) -> bool:
        """Whether somebody has removed the record before the object had this state."""
        assert self._records is not None
        shown_in = recording.shown_in
        return (
            shown_in is not None
            and self._records.is_missing(obj)
            and not is_older_version(obj.resource_version, shown_in)
        )

    def _is_record_due(self, known: _Known, obj: Object) -> bool:
        """Whether a state of the object makes a record due, although no call."""
        assert known.recording is not None
        return known.state.is_new_concern(obj) or self._is_record_removed(known.recording, obj)

    def _record(self, known: _Known, recording: _Recording) -> None:
        """Write the record, if it has changed and no call is due now.

        Raises:
            RecordError: it could not be written.
        """
        assert self._records is not None
        state = known.state
        if recording.sent is not None:  # that patch has succeeded
            recording.written, recording.sent, recording.is_sure = recording.sent, None, True
        if self._is_record_removed(recording, state.present):
            recording.written, recording.shown_in, state.has_news = None, None, True
        else:
            self._note_record(recording, state.present)
        obj, now = state.present, self._clock.monotonic()
        if not state.has_news or obj.is_deleting or now < recording.write.next_time:
            return
        if state.next(now) is not None:
            return
        if self._is_to_write(known):
            self._save(known, recording, state.record())
        elif not self._owes_mark(known, obj):
            recording.write = _WRITTEN  # nobody needs any more what could not be written

    def _is_to_write(self, known: _Known) -> bool:
        """Whether the next process has to know what was handled."""
        if self._keeps_states:
            return known.state.is_begun or known.state.has_clean_up
        return known.is_marked

    def _record_first(self, known: _Known, recording: _Recording) -> None:
        """Before the finalizer, record what was handled, unless both are written at once.

        Otherwise a crash between the two would hide a change that comes before the next process.

        Raises:
            RecordError: it could not be recorded.
        """
        if isinstance(self._records, AnnotationRecords):
            return
        try:
            self._save(known, recording, known.state.record())
        except RecordError:
            recording.has_failed = False  # all functions wait, as for the finalizer
            raise

    def _save(self, known: _Known, recording: _Recording, record: Handled) -> None:
        assert self._records is not None
        obj, before = known.state.present, recording.written
        if before is None:
            before = self._records.shown(obj, recording.loaded)
        text = self._records.text_of(record, obj)
        if text != before:

            def check(present: Object) -> None:
                self._check_sure(recording, present)
                recording.tried = text

            def also(present: Object) -> list[dict[str, Any]]:
                handled = self._keeps_states or self._is_recorded(known)
                return self._removals(known, present, handled=handled)

            try:
                made = self._records.store(obj, text, check, also)
            except PatchAbandonedError:
                raise
            except Exception as error:
                recording.has_failed = True
                raise RecordError(
                    f"the handled state of {obj!r} could not be stored: the App retries the write, "
                    f"not the call: {safe_text(error)}"
                ) from error
            recording.is_sure = True
        else:
            made = None
        recording.written, recording.write = text, _WRITTEN
        known.state.saved()
        self._note_record(recording, made)
        if made is not None and made.finalizers != obj.finalizers:
            known.state.see(made.viewed_as(self.kind))  # what it shows is not in that record

    def _is_steady(self, obj: Object) -> bool:
        """Whether the object's finalizers are as they stay: surely, for the most frequent case."""
        return not obj.is_deleting and obj.finalizers == (self._lifecycle.finalizer,)

    def _note_paused(self, obj: Object) -> bool:
        if self._is_paused is None:
            return False
        is_paused = self._is_paused(obj)
        with self._lock:
            if is_paused:
                self._paused[obj.uid] = obj.key
            else:
                self._paused.pop(obj.uid, None)
        return is_paused

    def paused_objects(self) -> list[ObjectKey] | None:
        """The objects that are paused, as last seen; None where none can be."""
        if self._is_paused is None:
            return None
        with self._lock:
            return list(self._paused.values())

    def _needs_lifecycle(self, known: _Known, obj: Object) -> bool:
        if obj.is_deleting:
            return self._writes
        return self._protects and (
            not self._lifecycle.all_names.isdisjoint(obj.finalizers)
            or known.state.is_protected_by(obj)
        )

    def _lacks_finalizer(self, known: _Known) -> bool:
        """Whether the finalizer of a handled object could not be put back.

        Then no function waits for it: it protects the clean-up alone.
        """
        obj = known.state.present
        return (
            isinstance(known.write.error, FinalizerError)
            and known.is_marked
            and known.state.is_complete
            and not (obj.is_deleting or known.has_left)
            and self._lifecycle.finalizer not in obj.finalizers
        )

    def _is_unprotected(self, known: _Known, obj: Object) -> bool:
        """Whether an object in this state needs a finalizer, and has none of ours."""
        return (
            known.write.error is None  # or it is tried again at its time
            and not obj.is_deleting
            and self._lifecycle.all_names.isdisjoint(obj.finalizers)
            and known.state.is_protected_by(obj)
            and not self._lifecycle.precedes_write(obj)
        )

    def _may_run(self, obj: Object) -> bool:
        """Whether background functions may run for the object: it does not go without us."""
        return (
            not obj.is_deleting
            and self._lifecycle.finalizer in obj.finalizers
            and (self._is_paused is None or not self._is_paused(obj))
        )

    def _go(self, known: _Known, obj: Object) -> None:
        """The object has left the server."""
        outcome: Outcome = None
        known.has_left = True
        known.state.see(obj)
        self.backgrounds.gone(obj)
        if self._writes:
            outcome = self._lifecycle.on_delete(obj, lambda *call: self._notify(known, *call))
        known.write = _WRITTEN
        if outcome is None or self._is_over(known):
            self.forget(obj)

    def _is_over(self, known: _Known) -> bool:
        """Whether the object has left the server, and no call is to come: none is repeated for
        what cannot change any more."""
        state, now = known.state, self._clock.monotonic()
        return (
            known.has_left
            and not known.pause
            and state.next(now) is None
            and state.look_at() is None
        )

    def forget(self, obj: Object, /) -> None:
        """The object is gone, or no longer followed: then it is handled anew, as after a start."""
        self.backgrounds.gone(obj)
        self._lifecycle.forget(obj)
        with self._lock:
            known = self._known.pop(obj.uid, None)
            self._paused.pop(obj.uid, None)
        self._ready.discard(obj.uid)
        if self._records is not None and known is not None and known.has_left:
            self._records.gone(obj)

    def _notify(
        self, known: _Known, action: ResourceAction, obj: Object, old: Object | None, /
    ) -> Outcome:
        """Make one call; the lifecycle takes it for unfinished while others are to come first."""
        del old
        state = known.state
        if action is ResourceAction.DELETE:
            state.is_gone = True
            if self._has_backgrounds and self.backgrounds.running_for(obj) is not None:
                known.pause = min(max(_FIRST_LOOK, 2 * known.pause), _LAST_LOOK)
                return _UNFINISHED
            known.pause = 0.0
            self._call_next(known)
            return None if state.is_cleaned_up else _UNFINISHED
        state.see(obj)
        if action is ResourceAction.CREATE:
            if not state.is_complete:
                self._call_next(known)
            if not state.is_complete:
                return _UNFINISHED
            if known.recording is not None and not known.is_marked:
                self._record_first(known, known.recording)
            return None
        self._call_next(known)
        return None

    def _call_next(self, known: _Known) -> None:
        state, foreseen = known.state, known.foreseen
        known.foreseen = None
        if foreseen is not None and foreseen[0] is state.present:
            step: Step | None = foreseen[1]
        else:
            step = state.next(self._clock.monotonic())
        if step is not None:
            self._make(known, step)

    def _make(self, known: _Known, step: Step) -> None:
        """Make a call."""
        state = known.state
        if known.recording is not None:
            self._before_call(known, known.recording, step)
        function, obj = self._functions[step.number], state.present
        known.running, known.called = step, step.number
        if state.has_times:
            state.start(step)
        parts = self._parts_of(known, step, obj) if known.parts else Parts()
        parts.begin()
        try:
            returned = call_limited(
                function.function,
                *((obj,) if step.old is None else (step.old, obj)),
                seconds=self._limits[step.number],
                cause=_CAUSES[function.cause],
                memory=parts,
            )
            write = self._results[step.number]
            if write is not None and returned is not None:
                write(obj, returned)
        except BaseException:
            self._keep_parts(known, step.number, obj, parts)
            raise
        known.running, known.look_now = None, True
        if known.errors:
            known.errors.pop(step.number, None)
        if known.parts:
            known.parts.pop(step.number, None)
        state.succeeded(step, obj, self._clock.monotonic() if state.has_times else 0.0)

    def _keep_parts(self, known: _Known, number: int, obj: Object, parts: Parts) -> None:
        """Keep what a failed call has done for its repetition."""
        if not parts.is_begun:
            return
        longest = known.state.longest_retry(number)
        until = math.inf if longest is None else self._clock.monotonic() + longest
        known.parts = known.parts or {}
        known.parts.setdefault(number, _Begun(obj, parts, until))

    def _before_call(self, known: _Known, recording: _Recording, step: Step) -> None:
        """See to it that a crash after the call repeats at most the function's last success."""
        assert self._records is not None
        state, cause = known.state, self._functions[step.number].cause
        if state.progress[step.number].is_unsaved:
            self._save(known, recording, state.record())
        if recording.is_sure or cause not in ("add", "update"):
            return
        # The patch of a finalizer that this pass has sent was checked.
        newest = self._records.newest(state.present) if recording.sent is None else None
        if newest is not None:
            self._check_sure(recording, newest)
        recording.is_sure = True

    def _parts_of(self, known: _Known, step: Step, obj: Object) -> Parts:
        """What earlier attempts of the call have done for this state."""
        if known.parts and (begun := known.parts.get(step.number)) is not None:
            when = self._functions[step.number].when
            is_other = self._relents(begun.object, obj) or when(begun.object, obj)
            if not is_other and self._clock.monotonic() < begun.until:
                return begun.parts
            del known.parts[step.number]
        return Parts()

    def _known_of(self, obj: Object) -> _Known:
        known = self._known.get(obj.uid)
        if known is None:
            state = self._first_state_of(obj)
            recording = None if self._records is None else _Recording(first=obj)
            known = _Known(state, recording=recording)
            with self._lock:
                self._known[obj.uid] = known
        return known

    def _is_known(self, obj: Object) -> bool:
        """Whether an earlier process has handled the object, as far as its finalizers tell."""
        # With both of them a function that came late has not succeeded yet.
        return (
            self._writes
            and self._lifecycle.is_handled(obj)
            and self._lifecycle.in_progress_finalizer not in obj.finalizers
        )

    def _first_state_of(self, obj: Object, *, is_copy: bool = False) -> ObjectState:
        """The state of an object of which this App has recorded nothing.

        Args:
            obj: the object.
            is_copy: whether its finalizers may be those of the object of which it is a copy.
        """
        remembered = self._handled_by_kopf(obj)
        is_known = remembered is not None or (not is_copy and self._is_known(obj))
        return self._state_of(obj, is_known=is_known, remembered=remembered)

    def _state_of(
        self, obj: Object, *, is_known: bool, remembered: Handled | None = None
    ) -> ObjectState:
        return ObjectState(
            self._functions,
            obj,
            self._clock.monotonic(),
            is_known=is_known,
            relents=self._relents,
            is_paused=self._is_paused,
            others=self._background_wheres,
            remembered=remembered,
            keeps_states=self._keeps_states,
        )

    def has_changed(self, obj: Object) -> bool | None:
        """Whether the object has changed since an earlier process handled it; None: not known."""
        known = self._known.get(obj.uid)
        return None if known is None else known.state.has_changed

    def _relents(self, refused: Object, present: Object) -> bool:
        """Whether a function that gave up is called again: as for a TerminalError."""
        if refused.is_deleting != present.is_deleting or self._lifecycle.differs(refused, present):
            return True
        return bool(present.generation) and (
            (refused.labels, without_records(refused.annotations))
            != (present.labels, without_records(present.annotations))
        )

    # For the dispatcher.

    def called(self, obj: Object, /) -> CalledFunction:
        """The function that runs for the object, or did last."""
        known = self._known.get(obj.uid)
        if not self._functions:
            return CalledFunction(self.backgrounds.runners[0].function, "BACKGROUND")
        number = None if known is None else known.called
        if known is not None and number is None:
            step = self._foreseen(known, obj)
            number = None if step is None else step.number
        function = self._functions[number or 0]
        return CalledFunction(function.function, _CAUSES[function.cause])

    def _foreseen(self, known: _Known, obj: Object) -> Step | None:
        """The call that a look at a state of the object is to lead to."""
        if known.foreseen is not None:
            return known.foreseen[1]
        try:
            return known.state.next(self._clock.monotonic(), obj.viewed_as(self.kind))
        except DecodeError:
            return None

    def failing(self, obj: Object, /) -> FailedFunction:
        """The call that has just failed."""
        known, called = self._known.get(obj.uid), self.called(obj)
        if known is None:  # its metadata cannot be read, and no retry changes that
            return FailedFunction(called, 0, lambda *_: None, None)
        step = known.running
        if step is None:
            recording = known.recording
            is_record = recording is not None and recording.has_failed
            write = recording.write if recording is not None and is_record else known.write
            if known.is_releasing:
                write = known.release
            return FailedFunction(called, write.attempt, None, _LONGEST_WRITE_RETRY)
        return FailedFunction(
            called,
            known.state.progress[step.number].attempt,
            self._policies[step.number],
            known.state.longest_retry(step.number),
        )

    def failed(self, obj: Object, error: Exception, delay: float | None, attempt: int, /) -> None:
        """That call is repeated after ``delay`` seconds, or not for this state."""
        known, now = self._known.get(obj.uid), self._clock.monotonic()
        if known is None:
            return
        step = known.running
        if step is None:
            write = _Write(error, attempt, now + (delay or 0.0))
            recording = known.recording
            if recording is not None and recording.has_failed:
                recording.write, recording.has_failed = write, False
                known.state.saves_at = write.next_time
            elif known.is_releasing:
                known.release, known.is_releasing = write, False
            else:
                known.write = write
            return
        if not self._lacks_finalizer(known):
            known.write = _WRITTEN
        known.errors[step.number] = error
        known.state.failed(step, known.state.present, delay, attempt, now)
        known.running, known.look_now = None, True
        if self._is_over(known):
            self.forget(obj)

    def waiting(self, obj: Object, /) -> Sequence[Waiting]:
        """The calls that wait for their time or a change, those due now included."""
        known = self._known.get(obj.uid)
        if known is None:
            return ()
        known.called = None
        if known.is_absent:  # nothing is due until an event shows it
            return ()
        if self._is_paused is not None and self._is_paused(known.state.present):
            return ()
        state, now, found = known.state, self._clock.monotonic(), list[Waiting]()
        if known.write.error is not None:
            write = known.write
            name = self.called(obj).name
            found.append(Waiting(name, write.error, write.attempt, write.next_time))
            if not self._lacks_finalizer(known):
                return found
        if known.pause:
            running = self.backgrounds.running_for(obj)
            # It may have ended since the last look.
            next_look = now if running is None else now + known.pause
            shown = CalledFunction((running or self.backgrounds.runners[0]).function, "")
            return (Waiting(shown.name, None, 0, next_look),)
        recording = known.recording
        is_there = not (known.has_left or state.present.is_deleting)
        if recording is not None and is_there and (write := recording.write).error is not None:
            name = self._name((state.unsaved() or [0])[0])
            found.append(Waiting(name, write.error, write.attempt, write.next_time))
        if (write := known.release).error is not None and is_there:
            name = self.called(obj).name
            found.append(Waiting(name, write.error, write.attempt, write.next_time))
        for number in state.failing():
            progress = state.progress[number]
            found.append(
                Waiting(
                    self._name(number),
                    known.errors[number],
                    progress.attempt,
                    state.due_at(number),
                    self._cause(number),
                )
            )
        step = state.next(now) if known.look_now else None
        due = now if step is not None else state.look_at()
        if due is not None and all(each.due is None or due < each.due for each in found):
            number = step.number if step is not None else state.earliest(due)
            found.append(Waiting(self._name(number), None, 0, due, self._cause(number)))
        elif (
            known.look_now
            and recording is not None
            and is_there
            and state.has_news
            and (self._is_to_write(known) or self._owes_mark(known, state.present))
        ):
            # What one has done, or has to clean up, is recorded although another one has failed.
            found.append(Waiting(self._name((state.unsaved() or [0])[0]), None, 0, now))
        if all(each.error is None for each in found):
            self._settle(known)
        return found

    def _name(self, number: int) -> str:
        return CalledFunction(self._functions[number].function, "").name

    def _cause(self, number: int) -> str:
        return _CAUSES[self._functions[number].cause]

    def __repr__(self) -> str:
        functions = [
            *(each.function for each in self._functions),
            *(each.function for each in self.backgrounds.runners),
        ]
        names = ", ".join(CalledFunction(each, "").name for each in functions)
        return f"<functions of {self.kind}: {names}>"


def _steady_function(
    declared: Handler | Timer, function: Callable[..., Any], limit: float | None, number: int
) -> SteadyFunction:
    """A function of updates; ``function`` may be wrapped by who observes it."""
    called = function, _CAUSES["update"]
    if (
        isinstance(declared, Timer)
        or declared.unchecked is None
        or function is not declared.function
    ):
        return SteadyFunction(function, settle, called, limit, number)
    plain = declared.unchecked
    return SteadyFunction(plain, nothing_of(plain), called, limit, number)


def _names_of(declared: Sequence[Handler | Timer]) -> list[str]:
    """The names of functions in records; a second one of a name and cause has a number."""
    found: list[str] = []
    count: Counter[tuple[str, str]] = Counter()
    for each in declared:
        name = name_of(each.function)
        one = (each.cause if isinstance(each, Handler) else "every", name)
        count[one] += 1
        found.append(name if count[one] == 1 else f"{name}#{count[one]}")
    return found


def _begin_count(known: _Known, now: float) -> float:
    """Count the object's calls anew; returns the seconds since the count began."""
    since, known.calls, known.counted_since = known.counted_since, 0, now
    return now - since
