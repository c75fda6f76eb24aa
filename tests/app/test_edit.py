"""``app.edit`` and ``app.client.aio`` in the functions of an App."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from appsdk_operator import kinds
from appsdk_operator.app import App
from appsdk_operator.cache import CachedClient
from appsdk_operator.client import Client, ClientConfig, MergePatch
from appsdk_operator.controllers import Condition
from appsdk_operator.manager import Manager
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import APIServer, World, check_operator, install_crds, running
from tests.hypothesis_profiles import histories_of

CONFIG_MAP = kinds.core.v1.ConfigMap
TIMEOUT = 60.0


@attrs.frozen
class BucketSpec:
    """What a user wants."""

    size: int = 0


@attrs.frozen
class BucketStatus:
    """What there is."""

    size: int | None = None
    url: str = ""
    conditions: tuple[Condition, ...] = ()


BUCKET = Kind(
    group="example.com", version="v1", kind="Bucket", spec=BucketSpec, status=BucketStatus
)


@pytest.fixture
def api() -> Iterator[Client]:
    owner = App("owner")
    owner.own(BUCKET)
    with APIServer() as server, Client(ClientConfig(server=server.url)) as client:
        install_crds(client, owner.crds())
        yield client


def bucket(name: str, **spec: Any) -> MutableObject[BucketSpec, BucketStatus]:
    return MutableObject.new(BUCKET, name, namespace="default", spec=spec)


def made(app: App, api: Client) -> Manager:
    return app.manager(api.config, metrics=Metrics())


class Done:
    """Names that functions note, for a test that waits for them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.names: list[str] = []

    def add(self, name: str) -> None:
        with self._changed:
            self.names.append(name)
            self._changed.notify_all()

    def wait_for(self, name: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: name in self.names, TIMEOUT), self.names


def test_edits_in_functions_and_timers_are_written(api: Client) -> None:
    app, done = App("bucket-operator"), Done()

    @app.on_add(BUCKET)
    def make(bucket: Object[BucketSpec, BucketStatus]) -> None:
        done.add("began")
        # The second edit knows of the first one, although the function has the older state.
        for url in ("making", "s3://a"):
            with app.edit(bucket) as draft:
                draft.status = BucketStatus(url=url, size=bucket.spec.size)
                draft.labels["made"] = "yes"
        done.add("made")

    @app.every(3600, BUCKET)
    async def look(bucket: Object[BucketSpec, BucketStatus]) -> None:
        edit = app.edit(bucket)
        async with edit as draft:
            draft.annotations["looked"] = "yes"
        assert edit.object is not None
        found = await app.client.aio.get(BUCKET, bucket.name, namespace=bucket.namespace)
        assert found.annotations["looked"] == "yes"
        done.add("looked")

    api.create(bucket("a", size=3))
    with running(made(app, api)):
        done.wait_for("made")
        done.wait_for("looked")
    assert done.names.count("began") == 1
    found = api.get(BUCKET, "a", namespace="default")
    assert found.status == BucketStatus(size=3, url="s3://a")
    assert (found.labels, found.annotations["looked"]) == ({"made": "yes"}, "yes")


def test_an_edit_that_changes_nothing_asks_nothing(api: Client) -> None:
    app, done = App("bucket-operator"), Done()
    requests: list[str] = []

    @app.every(3600, BUCKET)
    def look(bucket: Object[BucketSpec, BucketStatus]) -> None:
        manager = app.client
        assert isinstance(manager, CachedClient)
        with app.edit(bucket) as draft:
            draft.spec = BucketSpec(size=bucket.spec.size)
        requests.extend(seen)
        done.add("looked")

    class Observer:
        def call_began(self, call: Any) -> None: ...
        def call_ended(self, call: Any, outcome: Any) -> None: ...
        def request_began(self, request: Any) -> None:
            if request.resource == "buckets" and request.verb not in {"list", "watch"}:
                seen.append(request.verb)

        def request_ended(self, request: Any, outcome: Any) -> None: ...

    seen: list[str] = []
    api.create(bucket("a", size=3))
    manager = made(app, api)
    manager.observe_activity(Observer())  # type: ignore[arg-type]
    with running(manager):
        done.wait_for("looked")
    assert requests == []


def test_a_conflict_calls_the_function_again(api: Client) -> None:
    app, done = App("bucket-operator", retry_policy=lambda error, attempt: 0.0), Done()
    seen: list[int | None] = []

    @app.on_add(BUCKET)
    def make(bucket: Object[BucketSpec, BucketStatus]) -> None:
        with app.edit(bucket) as draft:
            seen.append(draft.status.size if draft.get("status") else None)
            if len(seen) == 1:
                # Somebody else, whom the cache does not know of yet.
                patch = MergePatch({"status": {"size": 7}})
                api.status.patch(BUCKET, bucket.name, patch, namespace=bucket.namespace)
            draft.status = BucketStatus(size=(seen[-1] or 0) + 1)
        done.add("made")

    api.create(bucket("a", size=3))
    with running(made(app, api)):
        done.wait_for("made")
    assert (seen[0], api.get(BUCKET, "a", namespace="default").status.size) == (None, 8)


def test_an_edit_belongs_to_a_manager() -> None:
    app = App("bucket-operator")
    with pytest.raises(RuntimeError, match=r"app\.edit belongs to a manager"):
        app.edit(bucket("a").freeze())


def storage_operator(storage: dict[str, int], *, in_coroutines: bool) -> App:
    app = App("bucket-operator")

    def make(bucket: Object[BucketSpec, BucketStatus]) -> None:
        storage[bucket.uid] = bucket.spec.size
        with app.edit(bucket) as draft:
            draft.status = BucketStatus(size=bucket.spec.size)

    async def make_later(bucket: Object[BucketSpec, BucketStatus]) -> None:
        storage[bucket.uid] = bucket.spec.size
        async with app.edit(bucket) as draft:
            draft.status = BucketStatus(size=bucket.spec.size)
        async for each in app.client.aio.list(BUCKET, namespace=bucket.namespace):
            assert each.namespace == bucket.namespace

    add: Any = make_later if in_coroutines else make
    app.on_add(BUCKET)(add)
    app.on_sync(BUCKET)(add)
    if in_coroutines:

        @app.on_update(BUCKET)
        async def resize_later(
            old: Object[BucketSpec, BucketStatus], new: Object[BucketSpec, BucketStatus]
        ) -> None:
            await make_later(new)

    else:

        @app.on_update(BUCKET)
        def resize(
            old: Object[BucketSpec, BucketStatus], new: Object[BucketSpec, BucketStatus]
        ) -> None:
            make(new)

    @app.on_delete(BUCKET)
    def remove(bucket: Object[BucketSpec, BucketStatus]) -> None:
        storage.pop(bucket.uid, None)

    return app


@pytest.mark.parametrize("in_coroutines", [False, True])
def test_at_rest_the_edits_are_written_whatever_happens(in_coroutines: bool) -> None:
    storage: dict[str, int] = {}

    def shows_its_size(world: World) -> None:
        for each in world.client.list(BUCKET):
            assert each.is_deleting or each.status.size == each.spec.size

    check_operator(
        storage_operator(storage, in_coroutines=in_coroutines),
        at_rest=shows_its_size,
        cleaned_up=lambda _, bucket: bucket.uid not in storage,
        max_examples=5,
        seed=histories_of(1),
    )
