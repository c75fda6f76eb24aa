"""What an App's managers do, on the embedded API server."""

from __future__ import annotations

import asyncio
import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from appsdk_operator import kinds
from appsdk_operator._version import __version__
from appsdk_operator.app import App
from appsdk_operator.cache import NotCachedError, NotSyncedError
from appsdk_operator.client import Client, ClientConfig, ClientLike, MergePatch
from appsdk_operator.controllers import ControllerOptions, Request
from appsdk_operator.manager import LeaderElection, Manager
from appsdk_operator.resource import MutableObject, Object, field
from appsdk_operator.runtime import Metrics, Narrator, StopSignal
from appsdk_operator.testing import APIServer, install_crds
from appsdk_operator.watchers import SimpleWatcher
from appsdk_operator.webhooks import WebhookServerOptions
from tests.app.test_app import BUCKET, BucketSpec, nothing
from tests.waiting import eventually

CONFIG_MAP = kinds.core.v1.ConfigMap
TIMEOUT = 60.0
DURATION = re.compile(r"[0-9.e-]+ m?s$|(?<=after )[0-9.e-]+ m?s(?=:)")


@pytest.fixture
def config() -> Iterator[ClientConfig]:
    app = App("owner")
    app.own(BUCKET)
    with APIServer() as server, Client(ClientConfig(server=server.url)) as client:
        install_crds(client, app.crds())
        yield ClientConfig(server=server.url)


@pytest.fixture
def api(config: ClientConfig) -> Iterator[Client]:
    with Client(config) as client:
        yield client


class Calls:
    """What was called, in order."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: list[Any] = []

    def add(self, call: Any) -> None:
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()

    def wait_for(self, call: Any, count: int = 1) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._calls.count(call) >= count, TIMEOUT):
                raise TimeoutError(f"{call!r} is not among {self._calls}")

    @property
    def all(self) -> list[Any]:
        with self._changed:
            return list(self._calls)


@contextmanager
def running(manager: Manager) -> Iterator[Manager]:
    stop = StopSignal()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            manager.run(stop)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert manager.elected.wait(TIMEOUT) or failures
        yield manager
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


def bucket(name: str, size: int = 1) -> MutableObject[BucketSpec]:
    return MutableObject.new(BUCKET, name, namespace="default", spec=BucketSpec(size=size))


def made(app: App, config: ClientConfig) -> Manager:
    return app.manager(config, metrics=Metrics())


def test_the_four_callbacks_of_a_kind_are_one_watcher_with_the_apps_finalizer(
    api: Client, config: ClientConfig
) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.on_add(BUCKET)
    def make(bucket: Object[BucketSpec]) -> None:
        calls.add(("add", bucket.name))

    @app.on_update(BUCKET, when=field("spec.size").changed)
    async def resize(old: Object[BucketSpec], new: Object[BucketSpec]) -> None:
        calls.add(("size", old.spec.size, new.spec.size))

    @app.on_sync(BUCKET)
    def sync(bucket: Object[BucketSpec]) -> None:
        calls.add(("sync", bucket.name))

    @app.on_delete(BUCKET)
    def remove(bucket: Object[BucketSpec]) -> None:
        calls.add(("delete", bucket.name))

    with running(made(app, config)):
        api.create(bucket("a"))
        calls.wait_for(("add", "a"))
        eventually(lambda: finalizers(api, "a") == ("example.com/bucket-operator.v1.Bucket",))
    with running(made(app, config)):
        calls.wait_for(("sync", "a"))
        draft = api.get(BUCKET, "a", namespace="default").mutable_copy()
        draft.spec = BucketSpec(size=5)
        api.update(draft)
        calls.wait_for(("size", 1, 5))
        api.delete(BUCKET, "a", namespace="default")
        calls.wait_for(("delete", "a"))
    assert len(calls.all) == 4


def test_an_update_calls_the_functions_of_the_fields_that_changed(
    api: Client, config: ClientConfig
) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.on_update(BUCKET, when=field("spec.size").changed)
    def resize(old: Object[BucketSpec], new: Object[BucketSpec]) -> None:
        calls.add("size")

    @app.on_update(BUCKET, when=field("spec.note").changed)
    def note(old: Object[BucketSpec], new: Object[BucketSpec]) -> None:
        calls.add("note")

    @app.on_update(BUCKET)
    def update(old: Object[BucketSpec], new: Object[BucketSpec]) -> None:
        calls.add("any")

    @app.every(3600, BUCKET)
    def look(bucket: Object[BucketSpec]) -> None:
        calls.add("look")

    api.create(bucket("a"))
    with running(made(app, config)):
        calls.wait_for("look")
        draft = api.get(BUCKET, "a", namespace="default").mutable_copy()
        draft.spec = attrs.evolve(draft.spec, note="new")
        api.update(draft)
        calls.wait_for("any")
        draft = api.get(BUCKET, "a", namespace="default").mutable_copy()
        draft.spec = attrs.evolve(draft.spec, size=9)
        api.update(draft)
        calls.wait_for("any", count=2)
    assert calls.all == ["look", "note", "any", "size", "any"]
    assert not finalizers(api, "a")


def finalizers(api: Client, name: str) -> tuple[str, ...]:
    return tuple(api.get(BUCKET, name, namespace="default").finalizers)


def test_the_finalizers_of_earlier_names_and_watchers_are_replaced(
    api: Client, config: ClientConfig
) -> None:
    left = ("example.com/old-name.v1.Bucket", "example.com/old-name.dns.v1.Bucket")
    api.create(bucket("a"))
    patch = MergePatch({"metadata": {"finalizers": left}})
    api.patch(BUCKET, "a", patch, namespace="default")
    calls = Calls()
    for name, previous, expected in (
        ("old-name", (), "example.com/old-name.v1.Bucket"),
        ("new-name", ("old-name",), "example.com/new-name.v1.Bucket"),
    ):
        app = App(name, previous_names=previous, previous_watchers=["dns"])
        app.on_add(BUCKET)(lambda _: calls.add("add"))
        app.on_delete(BUCKET)(nothing)
        with running(made(app, config)):
            eventually(lambda expected=expected: finalizers(api, "a") == (expected,))
    assert not calls.all


def test_the_client_is_that_of_the_manager_in_whose_callback_it_is_read(
    api: Client, config: ClientConfig
) -> None:
    app, seen = App("bucket-operator"), Calls()

    @app.on_add(BUCKET)
    def plain(bucket: Object[BucketSpec]) -> None:
        seen.add((1, app.client))

    @app.on_add(BUCKET)
    async def coroutine(bucket: Object[BucketSpec]) -> None:
        seen.add((2, app.client))

    @app.reconciler(BUCKET)
    def reconcile(request: Request) -> None:
        seen.add((3, app.client))

    @app.every(3600, BUCKET)
    def look(bucket: Object[BucketSpec]) -> None:
        seen.add((4, app.client))

    @app.every(3600)
    def tick() -> None:
        seen.add((5, app.client))

    @app.task
    def task(stop: StopSignal) -> None:
        seen.add((6, app.client))

    one, other = made(app, config), made(app, config)
    with pytest.raises(RuntimeError, match="2 of bucket-operator were made"):
        _ = app.client
    with running(one), running(other):
        with pytest.raises(RuntimeError, match="2 of bucket-operator run"):
            _ = app.client
        api.create(bucket("a"))
        for number in range(1, 7):
            for manager in (one, other):
                seen.wait_for((number, manager.client))
    with running(made(app, config)) as third:
        assert app.client is third.client


def test_a_closed_manager_that_somebody_still_holds_is_not_meant(config: ClientConfig) -> None:
    app = App("bucket-operator")
    app.on_add(BUCKET)(nothing)
    with made(app, config) as never_run:
        assert app.client is never_run.client
    with pytest.raises(RuntimeError, match="none of bucket-operator runs"):
        _ = app.client
    with made(app, config) as other:
        assert app.client is other.client


def test_a_timer_calls_for_each_object_until_it_is_gone(api: Client, config: ClientConfig) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.every(0.01, BUCKET)
    def look(bucket: Object[BucketSpec]) -> None:
        calls.add(bucket.name)
        if bucket.name == "fails" and calls.all.count("fails") < 3:
            raise ConnectionError("not yet")

    @app.every(0.01)
    def tick() -> None:
        calls.add("tick")

    with running(made(app, config)):
        for name in ("a", "fails"):
            api.create(bucket(name))
            calls.wait_for(name, 5)
        calls.wait_for("tick", 5)


def test_a_reconciler_gets_objects_and_events_of_what_it_owns_and_watches(
    api: Client, config: ClientConfig
) -> None:
    app, calls = App("bucket-operator"), Calls()

    def buckets_of(config_map: Object[Any, Any]) -> list[Request]:
        return [Request("default", config_map.name)]

    @app.object_reconciler(BUCKET, watches={CONFIG_MAP: buckets_of})
    def reconcile(bucket: Object[BucketSpec]) -> None:
        calls.add((bucket.name, bucket.spec.size))

    with running(made(app, config)):
        api.create(bucket("a", 7))
        calls.wait_for(("a", 7))
        api.create(MutableObject.new(CONFIG_MAP, "a", namespace="default"))
        calls.wait_for(("a", 7), 2)


def test_a_plain_watcher_may_be_made_with_the_managers_client(
    api: Client, config: ClientConfig
) -> None:
    app, calls = App("bucket-operator"), Calls()

    class Copies:
        def __init__(self, client: ClientLike) -> None:
            self.client = client

        def add(self, obj: Object[Any, Any]) -> None:
            calls.add((obj.name, self.client is app.client))

        def update(self, old: Object[Any, Any], new: Object[Any, Any]) -> None: ...

        def delete(self, obj: Object[Any, Any]) -> None: ...

    app.watch(BUCKET, Copies)
    app.watch(BUCKET, SimpleWatcher(add=lambda obj: calls.add(("simple", obj.name))))
    with running(made(app, config)):
        api.create(bucket("a"))
        calls.wait_for(("a", True))
        calls.wait_for(("simple", "a"))


def test_declarations_after_the_first_manager_are_refused(config: ClientConfig) -> None:
    app = App("bucket-operator")
    with made(app, config), pytest.raises(RuntimeError, match="has a manager already"):
        app.on_add(BUCKET)(nothing)


def test_it_says_what_it_does_in_a_few_lines_and_is_silent_in_between(
    config: ClientConfig, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("bucket-operator", workers=2)
    app.on_add(BUCKET)(nothing)
    app.object_reconciler(BUCKET)(nothing)
    with caplog.at_level("INFO", "appsdk_operator"), running(made(app, config)):
        eventually(lambda: any("has started" in text for text in caplog.messages))
        eventually(lambda: any("synced" in text for text in caplog.messages))
    lines = [DURATION.sub("N", text) for text in caplog.messages]
    assert lines[0].startswith(f"bucket-operator starts: appsdk-operator {__version__}, Python 3.")
    assert lines[0].endswith(f", on {config.server}")
    assert sorted(lines[1:]) == sorted(
        [
            f"bucket-operator watches {BUCKET.qualified_name} in all namespaces",
            f"{BUCKET.qualified_name}: synced, 0 objects in N",
            "bucket-operator has started, after N: 2 controllers with 4 workers",
            "bucket-operator is stopping; running calls have 30 s to end",
            "bucket-operator has stopped, after N",
        ]
    )


def test_eight_objects_of_a_kind_are_handled_side_by_side_unless_the_options_say_otherwise() -> (
    None
):
    def counts(app: App) -> list[int]:
        app.on_add(BUCKET)(nothing)
        app.object_reconciler(BUCKET)(nothing)
        app.every(60.0)(lambda: None)
        with made(app, ClientConfig(server="http://localhost")) as manager:
            return sorted(each["workers"] for each in manager.debug_state()["controllers"])

    assert counts(App("buckets")) == [1, 8, 8]
    assert counts(App("buckets", workers=3)) == [1, 3, 3]
    own = ControllerOptions(max_concurrent_reconciles=2)
    assert counts(App("buckets", controller_options=own)) == [1, 2, 8]
    by_kind = ControllerOptions(kind_concurrency={"Bucket.example.com": 5})
    assert counts(App("buckets", controller_options=by_kind)) == [1, 5, 8]


def test_a_function_that_hangs_holds_up_its_own_object_alone(
    api: Client, config: ClientConfig
) -> None:
    app, calls, is_over = App("bucket-operator"), Calls(), threading.Event()

    @app.on_add(BUCKET)
    async def make(bucket: Object[BucketSpec]) -> None:
        calls.add(f"add {bucket.name}")
        if bucket.name == "hangs":
            await asyncio.to_thread(is_over.wait, TIMEOUT)

    @app.on_update(BUCKET)
    def resize(old: Object[BucketSpec], new: Object[BucketSpec]) -> None:
        if old.spec != new.spec:
            calls.add(f"update {new.name}")

    with running(made(app, config)):
        api.create(bucket("hangs"))
        calls.wait_for("add hangs")
        for name in ("hangs", "b", "c"):
            if name != "hangs":
                api.create(bucket(name))
                calls.wait_for(f"add {name}")
            api.patch(BUCKET, name, MergePatch({"spec": {"size": 5}}), namespace="default")
        for name in ("b", "c"):
            calls.wait_for(f"update {name}")
        assert "update hangs" not in calls.all
        is_over.set()
        calls.wait_for("update hangs")


def test_a_narrated_app_prints_each_call_with_its_writes(
    config: ClientConfig, api: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App("bucket-operator", narrate=True)
    calls = Calls()

    @app.on_add(BUCKET)
    def make(bucket: Object[BucketSpec]) -> None:
        calls.add("made")

    with running(made(app, config)):
        api.create(bucket("a"))
        calls.wait_for("made")
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.startswith("time")
    text = "\n".join(rows)
    assert re.search(r"make +CREATE +buckets \S+/a .* ok$", text, re.MULTILINE)
    assert "-> patch buckets.example.com" in text


def test_the_narration_names_the_function_of_each_call_and_passes_over_looks_without_one(
    config: ClientConfig, api: Client
) -> None:
    app, calls, narration = App("bucket-operator"), Calls(), io.StringIO()

    @app.on_add(BUCKET)
    def make(bucket: Object[BucketSpec]) -> None: ...

    @app.on_add(BUCKET)
    def announce(bucket: Object[BucketSpec]) -> None:
        calls.add("add")

    @app.on_update(BUCKET)
    def note(old: Object[BucketSpec], new: Object[BucketSpec]) -> None:
        calls.add("note")

    @app.on_update(BUCKET, when=field("spec.size").changed)
    def resize(old: Object[BucketSpec], new: Object[BucketSpec]) -> None:
        calls.add("resize")

    @app.on_delete(BUCKET)
    def remove(bucket: Object[BucketSpec]) -> None: ...

    @app.every(3600.0, BUCKET)
    def measure(bucket: Object[BucketSpec]) -> None:
        calls.add("measure")

    manager = made(app, config)
    manager.observe_activity(Narrator(narration))
    with running(manager):
        api.create(bucket("a"))
        calls.wait_for("measure")
        api.patch(BUCKET, "a", MergePatch({"spec": {"size": 5}}), namespace="default")
        calls.wait_for("resize")
        api.delete(BUCKET, "a", namespace="default")
        eventually(lambda: not list(api.list(BUCKET)))
        eventually(lambda: "remove" in narration.getvalue())
    rows = [row.split() for row in narration.getvalue().splitlines()[1:]]
    assert [(row[1].rpartition(".")[2], row[2]) for row in rows if row[0] != "->"] == [
        ("make", "CREATE"),
        ("announce", "CREATE"),
        ("measure", "TIMER"),
        ("note", "UPDATE"),
        ("resize", "UPDATE"),
        ("remove", "DELETE"),
    ]


def lead_elsewhere(api: Client) -> None:
    """A Lease that another replica holds."""
    lease = MutableObject.new(kinds.coordination.v1.Lease, "bucket-operator", namespace="default")
    lease["spec"] = {
        "holderIdentity": "another",
        "leaseDurationSeconds": 3600,
        "acquireTime": "2024-01-01T00:00:00.000000Z",
        "renewTime": "2024-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }
    api.create(lease)


def test_webhooks_of_a_replica_that_does_not_lead_read_what_its_controllers_would(
    api: Client, config: ClientConfig
) -> None:
    lead_elsewhere(api)
    app = App(
        "bucket-operator",
        leader_election=LeaderElection(id="bucket-operator", namespace="default"),
        webhook_server=WebhookServerOptions(address=""),
    )
    app.watch(CONFIG_MAP, SimpleWatcher(add=nothing))
    app.reconciler(BUCKET, owns=[kinds.core.v1.Secret])(nothing)
    app.validate(BUCKET)(lambda bucket: None)
    manager = made(app, config)
    stop = StopSignal()
    thread = threading.Thread(target=manager.run, args=(stop,))
    thread.start()
    try:
        for kind in (CONFIG_MAP, BUCKET, kinds.core.v1.Secret):
            eventually(lambda kind=kind: is_followed(manager, kind))
        assert not manager.elected.is_set()
    finally:
        stop.set()
        thread.join()


def is_followed(manager: Manager, kind: Any) -> bool:
    try:
        list(manager.client.list(kind))
    except (NotCachedError, NotSyncedError):
        return False
    return True


def test_the_task_of_an_app_reads_from_its_first_moment(api: Client, config: ClientConfig) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.reconciler(BUCKET)
    def reconcile(request: Request) -> None: ...

    @app.task
    def count(stop: StopSignal) -> None:
        calls.add(len(list(app.client.list(BUCKET))))

    with running(made(app, config)):
        calls.wait_for(0)
