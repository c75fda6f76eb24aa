"""Health checks and their endpoints: the pages of Kubernetes' own, and checks that hang."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.cache import Health
from appsdk_operator.manager import (
    HealthChecks,
    HealthServer,
    HealthServerOptions,
    HTTPRequest,
    MetricsServerOptions,
    ProfileServerOptions,
)
from appsdk_operator.manager._servers.endpoint_server import EndpointOptions
from appsdk_operator.manager._timed_run import TimedRun
from appsdk_operator.runtime import ManualClock, StopSignal


def make(**options: Any) -> HealthServer:
    clock = options.pop("clock", None)
    return HealthServer(
        HealthServerOptions(address="127.0.0.1:0", **options), **({"clock": clock} if clock else {})
    )


def fail(text: str = "the disk is full") -> Callable[[], None]:
    def check() -> None:
        raise OSError(text)

    return check


def passing() -> None:
    """Nothing to complain about."""


# -- pages -----------------------------------------------------------------------------------------


def test_without_checks_there_is_a_ping_that_passes(serve: Any) -> None:
    served = serve(make())
    for root in ("/readyz", "/healthz", "/livez"):
        for path in (root, f"{root}/", f"{root}/ping", f"{root}/ping/", f"{root}//ping"):
            answer = served.get(path)
            assert (answer.status, answer.text) == (200, "ok")
        verbose = served.get(f"{root}?verbose").text
        assert verbose == "[+]ping ok\nhealthz check passed\n"
        assert served.get(f"{root}?verbose&exclude=ping").text == (
            '[+]ping ok\nwarn: some health checks cannot be excluded: no matches for "ping"\n'
            "healthz check passed\n"
        )
    answer = served.get("/readyz")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    for path in ("/readyz/other", "/", "/readyzz", "/metrics"):
        assert served.get(path).status == 404


def test_the_root_lists_failed_checks_without_reasons(serve: Any) -> None:
    server = make()
    server.add_ready_check("zebra", passing)
    server.add_ready_check("disk", fail())
    server.add_ready_check("ape", passing)
    served = serve(server)
    answer = served.get("/readyz")
    assert answer.status == 500
    assert answer.text == (
        "[+]ape ok\n[-]disk failed: reason withheld\n[+]zebra ok\nhealthz check failed\n"
    )
    assert served.get("/readyz/ping").status == 404
    assert (served.get("/healthz").status, served.get("/livez").status) == (200, 200)
    assert served.get("/readyz", "POST", b"").status == 405


def test_the_checks_own_page_and_the_log_say_why(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = make()
    server.add_ready_check("disk", fail())
    server.add_ready_check("net", passing)
    served = serve(server)
    with caplog.at_level(logging.WARNING):
        answer = served.get("/readyz/disk")
        served.get("/readyz")
    assert (answer.status, answer.text) == (500, "internal server error: the disk is full\n")
    assert served.get("/readyz/net").text == "ok"
    assert [r.getMessage() for r in caplog.records] == [
        "readyz: check disk failed: the disk is full"
    ]
    assert caplog.records[0].check == "disk"  # type: ignore[attr-defined]


def test_the_root_gives_reasons_with_show_reasons(serve: Any) -> None:
    server = make(show_reasons=True)
    server.add_ready_check("disk", fail("full:\nno room"))
    text = serve(server).get("/readyz").text
    assert text == "[-]disk failed: full: no room\nhealthz check failed\n"


def test_excluded_checks_are_not_run_and_unknown_ones_are_warned_of(serve: Any) -> None:
    ran: list[str] = []
    server = make()
    server.add_health_check("a", lambda: ran.append("a"))
    server.add_health_check("b", fail())
    served = serve(server)
    assert served.get("/healthz?exclude=b").text == "ok"
    assert served.get("/healthz?exclude=a&exclude=b&verbose").text == (
        "[+]a excluded: ok\n[+]b excluded: ok\nhealthz check passed\n"
    )
    assert ran == ["a"]
    answer = served.get('/healthz?verbose=1&exclude=b&exclude=x&exclude=%22"y')
    assert answer.status == 200
    assert answer.text.splitlines()[2:] == [
        'warn: some health checks cannot be excluded: no matches for "\\"\\"y", "x"',
        "healthz check passed",
    ]
    assert served.get("/healthz?exclude=x").status == 500


def test_the_status_follows_the_checks(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    healths = [Health(True, ""), Health(False, "informer of pods.v1: not synced yet")]
    server = make()
    server.add_ready_check("informers", lambda: healths[0])
    served = serve(server)
    with caplog.at_level(logging.INFO):
        assert served.get("/readyz").status == 200
        healths.reverse()
        assert served.get("/readyz").status == 500
        assert served.get("/readyz/informers").text == (
            "internal server error: informer of pods.v1: not synced yet\n"
        )
        healths.reverse()
        assert served.get("/readyz").status == 200
    assert "readyz: check informers passes again" in caplog.text


def test_names_of_the_endpoints_can_be_chosen(serve: Any) -> None:
    served = serve(make(readiness_path="/ready", liveness_path="/livez"))
    assert served.get("/ready").text == "ok"
    assert served.get("/livez").text == "ok"
    assert (served.get("/readyz").status, served.get("/healthz").status) == (404, 404)


NAMES = st.sampled_from(["a", "b", "c", "d"])


@given(st.dictionaries(NAMES, st.booleans()), st.sets(NAMES), st.booleans())
@settings(deadline=None)
def test_the_page_of_all_checks_follows_its_rules(
    checks: dict[str, bool], excluded: set[str], verbose: bool
) -> None:
    health = HealthChecks("readyz")
    with contextlib.closing(health):
        for name, passes in checks.items():
            health.add(name, passing if passes else fail())
        query = "&".join([f"exclude={name}" for name in excluded] + ["verbose"] * verbose)
        request = HTTPRequest(method="GET", path="/readyz", query_string=query)
        answer = health.handler("/readyz")(request)
    failed = {name for name, passes in checks.items() if not passes} - excluded
    lines = answer.body.decode().splitlines()
    assert answer.status == (500 if failed else 200)
    if not failed and not verbose:
        assert lines == ["ok"]
        return
    told = [line for line in lines if line[0] == "["]
    assert [line[3:].split(" ")[0] for line in told] == (sorted(checks) or ["ping"])
    assert {line[3:].split(" ")[0] for line in told if line[1] == "-"} == failed
    assert (lines[-2].startswith("warn:")) == bool(excluded - checks.keys())
    assert lines[-1] == f"healthz check {'failed' if failed else 'passed'}"


# -- checks ----------------------------------------------------------------------------------------


def test_a_check_may_be_async_and_fails_by_whatever_it_raises_or_returns() -> None:
    async def patient() -> Health:
        return Health(False, "not yet")

    def leaves() -> None:
        raise SystemExit(1)

    def silent() -> None:
        raise KeyError

    checks = HealthChecks("readyz")
    with contextlib.closing(checks):
        checks.add("async", patient)
        checks.add("exit", leaves)
        checks.add("silent", silent)
        checks.add("false", lambda: False)
        checks.add("mute", lambda: Health(False, ""))
        failures = checks.failures()
    assert failures["async"] == "not yet"
    assert failures["exit"] == "it raised SystemExit(1)"
    assert failures["silent"] == "KeyError"
    assert "returned a bool: have it return None or a Health" in failures["false"]
    assert failures["mute"] == "not ready"


def test_a_check_that_hangs_fails_by_name_and_hangs_nobody_else(
    serve: Any, eventually: Any
) -> None:
    clock = ManualClock()
    entered, leave, calls = threading.Event(), threading.Event(), []

    def hang() -> None:
        calls.append(1)
        entered.set()
        leave.wait(30)

    server = make(clock=clock, check_timeout=2.0)
    server.add_ready_check("database", hang)
    server.add_ready_check("fine", passing)
    served = serve(server)
    texts: list[str] = []
    asking = threading.Thread(target=lambda: texts.append(served.get("/readyz").text))
    asking.start()
    assert entered.wait(10)
    assert served.get("/readyz/fine").text == "ok"
    assert served.get("/healthz").text == "ok"
    waiting = server.ready_checks._stop._callbacks
    # Not further than its time: clients have theirs by this clock, too.
    eventually(lambda: len(waiting) == 1)
    clock.advance(2.0)
    asking.join(10)
    assert texts == ["[-]database failed: reason withheld\n[+]fine ok\nhealthz check failed\n"]
    # It is not asked a second time while it hangs, and the answer comes in time again.
    again = threading.Thread(target=lambda: texts.append(served.get("/readyz/database").text))
    again.start()
    eventually(lambda: len(waiting) == 1)
    clock.advance(2.0)
    again.join(10)
    assert "s: it hangs, and is asked again once it ends" in texts[1]
    assert len(calls) == 1
    leave.set()
    # Who asks at the moment of its end may still share its answer.
    while len(calls) < 2:
        served.get("/readyz")
    assert served.get("/readyz").status == 200


def test_a_check_that_ends_right_after_its_time_was_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leave, clock = threading.Event(), ManualClock()
    checks = HealthChecks("readyz", timeout=2.0, clock=clock)
    checks.add("late", lambda: leave.wait(30) and None)
    monkeypatch.setattr(clock, "wait", lambda *_: clock.advance(2.0))
    run_wait = TimedRun.wait

    def wait(run: TimedRun[object], deadline: float) -> object:
        try:
            return run_wait(run, deadline)
        finally:
            leave.set()
            assert checks.close() == []
            checks._stop = StopSignal()

    monkeypatch.setattr(TimedRun, "wait", wait)
    assert checks.failures() == {
        "late": "no answer for 2.0 s: it hangs, and is asked again once it ends"
    }


def test_probes_that_come_together_share_a_run(eventually: Any) -> None:
    leave, entered, calls = threading.Event(), threading.Event(), []

    def slow() -> None:
        calls.append(1)
        entered.set()
        leave.wait(10)

    checks = HealthChecks("readyz")
    checks.add("slow", slow)
    results: list[dict[str, str]] = []
    askers = [threading.Thread(target=lambda: results.append(checks.failures())) for _ in range(3)]
    askers[0].start()
    assert entered.wait(10)
    for asker in askers[1:]:
        asker.start()
    eventually(lambda: len(checks._stop._callbacks) == 3)  # all of them wait
    leave.set()
    for asker in askers:
        asker.join()
    assert results == [{}, {}, {}]
    assert calls == [1]
    assert checks.close() == []


def test_checks_added_after_the_start_are_refused(serve: Any, eventually: Any) -> None:
    server = make()
    serve(server)
    eventually(lambda: server.ready_checks._is_frozen and server.health_checks._is_frozen)
    for add in (server.add_ready_check, server.add_health_check):
        with pytest.raises(RuntimeError, match=r"comes too late: .* is served already"):
            add("late", passing)


def test_names_and_checks_that_will_not_do_are_refused() -> None:
    checks = HealthChecks("readyz")
    checks.add("a", passing)
    with pytest.raises(ValueError, match="has a check 'a' already"):
        checks.add("a", passing)
    for name in ("", "a/b", "..", "a?b", "a\nb"):
        with pytest.raises(ValueError, match="use a name of letters"):
            checks.add(name, passing)
    with pytest.raises(TypeError, match="cannot be called"):
        checks.add("b", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout=0"):
        HealthChecks("readyz", timeout=0)


# -- the server ------------------------------------------------------------------------------------


def test_a_taken_port_is_an_error_at_construction() -> None:
    server = make()
    with contextlib.closing(server), pytest.raises(OSError, match="the health server cannot"):
        HealthServer(HealthServerOptions(address=server.address))
    assert repr(server) == f"<health server on {server.address}>"
    assert server.url == f"http://{server.address}"


@pytest.mark.parametrize("address", ["", "0"])
def test_an_address_may_switch_it_off(address: str) -> None:
    options = HealthServerOptions(address=address)
    assert not options.is_enabled
    with pytest.raises(ValueError, match="means no server"):
        HealthServer(options)


def test_it_listens_on_loopback_unless_told_otherwise() -> None:
    assert HealthServerOptions().address == "127.0.0.1:8081"
    assert HealthServerOptions().is_enabled
    for options in (
        {"address": "8081"},
        {"readiness_path": "readyz"},
        {"liveness_path": "/x/"},
        {"check_timeout": 0},
        {"readiness_path": "/x", "liveness_path": "/x"},
    ):
        with pytest.raises(
            ValueError, match=r"is not an address|write a path|check_timeout|two paths"
        ):
            HealthServerOptions(**options)  # type: ignore[arg-type]


def test_a_stop_answers_waiting_probes_and_names_a_check_that_hangs(serve: Any) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hang() -> None:
        entered.set()
        leave.wait(30)

    server = make(shutdown_timeout=0.1)
    server.add_ready_check("database", hang)
    stop = StopSignal()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            server.run(stop)
        except TimeoutError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    asking = threading.Thread(target=ask, args=(server.address,))
    asking.start()
    assert entered.wait(10)
    stop.set()
    thread.join(10)
    asking.join(10)
    assert not thread.is_alive()
    assert not asking.is_alive()
    leave.set()
    assert "checks readyz/database: set a time-out for what they wait for" in str(errors[0])
    assert server.ready_checks.close() == []


def ask(address: str) -> None:
    import http.client

    connection = http.client.HTTPConnection(address, timeout=10)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        connection.getresponse().read()


def test_the_grace_at_a_stop_is_for_all_checks_together(
    monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    before, leave = threading.active_count(), threading.Event()
    server = HealthServer(
        HealthServerOptions(address="127.0.0.1:0", shutdown_timeout=0.3, check_timeout=0.01)
    )
    graces: list[float] = []

    def close(self: HealthChecks, timeout: float) -> list[str]:
        graces.append(timeout)
        self._stop.set()
        return self._threads.join(timeout)

    monkeypatch.setattr(HealthChecks, "close", close)
    server.add_ready_check("a", lambda: leave.wait(20) and None)
    server.add_health_check("b", lambda: leave.wait(20) and None)
    server.ready_checks.failures()
    server.health_checks.failures()
    stop = StopSignal()
    stop.set()
    with pytest.raises(TimeoutError, match="readyz/a, healthz/b"):
        server.run(stop)
    leave.set()
    eventually(lambda: threading.active_count() <= before)
    assert graces[0] <= 0.3
    assert graces[1] == 0.0


@pytest.mark.parametrize(
    "options", [HealthServerOptions, MetricsServerOptions, ProfileServerOptions]
)
def test_the_time_of_a_stop_ends(options: type[EndpointOptions]) -> None:
    for seconds in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=f"shutdown_timeout={seconds}: use 0 or more"):
            options(address="127.0.0.1:0", shutdown_timeout=seconds)


def test_a_check_that_hangs_does_not_hang_the_end(serve: Any) -> None:
    leave = threading.Event()
    server = make(check_timeout=0.01, shutdown_timeout=0.05)
    server.add_ready_check("hangs", leave.wait)
    assert "hangs" in server.ready_checks.failures()
    stop = StopSignal()
    stop.set()
    with pytest.raises(TimeoutError, match="hangs"):
        server.run(stop)
    closing = threading.Thread(target=server.close)
    closing.start()
    closing.join(10)
    is_closed = not closing.is_alive()
    leave.set()
    closing.join()
    assert is_closed
