"""What an OpinionatedWatcher does for each call: grafana-app-sdk's table, row by row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import attrs
import pytest

from appsdk_operator.client import (
    Client,
    ClientConfig,
    Conflict,
    Forbidden,
    JsonPatch,
    MergePatch,
    NotFound,
)
from appsdk_operator.controllers import FinalizerError
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import APIServer
from appsdk_operator.watchers import (
    OpinionatedWatcher,
    SelectiveWatcher,
    SimpleWatcher,
    default_finalizer,
    in_progress_finalizer,
)
from tests.definitions import widget_definition
from tests.simulations import Others, no_client

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
CONFIG_MAP = Kind(group="", version="v1", kind="ConfigMap")
CRD = widget_definition({"x-kubernetes-preserve-unknown-fields": True})
OTHER, ANOTHER = "first.example.org/x", "second.example.org/y"


@pytest.fixture(scope="module")
def server():
    with APIServer(crds=[CRD]) as server:
        yield server


@attrs.define
class Bench:
    """A kind on the embedded server, and a watcher that notes what its callbacks are given."""

    client: Client
    kind: Kind
    notes: list[str] = attrs.field(factory=list)
    failing: set[str] = attrs.field(factory=set)
    during: Callable[[str], None] = lambda _: None
    watcher: Any = None

    def __attrs_post_init__(self) -> None:
        self.watcher = self.make()

    def make(self, **options: Any) -> OpinionatedWatcher:
        callbacks = {name: self._callback(name) for name in ("add", "sync", "update", "delete")}
        return OpinionatedWatcher(self.kind, self.client, **callbacks | options)

    def _callback(self, name: str) -> Callable[..., None]:
        def call(*objects: Object) -> None:
            self.notes.append(name)
            self.during(name)
            if name in self.failing:
                raise ConnectionError(f"{name} failed")

        return call

    @property
    def ours(self) -> str:
        return self.watcher.finalizer

    @property
    def wip(self) -> str:
        return self.watcher.in_progress_finalizer

    def create(self, *finalizers: str) -> Object:
        draft = MutableObject.new(self.kind, "", namespace="default")
        draft["metadata"]["generateName"] = "t-"
        if finalizers:
            draft["metadata"]["finalizers"] = list(finalizers)
        if self.kind.group:
            draft["spec"] = {"n": 0}
        return self.client.create(draft)

    def change(self, obj: Object, patch: dict[str, Any]) -> Object:
        return self.client.patch(self.kind, obj.name, MergePatch(patch), namespace="default")

    def respec(self, obj: Object, n: int) -> Object:
        return self.change(obj, {"spec": {"n": n}} if self.kind.group else {"data": {"n": str(n)}})

    def delete(self, obj: Object) -> Object:
        marked = self.client.delete(self.kind, obj.name, namespace="default")
        return marked if marked is not None else obj

    def drop(self, obj: Object) -> None:
        self.change(obj, {"metadata": {"finalizers": None}})
        self.delete(obj)

    def now(self, obj: Object) -> Object | None:
        try:
            return self.client.get(self.kind, obj.name, namespace="default")
        except NotFound:
            return None

    def finalizers(self, obj: Object) -> tuple[str, ...] | None:
        now = self.now(obj)
        return None if now is None else now.finalizers


@pytest.fixture(params=[WIDGET, CONFIG_MAP], ids=["widget", "config map"])
def bench(server, request):
    """A kind with generations, and one without."""
    with Client(ClientConfig(server=server.url), metrics=Metrics()) as client:
        yield Bench(client, request.param)


@pytest.fixture
def widgets(server):
    with Client(ClientConfig(server=server.url), metrics=Metrics()) as client:
        yield Bench(client, WIDGET)


@pytest.fixture
def config_maps(server):
    with Client(ClientConfig(server=server.url), metrics=Metrics()) as client:
        yield Bench(client, CONFIG_MAP)


# add


def test_a_new_object_is_added_and_gets_the_finalizer(bench):
    obj = bench.create(OTHER)
    seen = []
    bench.during = lambda _: seen.append(bench.finalizers(obj))
    bench.watcher.add(obj)
    assert bench.notes == ["add"]
    assert seen == [(OTHER, bench.wip)], "marked while add is under way"
    assert bench.finalizers(obj) == (OTHER, bench.ours)


def test_an_object_without_any_finalizer_gets_ours(bench):
    obj = bench.create()
    bench.watcher.add(obj)
    assert bench.finalizers(obj) == (bench.ours,)


def test_an_object_that_an_earlier_process_added_is_synced(bench):
    obj = bench.create(bench.ours, OTHER)
    bench.watcher.add(obj)
    assert bench.notes == ["sync"]
    assert bench.now(obj).resource_version == obj.resource_version, "nothing is written"


def test_a_left_over_mark_is_dropped_after_the_sync(bench):
    obj = bench.create(OTHER, bench.wip, bench.ours, ANOTHER)
    bench.watcher.add(obj)
    assert bench.notes == ["sync"]
    assert bench.finalizers(obj) == (OTHER, bench.ours, ANOTHER)


def test_a_left_over_mark_stays_while_the_sync_fails(bench):
    obj = bench.create(bench.wip, bench.ours)
    bench.failing.add("sync")
    with pytest.raises(ConnectionError):
        bench.watcher.add(obj)
    assert bench.finalizers(obj) == (bench.wip, bench.ours)


def test_an_add_that_an_earlier_process_began_is_done_again(bench):
    obj = bench.create(OTHER, bench.wip, ANOTHER)
    bench.watcher.add(obj)
    assert bench.notes == ["add"]
    assert bench.finalizers(obj) == (OTHER, bench.ours, ANOTHER), "in its place"


def test_an_object_on_its_way_out_without_ours_is_left_alone(bench):
    obj = bench.delete(bench.create(OTHER))
    bench.watcher.add(obj)
    assert bench.notes == []
    assert bench.finalizers(obj) == (OTHER,)


@pytest.mark.parametrize("which", ["ours", "wip", "both"])
def test_an_object_on_its_way_out_with_ours_is_cleaned_up_and_let_go(bench, which):
    names = {"ours": [bench.ours], "wip": [bench.wip], "both": [bench.wip, bench.ours]}[which]
    obj = bench.delete(bench.create(*names))
    seen = []
    bench.during = lambda _: seen.append(bench.finalizers(obj))
    bench.watcher.add(obj)
    assert bench.notes == ["delete"]
    assert seen == [tuple(names)], "it is still there while delete runs"
    assert bench.now(obj) is None


def test_an_object_on_its_way_out_that_waits_for_others_loses_only_ours(bench):
    obj = bench.delete(bench.create(OTHER, bench.wip, ANOTHER, bench.ours))
    bench.watcher.add(obj)
    assert bench.finalizers(obj) == (OTHER, ANOTHER)


def test_a_failing_delete_keeps_the_object(bench):
    obj = bench.delete(bench.create(bench.ours))
    bench.failing.add("delete")
    with pytest.raises(ConnectionError):
        bench.watcher.add(obj)
    assert bench.finalizers(obj) == (bench.ours,)
    bench.failing.clear()
    bench.watcher.add(bench.now(obj))
    assert bench.now(obj) is None


@pytest.mark.parametrize("mark", ["ours", "wip"])
def test_an_object_that_the_server_dropped_in_spite_of_our_finalizer_is_cleaned_up(bench, mark):
    gone = bench.create(OTHER, getattr(bench, mark))
    bench.drop(gone)
    bench.failing.add("delete")
    with pytest.raises(ConnectionError):
        bench.watcher.delete(gone)
    bench.failing.clear()
    bench.watcher.delete(gone)
    assert bench.notes[-1] == "delete"


def test_an_object_that_only_left_the_selector_of_its_informer_is_left_alone(bench):
    alive = bench.create(bench.ours)
    bench.watcher.delete(alive)
    assert bench.notes == []
    assert bench.finalizers(alive) == (bench.ours,)


def test_what_went_after_its_clean_up_is_not_cleaned_up_again(bench):
    marked = bench.delete(bench.create(bench.ours))
    bench.watcher.add(marked)
    count = len(bench.notes)
    bench.watcher.delete(marked)  # servers tell the last state that was stored, finalizer and all
    bench.watcher.delete(bench.create(OTHER))
    assert len(bench.notes) == count


def test_a_failing_add_leaves_the_mark_and_its_error_comes_through(bench):
    obj = bench.create(OTHER)
    bench.failing.add("add")
    with pytest.raises(ConnectionError, match="add failed"):
        bench.watcher.add(obj)
    assert bench.finalizers(obj) == (OTHER, bench.wip)


def test_a_failing_sync_writes_nothing(bench):
    obj = bench.create(bench.ours)
    bench.failing.add("sync")
    with pytest.raises(ConnectionError, match="sync failed"):
        bench.watcher.add(obj)
    assert bench.now(obj).resource_version == obj.resource_version


# update


def test_a_new_spec_is_an_update(bench):
    old = bench.create(bench.ours)
    bench.watcher.update(old, bench.respec(old, 1))
    assert bench.notes == ["update"]


def test_a_change_of_status_labels_or_annotations_is_not_shown(widgets):
    old = widgets.create(widgets.ours)
    for patch in ({"labels": {"a": "b"}}, {"annotations": {"c": "d"}}):
        new = widgets.change(old, {"metadata": patch})
        assert not widgets.watcher.concerns(old, new)
        widgets.watcher.update(old, new)
        old = new
    new = widgets.client.status.patch(
        WIDGET, old.name, MergePatch({"status": {"phase": "Ready"}}), namespace="default"
    )
    assert new.status
    widgets.watcher.update(old, new)
    assert widgets.notes == []


def test_without_generations_every_foreign_change_is_shown(config_maps):
    old = config_maps.create(config_maps.ours)
    assert old.generation == 0
    for patch in ({"metadata": {"labels": {"a": "b"}}}, {"data": {"x": "y"}}):
        new = config_maps.change(old, patch)
        config_maps.watcher.update(old, new)
        old = new
    config_maps.watcher.update(old, old)  # a resync
    assert config_maps.notes == ["update"] * 3


def test_with_generations_a_resync_is_not_shown(widgets):
    obj = widgets.create(widgets.ours)
    widgets.watcher.update(obj, obj)
    assert widgets.notes == []


def test_an_object_that_was_not_added_yet_is_added_before_its_update(bench):
    old = bench.create(OTHER)
    new = bench.respec(old, 1)
    bench.watcher.update(old, new)
    assert bench.notes == ["add", "update"]
    assert bench.finalizers(old) == (OTHER, bench.ours)


def test_when_that_add_fails_there_is_no_update(bench):
    old = bench.create()
    bench.failing.add("add")
    with pytest.raises(ConnectionError):
        bench.watcher.update(old, bench.respec(old, 1))
    assert bench.notes == ["add"]


def test_a_failing_update_comes_through_and_writes_nothing(bench):
    old = bench.create(bench.ours)
    new = bench.respec(old, 1)
    bench.failing.add("update")
    with pytest.raises(ConnectionError, match="update failed"):
        bench.watcher.update(old, new)
    assert bench.now(old).resource_version == new.resource_version


@pytest.mark.parametrize(("finalizer", "notes"), [("ours", ["delete"]), ("wip", ["delete"])])
def test_a_deletion_that_is_seen_as_an_update_is_cleaned_up(bench, finalizer, notes):
    old = bench.create(getattr(bench, finalizer))
    bench.watcher.update(old, bench.delete(old))
    assert bench.notes == notes
    assert bench.now(old) is None


def test_a_deletion_of_what_was_never_ours_is_none_of_our_business(bench):
    old = bench.create(OTHER)
    bench.watcher.update(old, bench.delete(old))
    assert bench.notes == []
    assert bench.finalizers(old) == (OTHER,)


def test_our_own_writes_are_not_shown_as_updates(bench):
    first = bench.create(OTHER)
    states = [first]
    bench.during = lambda _: states.append(bench.now(first))
    bench.watcher.add(first)
    states.append(bench.now(first))
    assert len({state.resource_version for state in states}) == 3
    for old, new in pairwise(states):
        assert not bench.watcher.concerns(old, new)
        bench.watcher.update(old, new)
    assert bench.notes == ["add"]


def test_a_foreign_change_that_came_with_our_own_write_is_shown(config_maps):
    old = config_maps.create()
    config_maps.watcher.add(old)
    new = config_maps.change(old, {"data": {"x": "y"}})  # seen together, as when events are merged
    config_maps.watcher.update(old, new)
    assert config_maps.notes == ["add", "update"]


def test_a_foreign_finalizer_that_came_with_our_own_write_is_shown(config_maps):
    old = config_maps.create()
    config_maps.watcher.add(old)
    new = config_maps.change(old, {"metadata": {"finalizers": [OTHER, config_maps.ours]}})
    config_maps.watcher.update(old, new)
    assert config_maps.notes == ["add", "update"]


def test_a_merged_event_with_our_finalizer_and_a_new_spec_is_an_update(widgets):
    old = widgets.create()
    widgets.watcher.add(old)
    widgets.watcher.update(old, widgets.respec(old, 1))
    assert widgets.notes == ["add", "update"]


def test_an_event_older_than_our_finalizer_does_not_add_again(bench):
    first = bench.create()
    second = bench.respec(first, 1)
    bench.watcher.add(first)  # ours comes after the second state
    bench.watcher.update(first, second)
    assert bench.notes == ["add", "update"]
    assert bench.finalizers(first) == (bench.ours,)


def test_an_object_whose_finalizer_somebody_took_off_is_added_again(bench):
    first = bench.create()
    bench.watcher.add(first)
    done = bench.now(first)
    bare = bench.change(first, {"metadata": {"finalizers": None}})
    bench.watcher.update(done, bare)
    bench.watcher.update(bare, bench.respec(first, 2))
    if bench.kind is WIDGET:
        assert bench.notes == ["add", "add", "update"]
    assert bench.finalizers(first) == (bench.ours,)


@pytest.mark.parametrize("generation", [0, 1])
def test_a_deletion_concerns_us_even_if_the_generation_stays(widget, generation):
    # Kubernetes raises it, but whoever does not must not cost us the deletion.
    server = Others(WIDGET)
    notes = []
    watcher = OpinionatedWatcher(WIDGET, server, delete=lambda _: notes.append("delete"))
    ours = [watcher.finalizer]
    old = widget("a", 1, generation=generation, finalizers=ours)
    new = widget(
        "a", 2, generation=generation, finalizers=ours, deletionTimestamp="2024-01-01T00:00:00Z"
    )
    assert watcher.concerns(old, new)
    watcher.update(old, new)
    assert notes == ["delete"]


@pytest.mark.parametrize(("now", "is_news"), [(True, True), (1.0, False)])
def test_a_number_that_becomes_a_flag_is_news_beside_our_finalizer(widget, now, is_news):
    watcher = OpinionatedWatcher(WIDGET, Others(WIDGET))
    old = widget("a", 1, generation=0, spec={"n": 1})
    new = widget("a", 2, generation=0, spec={"n": now}, finalizers=[watcher.finalizer])
    assert watcher.concerns(old, new) is is_news
    assert watcher.finalizer_lifecycle.differs(old, new) is is_news


# delete, None, missing callbacks


def test_a_deletion_that_is_over_calls_nothing(bench):
    obj = bench.create()
    bench.watcher.add(obj)
    bench.watcher.delete(obj)
    assert bench.notes == ["add"]


def test_it_forgets_what_is_gone(bench):
    obj = bench.create()
    bench.watcher.add(obj)
    records = bench.watcher._finalizer_lifecycle._records
    assert records
    bench.watcher.update(obj, marked := bench.delete(obj))
    bench.watcher.delete(marked)
    assert not records
    other = bench.create()
    bench.watcher.add(other)
    bench.watcher.delete(other)
    assert not records


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda w, o: w.add(None), "add"),
        (lambda w, o: w.update(None, o), "update"),
        (lambda w, o: w.update(o, None), "update"),
        (lambda w, o: w.delete(None), "delete"),
        (lambda w, o: w.add({"metadata": {}}), "add"),
    ],
)
def test_what_is_no_object_is_refused(widget, call, what):
    watcher = OpinionatedWatcher(WIDGET, no_client())
    with pytest.raises(TypeError, match=f"{what} needs an object, and got"):
        call(watcher, widget())


def test_without_callbacks_the_finalizers_are_managed_all_the_same(bench):
    watcher = OpinionatedWatcher(bench.kind, bench.client)
    obj = bench.create()
    watcher.add(obj)
    watcher.add(bench.now(obj))
    watcher.update(obj, bench.respec(obj, 1))
    assert bench.finalizers(obj) == (watcher.finalizer,)
    watcher.update(obj, bench.delete(obj))
    assert bench.now(obj) is None


@pytest.mark.parametrize("name", ["add", "update", "delete", "sync"])
def test_a_callback_that_cannot_be_called_is_refused_by_name(name):
    with pytest.raises(TypeError, match=f"{name}=3 is not a function of"):
        OpinionatedWatcher(WIDGET, no_client(), **{name: 3})


def test_async_callbacks_are_awaited(bench):
    notes = []

    async def add(obj):
        await asyncio.sleep(0)
        notes.append(bench.finalizers(obj))

    watcher = OpinionatedWatcher(bench.kind, bench.client, add=add)
    obj = bench.create()
    watcher.add(obj)
    assert notes == [(watcher.in_progress_finalizer,)]
    assert bench.finalizers(obj) == (watcher.finalizer,)


def test_an_async_callback_that_fails_keeps_the_object(bench):
    async def delete(_):
        raise ConnectionError("planned")

    watcher = OpinionatedWatcher(bench.kind, bench.client, delete=delete)
    obj = bench.delete(bench.create(watcher.finalizer))
    with pytest.raises(ConnectionError):
        watcher.add(obj)
    assert bench.finalizers(obj) == (watcher.finalizer,)


# wrap


@pytest.mark.parametrize("sync_to_add", [False, True])
def test_it_wraps_another_watcher(bench, sync_to_add):
    notes = []
    inner = SimpleWatcher(
        add=lambda _: notes.append("add"),
        update=lambda *_: notes.append("update"),
        delete=lambda _: notes.append("delete"),
    )
    watcher = OpinionatedWatcher.wrap(inner, bench.kind, bench.client, sync_to_add=sync_to_add)
    obj = bench.create()
    watcher.add(obj)
    watcher.add(bench.now(obj))
    old = bench.now(obj)
    watcher.update(old, bench.respec(obj, 1))
    watcher.update(old, bench.delete(obj))
    assert notes == ["add", *(["add"] if sync_to_add else []), "update", "delete"]


def test_it_wraps_nothing(bench):
    watcher = OpinionatedWatcher.wrap(None, bench.kind, bench.client, finalizer=lambda _: "a.b/c")
    obj = bench.create()
    watcher.add(obj)
    assert bench.finalizers(obj) == ("a.b/c",)


def test_it_says_in_advance_what_concerns_it():
    assert isinstance(OpinionatedWatcher(WIDGET, no_client()), SelectiveWatcher)


# Names


def test_the_default_names_are_those_of_grafana_app_sdk(widgets):
    assert default_finalizer(WIDGET) == widgets.ours == "example.com/operator.v1.Widget"
    assert in_progress_finalizer(WIDGET) == widgets.wip == "example.com/wip.v1.Widget"


@pytest.mark.parametrize(
    ("group", "name"),
    [
        ("", "operator.appsdk/v1.Thing"),
        ("apps", "operator.appsdk/v1.Thing.apps"),
        ("rbac.authorization.k8s.io", "operator.appsdk/v1.Thing.rbac.authorization.k8s.io"),
        ("example.com", "example.com/operator.v1.Thing"),
    ],
)
def test_built_in_kinds_get_a_name_with_a_domain(group, name):
    assert default_finalizer(Kind(group=group, version="v1", kind="Thing")) == name


@pytest.mark.parametrize("prefix", ["", "example.com/"])
def test_63_characters_are_allowed_and_64_are_not(prefix):
    server = Others(WIDGET)
    name = prefix + "a" * 63
    watcher = OpinionatedWatcher(WIDGET, server, finalizer=lambda _: name)
    assert watcher.finalizer == name
    assert len(watcher.in_progress_finalizer.rpartition("/")[2]) <= 63
    with pytest.raises(ValueError, match=r"longer than 63 characters: .* with finalizer="):
        OpinionatedWatcher(WIDGET, server, finalizer=lambda _: prefix + "a" * 64)
    long = Kind(group="example.com", version="v1", kind="W" * 60)
    with pytest.raises(ValueError, match="longer than 63"):
        OpinionatedWatcher(long, server)


@pytest.mark.parametrize("name", ["", "/", "a/", "/a", "a b", "Upper.example.com/x", "-a", "a/b/c"])
def test_what_no_server_would_accept_is_refused(name):
    with pytest.raises(ValueError, match="not a qualified name"):
        OpinionatedWatcher(WIDGET, no_client(), finalizer=lambda _: name)


def test_the_supplier_is_given_the_kind():
    watcher = OpinionatedWatcher(
        WIDGET, no_client(), finalizer=lambda kind: f"example.com/{kind.plural}"
    )
    assert watcher.finalizer == "example.com/widgets"
    assert watcher.in_progress_finalizer == "example.com/wip.widgets"


def test_the_name_of_another_watchers_mark_is_refused():
    with pytest.raises(ValueError, match="is reserved for objects in progress"):
        OpinionatedWatcher(WIDGET, no_client(), finalizer=in_progress_finalizer)


def test_long_names_of_different_watchers_have_different_marks():
    marks = {
        OpinionatedWatcher(
            WIDGET, no_client(), finalizer=lambda _, end=end: "a" * 62 + end
        ).in_progress_finalizer
        for end in "xyz"
    }
    assert len(marks) == 3


def test_two_watchers_of_a_kind_do_not_take_off_each_others_mark(bench):
    # One is still adding while the other one finishes; then the first one's process dies.
    first = bench.make(finalizer=lambda _: "one.example.com/x")
    second = bench.make(finalizer=lambda _: "two.example.com/x")
    obj = bench.create()
    bench.failing.add("add")
    with pytest.raises(ConnectionError):
        first.add(obj)
    bench.failing.clear()
    second.add(bench.now(obj))
    assert first.in_progress_finalizer in bench.finalizers(obj)
    marked = bench.delete(obj)
    second.update(obj, marked)
    assert bench.finalizers(obj) == (first.in_progress_finalizer,)
    first.update(obj, bench.now(obj))
    assert bench.now(obj) is None
    assert bench.notes == ["add", "add", "delete", "delete"]


def test_the_server_accepts_every_default_name(bench):
    obj = bench.create()
    for name in (bench.ours, bench.wip):
        bench.client.patch(
            bench.kind,
            obj.name,
            JsonPatch([{"op": "add", "path": "/metadata/finalizers", "value": [name]}]),
            namespace="default",
        )


# Errors of the server


@pytest.mark.parametrize("during", ["mark", "finish"])
def test_a_refusal_is_a_finalizer_error_with_its_cause(bench, during):
    class Refusing:
        writes = 0

        def get(self, *args, **options):
            return bench.client.get(*args, **options)

        def patch(self, *args, **options):
            self.writes += 1
            if self.writes == (1 if during == "mark" else 2):
                raise Forbidden("no", status=403, reason="Forbidden")
            return bench.client.patch(*args, **options)

    notes = []
    client = Refusing()
    watcher = OpinionatedWatcher(bench.kind, client, add=lambda _: notes.append("add"))
    obj = bench.create()
    with pytest.raises(FinalizerError) as raised:
        watcher.add(obj)
    cause = raised.value.__cause__
    if during == "finish":
        assert "the add callback succeeded, but then" in str(raised.value)
        assert isinstance(cause, FinalizerError)
        cause = cause.__cause__
    assert isinstance(cause, Forbidden)
    assert obj.name in str(raised.value)
    assert notes == ([] if during == "mark" else ["add"])
    assert client.writes == (1 if during == "mark" else 2), "a refusal is not tried again"


def test_an_endless_conflict_is_given_up(bench):
    class Busy:
        writes = 0

        def get(self, *args, **options):
            return bench.client.get(*args, **options)

        def patch(self, kind, name, patch, **options):
            self.writes += 1
            raise Conflict("somebody else", status=409, reason="Conflict")

    client = Busy()
    with pytest.raises(FinalizerError, match="somebody else") as raised:
        OpinionatedWatcher(bench.kind, client).add(bench.create())
    assert isinstance(raised.value.__cause__, Conflict)
    assert client.writes == 10


@pytest.mark.parametrize("action", ["add", "update", "delete"])
def test_an_object_of_another_kind_is_refused(widgets, action):
    other = Object.from_dict(CONFIG_MAP, {"metadata": {"name": "a"}})
    objects = [other, other] if action == "update" else [other]
    with pytest.raises(TypeError, match="add this watcher under its own kind"):
        getattr(widgets.watcher, action)(*objects)


def test_client_and_kind_in_the_wrong_order_are_told_apart(widgets):
    with pytest.raises(TypeError, match="give first the kind, then the client"):
        OpinionatedWatcher(widgets.client, WIDGET)
