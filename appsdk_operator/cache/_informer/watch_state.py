"""The watch state machine: list, watch, resume, recover. Without I/O.

The reflector calls :meth:`WatchState.next` for the next request, makes it, and feeds back the
answer; it gets steps to apply to the store. Nothing here uses a socket, a clock or a lock, so every
path is tested with scripted input.

::

    STREAM --initial events end--> WATCH --410, error event, garbage--> LIST
      |                              ^  |                                |
      +--refused, broken, too old----|--+--closed, reset, silent: resume |
                  v                  |                                   |
                 LIST ---last page---+-----------------------------------+

The rules are those of client-go's reflector with three exceptions: lists are consistent and paged,
a garbage line, a version that goes back or two silent watches in a row lead to a new list, and
watches that end at once lead to backoff.

Two bounds hold for any answers of a server; a test tries all short sequences of answers. First,
when a server accepts requests again, a list (or a stream) begins or a watch continues within 5 s,
unless the server asked for more with ``Retry-After``: no wait is longer, and none follows another
without a list in between. Second, no loop is without waits: only the first failure after a watch
that lasted is retried at once.

Some aggregated APIs have lists without a version. They can be watched, but not resumed: such a
watch begins with the present objects, in any order, and a list follows when it ends.
"""

from __future__ import annotations

import enum
import itertools
import random
from collections.abc import Callable, Sequence
from typing import TypeAlias, final

import msgspec

from appsdk_operator.client import (
    ApiError,
    BadResponse,
    Forbidden,
    Gone,
    NotFound,
    PaginationGuard,
    TransportError,
    WatchSilent,
    error_from_status,
)
from appsdk_operator.resource import (
    DecodeError,
    ListPage,
    Object,
    Undecodable,
    UndecodableEvent,
    WatchEvent,
    WatchEventType,
    is_older_version,
)
from appsdk_operator.runtime import Backoff

_SHORT_WATCH = 1.0
_LONG_WATCH = 30.0
_MAX_RETRY_AFTER = 300.0
_MAX_SHORT_WATCHES = 5
_MAX_RESTARTS = 3
_MAX_SILENT_WATCHES = 2
# A module name, because a look-up of an enumeration's member costs as much as a call.
_DELETED = WatchEventType.DELETED

next_order: Callable[[], int] = itertools.count(1).__next__
"""A greater number at each call: what came first, the request of a list or a write's answer."""


class List(msgspec.Struct, frozen=True):
    """Request one page."""

    limit: int
    continue_token: str


class Watch(msgspec.Struct, frozen=True):
    """Open a watch."""

    resource_version: str
    timeout: float
    """Seconds after which the server is asked to end it."""
    initial_events: bool
    """Whether the watch begins with the present objects (KEP-3157)."""


class Wait(msgspec.Struct, frozen=True):
    """Make no request for some seconds."""

    seconds: float


Command: TypeAlias = List | Watch | Wait


class Begin(msgspec.Struct, frozen=True):
    """A complete list begins; the steps since the last :class:`Begin` may be incomplete."""


class Upsert(msgspec.Struct, frozen=True):
    """Objects that exist, as part of a complete list."""

    objects: list[Object]


class Finish(msgspec.Struct, frozen=True):
    """The complete list ended: objects that it did not name are deleted."""

    resource_version: str


class Changes(msgspec.Struct, frozen=True):
    """Objects were added, changed or deleted, in this order."""

    events: list[WatchEvent]


class Unreadable(msgspec.Struct, frozen=True):
    """Objects that cannot be decoded; during a complete list they are part of it."""

    items: Sequence[Undecodable]
    are_deleted: bool = False
    """Whether they are deleted."""


class Problem(msgspec.Struct, frozen=True):
    """An error to report; the state machine recovers by itself."""

    error: Exception
    doing: str
    """``"list"`` or ``"watch"``."""


Step: TypeAlias = Begin | Upsert | Finish | Changes | Unreadable | Problem


class _Phase(enum.Enum):
    STREAM = "stream"
    LIST = "list"
    WATCH = "watch"


@final
class WatchBackoff:
    """Exponential backoff that starts over after ``reset_after`` seconds without a failure.

    The delays are ``initial``, twice that, … up to ``maximum`` seconds. Jitter makes each up to
    twice as long, the longest too, so that informers that failed together do not come back
    together. Waits stay below ``2 * maximum``, 5 s: a longer one would miss that the server is
    available again. client-go goes to 30 s; but a server that wants fewer requests says so with
    ``Retry-After``, and requests do not burden one that is down.
    """

    def __init__(
        self,
        *,
        initial: float = 0.8,
        maximum: float = 2.5,
        reset_after: float = 120.0,
        rng: random.Random | None = None,
    ) -> None:
        if not 0 < initial <= maximum or reset_after < 0:
            raise ValueError(
                f"initial={initial}, maximum={maximum}, reset_after={reset_after}: "
                "use 0 < initial <= maximum and reset_after >= 0"
            )
        self._backoff = Backoff(initial=initial, maximum=maximum, jitter=1.0)
        self._reset_after = reset_after
        self._random = rng or random.Random()
        self._failures = 0
        self._last_failure: float | None = None

    def reset(self) -> None:
        """Treat the next failure as the first."""
        self._last_failure = None

    def delay(self, now: float, *, first: float | None = None) -> float:
        """Seconds to wait after one more failure at ``now``.

        Args:
            now: when it failed.
            first: the delay after a first failure; default: ``initial``, with jitter.
        """
        last, self._last_failure = self._last_failure, now
        if last is None or now - last > self._reset_after:
            self._failures = 0
            if first is not None:
                return first
        delay = self._backoff.delay(self._failures, self._random)
        self._failures += 1
        return delay


@final
class WatchState:
    """The list and watch state of one kind, and the next request. Not thread-safe."""

    def __init__(
        self,
        *,
        page_size: int = 500,
        stream_first_sync: bool = True,
        watch_timeout: tuple[float, float] = (300.0, 600.0),
        backoff: WatchBackoff | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._page_size = page_size
        self._watch_timeout = watch_timeout
        self._random = rng or random.Random()
        # One for refused requests, reset by an accepted watch, and one for watches that broke,
        # reset only when a watch has lasted.
        self._refused = backoff or WatchBackoff(rng=self._random)
        self._broken = WatchBackoff(rng=self._random)
        self._has_waited = False
        """Whether it has waited since the last list began."""
        self._may_stream = stream_first_sync
        self._prefers_list = False
        """Whether a stream ended early, and no watch has lasted since."""
        self._phase = _Phase.STREAM if stream_first_sync else _Phase.LIST
        self.remaining: int | None = None
        """How many objects of the list are still to come; None: the server does not say."""
        self.list_order = 0
        """The :data:`next_order` before the first request of the latest list."""
        self._delay = 0.0
        self.resource_version = ""
        """The resource version at which the next watch begins."""
        self.is_watching = False
        """Whether a watch is open and has not failed."""
        self.is_refused = False
        """Whether the server's last answer refused a request, or did not know the kind."""
        self._continue = ""
        self._limit = page_size
        self._restarts = 0
        self._list_version = ""
        self._pages = PaginationGuard("the list")
        self.opened_at = 0.0
        """When the last watch was opened."""
        self.has_delivered = False
        """Whether the last watch delivered anything, also just a bookmark."""
        self._got_object = False
        self._opened_version = ""
        self._is_placed = False
        self._short_watches = 0
        self._silent_watches = 0
        """How many watches in a row were silent to their end."""

    @property
    def is_following(self) -> bool:
        """Whether the local copy is complete and a watch keeps it up to date."""
        return self.is_watching and self._phase is _Phase.WATCH

    @property
    def must_wait(self) -> bool:
        """Whether the next command is a :class:`Wait`."""
        return self._delay > 0

    def next(self) -> Command:
        """The next request, or a wait."""
        if self._delay > 0:
            delay, self._delay = self._delay, 0.0
            self._has_waited = True
            return Wait(delay)
        if self._phase is not _Phase.WATCH and not self._continue:
            self._has_waited = False
            self.list_order = next_order()
        if self._phase is _Phase.LIST:
            return List(self._limit, self._continue)
        low, high = self._watch_timeout
        streaming = self._phase is _Phase.STREAM
        return Watch(
            "" if streaming else self.resource_version, self._random.uniform(low, high), streaming
        )

    # Answers to lists.

    def page(self, page: ListPage, now: float) -> list[Step]:
        """Take a page of a list."""
        try:
            self._pages.check(page)
        except BadResponse as error:
            steps_taken = self.list_failed(error, now)
            # One list without pages needs no continue tokens.
            self._limit = 0
            return steps_taken
        self.is_refused = False
        steps: list[Step] = []
        if not self._continue:
            steps.append(Begin())
            self._list_version = page.resource_version
        steps.append(Upsert(page.items))
        if page.undecodable:
            steps.append(Unreadable(page.undecodable))
        self._continue = page.continue_token
        self.remaining = page.remaining
        if not self._continue:
            self.resource_version = self._list_version
            self._phase = _Phase.WATCH
            self._begin_list()
            steps.append(Finish(self.resource_version))
        return steps

    def list_failed(self, error: Exception, now: float) -> list[Step]:
        """Take the error of a list request."""
        self._note_refusal(error)
        was_continued = bool(self._continue)
        restarts, limit = self._restarts, self._limit
        self._begin_list()
        self._restarts, self._limit = restarts, limit
        if isinstance(error, Gone) and was_continued and restarts < _MAX_RESTARTS:
            # The snapshot of the continue token was compacted away. Try page by page once more;
            # if the pages take longer than the server's history lasts, all at once.
            self._restarts = restarts + 1
            self._limit = self._page_size if restarts < 1 else 0
        else:
            self._wait(self._refused.delay(now), error)
        return [Problem(error, "list")]

    # Answers to watches.

    def watch_opened(self, now: float) -> list[Step]:
        """Note that the server accepted the watch."""
        self.is_watching, self.is_refused = True, False
        self.opened_at = now
        self.has_delivered = False
        self._refused.reset()
        self._got_object = False
        self._opened_version = self.resource_version
        self._is_placed = bool(self.resource_version)
        return [Begin()] if self._phase is _Phase.STREAM else []

    def events(self, events: Sequence[WatchEvent], now: float) -> list[Step]:
        """Take events; once :attr:`is_watching` is False, the rest of the stream does not count."""
        steps: list[Step] = []
        usual = self._usual(events, steps)
        if usual:
            self.has_delivered = self._got_object = True
        for event in events[usual:]:
            if event.type is not WatchEventType.ERROR:
                self.has_delivered = True
            if self._phase is _Phase.STREAM:
                self._initial_event(event, steps, now)
            else:
                self._event(event, steps, now)
            if not self.is_watching:
                break
        return steps

    def _usual(self, events: Sequence[WatchEvent], steps: list[Step]) -> int:
        """Take the first events as long as they are ordinary; returns how many."""
        if self._phase is _Phase.STREAM:
            present: list[Object] = []
            for event in events:
                found = event.object
                if found is None or event.type is _DELETED:
                    break
                present.append(found)
            if present:
                steps.append(Upsert(present))
            return len(present)
        if not self._is_placed:
            return 0
        before = self.resource_version
        count = 0
        for event in events:
            obj = event.object
            if obj is None:
                break
            version = obj.resource_version
            # Decimal numbers, as text: see is_older_version, which has the last word on others.
            if version < before if len(version) == len(before) else len(version) < len(before):
                break
            before = version
            count += 1
        self.resource_version = before
        if count:
            steps.append(Changes(list(events[:count])))
        return count

    def garbage(self, error: DecodeError, now: float) -> list[Step]:
        """Take an unreadable line of the stream; its event is lost, so list again."""
        self._relist(now, error)
        return [Problem(error, "watch")]

    def watch_ended(self, now: float, error: Exception | None = None) -> list[Step]:
        """Note that the stream ended, cleanly or with ``error``."""
        was_open, self.is_watching = self.is_watching, False
        if not was_open:
            # An event has ended this watch already, and decided what follows.
            return []
        self._note_lasting(now)
        if self.has_delivered:
            self._silent_watches = 0
        if self._phase is _Phase.STREAM:
            self._relist(now, error)
            return [Problem(error or ConnectionResetError("the stream ended early"), "watch")]
        # An object alone does not count: a server could send the same one for ever.
        has_moved_on = self._got_object and self.resource_version != self._opened_version
        if error is None and (has_moved_on or now - self.opened_at >= _SHORT_WATCH):
            self._short_watches = 0
            if not self.resource_version:
                self._relist(now, None)
            return []
        if error is None:
            return [Problem(self._short_watch(now), "watch")]
        is_silent = isinstance(error, WatchSilent)
        self._silent_watches += is_silent
        if not self.resource_version or self._silent_watches >= _MAX_SILENT_WATCHES:
            # A proxy may hold back what watches bring, or the server's history was replaced.
            self._relist(now, error)
        elif not is_silent:
            # After a silent connection, which has cost minutes already, resume at once.
            self._wait(self._broken.delay(now, first=0.0), error)
        return [Problem(error, "watch")]

    def watch_failed(self, error: Exception, now: float) -> list[Step]:
        """Take the error of a watch request."""
        self.is_watching = False
        if self._phase is _Phase.STREAM:
            self._phase = _Phase.LIST
            self._begin_list()
            if isinstance(error, ApiError) and error.status in _CANNOT_STREAM:
                # An older server without streamed lists: not a problem.
                self._may_stream = False
                return []
            self._wait(self._refused.delay(now), error)
        elif isinstance(error, ApiError) and (
            isinstance(error, Gone)
            or error.status == 404
            or error.has_cause("ResourceVersionTooLarge")
        ):
            # The version was compacted, the kind is not served (any more), or the server is at an
            # older version than we are, as after a restore: a new list is needed.
            self._relist(now, error)
        else:
            self._wait(self._refused.delay(now), error)
        self._note_refusal(error)
        return [Problem(error, "watch")]

    def _note_refusal(self, error: Exception) -> None:
        if isinstance(error, ApiError):  # any other error is no answer
            self.is_refused = isinstance(error, (Forbidden, NotFound))

    def failed(self, error: Exception, now: float) -> list[Step]:
        """Take an unexpected error: list again."""
        self._relist(now, error)
        self._wait(self._refused.delay(now), error)
        return [Problem(error, "watch")]

    def _initial_event(self, event: WatchEvent, steps: list[Step], now: float) -> None:
        if event.type is WatchEventType.BOOKMARK:
            if event.initial_events_end:
                self.resource_version = event.resource_version
                self._is_placed = bool(event.resource_version)
                self._phase = _Phase.WATCH
                steps.append(Finish(self.resource_version))
            else:
                # A bookmark before the initial events end comes only without streamed lists.
                self._may_stream = False
                self._relist(now, None)
        elif event.type is WatchEventType.ERROR:
            error = _error_of(event)
            steps.append(Problem(error, "watch"))
            self._relist(now, error)
        elif event.object is not None:
            self._got_object = True
            if event.type is WatchEventType.DELETED:
                _add_change(steps, event)
            else:
                _add_present(steps, event.object)
        elif isinstance(event, UndecodableEvent):
            self._undecodable(event, steps, now)

    def _event(self, event: WatchEvent, steps: list[Step], now: float) -> None:
        if event.type is WatchEventType.BOOKMARK:
            self._move_on(event.resource_version)
        elif event.type is WatchEventType.ERROR:
            error = _error_of(event)
            steps.append(Problem(error, "watch"))
            self._relist(now, error)
        elif event.object is not None:
            self._got_object = True
            version = event.object.resource_version
            if not self._is_placed and event.type is WatchEventType.ADDED:
                _add_change(steps, event)
            elif is_older_version(version, self.resource_version):
                problem = VersionWentBackError(
                    f"{event.object!r} came after version {self.resource_version}: the server's "
                    "history was replaced or replayed; listing again"
                )
                steps.append(Problem(problem, "watch"))
                self._relist(now, problem)
            else:
                if version:
                    self.resource_version = version
                    self._is_placed = True
                _add_change(steps, event)
        elif isinstance(event, UndecodableEvent):
            self._undecodable(event, steps, now)

    def _undecodable(self, event: UndecodableEvent, steps: list[Step], now: float) -> None:
        """Take an event whose object cannot be decoded, which affects no other object."""
        self._got_object = True
        item = event.undecodable
        is_gone = event.type is WatchEventType.DELETED
        if is_gone and not item.name:
            # An unknown object was deleted: a list is needed to find out which.
            steps.append(Problem(item.error, "watch"))
            self._relist(now, item.error)
            return
        # The resource version stays, because that of an undecodable object cannot be trusted.
        steps.append(Unreadable([item], is_gone))

    def _move_on(self, version: str) -> None:
        if version and not is_older_version(version, self.resource_version):
            self.resource_version = version
            self._is_placed = True

    def _short_watch(self, now: float) -> Exception:
        self._short_watches += 1
        problem = ShortWatchError(
            f"the server ended {self._short_watches} watches in a row, each within {_SHORT_WATCH} "
            "s and without an event: is a proxy in between, or is the server overloaded?"
        )
        if self._short_watches >= _MAX_SHORT_WATCHES or not self.resource_version:
            self._short_watches = 0
            self._relist(now, problem)
        else:
            self._wait(self._broken.delay(now, first=0.0), problem)
        return problem

    def _relist(self, now: float, error: Exception | None) -> None:
        """List again: at once after a first failure, else after a delay."""
        if self.is_watching:
            self._note_lasting(now)
            self.is_watching = False
        if self._phase is _Phase.STREAM:
            # The stream was incomplete; a paged list demands less of the connection. It begins at
            # once, which makes no loop: there is no other stream until a watch has lasted.
            self._prefers_list = True
            delay = 0.0
        else:
            delay = self._broken.delay(now, first=0.0)
            if self._has_waited:
                # One wait per list is enough, and there was one when the watch failed.
                delay = 0.0
        streams = self._may_stream and not self._prefers_list
        self._phase = _Phase.STREAM if streams else _Phase.LIST
        self._begin_list()
        self._wait(delay, error)

    def _note_lasting(self, now: float) -> None:
        """Reset the backoff if the watch that ends was open for long."""
        if self._phase is _Phase.WATCH and now - self.opened_at >= _LONG_WATCH:
            self._broken.reset()
            self._prefers_list = False

    def _begin_list(self) -> None:
        self._silent_watches = 0
        self._continue = ""
        self._limit = self._page_size
        self._restarts = 0
        self._list_version = ""
        self._pages = PaginationGuard("the list")

    def _wait(self, seconds: float, error: Exception | None) -> None:
        asked = error.retry_after if isinstance(error, ApiError) else None
        self._delay = max(seconds, min(asked or 0.0, _MAX_RETRY_AFTER))


# The answers of servers, and of proxies, to options that they do not know.
_CANNOT_STREAM = frozenset({400, 405, 415, 422, 501})


class ShortWatchError(TransportError):
    """The server ends watches right after they are opened."""


class VersionWentBackError(Exception):
    """A watch delivered an older object version than before."""


def _add_present(steps: list[Step], obj: Object) -> None:
    last = steps[-1] if steps else None
    if isinstance(last, Upsert):
        last.objects.append(obj)
    else:
        steps.append(Upsert([obj]))


def _add_change(steps: list[Step], event: WatchEvent) -> None:
    last = steps[-1] if steps else None
    if isinstance(last, Changes):
        last.events.append(event)
    else:
        steps.append(Changes([event]))


def _error_of(event: WatchEvent) -> ApiError:
    return error_from_status(event.status or {})
