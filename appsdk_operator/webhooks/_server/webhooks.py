"""Webhooks by path: routing, time limits and metrics, without a socket."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias, final

from appsdk_operator.runtime import (
    ActivityObserver,
    CallRecord,
    Clock,
    Family,
    LocalHistogram,
    Metrics,
    Observers,
    Sample,
    as_exception,
    get_logger,
    observed_call,
    present_clock,
    present_metrics,
    settle,
    validation,
)
from appsdk_operator.runtime.validation import no_awaitable
from appsdk_operator.serving import HTTPHandler, HTTPRequest, HTTPResponse, text_response
from appsdk_operator.webhooks._answers import answering, note_failure, waited
from appsdk_operator.webhooks._rules import WebhookRule
from appsdk_operator.webhooks._time_limits import seconds_left, time_limit

_log: Final = get_logger("appsdk_operator.webhooks")
_DEFAULT_BODY_BYTES: Final = 1 << 20
_LATENCY: Final = Family(
    "controller_runtime_webhook_latency_seconds",
    "histogram",
    "Histogram of the latency of processing admission requests",
    ("webhook",),
)
_TOTAL: Final = Family(
    "controller_runtime_webhook_requests_total",
    "counter",
    "Total number of admission requests by HTTP status code.",
    ("webhook", "code"),
)
_IN_FLIGHT: Final = Family(
    "controller_runtime_webhook_requests_in_flight",
    "gauge",
    "Current number of admission requests being served.",
    ("webhook",),
)
# 10 ns, 100 ns, …, 1000 s, as in controller-runtime.
_BUCKETS: Final = tuple(10e-9 * 10**power for power in range(12))


class WebhookHost(Protocol):
    """A host of webhooks: a :class:`Manager`, a :class:`WebhookServer`, or :class:`Webhooks`."""

    @property
    def webhooks(self) -> Webhooks:
        """The webhooks by path."""
        ...


WebhookHandler: TypeAlias = HTTPHandler | Callable[[HTTPRequest], Awaitable[HTTPResponse]]
"""What answers requests for one path."""


class _Entry:
    """One path: its webhook and the numbers of its requests."""

    __slots__ = ("codes", "in_flight", "latency", "lock", "path", "rule", "webhook")

    def __init__(self, path: str, webhook: WebhookHandler, rule: WebhookRule | None) -> None:
        self.path = path
        self.webhook = webhook
        self.rule = rule
        # Guards the numbers.
        self.lock = threading.Lock()
        self.in_flight = 0
        self.latency = LocalHistogram(_BUCKETS)
        self.codes = {"200": 0, "500": 0}

    def samples(self) -> list[Sample]:
        with self.lock:
            found = [
                Sample(_LATENCY, (self.path,), self.latency.copy()),
                Sample(_IN_FLIGHT, (self.path,), self.in_flight),
                *(Sample(_TOTAL, (self.path, code), n) for code, n in self.codes.items()),
            ]
        own: Callable[[], Iterable[Sample]] | None = getattr(self.webhook, "samples", None)
        return found if own is None else [*found, *own()]


@final
class Webhooks:
    """Webhooks by path, and their answers to requests; without a port.

    A :class:`WebhookServer` serves them over HTTPS; ``asgi`` and ``wsgi`` serve them in an
    application of another framework. Webhooks can be added at any time. Thread-safe.

    For each path they write controller-runtime's metrics, at 0 from the start:
    ``controller_runtime_webhook_latency_seconds``, ``…_requests_total`` and
    ``…_requests_in_flight``. If a handler fails or does not answer in time, the request counts as
    code 500.

    Args:
        clock: the clock of the latencies; default: the environment's.
        metrics: the metrics that they write to; default: the environment's, else
            :func:`~appsdk_operator.runtime.default_metrics`.
    """

    def __init__(self, *, clock: Clock | None = None, metrics: Metrics | None = None) -> None:
        """No webhooks yet."""
        validation.check_environment(clock=clock, metrics=metrics)
        self.clock: Clock = present_clock(clock)
        """The clock of the webhooks."""
        self._monotonic = self.clock.monotonic
        self._observers = Observers()
        self._lock = threading.Lock()
        # Replaced at each change, so that requests read it without the lock.
        self._entries: dict[str, _Entry] = {}
        present_metrics(metrics).add_source(self._samples)

    def __repr__(self) -> str:
        return f"<webhooks {', '.join(self.paths) or 'none yet'}>"

    @property
    def webhooks(self) -> Webhooks:
        """Itself, so that ``webhook_for`` takes it as a host."""
        return self

    def observe_activity(self, observer: ActivityObserver) -> Callable[[], None]:
        """Call ``observer`` for each review; returns a function that ends this.

        ``Manager.observe_activity`` includes the webhooks that the manager serves.
        """
        return self._observers.add(observer)

    def add(self, path: str, webhook: WebhookHandler, *, rule: WebhookRule | None = None) -> None:
        """Serve ``path`` with ``webhook`` from now on.

        Args:
            path: begins with a slash.
            webhook: an :class:`Admission`, :class:`ConversionWebhook`, :class:`TokenReviewWebhook`,
                or any function from an ``HTTPRequest`` to an ``HTTPResponse``, which may be ``async
                def``; called from several threads at once. An attribute ``max_body_bytes`` limits
                its requests; default 1 MiB.
            rule: the requests that the API server sends there; ``webhook_configurations`` makes
                configurations from the rules.

        Raises:
            ValueError: the path is taken or does not begin with a slash, or the rule has another
                path.
            TypeError: the webhook cannot be called.
        """
        validation.check_text("path", path)
        if not path.startswith("/"):
            raise ValueError(f"path {path!r} does not begin with a slash")
        validation.check_callable("webhook", webhook, "request", required=True, is_awaited=True)
        if rule is not None:
            validation.check_instance(
                "rule", rule, WebhookRule, "WebhookRule(type='validating', …)"
            )
            if rule.path != path:
                raise ValueError(
                    f"the rule has the path {rule.path}, but the webhook {path}: give both the same"
                )
        with self._lock:
            taken = self._entries.get(path)
            if taken is not None:
                raise ValueError(
                    f"{path} is the path of {taken.webhook!r} already: choose another path with "
                    "path=, or combine the handlers with MultiMutating or MultiValidating"
                )
            self._entries = {**self._entries, path: _Entry(path, webhook, rule)}
        _log.debug("%r answers at %s", webhook, path)

    def get(self, path: str) -> WebhookHandler | None:
        """The webhook at ``path``; None if there is none."""
        entry = self._entries.get(path)
        return None if entry is None else entry.webhook

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths, in the order of :meth:`add`."""
        return tuple(self._entries)

    @property
    def rules(self) -> tuple[WebhookRule, ...]:
        """The rules of the admission webhooks, in the order of :meth:`add`."""
        return tuple(each.rule for each in self._entries.values() if each.rule is not None)

    @property
    def conversions(self) -> tuple[tuple[str, Any], ...]:
        """Each path of a conversion webhook with each ``Versions`` that it converts."""
        return tuple(
            (path, versions)
            for path, entry in self._entries.items()
            for versions in getattr(entry.webhook, "versions", ())
        )

    @property
    def max_body_bytes(self) -> int:
        """The largest body that any of them reads."""
        return max(map(self.body_limit, self._entries), default=_DEFAULT_BODY_BYTES)

    def body_limit(self, path: str) -> int:
        """The most bytes that are read for a path: one more than its webhook accepts, so that it
        can refuse a larger body."""
        entry = self._entries.get(path)
        if entry is None:
            return _DEFAULT_BODY_BYTES
        return int(getattr(entry.webhook, "max_body_bytes", _DEFAULT_BODY_BYTES)) + 1

    def answer(self, request: HTTPRequest) -> HTTPResponse:
        """The response to a request; 404 for an unknown path. Never raises.

        If a webhook raises an error, it is logged, and the response is 500.
        """
        entry = self._entries.get(request.path)
        if entry is None:
            return text_response(404, "404 page not found")
        if not self._observers.present:
            return self._answer(entry, request)
        call = CallRecord(
            controller="webhooks",
            callback=getattr(entry.webhook, "name", "") or entry.path,
            role="webhook",
            kind="",
            namespace="",
            name="",
            headers=request.headers,
        )
        token = answering.set(call)
        try:
            with observed_call(self._observers, self.clock, call):
                return self._answer(entry, request)
        finally:
            answering.reset(token)

    def _answer(self, entry: _Entry, request: HTTPRequest) -> HTTPResponse:
        with entry.lock:
            entry.in_flight += 1
        began = self._monotonic()
        code = "500"
        try:
            response: Any = entry.webhook(request)
            if not isinstance(response, HTTPResponse):
                response = settle(response)
            if not isinstance(response, HTTPResponse):
                no_awaitable(f"the webhook at {entry.path}", response)
                raise TypeError(f"the webhook at {entry.path} returned no HTTPResponse")
            code = str(getattr(response, "counted_as", response.status))
        except BaseException as error:  # SystemExit and the like would end the thread silently
            note_failure(as_exception(f"the webhook at {entry.path}", error, for_main_thread=False))
            _log.exception("the webhook at %s failed", entry.path)
            return text_response(500, f"500 the webhook at {entry.path} failed")
        finally:
            elapsed = self._monotonic() - began
            seconds = seconds_left(request.query_string)
            is_awaited = seconds is None or waited.get() + elapsed < seconds
            if not (request.claim_answer("handler") and is_awaited):
                code = "500"  # somebody else has answered, or the API server has given up
                note_failure(TimeoutError(self._late_text(request)))
            with entry.lock:
                entry.in_flight -= 1
                entry.latency.observe(elapsed)
                entry.codes[code] = entry.codes.get(code, 0) + 1
        return response

    def time_limit(self, request: HTTPRequest) -> float | None:
        """Seconds after which a request is answered by :meth:`timed_out`; None for no limit.

        The API server says in the query's ``timeout`` how long it waits. The answer that a handler
        takes too long must arrive before that.
        """
        return time_limit(request.query_string)

    def timed_out(self, request: HTTPRequest) -> HTTPResponse:
        """The answer to a request whose handler takes too long; it names the handler.

        It is a failure, not a denial, so the ``failurePolicy`` decides, as without an answer.
        """
        text = self._late_text(request)
        name = self._name_at(request.path)
        _log.error("%s: its answer, if it comes, is dropped", text, extra={"webhook": name})
        return text_response(500, text)

    def _late_text(self, request: HTTPRequest) -> str:
        name = self._name_at(request.path)
        return f"the webhook {name} did not answer within {self.time_limit(request):g} s"

    def _name_at(self, path: str) -> str:
        return getattr(self.get(path), "name", "") or path

    def _samples(self) -> Iterable[Sample]:
        found: dict[tuple[Family, tuple[str, ...]], Sample] = {}
        for entry in self._entries.values():
            for sample in entry.samples():
                key = sample.family, sample.labels
                before = found.get(key)
                if before is not None:
                    sample = Sample(*key, _plus(before.value, sample.value))
                found[key] = sample
        return found.values()


def _plus(one: float | LocalHistogram, other: float | LocalHistogram) -> float | LocalHistogram:
    if isinstance(one, LocalHistogram) and isinstance(other, LocalHistogram):
        return one.plus(other)
    if isinstance(one, LocalHistogram) or isinstance(other, LocalHistogram):
        raise TypeError("two samples of one series, of which one is a histogram")
    return one + other
