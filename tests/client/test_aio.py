"""The verbs as coroutines: the same parameters, results and errors, and no thread left behind."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import inspect
import threading
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.cache import Cache, CachedClient
from appsdk_operator.client import (
    AsyncClient,
    AsyncSubresource,
    Client,
    ClientConfig,
    ClientLike,
    ClientWrapper,
    DryRunClient,
    Expired,
    FieldOwnerClient,
    Forbidden,
    Hooks,
    InterceptedClient,
    MergePatch,
    NamespacedClient,
    NotFound,
    RequestStopped,
    SubresourceClient,
    checked_before_write,
)
from appsdk_operator.client._api import aio
from appsdk_operator.resource import DecodeError, Kind, MutableObject, Object, kinds
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer, FaultRule, MemoryServer, running

CONFIG_MAP = kinds.core.v1.ConfigMap
POD = kinds.core.v1.Pod


@pytest.fixture
def server() -> Iterator[APIServer]:
    with APIServer() as running:
        yield running


@pytest.fixture
def client(server: APIServer) -> Iterator[Client]:
    with Client(ClientConfig(server=server.url), metrics=Metrics()) as made:
        yield made


def config_map(name: str, **data: str) -> MutableObject:
    return MutableObject.new(CONFIG_MAP, name, namespace="default", data=data)


def named(prefix: str) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith(prefix)]


class Gate:
    """A hook whose calls wait until the test lets them pass."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.begun = self.at_once = self.most = 0
        self._is_open = False

    def __call__(self, inner: Any, *args: Any, **options: Any) -> Any:
        with self._changed:
            self.begun += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._is_open, 60)
            self.at_once -= 1
        return inner.get(*args, **options)

    def open(self) -> None:
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    async def has_begun(self, count: int) -> None:
        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: self.begun >= count, 60)

        assert await asyncio.to_thread(wait)


# -- Parity ----------------------------------------------------------------------------------

NO_VERBS = {"contact", "aio", "close", "config", "discovery", "observe_activity", "request"}
"""What a Client has besides verbs; ``request`` is for what has no kind."""


def members(cls: type) -> set[str]:
    return {name for name in vars(cls) if not name.startswith("_")}


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters with their kinds, those in ``**options`` as keywords."""
    found: dict[str, Any] = {}
    for each in inspect.signature(function).parameters.values():
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            hints = typing.get_type_hints(function, vars(inspect.getmodule(function)))
            options = typing.get_args(hints[each.name])[0]
            found |= dict.fromkeys(options.__annotations__, inspect.Parameter.KEYWORD_ONLY)
        else:
            found[each.name] = each.kind
    return found


@pytest.mark.parametrize(
    ("plain", "coroutines"), [(Client, AsyncClient), (SubresourceClient, AsyncSubresource)]
)
def test_each_verb_has_its_coroutine_with_the_same_parameters(
    plain: type, coroutines: type
) -> None:
    verbs = members(plain) - NO_VERBS
    assert members(coroutines) == verbs
    for name in verbs - {"status", "subresource", "name"}:
        one, other = getattr(plain, name), getattr(coroutines, name)
        assert parameters(other) == parameters(one), name
        is_async = inspect.iscoroutinefunction(other) or inspect.isasyncgenfunction(other)
        assert is_async or name == "watch", name
        assert f"See :meth:`{plain.__name__}.{name}`" in other.__doc__
        assert inspect.getdoc(one)


def test_each_verb_of_the_protocol_has_its_coroutine() -> None:
    protocol = {name for cls in inspect.getmro(ClientLike) for name in members(cls)} - {"aio"}
    assert protocol == members(AsyncClient)
    assert members(AsyncClient) <= {n for cls in ClientWrapper.__mro__ for n in members(cls)}


def test_the_verbs_do_what_their_plain_forms_do(client: Client) -> None:
    async def use() -> None:
        it = client.aio
        made = await it.create(config_map("a", x="1"))
        draft = made.mutable_copy()
        draft["data"]["x"] = "2"
        assert (await it.update(draft))["data"] == {"x": "2"}
        patch = MergePatch({"data": {"y": "3"}})
        assert (await it.patch(CONFIG_MAP, "a", patch, namespace="default"))["data"]["y"] == "3"
        await it.apply(config_map("b", z="1"), field_manager="me")
        assert (await it.get(CONFIG_MAP, "b", namespace="default"))["data"] == {"z": "1"}
        page = await it.list_page(CONFIG_MAP, namespace="default", limit=1)
        assert (len(page.items), bool(page.continue_token)) == (1, True)
        names = [obj.name async for obj in it.list(CONFIG_MAP, namespace="default", limit=1)]
        assert names == ["a", "b"]
        changed = await it.modify(
            CONFIG_MAP, "a", lambda draft: draft.labels.update(a="b"), namespace="default"
        )
        assert changed.labels == {"a": "b"}
        await it.delete(CONFIG_MAP, "a", namespace="default")
        await it.delete_collection(CONFIG_MAP, namespace="default")
        assert [obj async for obj in it.list(CONFIG_MAP, namespace="default")] == []
        pod = MutableObject.new(POD, "p", namespace="default")
        pod["spec"] = {"containers": [{"name": "c", "image": "i"}]}
        await it.create(pod)
        patch = MergePatch({"status": {"message": "here"}})
        written = await it.status.patch(POD, "p", patch, namespace="default")
        assert written.status["message"] == "here"
        assert (await it.subresource("status").get(POD, "p", namespace="default")).name == "p"
        assert it.status.name == "status"

    asyncio.run(use())


def test_what_wraps_a_client_has_the_same_coroutines(client: Client) -> None:
    client.create(config_map("a", x="1"))
    seen: list[str] = []

    def note(inner: Any, *args: Any, **options: Any) -> Object:
        seen.append(threading.current_thread().name)
        found: Object = inner.get(*args, **options)
        return found

    async def use() -> None:
        namespaced = NamespacedClient(client, "default")
        assert (await namespaced.aio.get(CONFIG_MAP, "a")).name == "a"
        with pytest.raises(ValueError, match="does not match the namespace"):
            await namespaced.aio.get(CONFIG_MAP, "a", namespace="other")
        dry = DryRunClient(client).aio
        await dry.delete(CONFIG_MAP, "a", namespace="default")
        owned = await FieldOwnerClient(client, "me").aio.apply(config_map("o"))
        assert owned.metadata["managedFields"][0]["manager"] == "me"
        await InterceptedClient(client, Hooks(get=note)).aio.get(
            CONFIG_MAP, "a", namespace="default"
        )

    asyncio.run(use())
    assert seen == ["client-aio/call"]


def test_the_client_of_a_cache_shows_its_own_writes(client: Client) -> None:
    client.create(config_map("a", x="1"))
    cache = Cache(client)
    cache.add(CONFIG_MAP)
    cached = CachedClient(client, cache)

    async def use() -> None:
        for number in map(str, range(20)):

            def change(draft: MutableObject, n: str = number) -> None:
                draft["data"]["n"] = n

            await cached.aio.modify(CONFIG_MAP, "a", change, namespace="default")
            found = await cached.aio.get(CONFIG_MAP, "a", namespace="default")
            assert found["data"]["n"] == number
        assert [obj.name async for obj in cached.aio.list(CONFIG_MAP, namespace="default")] == ["a"]

    with running(cache):
        asyncio.run(use())


# -- Errors and context ----------------------------------------------------------------------


def test_errors_come_with_their_types_and_tracebacks(client: Client) -> None:
    class OwnError(BaseException):
        pass

    def fail(inner: Any, *args: Any, **options: Any) -> None:
        raise OwnError("mine")

    async def use() -> None:
        with pytest.raises(NotFound, match="configmaps"):
            await client.aio.get(CONFIG_MAP, "none", namespace="default")
        broken = InterceptedClient(client, Hooks(get=fail)).aio
        with pytest.raises(OwnError) as failure:
            await broken.get(CONFIG_MAP, "a", namespace="default")
        assert "fail" in [entry.name for entry in failure.traceback]

    asyncio.run(use())


def test_context_variables_are_those_of_the_caller(client: Client) -> None:
    variable = contextvars.ContextVar("variable", default="outside")
    seen: list[str] = []

    def note(inner: Any, *args: Any, **options: Any) -> Any:
        seen.append(variable.get())
        variable.set("changed within")
        return inner.create(*args, **options)

    noting = InterceptedClient(client, Hooks(create=note)).aio

    async def one(name: str) -> None:
        variable.set(name)
        await noting.create(config_map(name))
        assert variable.get() == name

    async def use() -> None:
        await asyncio.gather(*(one(name) for name in "abc"))

    asyncio.run(use())
    assert sorted(seen) == ["a", "b", "c"]


def test_the_checks_before_a_write_are_those_of_the_caller(client: Client) -> None:
    def refuse() -> None:
        raise Forbidden("it leads no more")

    async def use() -> None:
        with checked_before_write(refuse):
            with pytest.raises(Forbidden, match="leads no more"):
                await client.aio.create(config_map("a"))
            assert [obj async for obj in client.aio.list(CONFIG_MAP)] == []
        await client.aio.create(config_map("a"))

    asyncio.run(use())


def test_an_error_in_the_middle_of_a_list_comes_after_the_objects_before_it(
    client: Client,
) -> None:
    for name in "abc":
        client.create(config_map(name))

    def pages(inner: Any, kind: Kind, **options: Any) -> Iterator[Object]:
        yield from inner.list(kind, **options)
        raise DecodeError("the last cannot be read")

    listing = InterceptedClient(client, Hooks(list=pages)).aio

    async def use() -> list[str]:
        objects = listing.list(CONFIG_MAP, namespace="default")
        names = [(await anext(objects)).name for _ in "abc"]
        with pytest.raises(DecodeError):
            await anext(objects)
        return names

    assert asyncio.run(use()) == ["a", "b", "c"]


def test_a_list_takes_no_call_after_its_end(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        client.create(config_map(name))
    calls = []
    do_call = aio._call

    async def note(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return await do_call(*args, **options)

    monkeypatch.setattr(aio, "_call", note)

    async def use(**options: Any) -> list[str]:
        objects = client.aio.list(CONFIG_MAP, namespace="default", **options)
        return [obj.name async for obj in objects]

    for options in ({}, {"limit": 2}):
        assert asyncio.run(use(**options)) == ["a", "b", "c"]
    assert len(calls) == 1 + 2


def test_pages_are_fetched_as_they_are_needed(client: Client, server: APIServer) -> None:
    for number in range(6):
        client.create(config_map(f"c{number}"))
    before = len(server.requests)

    async def use() -> None:
        objects = client.aio.list(CONFIG_MAP, namespace="default", limit=2)
        async with contextlib.aclosing(objects):
            seen = 0
            async for _ in objects:
                seen += 1
                assert len(server.requests) - before == (seen + 1) // 2
                if seen == 3:
                    break

    asyncio.run(use())
    assert len(server.requests) - before == 2


# -- Bounds ----------------------------------------------------------------------------------


def test_the_calls_of_a_loop_are_bounded_and_wait_in_order(client: Client) -> None:
    client.create(config_map("a"))
    gate = Gate()
    gated = InterceptedClient(client, Hooks(get=gate)).aio

    async def use() -> None:
        calls = [
            asyncio.ensure_future(gated.get(CONFIG_MAP, "a", namespace="default"))
            for _ in range(aio.CALLS + 10)
        ]
        await gate.has_begun(aio.CALLS)
        assert len(named("client-aio/call")) == gate.begun == aio.CALLS
        calls[-1].cancel()  # it waits for its turn
        with pytest.raises(asyncio.CancelledError):
            await calls[-1]
        gate.open()
        await asyncio.gather(*calls[:-1])

    asyncio.run(use())
    assert (gate.begun, gate.most) == (aio.CALLS + 9, aio.CALLS)


def test_watches_take_no_threads_from_calls(client: Client) -> None:
    client.create(config_map("a"))

    async def follow(started: asyncio.Semaphore) -> None:
        async for _ in client.aio.watch(CONFIG_MAP, namespace="default"):
            started.release()

    async def use() -> None:
        started = asyncio.Semaphore(0)
        watches = [asyncio.ensure_future(follow(started)) for _ in range(aio.CALLS + 8)]
        for _ in watches:
            await started.acquire()
        found = await client.aio.get(CONFIG_MAP, "a", namespace="default")
        assert found.name == "a"
        for each in watches:
            each.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        for thread in named("client-aio/watch"):
            thread.join(10)
        assert named("client-aio/watch") == []

    asyncio.run(use())


def test_too_many_watches_are_an_error_and_not_a_wait(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio, "WATCHES", 2)

    async def use() -> None:
        async with client.aio.watch(CONFIG_MAP) as one, client.aio.watch(CONFIG_MAP) as two:
            waiting = [asyncio.ensure_future(anext(each)) for each in (one, two)]
            await asyncio.sleep(0)
            three = client.aio.watch(CONFIG_MAP)
            with pytest.raises(RuntimeError, match="waits for 2 watches already"):
                await anext(three)
            # The objects that are there let both go on.
            client.create(config_map("a"))
            await asyncio.gather(*waiting)
            assert (await anext(three)).object is not None
            await three.aclose()

    asyncio.run(use())


# -- Ends ------------------------------------------------------------------------------------


def test_a_watch_yields_events_until_the_server_ends_it(client: Client) -> None:
    async def use() -> list[str]:
        seen = []
        async for event in client.aio.watch(CONFIG_MAP, namespace="default", timeout=1):
            if event.object is None:
                continue
            seen.append(f"{event.type.value} {event.object.name}")
            if event.object.name == "a":
                await client.aio.create(config_map("b"))
        return seen

    client.create(config_map("a"))
    assert asyncio.run(use()) == ["ADDED a", "ADDED b"]


def test_a_cancelled_watch_ends_at_once_and_leaves_no_thread(client: Client) -> None:
    async def use() -> None:
        watch = client.aio.watch(CONFIG_MAP)
        client.create(config_map("a"))
        await anext(watch)
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        assert named("client-aio/watch")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, 10)
        for each in named("client-aio/watch"):
            each.join(10)
        with pytest.raises(StopAsyncIteration):
            await anext(watch)

    asyncio.run(use())


@pytest.mark.parametrize("is_open", [True, False])
def test_closing_a_watch_ends_the_task_that_waits_in_it(client: Client, is_open: bool) -> None:
    gate = Gate()

    def wait(inner: Any, *args: Any, **options: Any) -> Any:
        with contextlib.suppress(NotFound):
            gate(inner, CONFIG_MAP, "none", namespace="default")
        return inner.watch(*args, **options)

    async def use() -> None:
        watching = client if is_open else InterceptedClient(client, Hooks(watch=wait))
        watch = watching.aio.watch(CONFIG_MAP)
        if is_open:
            client.create(config_map("a"))
            await anext(watch)
        waiting = asyncio.ensure_future(anext(watch))
        if is_open:
            await asyncio.sleep(0)
        else:
            await gate.has_begun(1)
        await watch.aclose()
        await watch.aclose()
        gate.open()
        with pytest.raises(StopAsyncIteration):
            await waiting

    asyncio.run(use())


def test_a_watch_that_is_left_with_a_break_is_closed(client: Client, server: APIServer) -> None:
    streams: list[Any] = []

    def note(inner: Any, *args: Any, **options: Any) -> Any:
        streams.append(inner.watch(*args, **options))
        return streams[-1]

    client.create(config_map("a"))

    async def use() -> None:
        async for _ in InterceptedClient(client, Hooks(watch=note)).aio.watch(CONFIG_MAP):
            break

    asyncio.run(use())
    gc.collect()
    assert [stream.closed for stream in streams] == [True]


def test_one_watch_is_for_one_task(client: Client) -> None:
    async def use() -> None:
        async with client.aio.watch(CONFIG_MAP) as watch:
            first = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="two tasks"):
                await anext(watch)
            client.create(config_map("a"))
            event = await first
            assert event.object is not None
            assert event.object.name == "a"
            last = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            await watch.aclose()
            with pytest.raises(StopAsyncIteration):
                await last

    asyncio.run(use())


def test_an_error_event_ends_a_watch(client: Client, server: APIServer) -> None:
    client.create(config_map("a"))
    server.compact()

    async def use() -> None:
        watch = client.aio.watch(CONFIG_MAP, resource_version="1")
        with pytest.raises(Expired):
            await anext(watch)
        with pytest.raises(StopAsyncIteration):
            await anext(watch)

    asyncio.run(use())


def noting(client: Client, verb: str) -> tuple[ClientLike, list[str], threading.Event]:
    """A client, and how the calls of one verb ended; the event is set when one begins."""
    ends: list[str] = []
    begun = threading.Event()

    def note(inner: Any, *args: Any, **options: Any) -> Any:
        begun.set()
        try:
            answer = getattr(inner, verb)(*args, **options)
        except Exception as error:
            ends.append(type(error).__name__)
            raise
        ends.append("answered")
        return answer

    return InterceptedClient(client, Hooks(**{verb: note})), ends, begun


async def cancelled(call: Any, begun: threading.Event) -> None:
    """Cancel a call that has begun, and wait for its end."""
    task = asyncio.ensure_future(call)
    assert await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)


def test_a_read_that_nobody_waits_for_is_cut_off(client: Client, server: APIServer) -> None:
    server.inject([FaultRule.stall(verb="get")])
    watched, ends, begun = noting(client, "get")
    asyncio.run(cancelled(watched.aio.get(CONFIG_MAP, "a", namespace="default"), begun))
    assert ends == ["RequestStopped"]


def test_a_write_that_was_sent_is_waited_for(client: Client, server: APIServer) -> None:
    server.inject([FaultRule.hold(1.0, verb="create")])
    watched, ends, _ = noting(client, "create")

    async def use() -> None:
        task = asyncio.ensure_future(watched.aio.create(config_map("a")))
        # Until the server has it.
        async for _ in client.aio.watch(CONFIG_MAP, namespace="default"):
            break
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ends == ["answered"]

    asyncio.run(use())


def test_a_write_is_not_tried_again_for_a_task_that_was_cancelled(
    client: Client, server: APIServer
) -> None:
    server.inject([FaultRule.answer(429, retry_after=30, verb="create")])
    watched, ends, begun = noting(client, "create")
    asyncio.run(cancelled(watched.aio.create(config_map("a")), begun))
    assert ends == ["RequestStopped"]
    assert len(server.requests) <= 1


def test_a_loop_that_is_closed_amid_calls_leaves_no_thread(
    client: Client, server: APIServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.inject([FaultRule.stall(verb="get")])
    watched, ends, begun = noting(client, "get")
    loop = asyncio.new_event_loop()
    task = loop.create_task(watched.aio.get(CONFIG_MAP, "a", namespace="default"))
    watch = client.aio.watch(CONFIG_MAP)
    waiting = loop.create_task(anext(watch))
    loop.run_until_complete(asyncio.wait_for(_begun(begun), 60))
    loop.close()
    del task, waiting, watch
    gc.collect()
    for each in named("client-aio"):
        each.join(30)
    assert (named("client-aio"), ends) == ([], ["RequestStopped"])


def test_a_task_that_nobody_else_keeps_goes_on(client: Client) -> None:
    client.create(config_map("a"))
    gate = Gate()
    gated = InterceptedClient(client, Hooks(get=gate)).aio

    async def use() -> None:
        ended = asyncio.Event()

        async def work() -> None:
            for _ in range(2):
                await gated.get(CONFIG_MAP, "a", namespace="default")
            ended.set()

        asyncio.create_task(work())  # noqa: RUF006
        await gate.has_begun(1)
        gc.collect()
        gate.open()
        await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(use())


async def _begun(begun: threading.Event) -> None:
    # Not in the loop's executor, which would outlive it.
    while not begun.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0)


def test_each_loop_has_threads_of_its_own(client: Client) -> None:
    client.create(config_map("a"))
    gate = Gate()
    gated = InterceptedClient(client, Hooks(get=gate)).aio

    async def use() -> int:
        calls = [gated.get(CONFIG_MAP, "a", namespace="default") for _ in range(aio.CALLS)]
        return len(await asyncio.gather(*calls))

    results: list[int] = []
    loops = [threading.Thread(target=lambda: results.append(asyncio.run(use()))) for _ in "12"]
    for each in loops:
        each.start()
    asyncio.run(gate.has_begun(2 * aio.CALLS))
    gate.open()
    for each in loops:
        each.join(60)
    assert results == [aio.CALLS, aio.CALLS]


def test_a_closed_client_ends_all_that_waits(client: Client, server: APIServer) -> None:
    server.inject([FaultRule.stall(verb="get"), FaultRule.stall(verb="create")])

    async def use() -> None:
        calls = [
            asyncio.ensure_future(client.aio.get(CONFIG_MAP, "a", namespace="default")),
            asyncio.ensure_future(client.aio.create(config_map("b"))),
        ]
        watch = asyncio.ensure_future(anext(client.aio.watch(CONFIG_MAP)))
        await asyncio.sleep(0)
        client.close()
        for each in calls:
            with pytest.raises(RequestStopped):
                await each
        with pytest.raises((StopAsyncIteration, RequestStopped)):
            await watch

    asyncio.run(use())


def test_the_client_of_a_server_in_memory_has_them_too() -> None:
    async def use(client: Client) -> None:
        await client.aio.create(config_map("a"))
        assert [obj.name async for obj in client.aio.list(CONFIG_MAP)] == ["a"]
        async for event in client.aio.watch(CONFIG_MAP):
            assert event.object is not None
            break

    with MemoryServer() as server, server.client() as client:
        asyncio.run(use(client))


def test_a_change_on_the_loop_may_use_the_client(client: Client) -> None:
    client.create(config_map("a"))
    client.create(config_map("source", x="1"))

    threads = set()

    async def change(draft: MutableObject) -> None:
        threads.add(threading.current_thread())
        source = await client.aio.get(CONFIG_MAP, "source", namespace="default")
        draft["data"] = source["data"]

    async def use() -> None:
        # More than there are threads.
        for each in await asyncio.gather(
            *(
                client.aio.modify(CONFIG_MAP, "a", change, namespace="default")
                for _ in range(aio.CALLS + 8)
            )
        ):
            assert each["data"] == {"x": "1"}

    asyncio.run(use())
    assert threads == {threading.current_thread()}


def test_more_stops(client: Client) -> None:
    stop = StopSignal()

    async def use() -> None:
        watch = client.aio.watch(CONFIG_MAP, stop=stop)
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        stop.set()
        with pytest.raises((StopAsyncIteration, RequestStopped)):
            await waiting
        with pytest.raises(RequestStopped):
            async for _ in client.aio.list(CONFIG_MAP, stop=stop):
                pass

    asyncio.run(use())


def test_only_clients_have_coroutines() -> None:
    with pytest.raises(TypeError, match="is not a client"):
        AsyncClient(ClientConfig(server="http://localhost"))  # type: ignore[arg-type]
