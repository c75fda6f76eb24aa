"""API servers that ask admission webhooks of the kit: what users see, and what is stored."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest

from appsdk_operator.client import ApiError, Forbidden, InternalError, Invalid
from appsdk_operator.manager import CacheSetup, HealthServerOptions, Manager
from appsdk_operator.resource import (
    Kind,
    MutableObject,
    Object,
    custom_resource_definition,
    field,
)
from appsdk_operator.runtime import Clock, ManualClock, Metrics, StopSignal, system_clock
from appsdk_operator.serving import HTTPLimits, SelfSigned
from appsdk_operator.testing import install_crds, running
from appsdk_operator.webhooks import (
    Admission,
    AdmissionRequest,
    AdmissionResponse,
    Denied,
    WebhookRule,
    WebhookServer,
    WebhookServerOptions,
    admission_request,
    install_configurations,
    remove_configurations,
    webhook_configurations,
    webhook_for,
)
from tests.apiserver.kubectl_tools import run_kubectl
from tests.manager.manager_parts import get
from tests.waiting import eventually
from tests.webhooks.conversion_parts import Lane, Spec, Widgets, widget

TIMEOUT = 30.0
CERTIFICATES = SelfSigned("127.0.0.1")
LIMITS = HTTPLimits(header_timeout=3.0)
_numbers = itertools.count(1)


@attrs.frozen
class Part:
    """A spec that knows some of the fields."""

    size: int | None = None
    color: str | None = None


@pytest.fixture
def kind(lane: Lane) -> Kind[Part, Any]:
    """A kind of the test's own that the server serves."""
    made: Kind[Part, Any] = Kind(
        group=f"admit{next(_numbers)}.example.com", version="v1", kind="Gadget", spec=Part
    )
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd = custom_resource_definition(
        Kind(group=made.group, version="v1", kind="Gadget"),
        schema={"type": "object", "properties": {"spec": anything, "status": anything}},
    )
    for version in crd["spec"]["versions"]:
        version["subresources"] = {"status": {}}
    install_crds(lane.client, [crd], timeout=TIMEOUT)
    return made


@pytest.fixture
def serve(lane: Lane) -> Iterator[Callable[[WebhookServer], None]]:
    """Starts a server of webhooks, and has the API server ask it until the test is over."""

    with contextlib.ExitStack() as exits:

        def start(server: WebhookServer) -> None:
            exits.enter_context(running(server))
            configurations = webhook_configurations(
                server,
                name=f"test-{next(_numbers)}",
                url=server.url,
                ca=CERTIFICATES.pem,
            )
            install_configurations(lane.client, configurations)
            exits.callback(remove_configurations, lane.client, configurations)
            _settle(lane, server)

        yield start


def _settle(lane: Lane, server: WebhookServer) -> None:
    """Wait until the API server, which reads configurations now and then, knows these."""
    if lane.name == "embedded":
        return
    seen = {}
    for path in PROBES.values():
        probe = server.webhooks.get(path)
        assert isinstance(probe, Admission)
        seen[path] = probe.handler.seen = threading.Event()  # type: ignore[attr-defined]

    def is_known() -> bool:
        draft = MutableObject.new(CONFIG_MAP, namespace="default")
        draft["metadata"]["generateName"] = "probe-"
        lane.client.create(draft, dry_run=True)
        return all(event.is_set() for event in seen.values())

    eventually(is_known)


CONFIG_MAP: Kind = Kind(group="", version="v1", kind="ConfigMap")


PROBES: dict[Literal["mutating", "validating"], str] = {
    "mutating": "/probe-mutating",
    "validating": "/probe-validating",
}
"""One in each configuration: a server may know of the one before it knows of the other."""


class Probe:
    """Says that the API server has read the configuration."""

    seen: threading.Event | None = None

    def __call__(self, request: AdmissionRequest) -> AdmissionResponse:
        if self.seen is not None and request.object and request.dry_run:
            self.seen.set()
        return AdmissionResponse.allowed()


def new_server(clock: Clock = system_clock) -> WebhookServer:
    """A server with webhooks by which a test sees that the API server knows them."""
    server = WebhookServer(
        "127.0.0.1:0", certificates=CERTIFICATES, limits=LIMITS, clock=clock, metrics=Metrics()
    )
    for kind, path in PROBES.items():
        rule = WebhookRule(
            type=kind,
            path=path,
            kinds=(CONFIG_MAP,),
            operations=("CREATE",),
            failure_policy="Ignore",
            # The names of webhooks are sorted, and this one comes last.
            name="zz-probe.example.com",
        )
        server.add(path, Admission(Probe()), rule=rule)
    return server


def gadget(kind: Kind, name: str = "a", **spec: Any) -> MutableObject:
    """An object of the test's kind in the namespace ``default``."""
    return MutableObject(
        kind,
        {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        },
    )


def set_size(obj: MutableObject[Part, Any]) -> None:
    """Set what is missing."""
    if obj.spec.size is None:
        obj.spec = attrs.evolve(obj.spec, size=3)


def check(new: Object[Part, Any]) -> Any:
    """Refuse negative sizes, and warn of mauve."""
    if new.spec.size is not None and new.spec.size < 0:
        return [field("spec")["size"].invalid(new.spec.size, "must not be negative")]
    return "spec.color: mauve is deprecated" if new.spec.color == "mauve" else None


def check_change(old: Object[Part, Any], new: Object[Part, Any]) -> Any:
    """Refuse another color."""
    if old.spec.color != new.spec.color:
        raise Denied("spec.color is immutable", code=409, reason="Conflict")
    return check(new)


def check_end(old: Object[Part, Any]) -> Any:
    """Refuse the end of what is kept."""
    if old.labels.get("keep"):
        raise Denied(f"{old.name} is kept")


def test_objects_are_completed_checked_and_kept(
    lane: Lane, kind: Kind[Part, Any], serve: Callable[[WebhookServer], None]
) -> None:
    server = new_server()
    webhook_for(server, kind).default(set_size).validate(
        create=check, update=check_change, delete=check_end
    ).complete()
    serve(server)
    client = lane.client
    stored = client.create(gadget(kind, color="red", unknown={"deep": [1, {"b": None}]}, big=2**62))
    assert stored.spec == Part(3, "red")
    assert dict(stored["spec"]) == {
        "size": 3,
        "color": "red",
        "unknown": {"deep": [1, {"b": None}]},
        "big": 2**62,
    }
    name = f"validate.gadgets.{kind.group}"
    with pytest.raises(Invalid) as caught:
        client.create(gadget(kind, "b", size=-1))
    assert caught.value.message == (
        f'admission webhook "{name}" denied the request: Gadget.{kind.group} "b" is invalid: '
        "spec.size: Invalid value: -1: must not be negative"
    )
    assert [(c.reason, c.field) for c in caught.value.causes] == [
        ("FieldValueInvalid", "spec.size")
    ]
    assert caught.value.status == 422
    draft = stored.mutable_copy()
    draft["spec"]["color"] = "blue"
    with pytest.raises(ApiError) as conflict:
        client.update(draft)
    assert (conflict.value.status, conflict.value.reason) == (409, "Conflict")
    assert conflict.value.message.endswith("denied the request: spec.color is immutable")
    draft = stored.mutable_copy()
    draft.labels["keep"] = "yes"
    client.update(draft)
    with pytest.raises(Forbidden, match="denied the request: a is kept"):
        client.delete(kind, "a", namespace="default")
    with pytest.raises(Forbidden, match="denied the request: a is kept"):
        client.delete_collection(kind, namespace="default", label_selector="keep=yes")
    draft = client.get(kind, "a", namespace="default").mutable_copy()
    draft.labels.clear()
    client.update(draft)
    client.delete_collection(kind, namespace="default")
    assert not list(client.list(kind, namespace="default"))


def test_generated_names_dry_runs_and_the_status(
    lane: Lane, kind: Kind[Part, Any], serve: Callable[[WebhookServer], None]
) -> None:
    asked: list[tuple[Any, ...]] = []

    def note(obj: MutableObject[Part, Any]) -> None:
        request = admission_request()
        assert request is not None
        asked.append((request.operation, request.subresource, request.name, request.dry_run))
        assert request.user.username
        assert request.user.groups
        set_size(obj)

    server = new_server()
    resources = ("gadgets", "gadgets/status")
    webhook_for(server, kind).default(note, resources=resources).complete()
    serve(server)
    client = lane.client
    draft = gadget(kind)
    draft["metadata"] = {"generateName": "gen-", "namespace": "default"}
    assert client.create(draft, dry_run=True).spec.size == 3
    made = client.create(draft)
    assert made.name.startswith("gen-")
    assert made.spec.size == 3
    change = made.mutable_copy()
    change["status"] = {"ready": True}
    client.status.update(change)
    stored = client.get(kind, made.name, namespace="default")
    assert stored["status"] == {"ready": True}
    assert [each[:2] for each in asked] == [("CREATE", ""), ("CREATE", ""), ("UPDATE", "status")]
    assert [each[3] for each in asked] == [True, False, False]
    assert asked[2][2] == made.name


def test_a_failed_handler_denies_whatever_the_failure_policy_is(
    lane: Lane, kind: Kind[Part, Any], serve: Callable[[WebhookServer], None]
) -> None:
    def look(obj: MutableObject) -> None:
        raise KeyError("replicas")

    server = new_server()
    webhook_for(server, kind).default(look, failure_policy="Ignore").complete()
    serve(server)
    with pytest.raises(InternalError) as caught:
        lane.client.create(gadget(kind))
    assert caught.value.message.startswith(
        f'admission webhook "default.gadgets.{kind.group}" denied the request: the webhook '
    )
    assert caught.value.message.endswith("look failed: KeyError: 'replicas'")


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_a_late_handler_leaves_it_to_the_failure_policy(
    lane: Lane, kind: Kind[Part, Any], serve: Callable[[WebhookServer], None], policy: Any
) -> None:
    # The server's own time, so that its answer does not race with the end of the API server's wait.
    clock, ended = ManualClock(), threading.Event()

    def dawdle(new: Object) -> None:
        clock.advance(28.5)
        ended.wait(TIMEOUT)

    server = new_server(clock)
    webhook_for(server, kind).validate(
        create=dawdle, failure_policy=policy, timeout_seconds=30
    ).complete()
    serve(server)
    try:
        if policy == "Ignore":
            assert lane.client.create(gadget(kind)).name == "a"
            return
        with pytest.raises(ApiError) as caught:
            lane.client.create(gadget(kind))
        text = caught.value.message
        assert "failed calling webhook" in text
        assert "dawdle did not answer within 28.5 s" in text
    finally:
        ended.set()


@pytest.mark.programs
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
def test_a_user_of_kubectl_sees_denials_and_warnings(
    lane: Lane, kind: Kind[Part, Any], serve: Callable[[WebhookServer], None], tmp_path: Path
) -> None:
    server = new_server()
    webhook_for(server, kind).default(set_size).validate(
        create=check, update=check_change
    ).complete()
    serve(server)
    config = tmp_path / "config"
    lane.server.write_kubeconfig(config)
    done = run_kubectl(config, "create", "-f", "-", stdin=gadget(kind, color="mauve").to_dict())
    assert "Warning: spec.color: mauve is deprecated" in done.stderr
    assert "created" in done.stdout
    done = run_kubectl(
        config, "create", "-f", "-", stdin=gadget(kind, "b", size=-7).to_dict(), fails=True
    )
    # kubectl puts these words together itself, of the causes.
    assert 'The Gadget "b" is invalid: spec.size: Invalid value: -7: must not' in done.stderr
    done = run_kubectl(
        config, "patch", f"gadgets.{kind.group}", "a", "--type=merge", "-p",
        '{"spec": {"color": "blue"}}', fails=True,
    )  # fmt: skip
    denied = f'admission webhook "validate.gadgets.{kind.group}" denied the request: '
    assert f"{denied}spec.color is immutable" in done.stderr
    shown = run_kubectl(config, "get", f"gadgets.{kind.group}", "a", "-o", "json")
    assert json.loads(shown.stdout)["spec"] == {"size": 3, "color": "mauve"}


# -- in a manager ----------------------------------------------------------------------------------


@pytest.mark.parametrize("warm_up", [False, True])
def test_a_conversion_webhook_readiness_and_an_index_do_not_wait_for_each_other(
    lane: Lane, *, warm_up: bool
) -> None:
    """The manager lists a version that the API server can only have from the manager itself."""
    widgets = Widgets.make()
    lane.install(widgets)
    lane.client.create(widget(widgets.v1, "web", Spec(3)))
    manager = Manager(
        lane.client,
        webhook_server=WebhookServerOptions(
            address="127.0.0.1:0", certificates=CERTIFICATES, limits=LIMITS
        ),
        health_server=HealthServerOptions(address="127.0.0.1:0"),
        cache=CacheSetup(kinds=[widgets.v2]),
        metrics=Metrics(),
    )
    with manager:
        webhook_for(manager, widgets.v1).convert(widgets.versions).complete()
        # Not install_crds, which waits until the server lists the kind: nobody answers yet.
        where = {
            "url": f"https://{manager.addresses['webhooks']}/convert",
            "caBundle": base64.b64encode(CERTIFICATES.pem).decode(),
        }

        def move(crd: MutableObject) -> None:
            crd["spec"]["conversion"]["webhook"]["clientConfig"] = where

        lane.change_crd(widgets, move)
        manager.add_ready_check("started", manager.webhook_server.health)
        for informer in manager.cache.informers(widgets.v2):
            informer.add_index("width", lambda obj: [str(obj["spec"]["width"])])
        found: list[Object] = []

        class Worker:
            def run(self, stop: StopSignal, /) -> None:
                found.extend(manager.cache.by_index(widgets.v2, "width", "3"))
                stop.wait()

        class Warm(Worker):
            def warm_up(self, stop: StopSignal, /) -> None:
                found.extend(manager.cache.list(widgets.v2))

        manager.add(Warm() if warm_up else Worker())
        with running(manager, timeout=TIMEOUT):
            while not len(found) > warm_up:
                StopSignal().wait(0.01)
            assert get(manager.addresses["health"], "/readyz")[0] == 200
            _, text = get(manager.addresses["health"], "/readyz?verbose")
            assert "[+]webhooks ok" in text
            assert "[+]started ok" in text
            assert manager.metrics.value(
                "controller_runtime_webhook_requests_total", webhook="/convert", code="200"
            )
    assert [obj["spec"]["width"] for obj in found] == [3] * (1 + warm_up)


def test_every_replica_of_a_manager_serves_webhooks(lane: Lane, kind: Kind[Part, Any]) -> None:
    from appsdk_operator.manager import LeaderElection

    def replica() -> Manager:
        manager = Manager(
            lane.client,
            webhook_server=WebhookServerOptions(
                address="127.0.0.1:0", certificates=CERTIFICATES, limits=LIMITS
            ),
            leader_election=LeaderElection(id=f"lock-{kind.group}", namespace="default"),
            metrics=Metrics(),
        )
        webhook_for(manager, kind).default(set_size).complete()
        return manager

    first, second = replica(), replica()
    with first, second, running(first), running(second, wait=False):
        assert second.webhook_server.wait_until_ready(StopSignal(), TIMEOUT)
        assert first.webhook_server.health().is_ready
        assert second.webhook_server.health().is_ready
        assert not second.elected.is_set()
