"""Complaints of users of other kits about informers, as far as no other test covers them."""

from __future__ import annotations

import threading

import pytest

from appsdk_operator.cache import Informer
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.resource import Object
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer
from tests.cache.conftest import (
    PATIENCE,
    THING,
    Recorder,
    ScriptedClient,
    Stream,
    data,
    line,
    page,
    thing,
)
from tests.cache.test_server import CRD, FastBackoff, create
from tests.waiting import eventually


@pytest.fixture
def run():
    running = []

    def run(informer):
        stop = StopSignal()
        thread = threading.Thread(target=informer.run, args=(stop,))
        thread.start()
        running.append((stop, thread))
        assert informer.wait_for_sync(stop, PATIENCE), informer.health().text

    yield run
    for stop, thread in running:
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def informer_on(client, **options):
    informer = Informer(THING, client, metrics=Metrics(), on_error=lambda _: None, **options)
    informer._state._refused = informer._state._broken = FastBackoff()
    return informer


def test_credentials_that_change_under_a_running_watch_do_not_end_it(run):
    token = "one"
    with APIServer(crds=[CRD], token=token) as server:
        config = ClientConfig(server=server.url, token_provider=lambda: token, max_retries=0)
        with Client(config, metrics=Metrics()) as client:
            informer, recorder = informer_on(client), Recorder()
            informer.add_event_handler(recorder)
            run(informer)
            server.token = "two"
            server.cut_connections()
            eventually(lambda: type(informer.last_error).__name__ == "Unauthorized")
            token = "two"
            create(client, "a")
            recorder.wait_for_count(1)
            eventually(lambda: informer.health().is_ready)


def test_a_program_that_cannot_get_credentials_for_a_while_goes_on_afterwards(run):
    fails = [OSError("the plugin timed out")] * 3

    def provide():
        if fails:
            raise fails.pop()
        return "one"

    with APIServer(crds=[CRD], token="one") as server:
        config = ClientConfig(server=server.url, token_provider=provide, max_retries=0)
        with Client(config, metrics=Metrics()) as client:
            run(informer_on(client))
    assert not fails


def test_objects_larger_than_any_buffer_come_through_a_watch(run):
    """A peer's reader gives up at lines of 64 KiB."""
    with (
        APIServer(crds=[CRD]) as server,
        Client(ClientConfig(server=server.url), metrics=Metrics()) as client,
    ):
        informer, recorder = informer_on(client), Recorder()
        informer.add_event_handler(recorder)
        run(informer)
        create(client, "big", text="x" * 1_000_000)
        recorder.wait_for_count(1)
        assert len(informer.store.get("big", "default").spec["text"]) == 1_000_000


def test_an_index_costs_one_call_for_each_object_that_comes():
    """A peer's start with an index is quadratic: 66 s for 4,000 objects."""
    calls = []

    def index(obj: Object) -> list[str]:
        calls.append(obj.name)
        return [obj.uid]

    objects = [thing(f"o{number}", number) for number in range(1000)]
    changed = line("MODIFIED", thing("o0", 2000))
    client = ScriptedClient(
        *(
            page(
                *objects[start : start + 100], version=1000, token=str(start) if start < 900 else ""
            )
            for start in range(0, 1000, 100)
        ),
        Stream([changed]),
    )
    informer = Informer(
        THING, client, indexes={"uid": index}, stream_first_sync=False, metrics=Metrics()
    )
    for _ in range(11):
        informer.step(StopSignal())
    assert len(informer.store) == 1000
    assert len(calls) == 1001


def test_threads_do_not_grow_with_objects_or_handlers_calls(run):
    before = threading.active_count()
    stream = Stream(then=None)
    client = ScriptedClient(page(*(thing(f"o{n}", n) for n in range(500)), version=600), stream)
    informer, recorder = informer_on(client, stream_first_sync=False), Recorder()
    most = []
    recorder.hook = lambda _: most.append(threading.active_count())
    informer.add_event_handler(recorder)
    run(informer)
    for version in range(601, 900):
        stream.send(line("MODIFIED", thing(f"o{version % 500}", version)))
    recorder.wait_for_count(799)
    assert max(most) - before == 2


def test_a_custom_resource_needs_no_model_of_its_own(run):
    odd = data("a", spec={"deep": {"list": [1, {"x": None}], "n": 12345678901234567890123}})
    odd["unknown"] = True
    client = ScriptedClient(page(Object.from_dict(THING, odd)))
    informer = informer_on(client, stream_first_sync=False)
    run(informer)
    assert informer.store.get("a", "x").to_dict() == odd


def test_what_reads_return_cannot_be_changed_behind_the_cache(run):
    client = ScriptedClient(page(thing("a", spec={"n": [1]})))
    informer = informer_on(client, stream_first_sync=False)
    run(informer)
    found = informer.store.get("a", "x")
    with pytest.raises(TypeError, match="mutable_copy"):
        found.spec["n"].append(2)
    with pytest.raises(TypeError, match="mutable_copy"):
        found.raw = b""
    assert informer.store.get("a", "x").spec == {"n": [1]}
