"""Controllers that start, fail and stop together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, final, runtime_checkable

from appsdk_operator.manager._core.announcements import Announcements, kinds_of
from appsdk_operator.manager._core.groups import Group
from appsdk_operator.manager._core.runnable import Placement, RunnableGroup
from appsdk_operator.manager._core.signals import (
    check_main_thread,
    run_with_signals,
    wait_until_set,
)
from appsdk_operator.runtime import (
    PREVIOUS_NAMES,
    ActivityObserver,
    Clock,
    ObservedParts,
    StillRunning,
    StopSignal,
    as_exception,
    check_operator_name,
    check_previous_names,
    check_stop,
    get_logger,
    joined_names,
    left_behind,
    present_clock,
    raise_all,
    safe_text,
    thread_clock,
)
from appsdk_operator.runtime.validation import check_plain, checked_seconds

_log = get_logger("appsdk_operator.manager")


@runtime_checkable
class OperatorController(Protocol):
    """Anything that an :class:`Operator` can run."""

    def run(self, stop: StopSignal, /) -> object:
        """Work until ``stop`` is set; an exception is a failure. May be async."""
        ...


@final
class Operator:
    """Runs controllers side by side.

    If a controller fails, the operator stops all others, unless ``on_error`` decides otherwise.
    Thread-safe.

    >>> from appsdk_operator.runtime import StopSignal
    >>> stop = StopSignal()
    >>> stop.set()
    >>> Operator().run(stop)
    """

    if not TYPE_CHECKING:  # type checkers see the signature of __init__

        def __new__(cls, *positional: Any, **_: Any) -> Any:
            if positional:
                first = positional[0]
                remedy = "add controllers with add_controller(…)"
                if isinstance(first, str):
                    remedy = f"give its name as Operator(name={first!r})"
                raise TypeError(
                    f"Operator({_shown(first)}): an Operator takes only keyword arguments: {remedy}"
                )
            return object.__new__(cls)

    def __init__(
        self,
        *,
        name: str = "",
        previous_names: Sequence[str] = PREVIOUS_NAMES,
        stop_timeout: float = 60.0,
        on_error: Callable[[OperatorController, Exception], bool] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """An operator without controllers.

        Args:
            name: the operator's name: at most 40 lower-case letters, digits and '-'. It replaces
                "operator" in the default finalizers of controllers without their own name. Two
                operators for one kind need different names: with a shared finalizer, an object is
                gone as soon as one of them has cleaned up. Default: the name of its Manager, or
                none.
            previous_names: former names; the operator recognises finalizers with these names, and
                replaces them. Default: ``("operator",)``, which operators without a name have in
                their finalizers.
            stop_timeout: seconds to wait at a stop for controllers to end; default 60.
            on_error: called with a controller that failed and its error, in the controller's
                thread. If it returns True, the other controllers go on, and :meth:`run` does not
                raise the error. If it returns False, the operator stops. If it raises, the operator
                stops, and :meth:`run` raises both errors. It is not called once the operator stops.
                Default: every failure stops the operator.
            clock: the clock for waits; default: the environment's.
        """
        checked_seconds("stop_timeout", stop_timeout)
        self.name: str = check_operator_name(name)
        """The operator's name; ``""`` without one."""
        self._previous_names = check_previous_names(previous_names)
        if on_error is not None and not callable(on_error):
            raise TypeError(
                f"on_error={on_error!r}: give a function of the controller and its error that "
                "returns True to go on, False to stop"
            )
        check_plain("on_error", on_error)
        self._on_error = on_error
        self._owner: object = self
        self._stop_timeout = stop_timeout
        self.clock: Clock = present_clock(clock)
        """The clock for waits."""
        self._lock = threading.Lock()
        self._controllers: list[OperatorController] = []
        self._announce: Callable[[OperatorController], None] = lambda _: None
        self._dropped: list[StillRunning] = []
        self._observed = ObservedParts()
        self._has_run = False
        self._stop_reason = ""

    def add_controller(self, controller: OperatorController) -> None:
        """Run ``controller`` with the others.

        Raises:
            TypeError: it has no ``run``, or is a KubernetesInformer.
            ValueError: it was added before.
            RuntimeError: the operator runs already; or the controller runs, and can no longer take
                the operator's name.
        """
        _check_controller(controller)
        with self._lock:
            self._check_new(controller)
            announce = self._announce
        # It may run as soon as it is one of the controllers; with no lock held, because a manager
        # that is paused now asks for the others.
        announce(controller)
        with self._lock:
            self._check_new(controller)
            self._assign_to_owner(controller)
            self._controllers.append(controller)
        self._observed.join(controller)

    def _check_new(self, controller: OperatorController) -> None:
        if self._has_run:
            raise RuntimeError(
                "the operator runs already and starts no further controllers: add it before "
                "run, or run it in a second operator"
            )
        if any(other is controller for other in self._controllers):
            raise ValueError(f"controller {controller!r} was added already: it runs once")

    def announce_to(self, announce: Callable[[OperatorController], None]) -> None:
        """For managers: call ``announce`` with each later controller, before it may run."""
        with self._lock:
            self._announce = announce

    def belong_to(self, operator: object, name: str, previous_names: Sequence[str]) -> None:
        """For managers: become a part of ``operator``, and take its name without an own one.

        Raises:
            RuntimeError, ValueError: a controller cannot take the name.
        """
        with self._lock:
            self._owner = operator
            if not self.name:
                self.name = name
                self._previous_names = joined_names(self._previous_names, previous_names)
            for controller in self._controllers:
                self._assign_to_owner(controller)

    def _assign_to_owner(self, controller: object) -> None:
        belong_to = getattr(controller, "belong_to", None)
        if callable(belong_to):
            belong_to(self._owner, self.name, self._previous_names)

    @property
    def watched_kinds(self) -> tuple[str, ...]:
        """The kinds that its controllers watch, without duplicates."""
        return tuple(kinds_of(self._controllers.copy()))

    @property
    def worker_counts(self) -> tuple[int, ...]:
        """The number of workers of each of its controllers."""
        found = [getattr(each, "worker_counts", None) for each in self._controllers.copy()]
        return tuple(number for one in found if isinstance(one, tuple) for number in one)

    @property
    def controllers(self) -> list[OperatorController]:
        """Its controllers, in the order of their addition."""
        with self._lock:
            return list(self._controllers)

    def observe_activity(self, observer: ActivityObserver) -> Callable[[], None]:
        """Call ``observer`` for each call of its controllers, including controllers added later.

        Returns:
            A function that ends this.
        """
        return self._observed.observe(observer)

    def debug_snapshot(self) -> dict[str, Any]:
        """The debug snapshots of its controllers, as plain values."""
        with self._lock:
            controllers = list(self._controllers)
        methods = [getattr(controller, "debug_snapshot", None) for controller in controllers]
        return {"controllers": [snapshot() for snapshot in methods if callable(snapshot)]}

    def run(self, stop: StopSignal | None = None, *, handle_signals: bool = False) -> None:
        """Run all controllers until ``stop`` is set or one of them fails; then wait for all to end.

        It also returns once every controller has returned by itself.

        Args:
            stop: ends the run; default: only a signal or a failure does.
            handle_signals: stop on SIGINT and SIGTERM; a second one ends the process at once.
                Works in the main thread only.

        Raises:
            Exception: the error of a controller, after all others have stopped.
            ExceptionGroup: several controllers failed.
            ValueError: ``handle_signals`` outside of the main thread.
            StillRunning: controllers still run ``stop_timeout`` seconds after the stop; raised
                alone or in the group.
            RuntimeError: it was run before.
        """
        if handle_signals:
            check_main_thread("operator")
        if stop is not None:
            check_stop(stop)
        with self._lock:
            if self._has_run:
                raise RuntimeError("the operator was run before: make a new one")
            self._has_run = True
        if handle_signals:
            run_with_signals(
                self._run, stop, note=self._note_signal, threads="operator", clock=self.clock
            )
        else:
            self._run(stop)

    def _run(self, stop: StopSignal | None) -> None:
        own = stop.child() if stop is not None else StopSignal(clock=self.clock)
        controllers = self.controllers
        if not controllers and not own.is_set():
            _log.warning(
                "the operator has no controllers and only waits for its stop: add them with "
                "add_controller before run"
            )
        failures: list[Exception] = []
        names = {
            f"{number}-{getattr(each, 'name', '') or type(each).__name__}": each
            for number, each in enumerate(controllers)
        }

        def fail(name: str, error: Exception) -> None:
            controller = names[name]
            if not own.is_set() and self._goes_on(controller, error, failures):
                return
            with self._lock:
                failures.append(error)
            _log.error("controller %r failed, the operator stops: %s", controller, safe_text(error))
            own.set()

        def ended(name: str) -> None:
            _log.warning("controller %r ended although nobody stopped it", names[name])

        group = Group(
            self.name or "operator",
            on_failure=fail,
            on_end=ended,
            base_stop=own,
            clock=thread_clock(),
            threads="operator",
        )
        for name, each in names.items():
            group.add(each, Placement(group=RunnableGroup.LEADER_ELECTION, run=each.run), name)
        # A part of a manager leaves this to it.
        announcements = Announcements(self.name, self.clock) if self._owner is self else None
        if announcements is not None:
            announcements.starts(controllers)
        try:
            group.launch()
            if announcements is not None:
                announcements.has_started(controllers)
            if controllers:
                group.wait_ended(hurry=own)
            else:
                wait_until_set(own, self.clock)
        except Exception as error:  # a thread cannot be started
            with self._lock:
                failures.append(error)
        finally:
            own.set()
            if announcements is not None:
                has_failed = bool(failures) and not self._stop_reason
                announcements.stops(self._stop_reason, self._stop_timeout, has_failed=has_failed)
            group.wait_ended(thread_clock().monotonic() + self._stop_timeout)

        def running() -> list[str]:
            return [f"operator/{name}" for name in group.running] + self._left_behind()

        still = running()
        if announcements is not None and not still:
            announcements.has_stopped()
        with self._lock:
            errors = list(failures)
        if still:
            text = f"still running {self._stop_timeout:g} s after the stop: {', '.join(still)}"
            errors.append(StillRunning(text, running=running))
        raise_all("controllers failed", errors)

    def _note_signal(self, name: str) -> None:
        self._stop_reason = name

    def _goes_on(
        self, controller: OperatorController, error: Exception, failures: list[Exception]
    ) -> bool:
        """Whether ``on_error`` decides to go on without the controller."""
        if self._on_error is None:
            return False
        try:
            decision: object = self._on_error(controller, error)
            if not isinstance(decision, bool):
                raise TypeError(
                    f"on_error returned {decision!r}: return True to go on, False to stop"
                )
        except BaseException as raised:
            failure = as_exception("on_error", raised)
            _log.error("on_error of the operator failed: %s", safe_text(failure))
            with self._lock:
                failures.append(failure)
            return False
        if decision:
            with self._lock:
                self._dropped += left_behind(error)
            _log.error(
                "controller %r failed, and the operator goes on without it: %s",
                controller,
                safe_text(error),
                exc_info=error,
            )
        return decision

    def _left_behind(self) -> list[str]:
        """What still runs of controllers that the operator went on without."""
        with self._lock:
            dropped = self._dropped.copy()
        return [name for error in dropped for name in error.running()]


if not TYPE_CHECKING:  # inspect.signature shows the arguments of __init__
    Operator.__new__.__wrapped__ = Operator.__init__


def _shown(argument: object) -> str:
    return repr(argument) if isinstance(argument, str) else f"{type(argument).__name__}(…)"


def _check_controller(controller: object) -> None:
    # What runs only as a part of a controller says so itself, and what to do with it, so that an
    # Operator imports no client. Asked of the class: instances of mocks have any attribute.
    hint = getattr(type(controller), "not_a_controller", None)
    if isinstance(hint, str):
        raise TypeError(f"controller={controller!r} is {hint}")
    if not isinstance(controller, OperatorController):
        raise TypeError(f"controller={controller!r} is not a controller: it needs run(stop)")
    if isinstance(controller, type):
        raise TypeError(
            f"controller={controller!r} is a class: add an instance, {controller.__name__}(…)"
        )
