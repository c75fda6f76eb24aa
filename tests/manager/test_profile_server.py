"""The pages for debugging: stacks, queues, memory and profiles, and who sees them."""

from __future__ import annotations

import contextlib
import json
import threading
import tracemalloc
from typing import Any

import pytest

from appsdk_operator.manager import ProfileServer, ProfileServerOptions
from appsdk_operator.resource import ObjectKey
from appsdk_operator.runtime import ManualClock, StopSignal


def make(**options: Any) -> ProfileServer:
    own = {name: options.pop(name) for name in ("snapshot", "clock") if name in options}
    return ProfileServer(ProfileServerOptions(address="127.0.0.1:0", **options), **own)


@pytest.fixture
def worker() -> Any:
    """A thread that stands in a function whose name is known."""
    leave, entered = threading.Event(), threading.Event()

    def stand_still_here() -> None:
        entered.set()
        leave.wait(30)

    thread = threading.Thread(target=stand_still_here, name="the-worker;1")
    thread.start()
    assert entered.wait(10)
    yield thread
    leave.set()
    thread.join()


def test_the_stack_of_each_thread_is_shown_under_its_name(serve: Any, worker: Any) -> None:
    served = serve(make())
    text = served.get("/debug/threads").text
    assert "thread MainThread\n" in text
    part = text.split("thread the-worker;1\n")[1].split("\n\n")[0]
    assert "in stand_still_here" in part
    assert "/debug/profile?seconds=" in served.get("/debug").text


def test_the_log_says_where_the_live_page_is(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "appsdk_operator")
    for state, more in ((None, ""), (dict, "{0}: the live page is on http://{0}/debug/")):
        options = ProfileServerOptions(address="127.0.0.1:0")
        server = ProfileServer(options, state=state)
        serve(server).get("/debug/threads")
        line = caplog.messages[-1]
        listens = "the profile server listens on "
        assert line == listens + (more.format(server.address) or server.address)


def test_queues_are_the_snapshot(serve: Any) -> None:
    served = serve(make(snapshot=lambda: {"web": {"depth": 2, "oldest": {3}}}))
    answer = served.get("/debug/queues")
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.text) == {"web": {"depth": 2, "oldest": "{3}"}}
    assert json.loads(serve(make()).get("/debug/queues").text) == {}
    served = serve(make(snapshot=lambda: [{ObjectKey("x", "a"): {None: 1}}]))
    assert json.loads(served.get("/debug/queues").text) == [{"x/a": {"None": 1}}]


def test_memory_shows_allocations_when_they_are_traced(serve: Any) -> None:
    served = serve(make())
    assert "start Python with -X tracemalloc" in served.get("/debug/memory").text
    tracemalloc.start()
    try:
        text = served.get("/debug/memory").text
    finally:
        tracemalloc.stop()
    assert "bytes now" in text
    assert "generation 2: " in text


def test_a_profile_is_made_of_collapsed_stacks(serve: Any, worker: Any) -> None:
    served = serve(make(interval=0.001))
    text = served.get("/debug/profile?seconds=0.3").text
    lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith("the-worker:1;")]
    # The first sample may find it on its way there.
    stack, _, count = max(lines, key=lambda line: int(line[2]))
    assert int(count) > 1
    assert stack.count(";") > 2
    assert stack.split(";")[-1] == "threading.Condition.wait"
    assert any(part.endswith("stand_still_here") for part in stack.split(";"))


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "61", "soon"])
def test_a_profile_that_is_too_long_or_no_number_is_refused(serve: Any, seconds: str) -> None:
    answer = serve(make()).get(f"/debug/profile?seconds={seconds}")
    assert answer.status == 400
    assert "use more than 0, up to 60" in answer.text


def test_one_profile_at_a_time_and_a_stop_ends_it(eventually: Any) -> None:
    clock = ManualClock()
    server = make(clock=clock)
    stop = StopSignal()
    running = threading.Thread(target=server.run, args=(stop,))
    running.start()
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(get(server.address)))
    asking.start()
    clock.block_until_waiting(1)
    eventually(server._profiling.locked)
    assert get(server.address)[0] == 429
    stop.set()
    asking.join(10)
    running.join(10)
    assert not running.is_alive()
    assert answers[0][0] == 200
    assert b"MainThread;" in answers[0][1]


def get(address: str) -> tuple[int, bytes]:
    import http.client

    connection = http.client.HTTPConnection(address, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", "/debug/profile?seconds=60")
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_it_listens_on_loopback_unless_told_otherwise_and_may_be_off() -> None:
    assert ProfileServerOptions().address == "127.0.0.1:6060"
    assert not ProfileServerOptions(address="0").is_enabled
    with pytest.raises(ValueError, match="means no server"):
        ProfileServer(ProfileServerOptions(address=""))
    with pytest.raises(ValueError, match="is not an address"):
        ProfileServerOptions(address="6060")
    with pytest.raises(ValueError, match="more than 0 seconds"):
        ProfileServerOptions(interval=0)
    server = make()
    with contextlib.closing(server), pytest.raises(OSError, match="the profile server cannot"):
        ProfileServer(ProfileServerOptions(address=server.address))
    assert repr(server) == f"<profile server on {server.address}>"
    assert server.url == f"http://{server.address}"


# Who it is called by.


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:6060", 200),
        ("LOCALHOST.", 200),
        ("a.localhost", 200),
        ("127.0.0.1:80", 200),
        ("[::1]:6060", 200),
        ("10.0.0.7", 200),
        ("debug.example.com:6060", 200),
        ("Debug.Example.com", 200),
        ("evil.example.com", 403),
        ("example.com", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("[evil.example]:80", 403),
    ],
)
def test_it_answers_to_its_own_names_only(serve: Any, host: str, status: int) -> None:
    served = serve(make(allowed_hosts=["debug.example.com"]))
    for path in ("/debug/threads", "/nothing-there"):
        answer = served.get(path, Host=host)
        assert answer.status == (404 if status == 200 and "nothing" in path else status)
    if status == 403:
        assert "name the host in allowed_hosts" in answer.text
        assert "evil" not in answer.text


def test_a_client_of_http_1_0_that_names_no_host_is_answered(serve: Any) -> None:
    served = serve(make())
    assert served.talk(b"GET /debug HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_the_name_in_its_address_is_its_own(serve: Any) -> None:
    server = ProfileServer(ProfileServerOptions(address="localhost:0"))
    served = serve(server)
    assert served.get("/debug", Host="localhost:1").status == 200


@pytest.mark.parametrize("hosts", ["a.example", ["a.example:80"], [5], 5, ["*"], [""]])
def test_hosts_that_are_none_are_refused(hosts: Any) -> None:
    with pytest.raises(ValueError, match="give names in a list, without a port"):
        ProfileServerOptions(allowed_hosts=hosts)


def test_queues_are_shown_whatever_is_in_them(serve: Any) -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("nobody may ask")

    odd = {"a": Mute(), "b": float("nan"), "c": float("inf"), Mute(): "\ud800"}
    found = json.loads(serve(make(snapshot=lambda: odd)).get("/debug/queues").text)
    assert found["b"] is None
    assert found["a"].startswith("<Mute whose text failed")
