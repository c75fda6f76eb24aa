"""What an App's functions find in the cache, and what they remember of objects."""

from __future__ import annotations

import threading
from typing import Any

import attrs
import pytest

from appsdk_operator import kinds
from appsdk_operator.app import App
from appsdk_operator.cache import NotCachedError
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.manager import CacheSetup
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.testing import World
from tests.app.test_app import BUCKET, CONFIG_MAP, BucketSpec, nothing
from tests.app.test_managers import Calls, api, bucket, config, made, running
from tests.waiting import eventually

__all__ = ["api", "config"]


def test_an_index_answers_field_selectors_of_the_client(api: Client, config: ClientConfig) -> None:
    app, calls = App("bucket-operator"), Calls()
    app.index(BUCKET, "spec.size")
    app.index(BUCKET, "parity", lambda one: ["even" if one.spec.size % 2 == 0 else "odd"])

    @app.task
    def look(stop: Any) -> None:
        found = app.client.list(BUCKET, field_selector={"spec.size": "3"})
        odd = app.client.list(BUCKET, field_selector="parity=odd,spec.size=1")
        calls.add(([one.name for one in found], [one.name for one in odd]))

    for name, size in (("a", 3), ("b", 2), ("c", 1)):
        api.create(bucket(name, size))
    with running(made(app, config)):
        calls.wait_for((["a"], ["c"]))


def test_a_kind_that_only_an_index_names_is_followed_and_its_permission_says_why() -> None:
    app = App("bucket-operator")
    app.index(CONFIG_MAP, "data.owner")
    assert app.kinds == ()
    [follow] = [each for each in app.permissions() if each.resources == ("configmaps",)]
    assert follow.verbs == ("list", "watch")
    assert follow.reasons == ("an index of configmaps by data.owner",)


def test_an_index_of_a_world_is_that_of_its_process() -> None:
    app, found = App("bucket-operator"), list[str]()
    app.index(BUCKET, "spec.size")

    @app.on_add(BUCKET)
    def make(obj: Object[BucketSpec]) -> None:
        same = app.client.list(BUCKET, field_selector={"spec.size": str(obj.spec.size)})
        found[:] = [one.name for one in same]

    with World(app) as world:
        for name in ("a", "b"):
            world.create(name, {"size": 7})
        world.settle()
    assert found == ["a", "b"]


def test_a_list_before_the_run_says_when_there_is_a_client() -> None:
    app = App("bucket-operator")
    app.index(BUCKET, "spec.size")
    with pytest.raises(RuntimeError, match="none of bucket-operator runs"):
        app.client.list(BUCKET, field_selector={"spec.size": "3"})


@pytest.mark.parametrize(
    ("path", "function", "text"),
    [
        ("spec.sise", None, "did you mean 'size'"),
        ("metadata.name", None, "every cache has this index"),
        ("", None, "path"),
        ("spec..size", None, "write names with dots"),
        ("metadata.labels['app']", None, "write names with dots"),
        ("a=b", nothing, "not a path that can be selected by"),
        ("spec.note", None, "declared twice"),
        ("spec.note", nothing, "declared twice"),
    ],
)
def test_an_index_that_cannot_answer_is_refused(path: str, function: Any, text: str) -> None:
    app = App("bucket-operator")
    app.index(BUCKET, "spec.note")
    with pytest.raises(ValueError, match=text):
        app.index(BUCKET, path, function)


def test_an_index_is_checked_against_a_schema_that_comes_later() -> None:
    app = App("bucket-operator")
    kind: Kind[Any, Any] = Kind(group="example.com", version="v1", kind="Thing")
    app.index(kind, "spec.sise")
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
    with pytest.raises(ValueError, match="did you mean 'size'"):
        app.own(kind, schema={"type": "object", "properties": {"spec": schema}})


def test_what_is_no_index_is_refused() -> None:
    index: Any = App("bucket-operator").index
    for arguments in (("Bucket", "spec.size"), (BUCKET, 3), (BUCKET, "a", "b")):
        with pytest.raises(TypeError):
            index(*arguments)


# Memos.


def test_a_memo_lasts_from_call_to_call_until_the_object_is_gone(
    api: Client, config: ClientConfig
) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.on_add(BUCKET)
    def make(obj: Object[BucketSpec]) -> None:
        memo = app.memo(obj)
        calls.add(("add", dict(memo)))
        memo["made"] = obj.spec.size

    @app.on_delete(BUCKET)
    def remove(obj: Object[BucketSpec]) -> None:
        calls.add(("delete", dict(app.memo(obj))))

    with running(made(app, config)):
        for size in (1, 2):  # another object of the same name
            api.create(bucket("a", size))
            calls.wait_for(("add", {}), size)
            api.delete(BUCKET, "a", namespace="default")
            calls.wait_for(("delete", {"made": size}))
            eventually(lambda: not list(api.list(BUCKET)))


def test_a_memo_is_dropped_when_the_object_is_gone_and_not_made_anew_by_an_old_state(
    api: Client, config: ClientConfig
) -> None:
    app = App("bucket-operator")
    app.watch(BUCKET, lambda client: _Nothing())
    with running(made(app, config)) as manager:
        state = app._managers[manager]
        one = api.create(bucket("a"))
        eventually(lambda: manager.cache.get(BUCKET, "a", namespace="default") is not None)
        first = app.memo(one)
        assert app.memo(one) is first
        assert app.memo(api.get(BUCKET, "a", namespace="default")) is first
        assert list(state.memos._by_uid) == [one.uid]
        api.delete(BUCKET, "a", namespace="default")
        eventually(lambda: not state.memos._by_uid)
        late = app.memo(one)
        assert late == {}
        assert app.memo(one) is not late
        assert not state.memos._by_uid


class _Nothing:
    def add(self, obj: Any) -> None: ...
    def update(self, old: Any, new: Any) -> None: ...
    def delete(self, obj: Any) -> None: ...


def test_an_object_that_the_manager_has_made_itself_has_a_memo_at_once(
    api: Client, config: ClientConfig
) -> None:
    app = App("bucket-operator")
    app.watch(BUCKET, lambda client: _Nothing())
    with running(made(app, config)) as manager:
        one = manager.client.create(bucket("a"))
        assert app.memo(one) is app.memo(one)


def test_replicas_have_memos_of_their_own(api: Client, config: ClientConfig) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.every(3600, BUCKET, every_replica=True)
    def look(obj: Object[BucketSpec]) -> None:
        app.memo(obj).setdefault("by", []).append(obj.name)
        calls.add(app.memo(obj)["by"])

    with running(made(app, config)), running(made(app, config)):
        api.create(bucket("a"))
        calls.wait_for(["a"], 2)
        one, other = calls.all
        assert one is not other


def test_many_threads_get_one_memo(api: Client, config: ClientConfig) -> None:
    app = App("bucket-operator")
    app.watch(BUCKET, lambda client: _Nothing())
    with running(made(app, config)) as manager:
        objects = [manager.client.create(bucket(f"b{number}")) for number in range(20)]
        found: list[list[int]] = []
        barrier = threading.Barrier(8)

        def ask() -> None:
            barrier.wait()
            found.append([id(app.memo(obj)) for obj in objects])

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(one == found[0] for one in found)


def test_a_memo_of_what_cannot_have_one_is_refused(config: ClientConfig) -> None:
    app = App("bucket-operator")
    app.on_add(BUCKET)(nothing)
    secret = MutableObject.new(kinds.core.v1.Secret, "a", namespace="default")
    with pytest.raises(RuntimeError, match=r"app\.memo belongs to a manager"):
        app.memo(secret.freeze())
    memo: Any = app.memo
    with made(app, config):
        with pytest.raises(TypeError, match="give an object"):
            memo("a")
        with pytest.raises(ValueError, match="no uid"):
            memo(secret.freeze())


def test_a_memo_of_a_kind_that_is_not_cached_says_what_to_do(
    api: Client, config: ClientConfig
) -> None:
    app = App("bucket-operator")
    app.on_add(BUCKET)(nothing)
    one = api.create(MutableObject.new(CONFIG_MAP, "a", namespace="default"))
    with (
        running(made(app, config)),
        pytest.raises(NotCachedError, match="have a controller watch the kind"),
    ):
        app.memo(one)
    setup = attrs.evolve(app.options.cache or CacheSetup(), kinds=[CONFIG_MAP])
    with running(app.manager(config, cache=setup)):
        assert app.memo(one) is app.memo(one)
