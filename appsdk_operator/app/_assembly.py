"""Makes a Manager of an App's declarations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, final

import attrs
import msgspec

from appsdk_operator.app._background import BackgroundRunner, Relents
from appsdk_operator.app._declarations import (
    Background,
    Declarations,
    Handler,
    Reconciling,
    Task,
    Timer,
    Watched,
    name_of,
)
from appsdk_operator.app._functions import KindFunctions
from appsdk_operator.app._health_checks import add_checks
from appsdk_operator.app._kinds import other_versions, owned_kinds
from appsdk_operator.app._kopf import Kopf, KopfStates
from appsdk_operator.app._kopf_peers import check_peers
from appsdk_operator.app._lifespan import LifespanFunction, Lifespans
from appsdk_operator.app._memos import Memos
from appsdk_operator.app._mistakes import check_retry
from appsdk_operator.app._remember import AnnotationRecords, HandledStates, Records
from appsdk_operator.app._returned import is_async
from appsdk_operator.app._selection import common_selectors, with_selectors
from appsdk_operator.app._timers import AppTimer
from appsdk_operator.app._webhooks import add_webhooks
from appsdk_operator.client import ClientConfig, ClientLike
from appsdk_operator.controllers import (
    Controller,
    ControllerOptions,
    Request,
    TimerSource,
    as_reconciler,
    controller_for,
)
from appsdk_operator.manager import (
    CacheSetup,
    Manager,
    ManagerOptions,
    RunnableGroup,
    as_runnable,
)
from appsdk_operator.resource import Filter, Kind, Object
from appsdk_operator.runtime import (
    Family,
    LoopThread,
    Places,
    Sample,
    StopSignal,
    settle,
    validation,
)
from appsdk_operator.watchers import (
    ErrorHandler,
    ExponentialBackoff,
    InformerController,
    JoinedFinalizer,
    ResourceWatcher,
    RetryPolicy,
    check_calls,
)

_INFO: Final = Family("app_info", "gauge", "The App that this process runs; always 1", ("app",))

_PAUSED: Final = Family(
    "app_paused_objects",
    "gauge",
    "Objects for which an App with paused= calls no functions.",
    ("app", "kind"),
)


class Observer:
    """Wraps what an App calls, for tests; this one wraps nothing."""

    def target(self, target: Any, kind: Kind[Any, Any]) -> Any:
        """A watcher of objects of ``kind``, or all functions for them."""
        del kind
        return target

    def reconciler(self, target: Any, declared: Reconciling) -> Any:
        """The reconciler of a declaration."""
        del declared
        return target

    def function(self, handler: Handler) -> Callable[..., Any]:
        """The function of an ``on_…`` declaration."""
        function: Callable[..., Any] = handler.function
        return function

    def timer(self, timer: Timer) -> Callable[..., Any]:
        """The function of an ``every`` declaration."""
        function: Callable[..., Any] = timer.function
        return function

    def result(
        self, declared: Handler | Timer, write: Callable[[Object, Any], None]
    ) -> Callable[[Object, Any], None]:
        """What writes the returned value of a declaration with ``result=``."""
        del declared
        return write


@attrs.frozen(kw_only=True)
class WatcherOptions:
    """The options of the controllers that call watchers."""

    workers: int
    retry_policy: RetryPolicy | None
    """None: :func:`_until_it_succeeds`."""
    error_handler: ErrorHandler | None
    resync: float = attrs.field()
    time_limit: float | None = None
    max_awaiting: int = 1000
    paused: Filter[Any, Any] | None = None
    remember: bool | tuple[Kind[Any, Any], ...] | None = None
    """The kinds of which it is recorded what was handled; None: the app's own ones with updates."""
    handled_states: HandledStates | None = None
    """Where; None: on the objects."""
    adopt: Kopf | None = None
    """The operator with kopf whose objects these were; None: there was none."""

    def __attrs_post_init__(self) -> None:
        validation.checked_seconds("resync", self.resync)
        check_retry(self.retry_policy, "retry_policy")
        check_calls(self.workers, self.retry_policy, None, self.error_handler)
        validation.checked_limit("time_limit", self.time_limit)
        validation.check_count("max_awaiting", self.max_awaiting, 0)

    def controller(self, name: str) -> InformerController:
        """A controller of this name."""
        return InformerController(
            name=name,
            workers=self.workers,
            retry_policy=self.retry_policy,
            error_handler=self.error_handler,
            resyncs_repeat=False,
        )


@final
class AppManager:
    """What an App knows of one of its managers; a runnable of it, on every replica."""

    runnable_group = RunnableGroup.HTTP_SERVERS
    """The first group to start and the last one to end."""

    def __init__(
        self,
        name: str,
        manager: Manager,
        lifespans: Sequence[LifespanFunction],
        check_start: Callable[[], None] | None = None,
        *,
        max_awaiting: int,
    ) -> None:
        self.name = f"{name}/app"
        self.is_waiting = True
        """Whether the manager may still run: it neither has, nor is it closed."""
        self.is_running = False
        self.loop = LoopThread(self.name)
        """Where all that is ``async def`` runs, but webhooks."""
        self.awaiting = Places(max_awaiting)
        """For the functions that await something, and hold no worker meanwhile."""
        self.memos = Memos(manager.cache, manager.client)
        self.functions: Sequence[KindFunctions] = ()
        """The functions of its kinds."""
        self.has_begun = False
        """Whether the lifespans have begun, and not ended."""
        self._app_name = name
        self._metrics = manager.metrics
        self._lifespans = Lifespans(lifespans, name=self.name, loop=self.loop)
        self._begun = StopSignal(clock=manager.clock)
        self._check_start = check_start
        has_begin = lifespans or check_start is not None
        self.wait_until_ready = self._wait_until_begun if has_begin else None

    def run(self, stop: StopSignal) -> None:
        """Publish the app's name, within the lifespans, until ``stop`` is set."""
        self.is_waiting, self.is_running = False, True
        source = self._metrics.add_source(self._samples)
        try:
            if self._check_start is not None:
                self._check_start()
            self._lifespans.begin()
            self.has_begun = True
            self._begun.set()
            try:
                stop.wait()
            finally:
                self.has_begun = False
                self._lifespans.end()
        finally:
            self.is_running = False
            source()
            self.loop.close()

    def _wait_until_begun(self, stop: StopSignal, timeout: float | None = None) -> bool:
        self._begun.child(stop).wait(timeout)
        return self._begun.is_set()

    def hold(self) -> None:
        """The operator is paused; its controllers are held as well."""

    def let_go(self) -> None:
        """The pause ends: the controllers, which were added later, begin calls after this."""
        for each in self.functions:
            each.catch_up()

    def close(self) -> None:
        """The manager was closed and will not run."""
        self.is_waiting = False
        self.loop.close()

    def _samples(self) -> Iterable[Sample]:
        yield Sample(_INFO, (self._app_name,), 1)
        for each in self.functions:
            paused = each.paused_objects()
            if paused is not None:
                labels = (self._app_name, each.kind.qualified_name)
                yield Sample(_PAUSED, labels, float(len(paused)))


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager is made of."""

    app: object
    name: str
    declared: Declarations
    options: ManagerOptions
    watchers: WatcherOptions
    finalizer: JoinedFinalizer
    observer: Observer


def assemble(assembly: Assembly, server: ClientConfig | ClientLike) -> tuple[Manager, AppManager]:
    """The manager, and the App's part of it.

    Raises:
        TypeError, ValueError, OSError: the declarations or options do not fit together.
    """
    if assembly.watchers.retry_policy is None:
        # One for each manager, for repeatable tests.
        watchers = attrs.evolve(assembly.watchers, retry_policy=_until_it_succeeds())
        assembly = msgspec.structs.replace(assembly, watchers=watchers)
    declared, name = assembly.declared, assembly.name
    owned_kinds(declared)
    _check_remembered(assembly)
    if isinstance(server, ClientConfig):
        server = _with_name(server, name)
    adopt = assembly.watchers.adopt
    options = with_selectors(
        _with_kinds(assembly.options, declared), common_selectors(declared, adopts=bool(adopt))
    )
    manager = Manager(server, options)
    manager.declared_by = assembly.app
    try:
        state = AppManager(
            name,
            manager,
            declared.lifespans,
            _check_of_peers(adopt, manager, options),
            max_awaiting=assembly.watchers.max_awaiting,
        )
        manager.add(state)
        for index in declared.indexes:
            manager.cache.add(index.kind)
            manager.cache.index_field(index.kind, index.path, index.function)
        add_checks(manager, declared.checks, is_running=lambda: state.has_begun, loop=state.loop)
        state.functions = _add_watchers(assembly, manager, state)
        for reconciling in declared.reconciling:
            _add_reconciler(assembly, manager, reconciling).await_on(state.loop)
        for timer in declared.timers:
            if timer.kind is None:
                _add_timer(assembly, manager, timer).await_on(state.loop)
        for task in declared.tasks:
            manager.add(_TaskRunnable(f"{name}/{name_of(task.target)}", task, state.loop))
        add_webhooks(manager, declared)
    except BaseException:
        manager.close()
        raise
    return manager, state


def _check_of_peers(
    adopt: Kopf | None, manager: Manager, options: ManagerOptions
) -> Callable[[], None] | None:
    peering = None if adopt is None else adopt.peering
    if peering is None:
        return None
    namespaces = options.cache.namespace_names if options.cache else ()
    return lambda: check_peers(manager.live_client, peering, namespaces, manager.clock.time())


def _until_it_succeeds() -> RetryPolicy:
    """The default: what is given up is not repeated, so it does not give up."""
    return ExponentialBackoff(initial=5.0, max_attempts=None, maximum=600.0, jitter=0.1)


def _with_kinds(options: ManagerOptions, declared: Declarations) -> ManagerOptions:
    """The options with a cache that follows the kinds of all controllers from the start.

    Webhooks and checks are called on replicas whose controllers do not run, and tasks and timers
    while controllers that are about to start: they read what a controller reads, everywhere.
    """
    other_reads = (
        *declared.defaulters,
        *declared.validators,
        *declared.webhooks,
        *declared.tasks,
        *declared.checks,
        *(each for each in declared.timers if each.kind is None or each.every_replica),
    )
    if not other_reads:
        return options
    followed = [each.kind for each in declared.watching]
    for each in declared.reconciling:
        followed += [each.kind, *each.owns, *each.watches]
    followed += [each.kind for each in declared.timers if each.kind is not None]
    followed += [each.kind for each in declared.backgrounds]
    setup = options.cache or CacheSetup()
    kinds = dict.fromkeys([*setup.kinds, *followed])
    return attrs.evolve(options, cache=attrs.evolve(setup, kinds=tuple(kinds)))


def _with_name(config: ClientConfig, name: str) -> ClientConfig:
    """``config`` with the app's name in its user agent, unless the program has given it one."""
    if config.user_agent != _DEFAULT_USER_AGENT:
        return config
    return attrs.evolve(config, user_agent=f"{name} {config.user_agent}")


_DEFAULT_USER_AGENT: Final = ClientConfig(server="http://localhost").user_agent


def _add_watchers(
    assembly: Assembly, manager: Manager, state: AppManager
) -> Sequence[KindFunctions]:
    """One controller for each kind, so that no kind waits for the functions of another.

    All functions of a kind are one of its targets, so that none overlaps with another one of its
    object; it stands where the first of them was declared.
    """
    declared: dict[Kind[Any, Any], list[Handler | Timer | Watched | Background]] = {}
    elsewhere: list[Timer] = []
    for each in assembly.declared.functions:
        if isinstance(each, Timer) and each.every_replica:
            elsewhere.append(each)
        elif each.kind is not None:
            declared.setdefault(each.kind, []).append(each)
    targets: dict[Kind[Any, Any], KindFunctions] = {}
    for kind, parts in declared.items():
        controller = assembly.watchers.controller(f"{assembly.name}/{kind.qualified_name}")
        controller.add_cache(manager.cache, kind, resync=assembly.watchers.resync)
        functions = [each for each in parts if not isinstance(each, Watched)]
        _await_on(controller, state, functions)
        for part in parts:
            if isinstance(part, Watched):
                target = part.target(manager.client) if part.is_factory else part.target
            elif kind in targets:
                continue
            else:
                target = targets[kind] = _functions(assembly, state, manager, kind, functions)
            _add_target(assembly, controller, target, kind)
        manager.add(controller)
        if kind in targets:
            for runner in targets[kind].backgrounds.runners:
                manager.add(runner)
    mains = dict(targets)
    for timer in elsewhere:
        assert timer.kind is not None
        # The other functions of the kind run on the leader only, in another controller.
        controller = assembly.watchers.controller(f"{assembly.name}/{timer.name}")
        controller.needs_leader_election = False
        controller.add_cache(manager.cache, timer.kind, resync=assembly.watchers.resync)
        main = mains.get(timer.kind)
        _await_on(controller, state, [timer])
        alone = _functions(assembly, state, manager, timer.kind, [timer], main)
        mains.setdefault(timer.kind, alone)
        _add_target(assembly, controller, alone, timer.kind)
        manager.add(controller)
    return tuple(targets.values())


def _add_target(
    assembly: Assembly, controller: InformerController, target: Any, kind: Kind[Any, Any]
) -> None:
    wrapped = assembly.observer.target(target, kind)
    if isinstance(target, ResourceWatcher):
        controller.add_watcher(wrapped, kind)
    else:
        controller.add_reconciler(wrapped, kind)


def _await_on(
    controller: InformerController,
    state: AppManager,
    functions: Sequence[Handler | Timer | Background],
) -> None:
    """Await on the App's loop; without a worker, where there is something to await."""
    awaits = any(
        is_async(inspect.unwrap(each.function))
        for each in functions
        if not isinstance(each, Background)
    )
    controller.await_on(state.loop, state.awaiting if awaits else None)


def _functions(
    assembly: Assembly,
    state: AppManager,
    manager: Manager,
    kind: Kind[Any, Any],
    declared: Sequence[Handler | Timer | Background],
    main: KindFunctions | None = None,
) -> KindFunctions:
    """The reconciler of functions; ``main`` is that of the others of the kind."""
    observer, adopt = assembly.observer, assembly.watchers.adopt

    def function_of(each: Handler | Timer) -> Callable[..., Any]:
        return observer.timer(each) if isinstance(each, Timer) else observer.function(each)

    def runner_of(each: Background, relents: Relents) -> BackgroundRunner:
        return BackgroundRunner(
            each.function,
            name=f"{assembly.name}/{each.name}",
            loop=state.loop,
            client=manager.client,
            clock=manager.clock,
            retry=each.options.retry or assembly.watchers.retry_policy or _until_it_succeeds(),
            relents=relents,
        )

    return KindFunctions(
        kind,
        manager.client,
        [each for each in declared if not isinstance(each, Background)],
        backgrounds=[each for each in declared if isinstance(each, Background)],
        runner_of=runner_of,
        function_of=function_of,
        result_of=observer.result,
        newest_of=lambda obj: manager.cache.get(kind, obj.name, namespace=obj.namespace),
        clock=manager.clock,
        finalizer=msgspec.structs.replace(
            assembly.finalizer, versions=other_versions(kind, assembly.declared)
        ),
        is_ready=None if main is None else main.is_handled,
        time_limit=assembly.watchers.time_limit,
        paused=assembly.watchers.paused,
        records=_records(assembly, manager, kind) if main is None else None,
        adopted=KopfStates(adopt) if adopt is not None and main is None else None,
    )


def _records(
    assembly: Assembly,
    manager: Manager,
    kind: Kind[Any, Any],
) -> Records | None:
    """The records of what was handled of a kind's objects; they have states if it is remembered."""
    keeps_states = is_remembered(kind, assembly.declared, assembly.watchers.remember)
    has_others = assembly.options.leader_election is not None
    if (states := assembly.watchers.handled_states) is not None:
        return Records(
            kind, manager.client, states, has_others=has_others, keeps_states=keeps_states
        )
    return AnnotationRecords(
        kind,
        manager.client,
        assembly.name,
        assembly.options.previous_names,
        has_others=has_others,
        keeps_states=keeps_states,
    )


def is_remembered(
    kind: Kind[Any, Any], declared: Declarations, wanted: bool | Sequence[Kind[Any, Any]] | None
) -> bool:
    """Whether it is recorded what functions have handled of objects of a kind.

    Args:
        kind: the kind.
        declared: the App's declarations.
        wanted: its option ``remember``.
    """
    handlers = [each for each in declared.watching if isinstance(each, Handler)]
    if all(each.kind != kind for each in handlers):
        return False
    if isinstance(wanted, bool):
        return wanted
    if wanted is not None:
        return kind in wanted
    return any(kind in each.kinds for each in declared.owned) and any(
        each.cause == "update" and each.kind == kind for each in handlers
    )


def _check_remembered(assembly: Assembly) -> None:
    wanted = assembly.watchers.remember
    if wanted is None or isinstance(wanted, bool):
        return
    handled = {each.kind for each in assembly.declared.watching if isinstance(each, Handler)}
    for kind in wanted:
        if kind not in handled:
            raise ValueError(
                f"remember names {kind}, of which no function of on_add, on_update or on_delete "
                "handles objects: leave it out, or declare one"
            )


def _add_reconciler(assembly: Assembly, manager: Manager, declared: Reconciling) -> Controller[Any]:
    target = declared.target
    if declared.takes_object:
        target = as_reconciler(manager.client, declared.kind, target)
    builder = (
        controller_for(manager)
        .named(f"{assembly.name}/{declared.name}")
        .for_(declared.kind, predicates=[each for _, each in declared.filters])
        .with_options(_shared(declared.options))
    )
    for owned in declared.owned:
        builder.owns(owned.kind, predicates=owned.predicates)
    for watched, handler in declared.watched:
        builder.watches(watched.kind, handler, predicates=watched.predicates)
    return builder.complete(assembly.observer.reconciler(target, declared))


def _shared(options: ControllerOptions | None) -> ControllerOptions:
    # The names are checked by the App, and several of its managers may run in a process.
    given = options or ControllerOptions()
    return attrs.evolve(given, skip_name_validation=True)


_ONCE: Final = Request("", "app")


def _add_timer(assembly: Assembly, manager: Manager, declared: Timer) -> Controller[Request]:
    """A controller with one request, which comes back after the interval."""
    timer = AppTimer(
        assembly.observer.timer(declared),
        schedule=declared.schedule,
        clock=manager.clock,
        retry_policy=declared.options.retry
        or assembly.watchers.retry_policy
        or _until_it_succeeds(),
        time_limit=declared.options.time_limit or assembly.watchers.time_limit,
    )
    # Once; what follows comes from the results.
    source: TimerSource[Request] = TimerSource(
        _FOREVER, [_ONCE], first_after=declared.schedule.first_after, name=declared.name
    )
    return (
        controller_for(manager)
        .named(f"{assembly.name}/{declared.name}")
        .with_options(
            ControllerOptions(
                skip_name_validation=True,
                needs_leader_election=not declared.every_replica,
                max_concurrent_reconciles=1,
                rate_limiter=lambda: timer,
            )
        )
        .watches_raw_source(source)
        .complete(timer.reconciler)
    )


_FOREVER: Final = 1e9


@final
class _TaskRunnable:
    """A task, with the app's name in its own."""

    def __init__(self, name: str, task: Task, loop: LoopThread) -> None:
        self.name = name
        self._loop = loop
        self.needs_leader_election = not task.every_replica
        self._target = as_runnable(task.target)

    def run(self, stop: StopSignal) -> object:
        with self._loop.bound():
            return settle(self._target.run(stop))

    def __repr__(self) -> str:
        return f"<task {self.name}>"
