"""Key-value style access to one kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from appsdk_operator.cache import Cache, CachedClient
from appsdk_operator.client import (
    AlreadyExists,
    Client,
    ClientConfig,
    Conflict,
    Hooks,
    InterceptedClient,
    NotFound,
    ObjectStore,
    SpecStore,
)
from appsdk_operator.resource import (
    Kind,
    MutableObject,
    Object,
    ObjectKey,
    custom_resource_definition,
)
from appsdk_operator.testing import APIServer, running


@attrs.frozen
class WidgetSpec:
    size: int
    color: str | None = None


@attrs.frozen
class WidgetStatus:
    ready: bool = False


WIDGET = Kind(
    group="example.com", version="v1", kind="Widget", spec=WidgetSpec, status=WidgetStatus
)
KEY = ObjectKey("default", "gear")


@pytest.fixture
def client() -> Iterator[Client]:
    with (
        APIServer(crds=[custom_resource_definition(WIDGET).to_dict()]) as server,
        Client(ClientConfig(server=server.url)) as client,
    ):
        yield client


def gear(size: int = 1, **metadata: Any) -> MutableObject:
    new = MutableObject.new(WIDGET, KEY.name, namespace=KEY.namespace, spec=WidgetSpec(size=size))
    new.metadata.update(metadata)
    return new


class Contended:
    """A client on which somebody else always writes first."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.tries = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def update(self, obj: Any) -> Any:
        self.tries += 1
        raise Conflict("changed meanwhile", status=409)


def test_objects_are_added_read_replaced_listed_and_deleted(client: Client) -> None:
    store = ObjectStore(client, WIDGET)
    added = store.add(gear())
    with pytest.raises(AlreadyExists):
        store.add(gear())
    assert store.get(KEY) == added
    draft = added.mutable_copy()
    draft.spec = WidgetSpec(size=2)
    assert store.update(draft).spec.size == 2
    with pytest.raises(Conflict):
        store.update(draft)
    assert [obj.key for obj in store.list()] == [KEY]
    store.delete(KEY)
    store.delete(KEY)
    with pytest.raises(NotFound):
        store.get(KEY)


def test_an_upsert_creates_what_is_absent_and_replaces_what_is_there(client: Client) -> None:
    store = ObjectStore(client, WIDGET)
    first = store.upsert(gear(1, resourceVersion="12345", uid="of-another-life"))
    assert store.upsert(gear(2)).spec.size == 2
    assert store.upsert(first).spec.size == 1, "an old version is no hindrance"


def test_a_spec_is_written_and_all_else_stays(client: Client) -> None:
    specs = SpecStore(client, WIDGET)
    assert specs.add(KEY, WidgetSpec(size=1, color="blue")) == WidgetSpec(size=1, color="blue")
    labelled = client.get(WIDGET, KEY.name, namespace=KEY.namespace).mutable_copy()
    labelled.labels["a"] = "b"
    client.update(labelled)
    assert specs.update(KEY, WidgetSpec(size=2)) == WidgetSpec(size=2)
    assert client.get(WIDGET, KEY.name, namespace=KEY.namespace).labels == {"a": "b"}
    assert specs.get(KEY) == WidgetSpec(size=2)
    assert list(specs.list("default")) == [(KEY, WidgetSpec(size=2))]
    specs.delete(KEY)
    specs.delete(KEY)
    assert specs.upsert(KEY, WidgetSpec(size=3)) == WidgetSpec(size=3)
    assert specs.upsert(KEY, WidgetSpec(size=4)) == WidgetSpec(size=4)


def test_what_others_create_or_delete_in_between_is_no_hindrance_to_an_upsert(
    client: Client,
) -> None:
    def get(inner: Any, kind: Any, name: str, *, namespace: str = "") -> Any:
        reads.append(name)
        if len(reads) == 3:
            inner.delete(kind, name, namespace=namespace)
        try:
            return inner.get(kind, name, namespace=namespace)
        except NotFound:
            if len(reads) in (1, 3):
                inner.create(gear())
            raise

    reads: list[str] = []
    specs = SpecStore(InterceptedClient(client, Hooks(get=get)), WIDGET)
    assert specs.upsert(KEY, WidgetSpec(size=2)) == WidgetSpec(size=2)
    assert specs.upsert(KEY, WidgetSpec(size=3)) == WidgetSpec(size=3)
    assert len(reads) == 4

    class Taken(Contended):
        def create(self, obj: Any) -> Any:
            self.tries += 1
            raise AlreadyExists("taken", status=409)

    specs.delete(KEY)
    taken = Taken(client)
    with pytest.raises(AlreadyExists):
        SpecStore(taken, WIDGET).upsert(KEY, WidgetSpec(size=2))
    assert taken.tries == 5


def test_a_status_is_written_through_its_subresource(client: Client) -> None:
    statuses = SpecStore(client, WIDGET, part="status")
    with pytest.raises(ValueError, match="create the object"):
        statuses.add(KEY, WidgetStatus(ready=True))
    with pytest.raises(NotFound):
        statuses.update(KEY, WidgetStatus(ready=True))
    client.create(gear())
    assert statuses.get(KEY) is None
    assert statuses.update(KEY, WidgetStatus(ready=True)) == WidgetStatus(ready=True)


def test_fields_that_a_cache_does_not_keep_stay_on_the_server(client: Client) -> None:
    client.create(gear(1, annotations={"a": "b"}))

    def without_annotations(obj: Object) -> MutableObject:
        draft = obj.mutable_copy()
        draft.metadata.pop("annotations", None)
        return draft

    cache = Cache(client, transform=without_annotations)
    cache.add(WIDGET)
    with running(cache):
        specs = SpecStore(CachedClient(client, cache), WIDGET)
        assert specs.update(KEY, WidgetSpec(size=2)) == WidgetSpec(size=2)
    assert client.get(WIDGET, KEY.name, namespace=KEY.namespace).annotations == {"a": "b"}


def test_a_write_through_a_cache_that_is_behind_meets_no_conflict(client: Client) -> None:
    behind = client.create(gear(1))

    def get(inner: Any, kind: Any, name: str, *, namespace: str = "") -> Any:
        return behind

    cached = InterceptedClient(client, Hooks(get=get))
    cached.live = client  # type: ignore[attr-defined]
    for size in (2, 3):
        assert SpecStore(cached, WIDGET).update(KEY, WidgetSpec(size=size)).size == size
        assert ObjectStore(cached, WIDGET).upsert(gear(size)).spec.size == size


def test_only_spec_and_status_are_parts(client: Client) -> None:
    with pytest.raises(ValueError, match="'spec' or 'status'"):
        SpecStore(client, WIDGET, part="metadata")  # type: ignore[arg-type]


def test_who_is_always_second_gives_up_with_the_conflict(client: Client) -> None:
    client.create(gear())
    contended = Contended(client)
    with pytest.raises(Conflict):
        ObjectStore(contended, WIDGET).upsert(gear(2))
    assert contended.tries == 5
    with pytest.raises(Conflict):
        SpecStore(contended, WIDGET).update(KEY, WidgetSpec(size=2))
    assert contended.tries == 10
