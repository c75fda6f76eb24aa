"""Waiting until a condition holds for an object."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeAlias, final, overload

from appsdk_operator._generics import SpecT, StatusT
from appsdk_operator.cache import (
    Cache,
    CacheRegistration,
    Event,
    Informer,
    InformerStopped,
    NotSyncedError,
    Registration,
    ResourceAction,
)
from appsdk_operator.client import (
    ClientLike,
    Gone,
    RequestStopped,
    ServerError,
    TooManyRequests,
    TransportError,
)
from appsdk_operator.controllers.until import AbsentT, Until, matches
from appsdk_operator.resource import Kind, Object, ObjectKey, WatchEventType, check_kind
from appsdk_operator.runtime import (
    Backoff,
    Clock,
    StopSignal,
    ThreadGroup,
    present_clock,
    safe_text,
)
from appsdk_operator.runtime.validation import (
    check_client,
    check_environment,
    check_function,
    check_number,
    check_text,
)

_BACKOFF = Backoff(initial=0.2, maximum=5.0)

ConditionLike: TypeAlias = Until | Callable[[Object[SpecT, StatusT]], object]


class WaitStopped(Exception):  # noqa: N818 - no error: the caller set the signal
    """The stop signal was set before the condition held."""


@overload
def wait_for(  # type: ignore[overload-overlap]  # an Until is a function of more than objects
    reader: ClientLike | Cache | Informer,
    kind: Kind[SpecT, StatusT],
    name: str,
    condition: Until[AbsentT],
    *,
    namespace: str = "",
    timeout: float | None = 60.0,
    stop: StopSignal | None = None,
    clock: Clock | None = None,
) -> Object[SpecT, StatusT] | AbsentT: ...
@overload
def wait_for(
    reader: ClientLike | Cache | Informer,
    kind: Kind[SpecT, StatusT],
    name: str,
    condition: Callable[[Object[SpecT, StatusT]], object],
    *,
    namespace: str = "",
    timeout: float | None = 60.0,
    stop: StopSignal | None = None,
    clock: Clock | None = None,
) -> Object[SpecT, StatusT]: ...
def wait_for(
    reader: ClientLike | Cache | Informer,
    kind: Kind[SpecT, StatusT],
    name: str,
    condition: ConditionLike[SpecT, StatusT],
    *,
    namespace: str = "",
    timeout: float | None = 60.0,
    stop: StopSignal | None = None,
    clock: Clock | None = None,
) -> Any:
    """Wait until a condition holds for an object, if only for a moment.

    It misses no state between the first read and the events after it. With a client it lists the
    object, and then watches it from that version on. It resumes a watch that ends, even after a
    lost connection or a server error. If the version is too old (410), it lists the object again:
    it then misses intermediate states, but not a replacement by another object. With a cache or an
    informer it uses their events, and sends no request.

    Args:
        reader: a client, or a :class:`Cache` or :class:`Informer` that runs. The account needs
            ``list`` and ``watch`` on the kind.
        kind: the kind of the object.
        name: its name.
        condition: a condition of :mod:`~appsdk_operator.controllers.until`, or a function that
            returns whether an object meets it.
        namespace: its namespace; empty for cluster-scoped kinds.
        timeout: the longest wait in seconds; default 60. None: no limit; only ``stop`` ends the
            wait, even when the cache or informer stops meanwhile.
        stop: ends the wait.
        clock: the clock for the wait; default: the environment's.

    Returns:
        The object in the state for which the condition holds; None if it holds for its absence.

    Raises:
        TimeoutError: the condition did not hold in time; the text has the last state. Or the cache
            or informer stopped before its copy was complete, or had stopped before the wait began,
            and the condition does not hold for the copy.
        WaitStopped: ``stop`` was set.
        ApiError: the server refuses to list or watch, or does not know the kind.
        RequestStopped: the client was closed.
        NotCachedError: the cache does not hold the kind or the namespace.
        ValueError: the name is empty, the namespace does not fit the kind's scope, or the informer
            is of another kind.
        Exception: an error of the condition.

    Do not use it in reconciles: return, and be called again for the next event.
    """
    check_kind(kind)
    if not isinstance(reader, (Cache, Informer)):
        check_client(reader, "list_page", "watch", option="reader")
    check_environment(stop=stop, clock=clock)
    if not isinstance(condition, Until):
        check_function("condition", condition, required=True)
    until = condition if isinstance(condition, Until) else matches(condition)
    check_text("name", name)
    check_text("namespace", namespace)
    if not name:
        raise ValueError(f"which {kind.kind}? Give a name")
    if kind.is_namespaced is not bool(namespace):
        wanted = "say in which" if kind.is_namespaced else "it is cluster-scoped, leave it out"
        raise ValueError(f"namespace={namespace!r} of {kind.kind} {name}: {wanted}")
    if timeout is not None:
        check_number("timeout", timeout)
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout={timeout}: use 0 or more seconds, or None for no limit")
    key = ObjectKey(namespace, name)
    last: list[Object[SpecT, StatusT] | None] = []
    with _WaitLimit(timeout, stop, present_clock(clock)) as limit:
        if isinstance(reader, (Cache, Informer)):
            states = _cached(reader, kind, key, limit)
        else:
            states = _watched(reader, kind, key, limit)
        with contextlib.closing(states):
            for state in states:
                before = last[0] if last else None
                last[:] = [state]
                is_new = before is not None and state is not None and before.uid != state.uid
                # Another object of its name: in between there was none, though no state shows it.
                if is_new and until(None):
                    return None
                if until(state):
                    return state
    if stop is not None and stop.is_set():
        raise WaitStopped(f"stopped while waiting for {kind.kind} {key} until {until.text}")
    seen = until.describe(last[0]) if last else "it could not be read yet"
    what = f", which was {last[0]!r}" if last and last[0] is not None else ""
    why = f": {safe_text(limit.last_error)}" if limit.last_error is not None else ""
    is_early = timeout is None or limit.has_no_events
    waited = "gave up waiting" if is_early else f"waited {timeout:g} s"
    raise TimeoutError(
        f"{waited} for {kind.kind} {key} until {until.text}; last seen: {seen or 'no such state'}"
        f"{what}{why}"
    )


@final
class _WaitLimit:
    """The end of a wait, as a stop signal: by time, or because the caller is stopped."""

    def __init__(self, timeout: float | None, stop: StopSignal | None, clock: Clock) -> None:
        self._timeout = timeout
        self._clock = clock
        self._deadline = None if timeout is None else clock.monotonic() + timeout
        self._threads = ThreadGroup("wait")
        self.signal = StopSignal(clock=clock)
        self._detach = (stop or StopSignal()).on_set(self.signal.set)
        self.last_error: Exception | None = None
        self.has_no_events = False
        """Whether the local copy had stopped before the wait began, so that there was none."""

    def __enter__(self) -> _WaitLimit:
        return self

    def __exit__(self, *_: object) -> None:
        self._detach()
        self.signal.set()
        self._threads.join()

    @property
    def is_instant(self) -> bool:
        """Whether the object is read once, without a wait."""
        return self._timeout == 0

    def start(self) -> None:
        """Start the thread that sets the signal at the deadline."""
        if self._deadline is not None and not self.is_instant:
            self._threads.start("limit", self._end)

    def _end(self) -> None:
        # What is left now, or a thread that begins late would be as late at the deadline.
        self.signal.wait(self.left())
        self.signal.set()

    def left(self) -> float | None:
        """The seconds until the deadline; None without one."""
        return (
            None if self._deadline is None else max(0.0, self._deadline - self._clock.monotonic())
        )


def _watched(
    client: ClientLike, kind: Kind, key: ObjectKey, limit: _WaitLimit
) -> Generator[Object | None, None, None]:
    """The states of an object until the limit, from a list and watches of the server."""
    selector = {"metadata.name": key.name}
    version, failures = "", 0
    limit.start()
    while True:
        try:
            if not version:
                page = client.list_page(
                    kind,
                    namespace=key.namespace,
                    field_selector=selector,
                    stop=limit.signal,
                )
                limit.last_error = None
                version = page.resource_version
                for item in page.undecodable:
                    if item.name == key.name:
                        raise item.error  # it exists, but cannot be decoded
                yield next((obj for obj in page.items if obj.name == key.name), None)
            if limit.is_instant:
                return
            with client.watch(
                kind,
                namespace=key.namespace,
                field_selector=selector,
                resource_version=version,
                stop=limit.signal,
            ) as stream:
                for event in stream.events():
                    limit.last_error, failures = None, 0
                    if event.object is None:
                        version = event.resource_version
                        continue
                    version = event.object.resource_version
                    if event.object.name == key.name:
                        is_gone = event.type is WatchEventType.DELETED
                        yield None if is_gone else event.object
        except RequestStopped:
            if not limit.signal.is_set():
                raise  # the client was closed
            return
        except Gone as error:
            version, limit.last_error = "", error
        except (ServerError, TooManyRequests, TransportError) as error:
            limit.last_error = error
        if limit.is_instant:
            return
        # A pause, for servers that end each watch at once.
        if limit.signal.wait(_BACKOFF.delay(failures)):
            return
        failures += 1


class _StateQueue:
    """Queues the states of one object; its handler is called with the informer's lock held."""

    def __init__(self, kind: Kind, key: ObjectKey) -> None:
        self._kind = kind
        self._key = key
        self._condition = threading.Condition()
        self._states: deque[Object | None] = deque()

    def on_events(self, events: Sequence[Event]) -> None:
        with self._condition:
            for event in events:
                if event.key == self._key and event.action is not ResourceAction.RESYNC:
                    is_gone = event.action is ResourceAction.DELETE
                    self._states.append(None if is_gone else event.object.viewed_as(self._kind))
            self._condition.notify_all()

    def on_initial_list_end(self) -> None:
        pass

    def wake(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def next(self, stop: StopSignal) -> tuple[Object | None] | None:
        """The next state; None when stopped."""
        with self._condition:
            self._condition.wait_for(lambda: self._states or stop.is_set())
            return (self._states.popleft(),) if self._states else None


def _cached(
    reader: Cache | Informer, kind: Kind, key: ObjectKey, limit: _WaitLimit
) -> Generator[Object | None, None, None]:
    """The states of an object until the limit, from a local copy and its events."""
    states = _StateQueue(kind, key)
    register: Callable[[], CacheRegistration | Registration]
    read: Callable[[], Object | None]
    if isinstance(reader, Cache):
        register = partial(reader.add_event_handler, kind, states)
        read = partial(reader.get, kind, key.name, namespace=key.namespace)
    else:
        if reader.kind != kind:
            raise ValueError(
                f"this is an informer of {reader.kind.qualified_name}: wait with one of "
                f"{kind.qualified_name}"
            )
        register = partial(reader.add_event_handler, states)
        read = partial(_stored, reader, kind, key)
    try:
        # Before the first read, so that no event in between is missed.
        registration = register()
    except InformerStopped:
        # A stop at any moment is the same to the caller, who cannot know which was first.
        limit.has_no_events = True
        limit.last_error = RuntimeError(
            f"the local copy of {kind.qualified_name} no longer follows the server: use a cache or "
            "informer that "
            "runs"
        )
        if isinstance(reader, Cache) or reader.has_synced:
            with contextlib.suppress(NotSyncedError):
                yield read()
        return
    forget = limit.signal.on_set(states.wake)
    try:
        limit.start()
        if not registration.wait_for_sync(limit.signal, limit.left()):
            limit.last_error = RuntimeError(
                f"the local copy of {kind.qualified_name} is not complete: run its cache or "
                "informer, and see its "
                "health()"
            )
            return
        yield read()
        while not limit.is_instant and (state := states.next(limit.signal)) is not None:
            yield state[0]
    finally:
        forget()
        registration.remove()


def _stored(informer: Informer, kind: Kind, key: ObjectKey) -> Object | None:
    found = informer.store.get(key.name, key.namespace)
    return None if found is None else found.viewed_as(kind)
