"""The finalizer lifecycle on a model of a server: events come late, and anything may fail.

The model has no I/O, so that it plays many more histories than those with a controller: the events,
the outcomes of calls and writes, and what other clients do are drawn. It asks for the lifecycle's
promises after each step, and in the end, when nothing fails any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from appsdk_operator.cache import ResourceAction
from appsdk_operator.controllers import FinalizerError, Outcome, Result
from appsdk_operator.resource import Kind, Object
from appsdk_operator.watchers._finalizers import lifecycle as shell
from appsdk_operator.watchers._finalizers.lifecycle import FinalizerLifecycle
from appsdk_operator.watchers._finalizers.names import default_finalizer
from appsdk_operator.watchers._finalizers.transitions import (
    NEW,
    Cause,
    Names,
    Pass,
    Write,
)
from appsdk_operator.watchers._finalizers.uses import OperatorName
from tests.hypothesis_profiles import scaled
from tests.simulations import no_client

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
OURS, MARK = "example.com/shop.v1.Widget", "example.com/wip.shop.v1.Widget"
EARLIER, EARLIER_MARK = "example.com/operator.v1.Widget", "example.com/wip.v1.Widget"
SPELLING = "shop.v1.Widget.example.com"
OTHER, ADOPTED = "first.example.org/x", "second.example.org/y"
OWN = {OURS, MARK, EARLIER, EARLIER_MARK, SPELLING, ADOPTED}
HANDLED = {OURS, EARLIER, SPELLING, ADOPTED}
CREATE, UPDATE, DELETE, RESYNC = (
    ResourceAction.CREATE,
    ResourceAction.UPDATE,
    ResourceAction.DELETE,
    ResourceAction.RESYNC,
)


class PlannedError(Exception):
    """What a callback raises."""


class CrashError(BaseException):
    """The end of the process."""


def widget(version: int, generation: int, finalizers: Any, *, is_deleting: bool) -> Object:
    metadata: dict[str, Any] = {"name": "w", "namespace": "default", "uid": "u"}
    metadata |= {"resourceVersion": str(version), "generation": generation}
    metadata["finalizers"] = list(finalizers)
    if is_deleting:
        metadata["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    return Object.from_dict(WIDGET, {"metadata": metadata, "spec": {}})


@attrs.define
class Model:
    """A server with one object, and a process whose lifecycle handles its events.

    ``form`` is "watcher", or "caller" for one that keeps itself what it has handled.
    """

    form: str
    finalizers: tuple[str, ...]
    fates: Iterator[str]
    version: int = 10
    generation: int = 1
    is_deleting: bool = False
    is_there: bool = True
    events: list[Object | None] = attrs.field(factory=list)
    seen: Object | None = None
    again: tuple[Object | None, Object | None] | None = None
    """The call that failed: with the state before, and after; None as the latter: it is gone."""
    lifecycle: Any = None
    last: Object = attrs.field(init=False)
    shows_last: bool = True
    is_calm: bool = False
    is_resync: bool = False
    is_lost: bool = False
    begun: bool = False
    added: bool = False
    deleted: bool = False
    marked: bool = False
    stripped: bool = False
    known: bool = False
    """Whether a callback of this process was called."""
    excused: bool = False
    """It lost its finalizer while no process knew of it: its clean-up may be missed."""
    done: set[ResourceAction] = attrs.field(factory=set)
    """What has succeeded in this process, and is not to be done again."""
    calls: list[str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.begun = not OWN.isdisjoint(self.finalizers)
        self.added = self.marked = not HANDLED.isdisjoint(self.finalizers)
        self.last = self.now()
        self.restart()

    # The server.

    def now(self) -> Object:
        return widget(self.version, self.generation, self.finalizers, is_deleting=self.is_deleting)

    def change(self) -> Object:
        self.version += 1
        self.last = made = self.now()
        self.shows_last = True
        if self.is_deleting and not self.finalizers:
            self.is_there = False
            self.events.append(None)
            assert self.deleted or not self.begun or self.stripped, "it went without its clean-up"
        else:
            self.events.append(made)
        return made

    def write(self, obj: Object, finalizers: list[str], *, forbidden: bool) -> Object | None:
        fate = "ok" if self.is_calm else next(self.fates, "ok")
        if fate == "crash":
            raise CrashError
        if fate == "refused":
            raise FinalizerError("planned")
        if fate == "strip":
            self.strip()
        if fate == "delete":
            self.delete()
        if fate == "shared" and forbidden:  # what this write takes the place of
            self.share()
        if not self.is_there:
            return None
        if forbidden and self.is_deleting:
            return self.now()
        if fate in ("strip", "delete", "shared"):  # it reads the object, and decides again
            kept = [name for name in self.finalizers if name in finalizers or name not in OWN]
            new = [name for name in finalizers if name in OWN and name not in kept]
            finalizers = kept + (new if forbidden else [])
        if tuple(finalizers) == self.finalizers:
            return self.now()
        self.finalizers = tuple(finalizers)
        if HANDLED.intersection(finalizers) or MARK in finalizers:
            self.stripped = self.excused = False
        self.change()
        if fate == "crash after":
            raise CrashError
        if fate == "lost":
            self.is_lost = True
            raise FinalizerError("planned: the answer is lost")
        return self.events[-1]

    # What the lifecycle writes with.

    def put(
        self, obj: Object, name: str, *, instead_of: Any, on_reread: Any, also: Any
    ) -> Object | None:
        if name == OURS and not {EARLIER, SPELLING}.intersection(instead_of):
            assert self.added, "the finalizer is put on before add has succeeded"
        kept = [each for each in self.finalizers if each not in instead_of or each == name]
        return self.write(obj, kept if name in kept else [*kept, name], forbidden=True)

    def remove(self, obj: Object, *names: str) -> Object | None:
        assert OTHER not in names, "it is another client's"
        kept = [each for each in self.finalizers if each not in names]
        if HANDLED.intersection(self.finalizers) and not OWN.intersection(kept):
            assert self.deleted, "it is released before delete has succeeded"
        return self.write(obj, kept, forbidden=False)

    def is_gone(self, obj: Object) -> bool:
        return not self.is_there

    # Other clients, and the process.

    def strip(self) -> None:
        if self.is_there and not OWN.isdisjoint(self.finalizers):
            self.finalizers = tuple(name for name in self.finalizers if name not in OWN)
            self.stripped = True
            self.excused |= not self.known
            self.done.discard(CREATE)
            self.change()

    def share(self) -> None:
        """A process of the release before, which spells our name otherwise, has added it, too."""
        if self.is_there and not self.is_deleting and HANDLED.isdisjoint(self.finalizers):
            self.finalizers = (*self.finalizers, SPELLING)
            self.begun = self.added = True
            self.stripped = self.excused = False
            self.change()

    def delete(self) -> None:
        if self.is_there and not self.is_deleting:
            self.is_deleting = True
            self.generation += 1
            self.change()

    def respec(self) -> None:
        if self.is_there:
            self.generation += 1
            self.change()

    def other(self) -> None:
        if self.is_there and not (self.is_deleting and OTHER not in self.finalizers):
            kept = tuple(name for name in self.finalizers if name != OTHER)
            self.finalizers = kept if OTHER in self.finalizers else (*kept, OTHER)
            self.change()

    def compact(self) -> None:
        """The watch breaks: a list shows the newest state alone, or that the object is gone."""
        self.shows_last &= len(self.events) < 2
        del self.events[:-1]
        if self.events == [None] and self.seen is None:
            self.events.clear()

    def restart(self) -> None:
        self.lifecycle = FinalizerLifecycle(WIDGET, no_client(), default_finalizer, foreign=ADOPTED)
        self.lifecycle.use_operator_name(OperatorName("shop"))
        self.lifecycle._finalizers = self
        self.done.clear()
        self.known = False
        self.excused |= self.stripped
        self.seen, self.again = None, None
        self.events = [self.now()] if self.is_there else []

    def notify(self, action: ResourceAction, obj: Object, old: Object | None, /) -> Outcome:
        self.calls.append(action.value)
        self.known = True
        if action in (CREATE, DELETE):
            is_caller = self.form == "caller"
            assert is_caller or action not in self.done, f"{action.value} is done again"
        if action in (UPDATE, RESYNC):
            assert not obj.is_deleting, f"{action.value} of an object that is being deleted"
            assert self.added, f"{action.value} before add has succeeded"
        # After a lost answer a controller drops the retry, where this model repeats it.
        is_first = self.form == "watcher" and not (self.is_resync or self.is_lost)
        if action is RESYNC and is_first:
            assert CREATE not in self.done, "sync follows add"
        assert (old is None) is (action is not UPDATE)
        if action is CREATE and self.is_there:
            is_held = not {MARK, OURS}.isdisjoint(self.finalizers)
            assert is_held or self.stripped, "add is called for what nothing holds"
        self.begun |= action is CREATE
        fate = "ok" if self.is_calm else next(self.fates, "ok")
        if fate in ("crash", "crash after"):
            raise CrashError
        if fate in ("refused", "lost"):
            raise PlannedError
        if fate == "strip":
            self.strip()
        if fate == "delete":
            self.delete()
        if fate == "unfinished":
            return Result(requeue_after=1)
        self.done.add(action)
        self.added |= action is CREATE
        self.deleted |= action is DELETE
        return None

    def handle(self) -> None:
        """Handle the next event, as a controller without a dequeue policy."""
        if self.events:
            new = self.events.pop(0)
            old, self.seen = self.seen, new
            if new is None:
                # The last state that was stored, if a watch shows it, or that was seen.
                shows_last = self.shows_last and self.version % 2
                self.call(self.last if old is None or shows_last else old, None)
            elif self.form == "caller":
                if old is not None:
                    self.lifecycle.note_change(old, new)
                self.call(old, new)
            elif old is None or self.lifecycle.concerns(old, new):
                self.call(old, new)
            elif self.again is not None and self.again[1] is not None:
                self.again = self.again[0], new
        self.check()

    def repeat(self) -> None:
        """Repeat what has failed."""
        if self.again is not None:
            self.call(*self.again)
        self.check()

    def resync(self) -> None:
        if self.seen is not None and self.again is None:
            self.is_resync = True
            self.carry_out(lambda: self.present(self.seen))
            self.is_resync = False
        self.check()

    def present(self, obj: Object | None) -> Outcome:
        assert obj is not None
        lifecycle = self.lifecycle
        if self.form == "watcher":
            outcome: Outcome = lifecycle.on_resync(obj, self.notify)
            return outcome
        outcome = None

        def notify(*call: Any) -> Outcome:
            nonlocal outcome
            outcome = self.notify(*call)
            return outcome

        lifecycle.on_present(obj, notify, is_new=not self.added, is_marked=self.marked)
        self.marked |= self.added
        return outcome

    def call(self, old: Object | None, new: Object | None) -> None:
        lifecycle = self.lifecycle
        self.again = old, new
        if new is None:
            assert old is not None
            self.carry_out(lambda: lifecycle.on_delete(old, self.notify))
        elif self.form == "caller":
            self.carry_out(lambda: self.present(new))
        elif old is None:
            self.carry_out(lambda: lifecycle.on_add(new, self.notify))
        else:
            self.carry_out(lambda: lifecycle.on_update(old, new, self.notify))

    def carry_out(self, handling: Any) -> None:
        try:
            outcome = handling()
        except (FinalizerError, PlannedError):
            return
        except CrashError:
            self.restart()
            return
        if outcome is None:
            self.again = None

    def check(self) -> None:
        record = self.lifecycle._records.get("u", NEW)
        assert NEW not in self.lifecycle._records.values()
        if not self.is_there and not self.events and self.again is None:
            assert record is NEW, "something is remembered of what is gone"

    def settle(self) -> None:
        for _ in range(12):
            while self.events:
                self.handle()
            self.repeat()
        assert self.again is None
        self.check()

    def end(self) -> None:
        """Nothing fails any more; what is due is done."""
        self.is_calm = True
        self.settle()
        if self.is_there and {MARK, OURS} <= set(self.finalizers):
            self.restart()  # a left-over mark goes with the next sync
            self.settle()
        if not self.is_there:
            is_cleaned = self.deleted or self.excused or not self.begun
            assert is_cleaned, "it went without its clean-up"
        elif self.is_deleting:
            assert OWN.isdisjoint(self.finalizers), "it is held for ever"
        else:
            assert self.added, "it was never added"
            assert [name for name in self.finalizers if name in OWN] == [OURS]


fates = st.lists(
    st.sampled_from(
        [
            *("ok", "ok", "ok", "refused", "refused", "lost", "strip"),
            *("delete", "crash", "crash after", "unfinished", "shared"),
        ]
    ),
    max_size=12,
)
steps = st.lists(
    st.sampled_from(
        [
            *("handle", "handle", "handle", "handle", "repeat", "repeat", "resync"),
            *("respec", "strip", "delete", "other", "restart", "compact"),
        ]
    ),
    max_size=20,
)
forms = st.sampled_from(["watcher", "watcher", "caller"])
beginnings = st.sampled_from(
    [
        *((), (), (), (OTHER,), (OURS,), (MARK,), (MARK, OURS), (EARLIER,), (EARLIER_MARK,)),
        *((SPELLING,), (SPELLING, OTHER), (OTHER, EARLIER), (ADOPTED,), (EARLIER, EARLIER_MARK)),
    ]
)


def play(form: str, beginning: tuple[str, ...], fates: list[str], steps: list[str]) -> None:
    model = Model(form, beginning, iter(fates))
    for step in steps:
        getattr(model, step)()
    model.end()


@settings(max_examples=scaled(1500), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(form=forms, beginning=beginnings, fates=fates, steps=steps)
# It is deleted while add runs, and a resync comes before the event of that.
@example(form="watcher", beginning=(), fates=["ok", "delete"], steps=["handle", "resync"])
@example(form="watcher", beginning=(MARK,), fates=["delete"], steps=["handle", "resync"])
# No event shows the finalizer, which another client takes off before the deletion.
@example(
    form="watcher", beginning=(MARK,), fates=[], steps=["handle", "strip", "delete", "compact"]
)
def test_whatever_fails_no_object_goes_without_its_clean_up(
    form: str, beginning: tuple[str, ...], fates: list[str], steps: list[str]
) -> None:
    play(form, beginning, fates, steps)


@settings(
    max_examples=8000,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(form=forms, beginning=beginnings, fates=fates, steps=steps)
def check_histories(
    form: str, beginning: tuple[str, ...], fates: list[str], steps: list[str]
) -> None:
    play(form, beginning, fates, steps)


begin, handle, new_object = Pass.begin, Pass._handle, Pass._new
clean_up, gone = Pass._clean_up, Pass._gone
after_call, after_write, ours = Pass.after_call, Pass.after_write, Names.ours


def nothing_is_migrated(self: Any, record: Any, obj: Any) -> Any:
    if self.cause is Cause.GONE or obj.is_deleting:
        return begin(self, record, obj)
    return handle(self, record, obj)


def adds_without_a_mark(self: Any, record: Any, obj: Any) -> Any:
    record, step = new_object(self, record, obj)
    return record, CREATE if step is Write.MARK else step


def unfinished_is_finished(self: Any, record: Any, obj: Any, action: Any, **_: Any) -> Any:
    return after_call(self, record, obj, action, is_finished=True)


def cleans_up_only_what_has_ours(self: Any, record: Any, obj: Any) -> Any:
    return clean_up(self, structs.replace(record, is_unprotected=False), obj)


def releases_at_once(self: Any, record: Any, obj: Any) -> Any:
    record, step = clean_up(self, record, obj)
    return record, Write.RELEASE if step is DELETE else step


def what_is_gone_is_gone(self: Any, record: Any, obj: Any) -> Any:
    return NEW, None


def what_is_gone_is_kept(self: Any, record: Any, obj: Any) -> Any:
    made, step = gone(self, record, obj)
    return record if made is NEW else made, step


def an_unseen_write_counts_as_seen(self: Any, record: Any, obj: Any) -> Any:
    return gone(self, structs.replace(record, written=None), obj)


def marks_stay(self: Any, record: Any, obj: Any) -> Any:
    return record, None


def the_call_is_repeated(record: Any, write: Any) -> Any:
    return record


def replaced(which: Write, **fields: Any) -> Any:
    def mutant(self: Any, record: Any, obj: Any, write: Any, made: Any) -> Any:
        after, step = after_write(self, record, obj, write, made)
        return structs.replace(after, **fields) if write is which else after, step

    return mutant


def forgets_at_any_change(record: Any, names: Any, old: Any, new: Any) -> Any:
    return NEW if record.written else record


def others_are_ours(self: Any, obj: Any, record: Any) -> Any:
    return [name for name in obj.finalizers if name in OWN or name == OTHER]


def nothing_adopted_is_ours(self: Any, obj: Any, record: Any) -> Any:
    return [name for name in ours(self, obj, record) if name not in self.foreign]


def nothing_is_put_back(self: Any, record: Any, obj: Any) -> Any:
    record, step = handle(self, record, obj)
    return record, RESYNC if step is Write.PUT_BACK else step


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "nothing is migrated": (Pass, "begin", nothing_is_migrated),
    "add runs without a mark": (Pass, "_new", adds_without_a_mark),
    "unfinished calls count as finished": (Pass, "after_call", unfinished_is_finished),
    "only what has ours is cleaned up": (Pass, "_clean_up", cleans_up_only_what_has_ours),
    "released without delete": (Pass, "_clean_up", releases_at_once),
    "nothing is asked of what is gone": (Pass, "_gone", what_is_gone_is_gone),
    "what is gone is remembered": (Pass, "_gone", what_is_gone_is_kept),
    "a write that no event has shown is seen": (Pass, "_gone", an_unseen_write_counts_as_seen),
    "left-over marks stay": (Pass, "_synced", marks_stay),
    "a failed write repeats its call": (shell, "after_failure", the_call_is_repeated),
    "our write is forgotten": (Pass, "after_write", replaced(Write.PROTECT, written=None)),
    "a mark protects": (Pass, "after_write", replaced(Write.MARK, is_unprotected=False)),
    "add protects": (Pass, "after_write", replaced(Write.PROTECT, is_unprotected=False)),
    "a clean-up is forgotten": (Pass, "after_write", replaced(Write.RELEASE, unwritten=None)),
    "old events forget our write": (shell, "after_change", forgets_at_any_change),
    "finalizers of others are ours": (Names, "ours", others_are_ours),
    "an adopted finalizer is not ours": (Names, "ours", nothing_adopted_is_ours),
    "nothing is put back": (Pass, "_handle", nothing_is_put_back),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_transition_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[mutant])
    with pytest.raises((AssertionError, ExceptionGroup)):
        check_histories()
