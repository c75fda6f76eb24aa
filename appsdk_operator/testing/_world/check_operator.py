"""Property tests of an operator: one call, and a failure that can be read and played again."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from appsdk_operator.controllers import check_finalizer
from appsdk_operator.resource import Kind, Object
from appsdk_operator.testing._broken_promise import BrokenPromise, hides_kit_frames
from appsdk_operator.testing._world.histories import Step, histories, play
from appsdk_operator.testing._world.promises import (
    FinalizerChecker,
    Promise,
    break_promise,
    check_journal,
    check_rest,
    still_failing,
)
from appsdk_operator.testing._world.world import Replica, World
from appsdk_operator.testing.strategies import specs as specs_of

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["check_operator"]

__tracebackhide__ = hides_kit_frames

_ALL: Final = frozenset(Promise)
# What takes a second or two. Hypothesis is good at simpler values; needless steps go afterwards.
_MOST_SHRINKS: Final = 40


@attrs.define
class _ObjectCounts:
    """What became of the objects that others asked for, in all histories."""

    created: int = 0
    refused: BaseException | None = None

    def note(self, world: World) -> None:
        """Take in one history."""
        self.created += len(world.created)
        refused = [step.error for step in world.journal.of("step") if step.error is not None]
        self.refused = refused[-1] if refused else self.refused

    def check(self) -> None:
        """Some of them were there.

        Raises:
            ValueError: the server took none.
        """
        if self.refused is not None and not self.created:
            raise ValueError(
                f"the server refused every object, so nothing was checked; the last time with: "
                f"{self.refused}. Say with specs= which specs there may be"
            )


def _why_it_fails(world: World) -> str:
    call = still_failing(world)
    if call is None:
        return ""
    return (
        f"\nthe last call of {call.who} for {call.key} failed with "
        f"{type(call.error).__name__}: {call.error}\nif nobody would ask for such a spec, say with "
        "specs= which ones there may be, or with a pattern in the kind's schema"
    )


@attrs.frozen(kw_only=True)
class _OperatorCheck:
    """What is checked, but for the history."""

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
    outcomes: _ObjectCounts

    def run(self, steps: Sequence[Step]) -> None:
        """Play one history.

        Raises:
            BrokenPromise: with the story.
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
        world.most_calls = self.most_calls if Promise.NO_HOT_LOOP in self.promises else 10_000
        world.checks_lease = Promise.LEASE in self.promises
        finalizers = None
        if Promise.FINALIZER_SAFETY in self.promises:
            finalizers = FinalizerChecker(world, self.finalizers, self.cleaned_up)
        with world:
            for step in steps:
                play(world, step)
                self._look(world, self.always)
            self.outcomes.note(world)
            check_journal(world, self.promises)
            world.end_faults()
            try:
                self._rest(world, finalizers)
            except BrokenPromise as error:
                raise BrokenPromise(f"{error}{_why_it_fails(world)}") from error.__cause__
            self._check_second_time(world)

    def _rest(self, world: World, finalizers: FinalizerChecker | None) -> None:
        is_at_rest = world.settle()
        check_journal(world, self.promises)
        check_rest(world, self.promises)
        if finalizers is not None:
            finalizers.check_rest()
            world.raise_broken()
        self._look(world, self.at_rest)
        if not is_at_rest and Promise.NO_HOT_LOOP in self.promises:
            text = "it writes, or fails, again and again although nothing happens from outside"
            raise break_promise(world, Promise.NO_HOT_LOOP, text)

    def _check_second_time(self, world: World) -> None:
        """Nothing changes, and all is reconciled once more."""
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
        check_journal(world, self.promises)

    @staticmethod
    def _look(world: World, look: Callable[[World], object] | None) -> None:
        # Of what a function of the test raises, its own frames tell.
        __tracebackhide__ = True
        world.raise_broken()
        if look is None:
            return
        try:
            look(world)
        except BrokenPromise:
            raise
        except Exception as error:
            # pytest's explanation of the values is in the cause.
            said = str(error).partition("\n")[0]
            if not isinstance(error, AssertionError):
                said = f"{type(error).__name__}: {said}"
            raise BrokenPromise(f"{said}\n{world.story()}") from error


def check_operator(
    make: Callable[[Replica], Any],
    kind: Kind,
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
    """Run an operator through many histories, and check what it must do in every one of them.

    In each of them others create, change, delete and make anew a few objects while answers are
    lost, writes conflict, watches are cut or late, and the operator crashes at its writes. Then
    nothing goes wrong any more, the operator comes to rest, and the :class:`Promise` s are checked;
    after a restart it must have nothing to write. A failure is made as small as it can be. Its text
    is the story of what happened, and the ``replay`` that plays exactly this again.

    Needs Hypothesis. Its settings, but for the number of examples, are those of the profile.

    Args:
        make: makes the operator for a process, see :class:`World`; called for each, so that what
            the operator keeps in memory is lost in a crash. What is outside of the cluster, and
            survives, must be new for each history: it is, when it is kept in ``replica.world``'s
            :attr:`World.elsewhere`.
        kind: what the operator is about.
        specs: of the objects; default: from the kind's schema, see :func:`specs`. What a schema
            does not say, as that a text is a quantity, is for this, or for a pattern in the schema.
        statuses: what others write into the status; default: nothing.
        names: of the objects.
        replicas: how many processes there are; several may stand still for a time, too.
        leader_election: whether only one of them works, where ``make`` returns watchers or
            reconcilers; a manager has its own ``leader_election=``.
        finalizer: the operator's own, or several; then those of others are all the rest. Those of
            an :class:`OpinionatedWatcher` or :class:`OpinionatedReconciler` that is recorded, the
            one in progress too, are known without.
        cleaned_up: whether nothing is left of what the operator made for an object; asked when
            the last of its finalizers goes, and in the end for each that is gone, unless another
            one has its name by then: what is kept by name is that one's.
        always: called after each step with the world; raises ``AssertionError``.
        at_rest: the same when all has come to rest: whether the cluster is as it should be.
        promises: what to check; default: all.
        faults: whether anything goes wrong.
        crds: CustomResourceDefinitions to install, that of ``kind`` among them if its schema
            matters; default: one that is made from ``kind``.
        most_calls: the calls, and the writes, for one object without a change from outside that
            are a hot loop; default 100.
        longest: the most steps of a history; default 20.
        max_examples: how many histories; default 100.
        seed: of the search, so that it is the same each time; default: another one each time.
        replay: play this history instead, as a failure printed it.

    Raises:
        BrokenPromise: an operator that does not keep one of them.
        TypeError: ``make`` returned what cannot be run.
        ValueError: ``leader_election`` for what runs by itself, a finalizer that is no name,
            or specs of which the server takes none.
    """
    case = _OperatorCheck(
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
        outcomes=_ObjectCounts(),
    )
    with _quiet_logs():
        if replay is not None:
            case.run([Step.parse(text) for text in replay])
            case.outcomes.check()
            return
        failure = _search(
            case,
            histories(
                specs_of(kind, crds=case.crds) if specs is None else specs,
                statuses=statuses,
                names=names,
                faults=faults,
                freezes=faults and replicas > 1,
                longest=longest,
            ),
            max_examples,
            seed,
        )
    if failure is None:
        case.outcomes.check()
    else:
        steps, error = failure
        again = ", ".join(repr(str(step)) for step in steps)
        raise BrokenPromise(
            f"{error}\nto see it again: check_operator(…, replay=[{again}])"
        ) from error.__cause__


def _finalizers(given: str | Iterable[str]) -> frozenset[str]:
    names = [given] if isinstance(given, str) else list(given)
    return frozenset(check_finalizer(name) for name in names if name)


def _search(
    case: _OperatorCheck, strategy: SearchStrategy[list[Step]], max_examples: int, seed: int | None
) -> tuple[list[Step], BrokenPromise] | None:
    """The smallest history that breaks a promise."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from hypothesis import strategies as st

    found: list[tuple[list[Step], BrokenPromise]] = []
    tries = 0
    seeds = st.builds(Step, st.just("seed"), st.just(""), st.integers(0, 9))

    @settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        print_blob=False,
        phases=[Phase.generate, Phase.shrink],
    )
    @given(luck=seeds, history=strategy)
    def run(luck: Step, history: list[Step]) -> None:
        nonlocal tries
        tries += bool(found)
        if tries > _MOST_SHRINKS:
            raise _ShrunkError
        steps = [luck, *history] if luck.value else history
        try:
            case.run(steps)
        except BrokenPromise as error:
            found.append((steps, error))
            # Whatever the promise: a smaller history that breaks another one is as good.
            raise _FailedError from error

    search = run if seed is None else seeded(seed)(run)
    with contextlib.suppress(_FailedError, _ShrunkError):
        search()
    if not found:
        return None
    return _drop_needless_steps(case, *min(found, key=lambda one: len(one[0])))


def _drop_needless_steps(
    case: _OperatorCheck, steps: list[Step], error: BrokenPromise
) -> tuple[list[Step], BrokenPromise]:
    """The same without steps that were drawn together with those that matter."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for place in reversed(range(len(steps))):
            fewer = [*steps[:place], *steps[place + 1 :]]
            try:
                case.run(fewer)
            except BrokenPromise as smaller:
                if _promise_of(smaller) == _promise_of(error):
                    steps, error, is_smaller = fewer, smaller, True
    return steps, error


def _promise_of(error: BrokenPromise) -> str:
    return str(error).partition(":")[0]


class _FailedError(Exception):
    """The same for all failures, so that they are one to Hypothesis."""


class _ShrunkError(BaseException):
    """It is small enough; not an Exception, which would be one more failure."""


@contextlib.contextmanager
def _quiet_logs() -> Iterator[None]:
    """What goes wrong on purpose is told by the story."""
    logger = logging.getLogger("appsdk_operator")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
