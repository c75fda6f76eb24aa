"""The property test of an operator: generated histories, checks, and a small failing history."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from appsdk_operator.app import (
    App,
    Handler,
    Timer,
    functions_of,
    metadata_of_filters,
    metadata_of_pauses,
    remembers,
    timers_of,
)
from appsdk_operator.controllers import check_finalizer
from appsdk_operator.resource import FilterMetadata, Kind, Object
from appsdk_operator.runtime import safe_text, with_class
from appsdk_operator.testing._broken_promise import BrokenPromise, hides_kit_frames, promise_of
from appsdk_operator.testing._world.apps import definitions_of, kind_of, maker_of
from appsdk_operator.testing._world.histories import Step, end_pauses, histories, play
from appsdk_operator.testing._world.promises import (
    FinalizerChecker,
    Promise,
    break_promise,
    check_app_rest,
    check_journal,
    check_rest,
    still_failing,
)
from appsdk_operator.testing._world.scheduler import StuckError
from appsdk_operator.testing._world.search import replay_of, search
from appsdk_operator.testing._world.world import Replica, World
from appsdk_operator.testing.strategies import specs as specs_of

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


__tracebackhide__ = hides_kit_frames

_ALL: Final = frozenset(Promise)


@attrs.define
class _ObjectCounts:
    """The objects that other clients created, in all histories, and the last refusal."""

    created: int = 0
    refused: BaseException | None = None

    def note(self, world: World) -> None:
        """Add one history."""
        self.created += len(world.created)
        refused = [step.error for step in world.journal.of("step") if step.error is not None]
        self.refused = refused[-1] if refused else self.refused

    def check(self) -> None:
        """Check that the server accepted some objects.

        Raises:
            ValueError: it refused all.
        """
        if self.refused is not None and not self.created:
            raise ValueError(
                "the server refused every object, so nothing was checked; the last time with: "
                f"{self.refused}. Give specs= with valid specs"
            )


def _why_it_fails(world: World) -> str:
    call = still_failing(world)
    if call is None:
        return ""
    return (
        f"\nthe last call of {call.who} for {call.key} failed with "
        f"{type(call.error).__name__}: {safe_text(call.error)}\nif no user would write such a "
        "spec, give specs= with valid ones, or a pattern in the kind's schema"
    )


@attrs.frozen(kw_only=True)
class _OperatorCheck:
    """The arguments of :func:`check_operator`, and the check of one history."""

    app: App | None
    make: Callable[[Replica], Any]
    kind: Kind
    replicas: int
    leader_election: bool
    crds: Sequence[Mapping[str, Any]]
    finalizers: frozenset[str]
    cleaned_up: Callable[[World, Object], bool] | None
    always: Callable[[World], object] | None
    at_rest: Callable[[World], object] | None
    promises: frozenset[Promise]
    most_calls: int
    counts: _ObjectCounts
    handlers: Sequence[Handler]
    timers: Sequence[Timer]
    remembered: Callable[[Kind], bool]
    pauses: Sequence[FilterMetadata]

    def run(self, steps: Sequence[Step], *, is_traced: bool = False) -> None:
        """Play one history and check the promises.

        Args:
            steps: the history.
            is_traced: whether an error names the lines of the operator, which takes time.

        Raises:
            BrokenPromise: with the timeline.
        """
        seed = next((int(step.value) for step in steps if step.what == "seed"), 0)
        world = World(
            self.kind,
            self.make,
            replicas=self.replicas,
            leader_election=self.leader_election,
            seed=seed,
            crds=self.crds,
        )
        world.app = self.app
        world.is_traced = is_traced
        world.most_calls = self.most_calls if Promise.NO_HOT_LOOP in self.promises else 10_000
        world.checks_lease = Promise.LEASE in self.promises
        finalizers = None
        if Promise.FINALIZER_SAFETY in self.promises:
            finalizers = FinalizerChecker(world, self.finalizers, self.cleaned_up)
        with world:
            try:
                self._check(world, steps, finalizers)
            except BrokenPromise as error:
                raise BrokenPromise(f"{error}{world.code_at_work()}") from error.__cause__

    def traced(self, steps: Sequence[Step], error: BrokenPromise) -> BrokenPromise:
        """The error of a history once more, with the lines of the operator."""
        try:
            self.run(steps, is_traced=True)
        except BrokenPromise as again:
            if promise_of(again) == promise_of(error):
                return again
        return error  # where the operator does not do the same each time

    def _check(
        self, world: World, steps: Sequence[Step], finalizers: FinalizerChecker | None
    ) -> None:
        for step in steps:
            play(world, step)
            self._ask(world, self.always)
        self.counts.note(world)
        self._check_journal(world)
        world.end_faults()
        end_pauses(world, self.pauses)
        try:
            self._rest(world, finalizers)
        except BrokenPromise as error:
            raise BrokenPromise(f"{error}{_why_it_fails(world)}") from error.__cause__
        self._check_idempotence(world)
        self._end(world)

    def _rest(self, world: World, finalizers: FinalizerChecker | None) -> None:
        is_at_rest = world.settle()
        self._check_journal(world)
        check_rest(world, self.promises)
        check_app_rest(world, self.promises, self.handlers, self.timers, self.remembered)
        if finalizers is not None:
            finalizers.check_rest()
            world.raise_broken()
        self._ask(world, self.at_rest)
        if not is_at_rest and Promise.NO_HOT_LOOP in self.promises:
            text = "it writes, or fails, again and again although nothing happens from outside"
            raise break_promise(world, Promise.NO_HOT_LOOP, text)

    def _check_idempotence(self, world: World) -> None:
        """Restart all replicas, and check that they write nothing."""
        if Promise.IDEMPOTENCE not in self.promises:
            return
        so_far = len(world.journal.entries)
        for number in range(self.replicas):
            world.restart(number)
        world.settle()
        for entry in world.journal.entries[so_far:]:
            if entry.what == "write" and not entry.outcome:
                text = f"nothing changed, but {entry.line} at {entry.at:g} s"
                raise break_promise(world, Promise.IDEMPOTENCE, text, entry.key)
        self._check_journal(world)

    @staticmethod
    def _end(world: World) -> None:
        try:
            world.close()
        except StuckError as error:
            raise BrokenPromise(f"{error}\n{world.timeline()}") from error

    def _check_journal(self, world: World) -> None:
        check_journal(world, self.promises, self.handlers, self.remembered)

    @staticmethod
    def _ask(world: World, check: Callable[[World], object] | None) -> None:
        # A traceback through a function of the test shows that function's frames only.
        __tracebackhide__ = True
        world.raise_broken()
        if check is None:
            return
        try:
            check(world)
        except BrokenPromise:
            raise
        except _failures() as error:
            # pytest's explanation of the values is in the cause.
            known = with_class(error)
            text = safe_text(known).partition("\n")[0]
            if isinstance(known, Exception) and not isinstance(known, AssertionError):
                text = f"{type(known).__name__}: {text}"
            raise BrokenPromise(f"{text}\n{world.timeline()}") from known


def check_operator(
    make: Callable[[Replica], Any] | App,
    kind: Kind | None = None,
    *,
    specs: SearchStrategy[Any] | None = None,
    statuses: SearchStrategy[Any] | None = None,
    names: Sequence[str] = ("a", "b"),
    replicas: int = 1,
    leader_election: bool = False,
    finalizer: str | Iterable[str] = (),
    cleaned_up: Callable[[World, Object], bool] | None = None,
    always: Callable[[World], object] | None = None,
    at_rest: Callable[[World], object] | None = None,
    promises: Iterable[Promise] = _ALL,
    faults: bool = True,
    crds: Iterable[Mapping[str, Any]] = (),
    most_calls: int = 100,
    longest: int = 20,
    max_examples: int = 100,
    seed: int | None = None,
    replay: Sequence[str] | None = None,
) -> None:
    """Run an operator through generated histories, and check its :class:`Promise` s in each.

    In a history, other clients create, change, delete and recreate a few objects, and change and
    delete the objects that the operator made for them. Meanwhile answers are lost, reads fail,
    writes conflict, watches are cut or late, and the operator crashes at its writes or is down for
    a time. Then the faults end, the operator comes to rest, and the promises are checked. After a
    restart it must have nothing to write. A failing history is made as small as possible. The error
    has the timeline of that history, the lines of the operator that ran in its last calls, and the
    ``replay`` argument that plays it again.

    Needs Hypothesis. Its settings, except for the number of examples, are those of the profile.

    Args:
        make: makes the operator of a process, see :class:`World`. It is called for each process, so
            the operator loses its memory in a crash. State outside of the cluster survives crashes
            and must be new for each history: keep it in ``replica.world.elsewhere``.
            Or the operator as an :class:`~appsdk_operator.app.App`.
        kind: the kind that the operator manages; default: the first kind that the App handles.
        specs: the specs of objects; default: from the kind's schema, see
            :func:`~appsdk_operator.testing.strategies.specs`. Give them if the schema says too
            little, for example that a string is a quantity.
        statuses: the statuses that other clients write; default: none.
        names: the names of objects.
        replicas: the number of replicas; several are suspended for a time as well.
        leader_election: whether only the leader works, if ``make`` returns watchers or
            reconcilers; a manager has its own ``leader_election=``.
        finalizer: the operator's finalizer, or several; all others then belong to other
            controllers. The finalizers of a recorded :class:`OpinionatedWatcher` or
            :class:`OpinionatedReconciler` need not be given.
        cleaned_up: whether nothing is left that the operator made for an object. Called when the
            operator removes its last finalizer of the object, and at the end for each object that
            is gone and whose name is not in use again.
        always: called with the world after each step; raises ``AssertionError``.
        at_rest: called with the world at rest; raises ``AssertionError`` if the cluster does not
            have the desired state.
        promises: the promises to check; default: all.
        faults: whether there are faults, which include changes to objects that the operator made.
        crds: CustomResourceDefinitions to install, with the one of ``kind`` if its schema matters;
            default: one that is made from ``kind``.
        most_calls: the limit of a hot loop: the most calls, and the most writes, for one object
            without a change from outside; default 100.
        longest: the most steps of a history; default 20.
        max_examples: the number of histories; default 100.
        seed: the seed of the search, for the same histories each time; default: a random one.
        replay: the history to play instead, as a failure printed it.

    Raises:
        BrokenPromise: the operator broke a promise.
        TypeError: ``make`` returned something that cannot be run.
        ValueError: ``leader_election`` for an operator with its own ``run``, a malformed finalizer,
            or the server refused all specs.
    """
    app = make if isinstance(make, App) else None
    if isinstance(make, App):
        kind = kind or kind_of(make)
        crds = [*definitions_of(make), *crds]
        make, leader_election = maker_of(make, leader_election=leader_election), False
    if kind is None:
        raise TypeError("check_operator(make): give the kind that the operator manages, too")
    case = _OperatorCheck(
        app=app,
        make=make,
        kind=kind,
        replicas=replicas,
        leader_election=leader_election,
        crds=tuple(crds),
        finalizers=_finalizers(finalizer),
        cleaned_up=cleaned_up,
        always=always,
        at_rest=at_rest,
        promises=frozenset(promises),
        most_calls=most_calls,
        counts=_ObjectCounts(),
        handlers=functions_of(app) if app else (),
        timers=timers_of(app) if app else (),
        remembered=lambda kind: app is not None and remembers(app, kind),
        pauses=metadata_of_pauses(app) if app else (),
    )
    with _quiet_logs():
        if replay is not None:
            case.run([Step.parse(text) for text in replay], is_traced=True)
            case.counts.check()
            return
        specs = specs_of(kind, crds=case.crds) if specs is None else specs
        values: dict[str, SearchStrategy[Any]] = dict.fromkeys(
            ("create", "spec", "recreate"), specs
        )
        failure = search(
            case.run,
            histories(
                specs,
                statuses=statuses,
                names=names,
                faults=faults,
                replicas=World.names_of(replicas),
                functions=faults and app is not None,
                metadata=metadata_of_filters(app) if app else (),
                pauses=case.pauses,
                longest=longest,
            ),
            values if statuses is None else {**values, "status": statuses},
            max_examples,
            seed,
        )
        if failure is None:
            case.counts.check()
            return
        steps, found = failure
        error = case.traced(steps, found)
    raise BrokenPromise(
        f"{error}\nto see it again: check_operator(…, replay=[{replay_of(steps)}])"
    ) from error.__cause__


def _failures() -> tuple[type[BaseException], ...]:
    """Errors, and what ``pytest.fail`` raises, which is not an Exception."""
    pytest: Any = sys.modules.get("pytest")
    return (Exception, pytest.fail.Exception) if pytest else (Exception,)


def _finalizers(given: str | Iterable[str]) -> frozenset[str]:
    names = [given] if isinstance(given, str) else list(given)
    return frozenset(check_finalizer(name) for name in names if name)


@contextlib.contextmanager
def _quiet_logs() -> Iterator[None]:
    """Silence the kit's log: the faults are in the timeline."""
    logger = logging.getLogger("appsdk_operator")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
