"""An App in a World, and in the property test of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import strategies as st

from appsdk_operator import kinds
from appsdk_operator.app import App
from appsdk_operator.app._due import ObjectState
from appsdk_operator.client import AlreadyExists, NotFound
from appsdk_operator.controllers import Request, set_controller_reference
from appsdk_operator.manager import LeaderElection, MetricsServerOptions
from appsdk_operator.resource import Kind, MutableObject, Object, annotation, field, labels
from appsdk_operator.testing import BrokenPromise, World, check_operator
from tests.hypothesis_profiles import histories_of, scaled

CONFIG_MAP = kinds.core.v1.ConfigMap


@attrs.frozen
class BucketSpec:
    """What a user wants."""

    size: int = 0


BUCKET = Kind(group="example.com", version="v1", kind="Bucket", spec=BucketSpec)


def nothing(*_: Any) -> None:
    """A function that does nothing."""


def storage_operator(storage: Callable[[], dict[str, int]], **options: Any) -> App:
    """Keeps the buckets' sizes outside of the cluster."""
    app = App("bucket-operator", **options)

    @app.on_add(BUCKET)
    @app.on_sync(BUCKET)
    def make(bucket: Object[BucketSpec]) -> None:
        storage()[bucket.uid] = bucket.spec.size

    @app.on_update(BUCKET)
    def resize(old: Object[BucketSpec], new: Object[BucketSpec]) -> None:
        storage()[new.uid] = new.spec.size

    @app.on_delete(BUCKET)
    def remove(bucket: Object[BucketSpec]) -> None:
        storage().pop(bucket.uid, None)

    return app


def test_a_world_runs_an_app_with_its_first_kind_and_its_crds() -> None:
    storage: dict[str, int] = {}
    app = storage_operator(lambda: storage)
    calls: list[str] = []
    app.every(3600, BUCKET)(lambda bucket: calls.append(bucket.name))
    with World(app) as world:
        assert world.kind == BUCKET
        world.create("a", {"size": 3})
        world.settle()
        assert list(storage.values()) == [3]
        world.run(2 * 3600)
        assert calls == ["a"] * 3
        world.delete("a")
        world.settle()
    assert storage == {}


def test_a_world_elects_a_leader_among_the_replicas_of_an_app_and_opens_no_port() -> None:
    storage: dict[str, int] = {}
    app = storage_operator(
        lambda: storage,
        leader_election=LeaderElection(id="buckets", release_on_cancel=True),
        metrics_server=MetricsServerOptions(address="192.0.2.1:1"),
    )
    app.validate(BUCKET)(lambda bucket: None)
    with World(BUCKET, app, replicas=2) as world:
        world.create("a", {"size": 3})
        world.settle()
        assert list(storage.values()) == [3]
        world.crash(0)
        world.create("b", {"size": 4})
        world.settle()
        assert sorted(storage.values()) == [3, 4]


FINALIZERS = ["x.example.org/hold", "example.com/bucket-operator.v1.Bucket"]


def failing_operator(failing: str, **options: Any) -> App:
    app = App("bucket-operator", **options)

    def fail(name: str) -> None:
        if name == failing:
            raise ConnectionError("down")

    @app.on_add(BUCKET)
    def make(bucket: Object[BucketSpec]) -> None:
        fail("make")

    @app.on_update(BUCKET, where=labels("tier!=old"), when=field("spec.size").changed)
    def resize(old: Object[BucketSpec], new: Object[BucketSpec]) -> None:
        fail("resize")

    @app.on_delete(BUCKET)
    def remove(bucket: Object[BucketSpec]) -> None:
        fail("remove")

    return app


@pytest.mark.parametrize(
    ("failing", "then", "comes_to_rest"),
    [
        pytest.param("resize", "nothing", False, id="still-asked-for"),
        pytest.param("resize", "leaves the filter", True, id="leaves-the-filter"),
        pytest.param("resize", "is deleted", True, id="is-deleted"),
        pytest.param("remove", "is deleted", False, id="clean-up-fails"),
    ],
)
def test_a_world_is_at_rest_when_nothing_asks_any_more_for_the_call_that_failed(
    failing: str, then: str, comes_to_rest: bool
) -> None:
    with World(failing_operator(failing)) as world:
        world.create("a", {"size": 1})
        assert world.settle()
        world.patch("a", {"spec": {"size": 2}, "metadata": {"finalizers": FINALIZERS}})
        world.run(1)
        if then == "leaves the filter":
            world.patch("a", {"metadata": {"labels": {"tier": "old"}}})
        elif then == "is deleted":
            world.delete("a")
        assert world.settle(horizon=600) is comes_to_rest
        assert [bucket.name for bucket in world.objects()] == ["a"]


def test_a_world_is_at_rest_while_an_object_is_paused_whatever_failed_before() -> None:
    app = failing_operator("resize", paused=labels("paused"))
    with World(app) as world:
        world.create("a", {"size": 1})
        assert world.settle()
        world.patch("a", {"spec": {"size": 2}})
        world.run(1)
        world.patch("a", {"metadata": {"labels": {"paused": "yes"}}})
        assert world.settle(horizon=600)
        world.patch("a", {"metadata": {"labels": {"paused": None}}})
        assert not world.settle(horizon=600)


def test_the_promises_of_an_app_hold_for_objects_that_are_paused_now_and_then() -> None:
    app = failing_operator("nothing", paused=labels("touched in (0, 1, 2, 3, 4)"))
    app.every(40, BUCKET)(nothing)
    check_operator(app, max_examples=scaled(10), seed=histories_of(3))
    replay = ["create a {}", "wait 1", "function fails", 'spec a {"size": 5}', "label a 1"]
    check_operator(app, replay=[*replay, "wait 1", 'spec a {"size": 6}'])
    check_operator(app, replay=["create b {}", "label b 0"])


def test_a_call_for_a_paused_object_breaks_a_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("bucket-operator")
    app.on_update(BUCKET)(nothing)
    # As if the App had a filter, and did not heed it.
    monkeypatch.setattr(World, "is_paused", lambda _, bucket: "stop" in bucket.labels)
    stopped = 'metadata a {"labels": {"stop": "yes"}}'
    replay = ["create a {}", "wait 1", stopped, "wait 1", 'spec a {"size": 7}', "wait 1"]
    with pytest.raises(BrokenPromise, match="calls nothing for a, although it is paused"):
        check_operator(app, replay=replay)


def test_an_object_whose_deletion_others_hold_up_after_a_failure_is_no_hot_loop() -> None:
    replay = ["create b {}", "wait 0", "function fails", 'spec b {"size": 5}', "wait 1"]
    app = failing_operator("nothing")
    check_operator(app, replay=[*replay, "hold b", "delete b"])


def test_a_function_that_is_called_again_after_a_restart_leads_to_two_writes() -> None:
    app, calls = App("bucket-operator"), list[str]()
    app.on_add(BUCKET)(lambda bucket: calls.append("make"))
    app.on_add(BUCKET, where=labels("tier=new"))(lambda bucket: calls.append("audit"))
    app.on_sync(BUCKET)(lambda bucket: calls.append("sync"))
    app.on_delete(BUCKET)(lambda bucket: calls.append("gone"))
    with World(app) as world:
        world.create("a", {"size": 1}, labels={"tier": "new"})
        assert world.settle()
        for _ in range(2):
            calls.clear()
            so_far = len(world.journal.of("write"))
            world.restart()
            assert world.settle()
            assert calls == ["audit", "sync"]
            writes = world.journal.of("write")[so_far:]
            assert [write.status for write in writes] == [200, 200]
            assert world.objects()[0].finalizers == ("example.com/bucket-operator.v1.Bucket",)


def test_the_promises_of_an_app_are_checked() -> None:
    storage: dict[str, int] = {}  # by uid, which differ in all histories
    app = storage_operator(lambda: storage)

    def is_stored(world: World) -> None:
        for bucket in world.client.list(BUCKET):
            assert bucket.is_deleting or storage.get(bucket.uid) == bucket.spec.size

    check_operator(
        app,
        at_rest=is_stored,
        cleaned_up=lambda _, bucket: bucket.uid not in storage,
        max_examples=5,
        seed=histories_of(1),
    )


def test_an_app_that_forgets_what_it_made_is_found_out() -> None:
    app = App("bucket-operator")

    @app.reconciler(BUCKET, owns=[CONFIG_MAP])
    def reconcile(request: Request) -> None:
        try:
            bucket = app.live_client.get(BUCKET, request.name, namespace=request.namespace)
        except NotFound:
            return
        draft = MutableObject.new(CONFIG_MAP, request.name, namespace=request.namespace)
        draft["data"] = {"size": str(bucket.spec.size)}
        set_controller_reference(bucket, draft)
        try:
            app.client.create(draft)
        except AlreadyExists:
            return  # although the size may be another one

    def shows_its_size(world: World) -> None:
        for bucket in world.client.list(BUCKET):
            made = world.client.get(CONFIG_MAP, bucket.name, namespace=bucket.namespace)
            assert made["data"]["size"] == str(bucket.spec.size)

    replay = ["create a {}", "wait 0", 'spec a {"size": 1}']
    with pytest.raises(BrokenPromise, match=r"reconciles a: creates configmaps a \(409\)"):
        check_operator(app, BUCKET, at_rest=shows_its_size, replay=replay)


def test_a_world_needs_a_kind_or_an_app() -> None:
    with pytest.raises(ValueError, match="handles no kind"):
        World(App("empty"))
    with pytest.raises(TypeError, match="or an App"):
        World(BUCKET)
    with pytest.raises(TypeError, match="the kind"):
        check_operator(lambda replica: None)


def test_two_reconcilers_of_a_kind_may_work_on_an_object_at_once() -> None:
    app = App("bucket-operator")
    inside: set[str] = set()
    met: list[bool] = []

    def look(name: str) -> None:
        inside.add(name)
        for _ in range(3):  # the other controller goes on meanwhile
            list(app.live_client.list(BUCKET))
            met.append(len(inside) == 2)
        inside.discard(name)

    for name in ("one", "other"):
        app.object_reconciler(BUCKET, name=name)(lambda _, name=name: look(name))
    check_operator(app, max_examples=5, seed=1)
    assert any(met)


@pytest.mark.parametrize(
    "filters",
    [
        {"where": ~annotation("example.com/paused")},
        {"when": annotation("example.com/paused").changed},
    ],
    ids=str,
)
def test_a_reconciler_is_not_blamed_for_changes_that_its_filters_keep_from_it(
    filters: dict[str, Any],
) -> None:
    app = App("bucket-operator")
    app.on_delete(BUCKET)(lambda bucket: None)
    app.object_reconciler(BUCKET, **filters)(lambda bucket: None)
    paused = 'metadata a {"annotations": {"example.com/paused": "yes"}}'
    check_operator(app, replay=["create a {}", "wait 1", paused, "wait 1", 'spec a {"size": 7}'])
    check_operator(app, replay=["create a {}", paused, "hold a", "wait 0", "delete a"])
    check_operator(app, max_examples=scaled(10), seed=histories_of(3))


def test_a_reconciler_whose_filter_fails_is_checked_as_one_without() -> None:
    def fails(bucket: Object[BucketSpec]) -> bool:
        raise LookupError(bucket.name)

    app = App("bucket-operator")
    app.object_reconciler(BUCKET, where=fails)(nothing)
    check_operator(app, replay=["create a {}", "wait 1", 'spec a {"size": 7}'])


def test_an_app_whose_filters_fail_is_checked_as_one_without() -> None:
    def fails(bucket: Object[BucketSpec]) -> bool:
        raise LookupError(bucket.name)

    app = App("bucket-operator")
    app.on_add(BUCKET, where=fails)(nothing)
    app.on_update(BUCKET, where=fails)(nothing)
    app.every(60, BUCKET, where=fails)(nothing)
    history = ["create a {}", "wait 1", 'spec a {"size": 7}', "function fails", "wait 600"]
    check_operator(app, replay=[*history, 'spec a {"size": 8}', "wait 1"])


def test_an_app_with_a_filtered_add_and_a_timer_is_checked() -> None:
    app = App("bucket-operator")
    app.on_add(BUCKET, where=field("spec.size") == 1)(lambda bucket: None)
    app.every(20, BUCKET)(lambda bucket: None)
    check_operator(app, max_examples=2, seed=1)


LARGE: Any = field("spec.size").exists & (lambda bucket: bucket.spec.size > 2)
GROWS = ["create a {}", "wait 0", 'spec a {"size": 3}', "wait 1"]


def growing_operator(calls: list[str], *adds: Any, where: Any = None, **options: Any) -> App:
    app = App("bucket-operator", **options)
    for add in adds:
        app.on_add(BUCKET, where=add)(lambda bucket: calls.append(f"add {bucket.spec.size}"))

    @app.on_update(BUCKET, where=where)
    def resize(old: Object[BucketSpec], new: Object[BucketSpec]) -> None:
        calls.append(f"update {old.spec.size} {new.spec.size}")

    return app


@pytest.mark.parametrize("remember", [True, False])
@pytest.mark.parametrize("where", [LARGE, None])
def test_an_add_that_comes_to_match_takes_no_change_from_an_update(
    where: Any, remember: bool
) -> None:
    calls: list[str] = []
    app = growing_operator(calls, LARGE, where=where, remember=remember)
    check_operator(app, replay=GROWS)
    assert calls == ["add 3", "update 0 3"]
    # Whether a call is seen or not, and also across a restart.
    for replay in (
        ["lag 60", *GROWS, 'spec a {"size": 0}'],
        [*GROWS[:3], 'spec a {"size": 0}', "wait 60"],
        [*GROWS[:2], "crash", *GROWS[2:], "crash", 'spec a {"size": 5}'],
        [*GROWS[:2], "function fails", "function fails", *GROWS[2:], 'spec a {"size": 0}'],
    ):
        check_operator(app, replay=replay)


def test_an_add_that_comes_to_match_may_be_declared_before_one_that_was_called() -> None:
    calls: list[str] = []
    check_operator(growing_operator(calls, LARGE, ~LARGE), replay=GROWS)
    assert calls == ["add 0", "add 3", "update 0 3"]


@pytest.mark.parametrize("is_known", [True, False])
def test_the_promises_of_an_app_hold_where_each_add_has_a_filter(is_known: bool) -> None:
    app = growing_operator([], LARGE, field("spec.size") == 1, remember=is_known)
    app.on_update(BUCKET, where=LARGE, when=field("spec.size").changed)(nothing)
    if is_known:
        app.on_sync(BUCKET, where=~LARGE)(nothing)
    check_operator(app, specs=SIZES, max_examples=scaled(15), seed=histories_of(7))


SIZES = st.fixed_dictionaries({"size": st.integers(0, 4)})
_is_update = ObjectState._is_update
_step = ObjectState._step


def loses_what_is_large(function: Any, progress: Any, handled: Any, obj: Any) -> bool:
    return obj.spec.size != 4 and _is_update(function, progress, handled, obj)


def begins_with_the_present(self: Any, number: int, function: Any, obj: Any) -> Any:
    step = _step(self, number, function, obj)
    if step is None or function.cause != "update" or obj.spec.size != 5:
        return step
    return step._replace(old=obj)


def in_reverse(self: Any, number: int, function: Any, obj: Any) -> Any:
    waits = function.cause == "add" and number == 0 and not self.progress[1].is_done
    return None if waits else _step(self, number, function, obj)


@pytest.mark.parametrize(
    ("name", "defect"),
    [
        ("_is_update", staticmethod(loses_what_is_large)),
        ("_step", begins_with_the_present),
        ("_step", in_reverse),
    ],
)
def test_a_lost_change_is_found_where_each_add_has_a_filter(
    monkeypatch: pytest.MonkeyPatch, name: str, defect: Any
) -> None:
    app = growing_operator([], LARGE, LARGE, remember=True)
    replay = ['create a {"size": 3}', "wait 0", 'spec a {"size": 4}', "wait 1"]
    replay += ['spec a {"size": 5}', "wait 1", 'spec a {"size": 4}']
    check_operator(app, replay=replay)
    monkeypatch.setattr(ObjectState, name, defect)
    with pytest.raises(BrokenPromise, match=r"^chain: "):
        check_operator(app, replay=replay)
