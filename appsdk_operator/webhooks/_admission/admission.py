"""The admission webhook: from a review over HTTP to a handler's verdict and back."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import CancelledError
from typing import Final, final

from appsdk_operator.resource import EncodeError, Kind
from appsdk_operator.runtime import (
    Clock,
    Family,
    Sample,
    as_exception,
    get_logger,
    present_clock,
    safe_text,
    validation,
    with_class,
)
from appsdk_operator.serving import HTTPRequest, HTTPResponse
from appsdk_operator.webhooks._admission import reviews
from appsdk_operator.webhooks._admission.handlers import (
    AdmissionHandler,
    Validating,
    answer_of,
    name_of,
)
from appsdk_operator.webhooks._admission.requests import AdmissionRequest, current, log_fields
from appsdk_operator.webhooks._admission.responses import AdmissionResponse
from appsdk_operator.webhooks._answers import (
    ReviewResponse,
    note_failure,
    note_object,
    review_response,
    waited,
)
from appsdk_operator.webhooks._time_limits import seconds_left

_log: Final = get_logger("appsdk_operator.webhooks")
_PANICS: Final = Family(
    "controller_runtime_webhook_panics_total", "counter", "Total number of webhook panics"
)
_MAX_TEXT: Final = 512
"""Characters of an unexpected error's text in an answer."""


@final
class Admission:
    """An admission webhook: answers ``AdmissionReview`` requests with a handler. Thread-safe.

    It is an ``HTTPHandler``: :meth:`Webhooks.add` serves it at a path. It speaks v1 and v1beta1,
    and answers in the version of the request. ``webhook_for`` makes one for each defaulter and
    validator. For requests of any kind, or of several kinds, make your own:

    >>> webhook = Admission(lambda request: AdmissionResponse.denied("closed on Sundays"))
    >>> pod = Kind(group="", version="v1", kind="Pod")
    >>> webhook.handle(AdmissionRequest("CREATE", pod, object={"metadata": {}})).message
    'closed on Sundays'

    A handler fails if it raises anything but :class:`Denied`, an ``ApiError`` or a ``DecodeError``
    of the request's objects. Then the webhook denies the request with code 500 and the handler's
    name, whatever the ``failurePolicy`` is, logs the error with its traceback, and counts it.
    Semantics and texts are those of controller-runtime's ``admission.Webhook``.

    If the spec or status of a new object does not fit the class of its kind, the webhook denies the
    request as ``Invalid``, with the field, once the handler reads it. If only the stored object
    does not fit, the webhook allows the request with a warning, so that users can repair or delete
    it.

    Args:
        handler: answers the requests.
        name: its name in logs and answers; default: the handler's.
        recover_panic: whether an error of the handler denies the request; default True. With False
            the answer is HTTP status 500, so the ``failurePolicy`` decides.
        clock: the clock of ``AdmissionRequest.time_left()``.

    Raises:
        TypeError: the handler cannot be called with a request.
    """

    max_body_bytes: Final = reviews.MAX_BODY_BYTES
    """A body of this size or more is refused; 7 MiB."""

    def __init__(
        self,
        handler: AdmissionHandler,
        *,
        name: str | None = None,
        recover_panic: bool = True,
        clock: Clock | None = None,
    ) -> None:
        """See the class."""
        if isinstance(handler, type):
            raise TypeError(f"handler={handler.__qualname__} is a class: give an instance")
        validation.check_callable("handler", handler, "request", required=True, is_awaited=True)
        validation.check_flag("recover_panic", recover_panic)
        self.handler: Final = handler
        self.name: str = name or name_of(handler)
        """Its name in logs and answers."""
        self._recover = recover_panic
        self._clock = present_clock(clock)
        kind = getattr(handler, "kind", None)
        self._kind: Kind | None = kind if isinstance(kind, Kind) else None
        self._lock = threading.Lock()
        self._panics = 0

    def __repr__(self) -> str:
        return f"<admission webhook {self.name}>"

    def samples(self) -> Iterable[Sample]:
        """Its metrics: errors of the handler."""
        return (Sample(_PANICS, (), self._panics),)

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """The response to a request, even if the handler fails.

        Raises:
            Exception: an error of the handler, with ``recover_panic=False``.
        """
        token = current.set(request)
        try:
            return answer_of(self.handler, request)
        except BaseException as error:  # SystemExit and the like would end the thread silently
            if isinstance(with_class(error), CancelledError) and _is_over(request):
                # Nobody waits for the answer: the client is gone, its time is up, or all ends.
                return AdmissionResponse.errored(500, f"the webhook {self.name} was cancelled")
            with self._lock:
                self._panics += 1
            failure = as_exception(f"the webhook {self.name}", error)
            if not self._recover:
                raise failure from error
            return self._failed(request, failure)
        finally:
            current.reset(token)

    def _failed(self, request: AdmissionRequest, error: Exception) -> AdmissionResponse:
        handler = self.handler
        name = handler.name_for(request.operation) if isinstance(handler, Validating) else self.name
        note_failure(error)
        _log.error(
            "the webhook %s failed on %r", name, request, exc_info=error, extra=log_fields(request)
        )
        text = safe_text(error)
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
        if len(text) > _MAX_TEXT:
            text = f"{text[:_MAX_TEXT]}…"
        return AdmissionResponse.errored(500, f"the webhook {name} failed: {text}")

    def __call__(self, request: HTTPRequest, /) -> HTTPResponse:
        """Answer a review; the response is in the body, and the HTTP status is 200."""
        body = request.body
        if not body:
            return self._refused(400, "request body is empty")
        if len(body) >= reviews.MAX_BODY_BYTES:
            limit = reviews.MAX_BODY_BYTES
            return self._refused(413, f"request entity is too large; limit is {limit} bytes")
        content_type = request.headers.get("content-type", "")
        if content_type != "application/json":
            text = f"contentType={content_type}, expected application/json"
            return self._refused(400, text)
        try:
            review = reviews.decode_review(body)
        except reviews.MalformedReview as error:
            return self._refused(400, str(error))
        api_version, kind = review.api_version or "", review.kind or ""
        if not api_version and not kind:
            api_version, kind = reviews.V1, "AdmissionReview"
        wire = review.request
        uid = (wire.uid or "") if wire is not None else ""
        admission: AdmissionRequest | None = None
        try:
            if wire is None:
                raise ValueError("the review has no request")
            admission = AdmissionRequest.of_wire(
                wire,
                kind=self._kind,
                api_version=api_version,
                timeout=_time_left(request),
                http=request,
                webhook=self.name,
                clock=self._clock,
            )
        except ValueError as error:
            response = AdmissionResponse.errored(400, str(error))
        else:
            _log.debug("received %r", admission)
            note_object(
                admission.kind_text,
                admission.namespace,
                admission.name,
                admission.operation.lower(),
            )
            response = self.handle(admission)
        try:
            answer = reviews.encode(response, uid=uid, api_version=api_version, kind=kind)
        except EncodeError as error:
            _log.error("the webhook %s: its response is not JSON: %s", self.name, error)
            response = AdmissionResponse.errored(500, "unable to encode response")
            answer = reviews.encode(response, uid=uid, api_version=api_version, kind=kind)
        return review_response(answer, counted_as=500 if response.code == 500 else 200)

    def _refused(self, code: int, text: str) -> ReviewResponse:
        _log.warning("the webhook %s got a request that it cannot read: %s", self.name, text)
        response = AdmissionResponse.errored(code, text)
        return review_response(reviews.encode(response, uid="", api_version="", kind=""))


def _is_over(request: AdmissionRequest) -> bool:
    return request.http is not None and request.http.stop.is_set()


def _time_left(request: HTTPRequest) -> float | None:
    seconds = seconds_left(request.query_string)
    return None if seconds is None else max(0.0, seconds - waited.get())
