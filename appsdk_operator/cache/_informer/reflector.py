"""The reflector: makes the requests of the watch state machine and feeds back the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, final

from appsdk_operator.cache._informer.metrics import InformerMetrics
from appsdk_operator.cache._informer.options import InformerOptions
from appsdk_operator.cache._informer.watch_state import List, Step, Wait, Watch, WatchState
from appsdk_operator.resource import Kind, ListPage, decode_watch_events
from appsdk_operator.runtime import Clock, StopSignal, as_exception, get_logger

_log = get_logger("appsdk_operator.cache")


class EventStream(Protocol):
    """An open watch; iterating gives the complete lines of each read until the stream ends."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

    def __iter__(self) -> Iterator[Sequence[bytes]]: ...


class ListWatchClient(Protocol):
    """The client methods that an informer needs."""

    def list_page(
        self,
        kind: Kind,
        *,
        namespace: str = ...,
        label_selector: str | None = ...,
        field_selector: str | None = ...,
        limit: int = ...,
        continue_token: str = ...,
        retry: bool = ...,
        stop: StopSignal | None = ...,
    ) -> ListPage:
        """One page of a consistent list."""
        ...

    def watch(
        self,
        kind: Kind,
        *,
        namespace: str = ...,
        label_selector: str | None = ...,
        field_selector: str | None = ...,
        resource_version: str = ...,
        timeout: float = ...,
        send_initial_events: bool = ...,
        stop: StopSignal | None = ...,
    ) -> EventStream:
        """Open a watch with bookmarks; when ``stop`` is set, it ends promptly."""
        ...


@final
class Reflector:
    """Lists and watches one kind until it is stopped."""

    def __init__(
        self,
        client: ListWatchClient,
        kind: Kind,
        options: InformerOptions,
        *,
        state: WatchState,
        apply: Callable[[Sequence[Step]], None],
        clock: Clock,
        metrics: InformerMetrics,
    ) -> None:
        # Passed only when set, because a client of the user's own need not support them.
        self._list_options: dict[str, Any] = {}
        if options.metadata_only:
            self._list_options["metadata_only"] = True
        self._watch_options = dict(self._list_options)
        if options.silence_limit is not None:
            self._watch_options["silence_limit"] = options.silence_limit
        labels, fields = options.label_selector, options.field_selector
        self._client = client
        self._kind = kind
        self._namespace = options.namespace
        self._label_selector = str(labels) if labels else None
        self._field_selector = str(fields) if fields else None
        self._state = state
        self._apply = apply
        self._clock = clock
        self._metrics = metrics
        self.began: float = clock.monotonic()
        """When the present request began, or the last one."""

    def run(self, stop: StopSignal) -> None:
        """Make requests until ``stop`` is set; errors become steps and are never raised."""
        while not stop.is_set():
            try:
                seconds = self.step(stop)
            except BaseException as raised:
                # A defect here, or in a client or stream of the user's. Ending the thread would
                # leave a local copy that looks complete and never changes again.
                self._failed(as_exception("the informer", raised))
                seconds = 0.0
            stop.wait(seconds)

    def _failed(self, error: Exception) -> None:
        steps = self._state.failed(error, self._clock.monotonic())
        try:
            self._apply(steps)
        except Exception as second:
            _log.error(
                "the informer of %s failed: %r", self._kind.qualified_name, second, exc_info=second
            )

    def step(self, stop: StopSignal) -> float:
        """Make the next request, a watch to its end; returns seconds to wait before another."""
        command = self._state.next()
        if isinstance(command, Wait):
            return command.seconds
        self.began = self._clock.monotonic()
        if isinstance(command, List):
            self._list(command, stop)
        else:
            self._watch(command, stop)
        return 0.0

    def _list(self, command: List, stop: StopSignal) -> None:
        try:
            page = self._client.list_page(
                self._kind,
                namespace=self._namespace,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                limit=command.limit,
                continue_token=command.continue_token,
                retry=False,  # the state machine backs off, and reports it
                stop=stop,
                **self._list_options,
            )
        except BaseException as raised:
            # Any error is worth another try, also credentials that are unavailable for a moment.
            error = as_exception("the list", raised)
            if not stop.is_set():
                self._apply(self._state.list_failed(error, self._clock.monotonic()))
        else:
            self._apply(self._state.page(page, self._clock.monotonic()))

    def _watch(self, command: Watch, stop: StopSignal) -> None:
        state, clock = self._state, self._clock
        try:
            stream = self._client.watch(
                self._kind,
                namespace=self._namespace,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                resource_version=command.resource_version,
                timeout=command.timeout,
                send_initial_events=command.initial_events,
                stop=stop,
                **self._watch_options,
            )
        except BaseException as raised:
            error = as_exception("the watch", raised)
            if not stop.is_set():
                self._apply(state.watch_failed(error, clock.monotonic()))
            return
        failure: Exception | None = None
        with stream:
            self._apply(state.watch_opened(clock.monotonic()))
            batches = iter(stream)
            while state.is_watching:
                # Only an error of reading ends the watch; one of applying is a defect here.
                try:
                    lines = next(batches, None)
                except BaseException as raised:
                    failure = as_exception("the watch", raised)
                    break
                if lines is None:
                    break
                self._lines(lines)
        if not stop.is_set():
            self._apply(state.watch_ended(clock.monotonic(), failure))

    def _lines(self, lines: Sequence[bytes]) -> None:
        events, garbage = decode_watch_events(self._kind, lines)
        self._metrics.watched(events, is_garbled=garbage is not None)
        now = self._clock.monotonic()
        steps = self._state.events(events, now) if events else []
        if garbage is not None and self._state.is_watching:
            steps += self._state.garbage(garbage, now)
        self._apply(steps)
