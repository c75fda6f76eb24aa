"""Named health checks, and their pages in the format of Kubernetes' own components."""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from appsdk_operator.cache import Health
from appsdk_operator.manager._timed_run import NotDone, TimedRun
from appsdk_operator.runtime import (
    Clock,
    StopSignal,
    ThreadGroup,
    get_logger,
    present_clock,
    safe_text,
)

if TYPE_CHECKING:
    from appsdk_operator.serving import HTTPRequest, HTTPResponse

_log: Final = get_logger("appsdk_operator.manager")
_WITHHELD: Final = "reason withheld"

HealthCheck = Callable[[], Any]
"""Returns None or a :class:`~appsdk_operator.cache.Health`, or raises; may be ``async``."""


def ping() -> None:
    """A check that always passes: the server answers."""


class _Check(msgspec.Struct):
    name: str
    function: HealthCheck
    run: TimedRun[Any] | None = None
    failure: str | None = None


@final
class HealthChecks:
    """Named checks, and the answers to probes: healthy when all checks pass.

    The pages are those of controller-runtime's and Kubernetes' own health endpoints. The root page
    runs all checks. If one fails, it lists all of them, without reasons, because probes need no
    credentials. ``/name`` runs one check and gives the reason. ``?verbose`` always lists the
    checks, and ``?exclude=name`` skips one. If there are no checks, there is one called ``ping``,
    which passes.

    Each check runs in its own thread, and never twice at once: probes that come while it runs share
    its result. A check that does not return in time fails, and is not called again until it has
    returned. Each failure is logged once, with the reason, and so is each recovery.

    Thread-safe.

    >>> checks = HealthChecks("readyz")
    >>> checks.add("disk", lambda: None)
    >>> checks.failures()
    {}

    Args:
        name: the endpoint's name, for logs and threads, for example ``"readyz"``.
        timeout: seconds for all checks of a probe together; default 5. Set the probe's own
            ``timeoutSeconds`` higher, so that the answer can name the check that hangs.
        show_reasons: whether the list of all checks has the reasons, too; default False: they are
            only on the check's own page and in the log.
        clock: the clock of the time-out.
    """

    def __init__(
        self,
        name: str,
        *,
        timeout: float = 5.0,
        show_reasons: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """See the class."""
        if not timeout > 0:
            raise ValueError(f"timeout={timeout}: use more than 0 seconds")
        self.name: Final = name
        self._timeout = timeout
        self._show_reasons = show_reasons
        self._clock = clock = present_clock(clock)
        self._lock = threading.Lock()
        self._checks: dict[str, _Check] = {}
        self._is_frozen = False
        self._threads = ThreadGroup(name)
        self._stop = StopSignal(clock=clock)

    def add(self, name: str, check: HealthCheck) -> None:
        """Run ``check`` at each probe.

        Args:
            name: a path segment, for example ``"database"``; its page is ``/readyz/database``.
            check: fails by raising, or by returning a ``Health`` that is not ready. Any other value
                than None or a ``Health`` is a mistake, and fails, too.

        Raises:
            TypeError: ``check`` is not a function.
            ValueError: the name is taken, or is not a path segment.
            RuntimeError: the endpoint is served already.
        """
        if not name or set(name) & set("/?#%\r\n") or not name.isprintable() or name in (".", ".."):
            raise ValueError(f"check {name!r}: use a name of letters, digits, '-', '_' and '.'")
        if not callable(check):
            raise TypeError(f"check {name!r}={check!r} cannot be called: give a function")
        with self._lock:
            if self._is_frozen:
                raise RuntimeError(
                    f"check {name!r} comes too late: {self.name} is served already; add checks "
                    "before the start"
                )
            if name in self._checks:
                raise ValueError(f"{self.name} has a check {name!r} already: choose another name")
            self._checks[name] = _Check(name, check)

    def freeze(self) -> None:
        """Refuse further checks: an endpoint must not change its meaning while it is probed."""
        with self._lock:
            self._is_frozen = True

    def failures(self, *names: str) -> dict[str, str]:
        """Run the checks; returns the reasons of the failing checks, by name.

        Args:
            names: the checks to run; default: all.
        """
        with self._lock:
            checks = [self._checks[name] for name in names or self._checks]
            runs = [self._begin(check) for check in checks]
        deadline = self._clock.monotonic() + self._timeout
        failures = {}
        for check, run in zip(checks, runs, strict=True):
            failure = self._failure_of(run, deadline)
            self._log_change(check, failure)
            if failure is not None:
                failures[check.name] = failure
        return failures

    def stop(self) -> None:
        """Answer all waiting and later probes at once."""
        self._stop.set()

    def close(self, timeout: float | None = None) -> list[str]:
        """Stop waiting for checks, and join their threads.

        Args:
            timeout: seconds of real time for checks that still run; default: no limit.

        Returns:
            The names of the threads that still run.
        """
        self._stop.set()
        return self._threads.join(timeout)

    # -- pages -----------------------------------------------------------------------------------

    def handler(self, root: str) -> Callable[[HTTPRequest], HTTPResponse]:
        """A handler for the pages below the path ``root``.

        >>> from appsdk_operator.serving import HTTPRequest
        >>> page = HealthChecks("readyz").handler("/readyz")
        >>> page(HTTPRequest(method="GET", path="/readyz/ping")).body
        b'ok'
        """

        def handle(request: HTTPRequest) -> HTTPResponse:
            below = posixpath.normpath("/" + request.path.removeprefix(root)).lstrip("/")
            return self._check_page(below) if below else self._summary_page(request)

        return handle

    def _check_page(self, name: str) -> HTTPResponse:
        from appsdk_operator.serving import HTTPResponse, text_response

        with self._lock:
            is_known = name in self._checks
            is_ping = name == "ping" and not self._checks
        if not is_known and not is_ping:
            return text_response(404, "404 page not found")
        failure = None if is_ping else self.failures(name).get(name)
        if failure is not None:
            return text_response(500, f"internal server error: {failure}")
        return HTTPResponse(body=b"ok")

    def _summary_page(self, request: HTTPRequest) -> HTTPResponse:
        from appsdk_operator.serving import HTTPResponse, text_response

        query = request.query
        excluded = set(query.get("exclude", ()))
        with self._lock:
            names = sorted(self._checks)
        asked = [name for name in names if name not in excluded]
        failures = self.failures(*asked) if asked else {}
        if not failures and "verbose" not in query:
            return HTTPResponse(body=b"ok")
        left_out = excluded.intersection(names)
        lines = [self._line(name, left_out, failures) for name in names or ["ping"]]
        if unknown := sorted(excluded.difference(names)):
            import json

            quoted = ", ".join(json.dumps(name) for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
        lines.append(f"healthz check {'failed' if failures else 'passed'}")
        return text_response(500 if failures else 200, "\n".join(lines))

    def _line(self, name: str, excluded: set[str], failures: dict[str, str]) -> str:
        if name in failures:
            reason = " ".join(failures[name].split()) if self._show_reasons else _WITHHELD
            return f"[-]{name} failed: {reason}"
        return f"[+]{name} excluded: ok" if name in excluded else f"[+]{name} ok"

    # -- running them ------------------------------------------------------------------------------

    def _begin(self, check: _Check) -> TimedRun[Any]:
        run = check.run
        if run is None or run.is_done:
            run = check.run = TimedRun(
                check.name,
                check.function,
                threads=self._threads,
                clock=self._clock,
                stop=self._stop,
            )
        return run

    def _failure_of(self, run: TimedRun[Any], deadline: float) -> str | None:
        try:
            outcome = run.wait(deadline)
        except NotDone:
            if self._stop.is_set():
                return "the server stops"
            seconds = self._clock.monotonic() - run.started
            return f"no answer for {seconds:.1f} s: it hangs, and is asked again once it ends"
        except Exception as error:
            return safe_text(error) or type(error).__name__
        if outcome is None:
            return None
        if isinstance(outcome, Health):
            return None if outcome.is_ready else outcome.text or "not ready"
        kind = type(outcome).__name__
        return f"the check returned a {kind}: have it return None or a Health, or raise"

    def _log_change(self, check: _Check, failure: str | None) -> None:
        if self._stop.is_set():
            return
        with self._lock:
            before, check.failure = check.failure, failure
        fields = {"check": check.name, "endpoint": self.name}
        if failure is not None and before is None:
            _log.warning("%s: check %s failed: %s", self.name, check.name, failure, extra=fields)
        elif failure is None and before is not None:
            _log.info("%s: check %s passes again", self.name, check.name, extra=fields)
