"""Controllers that are put together by a builder: what they watch, how they work, what is wrong."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from appsdk_operator.cache import Cache, CacheOptions, ResourceAction
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.controllers import (
    BuilderError,
    ControllerBuilder,
    ControllerOptions,
    JoinableSource,
    KindSource,
    Request,
    controller_for,
    for_object,
    reconcile_context,
)
from appsdk_operator.resource import MutableObject, field, kinds
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal, system_clock
from appsdk_operator.testing import APIServer
from tests.controllers.event_tools import RecordingQueue
from tests.runs import Run
from tests.simulations import no_client

CONFIG_MAP, SECRET, POD = kinds.core.v1.ConfigMap, kinds.core.v1.Secret, kinds.core.v1.Pod
REPLICA_SET = kinds.apps.v1.ReplicaSet


class Host:
    """A cache, defaults, and what was added."""

    def __init__(self, client: Any = None, **options: Any) -> None:
        self.metrics = Metrics()
        self.cache = Cache(
            no_client() if client is None else client,
            metrics=self.metrics,
            by_kind=options.pop("by_kind", None),
        )
        self.clock = options.pop("clock", system_clock)
        self.controller_options = ControllerOptions(**options)
        self.added: list[Any] = []
        self.refusal: Exception | None = None

    def add(self, runnable: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.added.append(runnable)


def nothing(request: object) -> None:
    """Reconciles nothing."""


@pytest.fixture(autouse=True)
def names_are_given_back() -> Iterator[None]:
    yield
    gc.collect(1)  # what a test made is young, and a whole collection takes half a second


@pytest.fixture
def host() -> Host:
    return Host()


# What does not go together.


@pytest.mark.parametrize(
    ("describe", "texts"),
    [
        (
            lambda b: b.for_(CONFIG_MAP).for_(SECRET),
            ["for_() was called for configmaps.v1 and for secrets.v1", "watches() or owns()"],
        ),
        (lambda b: b.named("x").owns(POD), ["owns(pods.v1) needs for_()"]),
        (lambda b: b.named("x"), ["it watches nothing"]),
        (lambda b: b.watches(POD, for_object()), ["it has no name", "named()"]),
        (lambda b: b, ["it watches nothing", "it has no name"]),
        (
            lambda b: b.owns(POD).named("x").named("y"),
            ["owns(pods.v1) needs for_()", "named() was called with 'x' and with 'y'"],
        ),
        (
            lambda b: (
                b.for_(POD).with_options(ControllerOptions()).with_options(ControllerOptions())
            ),
            ["with_options() was called twice"],
        ),
    ],
)
def test_what_does_not_go_together_is_found_at_the_end_all_at_once(
    host: Host, describe: Callable[[ControllerBuilder[Request]], Any], texts: list[str]
) -> None:
    builder = describe(controller_for(host))
    with pytest.raises(BuilderError) as caught:
        builder.complete(nothing)
    for text in texts:
        assert text in str(caught.value)
    assert not host.added
    assert list(host.cache.kinds) == []


class Custom(NamedTuple):
    """A request that is no object's key."""

    zone: str


@pytest.mark.parametrize(
    "describe", [lambda b: b.for_(POD), lambda b: b.for_(POD).owns(SECRET), lambda b: b.owns(POD)]
)
def test_requests_of_an_own_type_go_with_watches_only(host: Host, describe: Any) -> None:
    builder = describe(controller_for(host, request_type=Custom).named("x"))
    with pytest.raises(BuilderError, match="this controller takes Custom: use watches"):
        builder.build(nothing)


def test_requests_of_an_own_type_come_from_map_functions(host: Host) -> None:
    def zones(obj: Any) -> list[Custom]:
        return [Custom("a")]

    builder = controller_for(host, request_type=Custom).named("x").watches(POD, zones)
    builder.build(nothing).close()


def test_a_builder_builds_once(host: Host) -> None:
    builder = controller_for(host).for_(POD)
    builder.build(nothing).close()
    with pytest.raises(BuilderError, match="make a new builder"):
        builder.build(nothing)


@pytest.mark.parametrize(
    "describe",
    [
        lambda b: b.for_("Pod"),
        lambda b: b.for_(POD, predicates="x"),
        lambda b: b.for_(POD, predicates=[3]),
        lambda b: b.for_(POD, metadata_only="no"),
        lambda b: b.owns(POD, metadata_only="no"),
        lambda b: b.owns(POD, match_every_owner="no"),
        lambda b: b.owns(None),
        lambda b: b.owns(POD, predicates=[3]),
        lambda b: b.for_(POD, where=3),
        lambda b: b.owns(POD, when=3),
        lambda b: b.watches(POD, for_object(), where=field("spec").changed),
        lambda b: b.watches_metadata(POD, for_object(), when=lambda obj: True),
        lambda b: b.watches(POD, 3),
        lambda b: b.watches(POD, lambda one, two: []),
        lambda b: b.watches("Pod", for_object()),
        lambda b: b.watches_metadata(POD, None),
        lambda b: b.watches_raw_source(object()),
        lambda b: b.with_event_filter(3),
        lambda b: b.with_options({"max_attempts": 3}),
        lambda b: b.for_(POD).build(None),
        lambda b: b.for_(POD).build(lambda: None),
    ],
)
def test_wrong_types_are_refused_at_once(host: Host, describe: Any) -> None:
    with pytest.raises(TypeError):
        describe(controller_for(host))


def test_an_empty_name_is_refused(host: Host) -> None:
    with pytest.raises(ValueError, match="give the controller a name"):
        controller_for(host).named("")


def test_a_host_that_lacks_something_is_refused() -> None:
    with pytest.raises(TypeError, match="has no cache, no clock"):
        controller_for(object())  # type: ignore[call-overload]


def test_a_name_that_is_in_use_is_refused(host: Host) -> None:
    first = controller_for(host).for_(POD).build(nothing)
    with pytest.raises(ValueError, match="'pod' is in use"):
        controller_for(host).for_(POD).build(nothing)
    options = ControllerOptions(skip_name_validation=True)
    controller_for(host).for_(POD).with_options(options).build(nothing).close()
    first.close()
    controller_for(host).for_(POD).build(nothing).close()


# What it makes of it.


def test_its_name_is_the_lower_case_kind_or_what_was_said(host: Host) -> None:
    unnamed = controller_for(host).for_(CONFIG_MAP).complete(nothing)
    named = controller_for(host).for_(CONFIG_MAP).named("other").complete(nothing)
    assert [unnamed.name, named.name] == ["configmap", "other"]
    assert host.added == [unnamed, named]


def test_build_adds_it_to_nothing_and_a_never_started_one_has_no_threads(host: Host) -> None:
    before = set(threading.enumerate())
    controller = controller_for(host).for_(POD).owns(SECRET).build(nothing)
    assert host.added == []
    assert set(threading.enumerate()) <= before
    assert list(host.cache.kinds) == [], "the cache keeps nothing before the start"
    controller.close()


def test_what_the_host_refuses_gives_the_name_back(host: Host) -> None:
    host.refusal = RuntimeError("already stopped")
    with pytest.raises(RuntimeError, match="already stopped"):
        controller_for(host).for_(POD).complete(nothing)
    host.refusal = None
    controller_for(host).for_(POD).complete(nothing)


def test_its_options_go_before_the_hosts_and_those_before_the_built_in_ones() -> None:
    host = Host(max_concurrent_reconciles=4, max_attempts=7, needs_leader_election=False)
    controller = (
        controller_for(host)
        .for_(POD)
        .with_options(ControllerOptions(max_attempts=3))
        .build(nothing)
    )
    settings = controller._options
    assert (settings.max_concurrent_reconciles, settings.max_attempts) == (4, 3)
    assert settings.cache_sync_timeout == 120.0
    assert not controller.needs_leader_election
    controller.close()


@pytest.mark.parametrize(
    ("own", "expected"), [(None, 5), (ControllerOptions(max_concurrent_reconciles=2), 2)]
)
def test_the_hosts_concurrency_by_kind_is_looked_up_for_the_kind(
    own: ControllerOptions | None, expected: int
) -> None:
    host = Host(max_concurrent_reconciles=4, kind_concurrency={"ReplicaSet.apps": 5, "Pod": 9})
    builder = controller_for(host).for_(REPLICA_SET)
    if own is not None:
        builder.with_options(own)
    controller = builder.build(nothing)
    assert controller._options.max_concurrent_reconciles == expected
    controller.close()


def test_its_clock_and_metrics_are_the_hosts() -> None:
    host = Host(clock=ManualClock())
    controller = controller_for(host).for_(POD).build(nothing)
    assert controller.clock is host.clock
    assert controller._metrics is host.metrics
    controller.close()


# Which events request what: on a server.


class World:
    """A server, its cache, and a host on them; controllers run until the end."""

    def __init__(self) -> None:
        self.server = APIServer()
        self.server.__enter__()
        self.client = Client(ClientConfig(server=self.server.url))
        self.host = Host(self.client)
        self.stop = StopSignal()
        self.runs: list[Run] = []
        self.raised: list[BaseException] = []
        self.changed = threading.Condition()
        self.seen: list[str] = []

    def note(self, text: str) -> None:
        with self.changed:
            self.seen.append(text)
            self.changed.notify_all()

    def wait_for(self, *texts: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: set(texts) <= set(self.seen), 20), self.seen

    def reconcile(self, request: Any) -> None:
        self.note(str(request))

    def create(self, kind: Any, name: str, owners: list[dict[str, Any]] | None = None) -> Any:
        obj = MutableObject.new(kind, name, namespace="default")
        if kind is POD:
            obj["spec"] = {"containers": [{"name": "c", "image": "i"}]}
        if owners:
            obj["metadata"]["ownerReferences"] = owners
        return self.client.create(obj)

    def start(self, *controllers: Any) -> None:
        cache = () if self.runs else (self.host.cache,)
        for runnable in (*cache, *controllers):
            self.runs.append(Run(runnable, self.stop, self.raised).start())
        for controller in controllers:
            with self.changed:
                synced = threading.Event()
            while not controller.has_synced and not self.raised:
                synced.wait(0.01)

    def close(self) -> None:
        self.stop.set()
        for run in self.runs:
            run.join()
        self.client.close()
        self.server.__exit__(None, None, None)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()
    assert not made.raised


def owner(obj: Any, *, controller: bool = True) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": obj.name,
        "uid": obj.uid,
        "controller": controller,
    }


def test_events_of_the_kind_request_its_objects_and_those_of_owned_kinds_their_owner(
    world: World,
) -> None:
    controller = controller_for(world.host).for_(CONFIG_MAP).owns(POD).complete(world.reconcile)
    world.start(controller)
    mine = world.create(CONFIG_MAP, "mine")
    other = world.create(CONFIG_MAP, "other")
    world.wait_for("default/mine", "default/other")
    assert controller.wait_idle(20)
    world.seen.clear()
    world.create(POD, "pod", [owner(mine), owner(other, controller=False)])
    world.create(POD, "stray")
    world.wait_for("default/mine")
    world.create(CONFIG_MAP, "end")
    world.wait_for("default/end")
    assert "default/other" not in world.seen, "it is not the controlling owner"
    assert "default/stray" not in world.seen


def test_every_owner_is_requested_where_that_was_said(world: World) -> None:
    builder = controller_for(world.host).for_(CONFIG_MAP).owns(POD, match_every_owner=True)
    controller = builder.complete(world.reconcile)
    world.start(controller)
    mine = world.create(CONFIG_MAP, "mine")
    other = world.create(CONFIG_MAP, "other")
    world.wait_for("default/mine", "default/other")
    assert controller.wait_idle(20)
    world.seen.clear()
    world.create(POD, "pod", [owner(mine), owner(other, controller=False)])
    world.wait_for("default/mine", "default/other")


def test_watches_take_a_map_function_or_a_handler_and_need_no_for(world: World) -> None:
    controller = (
        controller_for(world.host)
        .named("mapped")
        .watches(POD, lambda obj: [Request("mapped", obj.name)])
        .watches(SECRET, for_object())
        .complete(world.reconcile)
    )
    world.start(controller)
    world.create(POD, "pod")
    world.create(SECRET, "secret")
    world.wait_for("mapped/pod", "default/secret")


def test_predicates_apply_to_their_kind_and_event_filters_before_them_to_all(
    world: World,
) -> None:
    asked: list[str] = []

    def everywhere(event: Any) -> bool:
        asked.append(f"filter {event.object.name}")
        return not event.object.name.startswith("hidden")

    def of_pods(event: Any) -> bool:
        asked.append(f"pods {event.object.name}")
        return event.action is not ResourceAction.CREATE or event.object.name == "pod-yes"

    controller = (
        controller_for(world.host)
        .for_(CONFIG_MAP)
        .watches(POD, for_object(), predicates=[of_pods])
        .with_event_filter(everywhere)
        .complete(world.reconcile)
    )
    world.start(controller)
    for kind, name in (
        (POD, "hidden-pod"),
        (POD, "pod-no"),
        (POD, "pod-yes"),
        (CONFIG_MAP, "hidden-map"),
        (CONFIG_MAP, "map"),
    ):
        world.create(kind, name)
    world.wait_for("default/pod-yes", "default/map")
    assert "default/pod-no" not in world.seen
    assert not any("hidden" in text for text in world.seen)
    assert "pods hidden-pod" not in asked, "the filter comes first"
    assert "pods map" not in asked, "only its own kind"


@pytest.mark.parametrize(
    "describe",
    [
        lambda b, where, when: b.for_(POD, where=where, when=when),
        lambda b, where, when: b.watches(POD, for_object(), where=where, when=when).named("pods"),
        lambda b, where, when: b.watches_metadata(POD, for_object(), where=where, when=when).named(
            "pods"
        ),
    ],
)
def test_a_kind_has_filters_of_its_objects_and_of_their_changes(
    world: World, describe: Any
) -> None:
    changes: list[str] = []

    def is_noted(old: Any, new: Any) -> bool:
        changes.append(new.name)
        return True

    controller = describe(
        controller_for(world.host), lambda pod: pod.name != "hidden", is_noted
    ).complete(world.reconcile)
    world.start(controller)
    for name in ("hidden", "a"):
        world.create(POD, name)
    world.wait_for("default/a")
    assert "default/hidden" not in world.seen
    assert changes == [], "of creations only where= is asked"


def test_an_owned_kind_has_filters(world: World) -> None:
    controller = (
        controller_for(world.host)
        .for_(CONFIG_MAP)
        .owns(POD, where=lambda pod: pod.name != "hidden", when=field("spec").changed)
        .complete(world.reconcile)
    )
    world.start(controller)
    mine = world.create(CONFIG_MAP, "mine")
    other = world.create(CONFIG_MAP, "other")
    world.wait_for("default/mine", "default/other")
    assert controller.wait_idle(20)
    world.seen.clear()
    world.create(POD, "hidden", [owner(other)])
    world.create(POD, "pod", [owner(mine)])
    world.wait_for("default/mine")
    assert "default/other" not in world.seen


def test_a_kinds_filter_has_no_field_that_its_class_lacks(host: Host) -> None:
    wrong = field("metadata.label")
    builder: Any = controller_for(host)
    for method, args in (("for_", ()), ("owns", ()), ("watches", (for_object(),))):
        with pytest.raises(ValueError, match=r"^where: .*did you mean 'labels'"):
            getattr(builder, method)(POD, *args, where=wrong.exists)
        with pytest.raises(ValueError, match=r"^when: .*did you mean 'labels'"):
            getattr(builder, method)(POD, *args, when=wrong.changed)


def test_event_filters_are_not_applied_to_raw_sources(host: Host) -> None:
    class Raw:
        def start(self, queue: Any, stop: StopSignal) -> None:
            queue.add(Request("default", "raw"))

    seen: list[Request] = []
    controller = (
        controller_for(host)
        .named("raw")
        .watches_raw_source(Raw())
        .with_event_filter(lambda event: False)
        .complete(seen.append)
    )
    while controller.process_next():
        pass
    assert seen == [Request("default", "raw")]
    controller.close()


def test_the_reconcile_knows_its_controller_and_kind_and_its_log_fields(world: World) -> None:
    contexts: list[Any] = []

    def reconcile(request: Request) -> None:
        context = reconcile_context()
        assert context is not None
        contexts.append((context.controller, context.kind, context.logger.extra))
        world.note(str(request))

    world.start(controller_for(world.host).for_(REPLICA_SET).named("mine").complete(reconcile))
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    }
    world.client.create(MutableObject.new(REPLICA_SET, "web", namespace="default", spec=spec))
    world.wait_for("default/web")
    name, kind, fields = contexts[0]
    assert (name, kind) == ("mine", "ReplicaSet.apps")
    assert {key: fields[key] for key in ("controller", "kind", "namespace", "object")} == {
        "controller": "mine",
        "kind": "ReplicaSet.apps",
        "namespace": "default",
        "object": "web",
    }


# Metadata only.


def test_several_controllers_may_watch_the_metadata_of_one_kind(world: World) -> None:
    controllers = [
        controller_for(world.host)
        .for_(CONFIG_MAP, metadata_only=True)
        .owns(POD, metadata_only=True)
        .watches_metadata(SECRET, for_object())
        .named(name)
        .complete(lambda request, name=name: world.note(f"{name} {request}"))
        for name in ("first", "second")
    ]
    world.start(*controllers)
    world.create(CONFIG_MAP, "a")
    world.create(SECRET, "s")
    world.wait_for("first default/a", "second default/a", "first default/s", "second default/s")
    for kind in (CONFIG_MAP, POD, SECRET):
        [informer] = world.host.cache.informers(kind)
        assert world.host.cache.options_for(kind).metadata_only
        assert all(obj.is_metadata_only for obj in informer.store.list())


def test_a_controller_that_needs_a_kind_whole_anywhere_has_it_whole(world: World) -> None:
    controller = (
        controller_for(world.host)
        .named("x")
        .watches_metadata(CONFIG_MAP, for_object())
        .watches(CONFIG_MAP, for_object())
        .complete(world.reconcile)
    )
    world.start(controller)
    assert not world.host.cache.options_for(CONFIG_MAP).metadata_only


def test_metadata_is_enough_where_the_kind_is_kept_whole_with_options_of_its_own(
    world: World,
) -> None:
    world.host.cache.add(CONFIG_MAP, CacheOptions(label_selector="app=web"))
    world.start(
        controller_for(world.host).for_(CONFIG_MAP, metadata_only=True).complete(world.reconcile)
    )
    assert not world.host.cache.options_for(CONFIG_MAP).metadata_only


def test_metadata_only_keeps_the_other_options_that_the_cache_has_for_the_kind() -> None:
    options = CacheOptions(label_selector="app=web")
    host = Host(by_kind={CONFIG_MAP: options})
    controller = controller_for(host).for_(CONFIG_MAP, metadata_only=True).build(nothing)
    [start] = controller._sources
    stop = StopSignal()
    start.source.start(RecordingQueue(), stop)
    kept = host.cache.options_for(CONFIG_MAP)
    assert kept.metadata_only
    assert str(kept.label_selector) == "app=web"
    stop.set()
    assert start.source.join(20) == []
    controller.close()


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_controller_that_needs_a_kind_whole_is_refused_where_options_say_metadata_only(
    is_kept: bool,
) -> None:
    # controller-runtime opens a second informer there, silently.
    options = CacheOptions(metadata_only=True)
    host = Host(by_kind=None if is_kept else {CONFIG_MAP: options})
    if is_kept:
        host.cache.add(CONFIG_MAP, options)
    with pytest.raises(ValueError, match="give metadata_only=True here too, or nowhere"):
        controller_for(host).for_(CONFIG_MAP).complete(nothing)
    assert host.added == []
    controller_for(host).for_(CONFIG_MAP, metadata_only=True).build(nothing).close()


@pytest.mark.parametrize("first", ["whole", "metadata"])
@pytest.mark.parametrize("starts_first", ["whole", "metadata"])
@pytest.mark.parametrize("runs", [False, True])
def test_a_kind_that_one_of_two_controllers_needs_whole_is_kept_whole_whoever_comes_first(
    first: str, starts_first: str, runs: bool
) -> None:
    host, stop = Host(), StopSignal()
    if runs:
        host.cache._stop = stop  # with no thread that would ask a server
        host.cache._threads = IdleThreads()  # type: ignore[assignment]
    controllers = {
        name: controller_for(host)
        .for_(CONFIG_MAP, metadata_only=name == "metadata")
        .named(name)
        .complete(nothing)
        for name in sorted(["whole", "metadata"], key=lambda name: name != first)
    }
    sources = {name: each._sources[0].source for name, each in controllers.items()}
    for name in sorted(sources, key=lambda name: name != starts_first):
        source = sources[name]
        assert source is not None
        source.start(RecordingQueue(), stop)
    assert not host.cache.options_for(CONFIG_MAP).metadata_only
    [informer] = host.cache.informers(CONFIG_MAP)
    assert informer.transform is None
    stop.set()
    for controller in controllers.values():
        controller.close()
    for source in sources.values():
        assert isinstance(source, JoinableSource)
        assert source.join(20) == []


class IdleThreads:
    """Starts none."""

    def start(self, name: str, target: object) -> None:
        pass


def test_a_controller_that_needs_a_kind_whole_may_come_when_its_metadata_is_followed(
    world: World,
) -> None:
    world.create(CONFIG_MAP, "early")
    cache = world.host.cache
    builder = controller_for(world.host).for_(CONFIG_MAP, metadata_only=True).named("metadata")
    world.start(builder.complete(lambda request: world.note(f"metadata {request.name}")))
    world.wait_for("metadata early")
    assert cache.options_for(CONFIG_MAP).metadata_only
    [relieved] = cache.informers(CONFIG_MAP)

    def reconcile(request: Request) -> None:
        obj = cache.get(CONFIG_MAP, request.name, namespace=request.namespace)
        assert obj is not None
        world.note(f"whole {request.name} {obj.get('data') is None}")

    late = controller_for(world.host).for_(CONFIG_MAP).named("whole").complete(reconcile)
    assert cache.informers(CONFIG_MAP) == [relieved], "before it starts nothing is listed again"
    world.start(late)
    world.wait_for("whole early True")
    [informer] = cache.informers(CONFIG_MAP)
    assert informer is not relieved
    assert not any(obj.is_metadata_only for obj in informer.store.list())
    world.create(CONFIG_MAP, "late")
    world.wait_for("whole late True", "metadata late")


def test_a_source_that_leaves_it_open_gets_what_the_options_say() -> None:
    for options, is_metadata in ((CacheOptions(metadata_only=True), True), (CacheOptions(), False)):
        host, stop = Host(by_kind={CONFIG_MAP: options}), StopSignal()
        first = KindSource(host.cache, CONFIG_MAP, for_object(), metadata_only=True)
        second = KindSource(host.cache, CONFIG_MAP, for_object())
        for source in (first, second):
            source.start(RecordingQueue(), stop)
        assert host.cache.options_for(CONFIG_MAP).metadata_only is is_metadata
        stop.set()
        assert first.join(20) == second.join(20) == []
