"""The promises of an App's functions and timers, checked in a world's journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from appsdk_operator.app import HandledState, Handler, Schedule, Timer, kept_paths
from appsdk_operator.controllers import TerminalError
from appsdk_operator.resource import Kind, Object, equal_numbers
from appsdk_operator.testing._broken_promise import BrokenPromise, hides_kit_frames
from appsdk_operator.testing._world.journal import Entry
from appsdk_operator.testing._world.world import World, is_for
from appsdk_operator.watchers import without_records

__tracebackhide__ = hides_kit_frames

Break: TypeAlias = Callable[[str, str], BrokenPromise]
"""Makes the error of the broken promise, of a text and the key of the object."""
_NOT_OF_UPDATES: Final = ("resourceVersion", "managedFields", "finalizers", "generation")
_LONGEST_WATCHED: Final = 7200.0
"""The longest interval in seconds of which the end is waited for."""
_LATE: Final = 1.0
"""Seconds by which a timer may be late at rest."""


def state_of(obj: Object) -> Any:
    """All that makes an update for a function without a filter of changes."""
    data = obj.to_dict()
    if obj.generation:
        return {name: data[name] for name in data if name not in ("metadata", "status")}
    metadata = data.get("metadata", {})
    kept = {name: metadata[name] for name in metadata if name not in _NOT_OF_UPDATES}
    kept["annotations"] = without_records(kept.get("annotations") or {})
    return {**data, "metadata": kept}


Remembered: TypeAlias = Callable[[Kind[Any, Any]], bool]
"""Whether the App remembers what it has handled of objects of a kind."""


class _Chains:
    """The state that each function of updates was last successful with, in each process."""

    def __init__(self, world: World, handlers: Iterable[Handler], remembered: Remembered) -> None:
        self.handled: dict[tuple[str, int, str, int], tuple[Handler, Object]] = {}
        """By replica, process, uid and number of the function."""
        self.last: dict[tuple[str, int, str, int], Entry] = {}
        """The last call of each."""
        self.breaks: list[tuple[Entry, Object]] = []
        """Calls that do not follow from the one before, with the state that was expected."""
        handlers = tuple(handlers)
        self._alive = {(replica.name, replica.process) for replica in world.replicas}
        self._updates = [each for each in handlers if each.cause == "update"]
        self._begins = [each for each in handlers if each.cause in ("add", "sync")]
        self._has_adds = any(each.cause == "add" for each in handlers)
        self._is_remembered = remembered
        self._beginnings: dict[tuple[str, int], dict[str, list[HandledState]]] = {}
        """By uid and number of the function, and by replica: what the next process may begin with.
        A replica that does not know yet that it has lost the lead calls functions, too."""
        self.last_handled: dict[tuple[str, int], dict[str, tuple[Handler, Entry]]] = {}
        """The last success of each function whose states are remembered, by replica."""
        self.sooner: dict[tuple[str, int], list[Object]] = {}
        """By uid and number of the function: the states with which it may have begun before the
        first ``on_add`` or ``on_sync``, since none was for an object in such a state."""
        self._idle: dict[str, list[tuple[str, int, Object]]] = {}
        """These states by uid, with replica and process."""
        self._added: dict[str, dict[int, int]] = {}
        """By uid and id: the process in which an ``on_add`` first succeeded."""
        for entry in world.journal.entries:
            if entry.what == "call" and entry.object is not None:
                self._note_idle(entry)
            elif entry.what == "function":
                self._note(entry)

    def _note_idle(self, entry: Entry) -> None:
        obj: Object = entry.object
        added = self._added.get(entry.uid, {})
        is_known = any(process < entry.process for process in added.values())
        for each in self._begins:
            is_done = id(each) in added if each.cause == "add" else not is_known
            if each.kind == obj.kind and not is_done and is_for(each, obj):
                return
        self._idle.setdefault(entry.uid, []).append((entry.who, entry.process, obj))

    def _states_before(self, entry: Entry, *, of_all: bool) -> list[Object]:
        """The states that no ``on_add`` or ``on_sync`` was for, which the process has seen so far,
        or any process."""
        place = entry.who, entry.process
        return [obj for *seen, obj in self._idle.get(entry.uid, ()) if of_all or (*seen,) == place]

    def _note(self, entry: Entry) -> None:
        declared: Handler = entry.declared
        if declared.cause == "add" and entry.ended and not entry.has_failed:
            self._added.setdefault(entry.uid, {}).setdefault(id(declared), entry.process)
        for number, update in enumerate(self._updates):
            if update.kind != declared.kind:
                continue
            one = (entry.who, entry.process, entry.uid, number)
            if self._is_remembered(update.kind):
                self._note_remembered(entry, update, one)
            elif declared.cause in ("add", "sync"):
                if not entry.has_failed and entry.ended and one not in self.handled:
                    self.handled[one] = update, entry.object
                    self.last[one] = entry
                    self.sooner[one[2:]] = self._states_before(entry, of_all=False)
            elif update is declared and entry.old is not None:
                # What nothing was heard of before begins with its first call, also a failed one.
                known = self.handled.setdefault(one, (update, entry.old))[1]
                self.last[one] = entry
                if entry.has_failed or not entry.ended:
                    continue
                sooner = self.sooner.pop(one[2:], [])
                if not any(_is_same(update, each, entry.old) for each in (known, *sooner)):
                    self.breaks.append((entry, known))
                self.handled[one] = update, entry.object

    def _note_remembered(
        self, entry: Entry, update: Handler, one: tuple[str, int, str, int]
    ) -> None:
        paths = kept_paths(update.options.when, update.kind)
        chain, is_success = one[2:], not entry.has_failed and bool(entry.ended)
        if entry.declared.cause == "add":
            if is_success:  # a first handling that a crash interrupts is repeated
                begins = [entry.object]
                if chain not in self._beginnings:
                    self.handled[one], self.last[one] = (update, entry.object), entry
                    self.sooner[chain] = self._states_before(entry, of_all=True)
                    begins += self.sooner[chain]
                found = self._beginnings.setdefault(chain, {}).setdefault(entry.who, [])
                found += (HandledState.of(each, paths) for each in begins)
                handled = self.last_handled.setdefault(chain, {})
                before = handled.setdefault(entry.who, (update, entry))[1]
                if before.declared.cause == "add" and before.process != entry.process:
                    handled[entry.who] = update, entry
            return
        if entry.declared is not update or entry.old is None:
            return
        old = HandledState.of(entry.old, paths).values
        if one in self.handled:
            known = self.handled[one][1]
            sooner = [HandledState.of(each, paths) for each in self.sooner.get(chain, ())]
            is_known = _is_same(update, known, entry.old) or any(
                equal_numbers(each.values, old) for each in sooner
            )
            if is_success and not is_known:
                self.breaks.append((entry, known))
        elif self._may_tell(chain, entry) and not any(
            equal_numbers(each.values, old)
            for beginnings in self._beginnings[chain].values()
            for each in beginnings
        ):
            *_, last = (success for _, success in self.last_handled[chain].values())
            self.breaks.append((entry, last.object))
        self.handled[one], self.last[one] = (update, entry.old), entry
        if is_success:
            self.handled[one] = update, entry.object
            self.sooner.pop(chain, None)
            self.last_handled.setdefault(chain, {})[entry.who] = update, entry
            # A crash may come before the record is written: then this success is repeated.
            self._beginnings.setdefault(chain, {})[entry.who] = [
                HandledState.of(each, paths) for each in (entry.object, entry.old)
            ]

    def _may_tell(self, chain: tuple[str, int], entry: Entry) -> bool:
        """Whether it is known what the first call of a process may begin with.

        A replica that has lost the lead begins with the first state that it has seen, which only a
        call of ``on_add`` shows.
        """
        found = self._beginnings.get(chain, {})
        return entry.who in found or (self._has_adds and bool(found))

    def is_unchanged(self, chain: tuple[str, int], obj: Object) -> bool:
        """Whether the object is as a function whose states are remembered has handled it."""
        for handler, entry in self.last_handled.get(chain, {}).values():
            paths = kept_paths(handler.options.when, handler.kind)
            states = [entry.object]
            # A limit that docs/app.md names: the process ended before it had recorded this
            # success, and the change was reverted before the next one began. Only a record of all
            # fields has the generation, which shows it.
            if (
                paths is not None
                and entry.old is not None
                and not self.is_alive(entry.who, entry.process)
            ):
                states.append(entry.old)
            is_handled = any(HandledState.of(each, paths).is_of(obj) for each in states)
            if is_handled and not self._has_failed_since(chain, entry):
                return True
        return False

    def is_alive(self, who: str, process: int) -> bool:
        """Whether this process of a replica still runs."""
        return (who, process) in self._alive

    def _has_failed_since(self, chain: tuple[str, int], success: Entry) -> bool:
        return any(
            one[2:] == chain and last.error is not None and last.began > success.began
            for one, last in self.last.items()
        )


def _is_same(handler: Handler, one: Object, other: Object) -> bool:
    if handler.options.when is not None:
        return one.resource_version == other.resource_version
    return equal_numbers(state_of(one), state_of(other))


def check_chain(
    world: World, handlers: Iterable[Handler], remembered: Remembered, broken: Break
) -> None:
    """Check that each call begins with the state that the function was last successful with.

    Raises:
        BrokenPromise: with the timeline.
    """
    for entry, expected in _Chains(world, handlers, remembered).breaks:
        before = state_of(entry.old) if entry.old is not None else None
        text = (
            f"{entry.line}, from {before}, but it last succeeded with "
            f"{state_of(expected)}: the change between them is lost"
        )
        raise broken(text, entry.key)


def check_calls(world: World, handlers: Sequence[Handler], broken: Break) -> None:
    """Check that no call is made which is not due, or for a paused object, and that functions begin
    in their order.

    Raises:
        BrokenPromise: with the timeline.
    """
    places = {id(each): number for number, each in enumerate(handlers)}
    last: dict[tuple[str, int, str, int], Entry] = {}
    added: dict[tuple[str, int, str], list[tuple[int, Object]]] = {}
    for entry in world.journal.of("function"):
        if world.is_paused(entry.object):
            raise broken(f"{entry.line}, although it is paused", entry.key)
        declared, place = entry.declared, places.get(id(entry.declared), 0)
        one = (entry.who, entry.process, entry.uid, place)
        before = last.get(one)
        last[one] = entry
        if before is None:
            if declared.cause == "add":
                sooner = added.setdefault(one[:3], [])
                if any(place < other and is_for(declared, obj) for other, obj in sooner):
                    raise broken(
                        f"{entry.line}, after a function that was declared later", entry.key
                    )
                sooner.append((place, entry.object))
            continue
        if isinstance(before.error, TerminalError) and _is_unchanged(before, entry):
            raise broken(f"{entry.line}, although it gave up this state", entry.key)
        if before.has_failed or not before.ended:
            continue
        is_repeated = declared.cause in ("add", "sync") or (
            declared.cause == "update"
            and _has_same_spec(before.object, entry.object)
            and not is_due(declared, before.object, entry.object)
        )
        if is_repeated:
            raise broken(f"{entry.line}, although it has succeeded before", entry.key)


def _has_same_spec(one: Object, other: Object) -> bool:
    if not one.generation:
        return one.resource_version == other.resource_version
    return one.generation == other.generation


def _is_unchanged(before: Entry, after: Entry) -> bool:
    one, other = before.object, after.object
    if not one.generation:
        return bool(one.resource_version == other.resource_version)
    return bool(
        (one.generation, one.labels, one.annotations, one.is_deleting)
        == (other.generation, other.labels, other.annotations, other.is_deleting)
    )


def check_chain_at_rest(
    world: World, handlers: Iterable[Handler], remembered: Remembered, broken: Break
) -> None:
    """Check that each function was last successful with the server's state.

    Raises:
        BrokenPromise: with the timeline.
    """
    present = {obj.uid: obj for obj in world.objects()}
    chains = _Chains(world, handlers, remembered)
    found = {
        one[2:]: (handler, state, chains.last[one])
        for one, (handler, state) in chains.handled.items()
        if chains.is_alive(*one[:2])
    }
    for chain, successes in chains.last_handled.items():
        for handler, entry in successes.values():
            found.setdefault(chain, (handler, entry.object, entry))
    for (uid, number), (handler, state, last) in found.items():
        obj = present.get(uid)
        if obj is None or obj.is_deleting or chains.is_unchanged((uid, number), obj):
            continue
        if world.is_paused(obj) or not is_for(handler, obj):
            continue
        name = _name(handler)
        if isinstance(last.error, TerminalError) and last.object.generation == obj.generation:
            continue
        states = (state, *chains.sooner.get((uid, number), ()))
        if all(is_due(handler, each, obj) for each in states):
            text = (
                f"the server has {state_of(obj)} of {obj.name}, but {name} last succeeded with "
                f"{state_of(state)}"
            )
            raise broken(text, world.key(obj.name))
        if last.has_failed:
            text = f"the last call of {name} for {obj.name} has failed, and was not repeated"
            raise broken(text, world.key(obj.name))


def is_due(handler: Handler, handled: Object, present: Object) -> bool:
    """Whether a function of updates has to be called for the current state."""
    if handler.options.when is not None:
        return handler.options.when(handled, present)
    return not equal_numbers(state_of(handled), state_of(present))


def _name(handler: Handler) -> str:
    name: str = getattr(handler.function, "__name__", "a function")
    return name


def check_timers(world: World, handlers: Iterable[Handler], broken: Break) -> None:
    """Check that no timer runs before its first time, before ``on_add``, together with a function,
    or late.

    Raises:
        BrokenPromise: with the timeline.
    """
    adds = [each for each in handlers if each.cause == "add"]
    added: set[tuple[int, str]] = set()
    previous: dict[tuple[str, int, str, int], Entry] = {}
    last: dict[tuple[str, int, str, str], Entry] = {}
    entries = [one for one in world.journal.entries if one.what in ("function", "timer")]
    for entry in entries:
        declared = entry.declared
        is_timer = isinstance(declared, Timer)
        if not (is_timer and declared.every_replica):
            place = (entry.who, entry.process, entry.kind, entry.key)
            before = last.get(place)
            if before is not None and not 0 < before.ended < entry.began:
                text = f"two calls for {entry.key} at once: {before.text}, and {entry.text}"
                if is_timer or before.what == "timer":
                    raise broken(text, entry.key)
            last[place] = entry
        if not is_timer:
            if declared.cause == "add" and not entry.has_failed:
                added.add((id(declared), entry.uid))
            continue
        for add in adds:
            if not is_for(add, entry.object):
                continue
            if add.kind == declared.kind and (id(add), entry.uid) not in added:
                raise broken(f"{entry.line}, before its on_add has succeeded", entry.key)
        one = (entry.who, entry.process, entry.uid, id(declared))
        made, first_after = world.created_at.get(entry.uid), declared.schedule.first_after
        if one not in previous and made is not None and entry.at < made + first_after:
            text = (
                f"{entry.line}, {entry.at - made:g} s after it was created, but first_after is "
                f"{first_after:g}"
            )
            raise broken(text, entry.key)
        before = previous.get(one)
        if before is not None and not before.has_failed:
            pause = _pause_after(world, declared.schedule, before.at)
            if entry.at < before.at + pause:
                text = f"{entry.line}, {entry.at - before.at:g} s after the last call"
                raise broken(text, entry.key)
        if before is not None and not any(add.options.where is not None for add in adds):
            _check_gap(world, before, entry, broken)
        previous[one] = entry


def _check_gap(world: World, before: Entry, entry: Entry, broken: Break) -> None:
    """Check that a timer waits for its time, failed or not, and for calls of its process alone.

    Raises:
        BrokenPromise: with the timeline.
    """
    timer: Timer = entry.declared
    if timer.schedule.idle or timer.every_replica or timer.options.where is not None:
        return  # it may have had to wait for more
    pause, gap = _pause_after(world, timer.schedule, before.over), entry.at - before.over
    if gap <= pause + _LATE:
        return
    for other in world.journal.entries:
        if other.who != entry.who or other.began >= entry.began:
            continue
        if other.began > before.began and _holds_up(world, other, entry.uid):
            return
        is_of_process = other.what == "call" and other.process == entry.process
        if is_of_process and not 0 < other.ended < before.ended:
            over = other.over if other.ended else entry.at
            pause += max(0.0, min(over, entry.at) - max(other.at, before.over))
    if gap > pause + _LATE:
        raise broken(f"{entry.line}, {gap:g} s after the end of the last call", entry.key)


def _holds_up(world: World, entry: Entry, uid: str) -> bool:
    """Whether the replica was suspended, or a call shows that the object was paused."""
    if entry.what == "fault":
        return True
    shown = entry.object if entry.what == "call" and entry.uid == uid else None
    return shown is not None and world.is_paused(shown)


def _pause_after(world: World, schedule: Schedule, at: float) -> float:
    """Seconds from a call of a timer at a monotonic time to the next one."""
    wall = world.clock.time() - world.clock.monotonic()
    return schedule.after(0.0, wall + at)[1]


def _longest_pause(world: World, timer: Timer) -> float:
    """The most seconds from now to a call of a timer."""
    schedule, time = timer.schedule, world.clock.time()
    return max(schedule.first(time)[1], schedule.after(0.0, time)[1]) + schedule.idle


def check_timers_at_rest(
    world: World, handlers: Iterable[Handler], timers: Iterable[Timer], broken: Break
) -> None:
    """Check that each timer is called for each object, for as long as that lives.

    Raises:
        BrokenPromise: with the timeline.
    """
    watched = [
        each
        for each in timers
        if each.kind is not None
        and each.kind.qualified_name == world.kind.qualified_name
        and _longest_pause(world, each) <= _LONGEST_WATCHED
    ]
    if not watched:
        return
    began = world.clock.monotonic()
    world.run(max(_longest_pause(world, each) for each in watched) + 2 * _LATE)
    present = {obj.uid: obj for obj in world.objects()}
    now = world.clock.monotonic()
    for timer in watched:
        schedule = timer.schedule
        for uid, obj in present.items():
            is_passed_over = obj.is_deleting or world.is_paused(obj)
            if is_passed_over or not is_for(timer, obj):
                continue
            calls = [
                one
                for one in world.journal.of("timer")
                if one.uid == uid and one.declared is timer and one.at <= now
            ]
            last = calls[-1] if calls else None
            since = began if last is None else last.over if last.ended else last.at
            # It may have begun to match with the last change, or wait for more of them.
            if timer.options.where is not None or schedule.idle:
                changes = world.journal.of("step", world.key(obj.name))
                since = max([since, *(one.at for one in changes)])
            pauses = _pause_after(world, schedule, since), schedule.idle
            if now - since > max(*pauses, 0.0 if last else schedule.first_after) + _LATE:
                when = "never" if last is None else f"last at {last.at:g} s, now it is {now:g} s"
                name = getattr(timer.function, "__name__", "a timer")
                text = f"{name} is called for {obj.name} {schedule}: {when}"
                raise broken(text, world.key(obj.name))
    check_timers(world, handlers, broken)
