"""The observer that makes spans."""

from __future__ import annotations

from contextvars import Token
from typing import TYPE_CHECKING, Any, Final, final

from appsdk_operator.runtime import CallRecord, Clock, RequestRecord, present_clock
from appsdk_operator.tracing._packages import opentelemetry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

from opentelemetry import context as otel_context
from opentelemetry import propagate
from opentelemetry.trace import SpanKind, Status, StatusCode

from appsdk_operator._version import __version__
from appsdk_operator.tracing._links import Links, attribute_text

_trace: Final = opentelemetry.trace


@final
class Tracing:
    """Makes spans of a Manager's calls; give it to ``Manager(observers=[…])``. Thread-safe.

    * Each reconcile, and each call of a watcher, has its own trace: a span with the name of the
      called function. The span is linked to the operator's write whose event led to the call, and
      to the call that asked for it (a retry, a requeue).
    * A review by a webhook is a span in the API server's trace, if the API server sent a
      ``traceparent``.
    * Each attempt of a request to an API server is a client span within these spans, or within the
      current span of the program; the request carries its ``traceparent``.

    :class:`TraceFields` adds the span's ids to log records.

    >>> from opentelemetry.sdk.trace import TracerProvider
    >>> from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    >>> exporter, provider = InMemorySpanExporter(), TracerProvider()
    >>> provider.add_span_processor(SimpleSpanProcessor(exporter))
    >>> tracing = Tracing(provider)
    >>> request = RequestRecord(method="GET", verb="get", resource="pods", name="web")
    >>> tracing.request_began(request)
    >>> tracing.request_ended(request)
    >>> [span.name for span in exporter.get_finished_spans()]
    ['get pods']

    Args:
        tracer_provider: makes the tracer; default: the global one, which
            ``opentelemetry-instrument`` or ``trace.set_tracer_provider`` sets. Without a provider,
            spans are not recorded.
        clock: the clock for the age of writes; links to old writes are dropped.
        requests: whether requests to API servers have spans, and carry a ``traceparent``; default
            True.

    Raises:
        ImportError: OpenTelemetry is not installed; the text says how to install it.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        clock: Clock | None = None,
        requests: bool = True,
    ) -> None:
        """See the class."""
        self._tracer = _trace.get_tracer(
            "appsdk_operator", __version__, tracer_provider=tracer_provider
        )
        self._has_requests = requests
        self._links = Links(present_clock(clock))
        # A call or request begins and ends in one thread, and is its key.
        self._calls: dict[CallRecord, tuple[Span, Token[Context]]] = {}
        self._requests: dict[RequestRecord, Span] = {}

    def call_began(self, call: CallRecord) -> None:
        """Begin the span of a call, which contains the spans of its requests and the user's own."""
        if call.role == "webhook":
            context = propagate.extract(call.headers or {})
            span = self._tracer.start_span(
                call.callback, context, kind=SpanKind.SERVER, attributes=_of_call(call)
            )
        else:
            # No part of the trace in which the manager was started, which never ends.
            context = _trace.set_span_in_context(_trace.INVALID_SPAN)
            span = self._tracer.start_span(
                call.callback,
                context,
                kind=SpanKind.CONSUMER,
                attributes=_of_call(call),
                links=self._links.of(call),
            )
        token = otel_context.attach(_trace.set_span_in_context(span, context))
        self._calls[call] = span, token

    def call_ended(self, call: CallRecord) -> None:
        """End the span of a call, with the call's outcome."""
        found = self._calls.pop(call, None)
        if found is None:  # began before this observer was added
            return
        span, token = found
        otel_context.detach(token)
        self._links.note_call(call, span.get_span_context())
        if span.is_recording():
            span.set_attribute("appsdk.outcome", call.outcome)
            if call.role == "watcher" and call.callback:
                # Which function of an App is called is known only now.
                span.update_name(call.callback)
                span.set_attributes(_function_of(call))
            if call.role == "webhook":
                # Known since the review was read.
                span.set_attributes(_object_of(call))
            if call.next_in is not None:
                span.set_attribute("appsdk.next_in", call.next_in)
            cause = call.cause
            if cause is not None:
                span.add_event(
                    "exception",
                    {
                        "exception.type": cause.type,
                        "exception.message": attribute_text(cause.text),
                        "code.function.name": cause.function,
                        "appsdk.place": cause.place,
                    },
                )
                span.set_attribute("error.type", cause.type)
                text = attribute_text(f"{cause.type}: {cause.text}")
                span.set_status(Status(StatusCode.ERROR, text))
        span.end()

    def request_began(self, request: RequestRecord) -> None:
        """Begin the span of an attempt, and put it into the request's headers."""
        if not self._has_requests:
            return
        span = self._tracer.start_span(
            f"{request.verb or request.method} {request.resource}",
            kind=SpanKind.CLIENT,
            attributes=_of_request(request),
        )
        propagate.inject(request.headers, _trace.set_span_in_context(span))
        self._requests[request] = span
        if request.is_write:
            self._links.note_write(request, span.get_span_context())

    def request_ended(self, request: RequestRecord) -> None:
        """End the span of an attempt, with its answer."""
        span = self._requests.pop(request, None)
        if span is None:
            return
        if request.status:
            span.set_attribute("http.response.status_code", request.status)
        if request.error:
            span.set_attribute("error.type", request.error.partition(":")[0])
            span.set_status(Status(StatusCode.ERROR, attribute_text(request.error)))
            if request.is_write:
                self._links.forget_write(request, span.get_span_context())
        span.end()


def _of_call(call: CallRecord) -> dict[str, Any]:
    return {
        **_object_of(call),
        "appsdk.controller": call.controller,
        "appsdk.role": call.role,
        "appsdk.attempt": call.attempt,
        "appsdk.reasons": [attribute_text(reason) for reason in call.reasons],
        **_function_of(call),
    }


def _function_of(call: CallRecord) -> Mapping[str, str]:
    return {"appsdk.action": call.action, "code.function.name": call.callback}


def _object_of(call: CallRecord) -> Mapping[str, str]:
    return {
        "appsdk.kind": call.kind,
        "appsdk.object.name": attribute_text(call.name),
        "k8s.namespace.name": call.namespace,
    }


def _of_request(request: RequestRecord) -> dict[str, Any]:
    host, _, port = request.host.rpartition(":")
    attributes: dict[str, Any] = {
        "http.request.method": request.method,
        "server.address": host or request.host,
        "appsdk.verb": request.verb,
        "appsdk.resource": request.resource,
        "appsdk.object.name": request.name,
        "k8s.namespace.name": request.namespace,
    }
    if host and port.isdigit():
        attributes["server.port"] = int(port)
    if request.tries:
        attributes["http.request.resend_count"] = request.tries
    return attributes
