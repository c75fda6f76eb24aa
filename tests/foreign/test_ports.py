"""kopf's examples in our words, as kopf operators and as Apps: both see the same and do the same.

So does what the command ``migrate`` makes of the operator, where it leaves no TODO.

A row of ``CASES`` is one example: what people do meanwhile, and where the two differ on purpose.
Each pair is in ``programs/ports``.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from appsdk_operator import Kind, MutableObject, Object, kinds
from appsdk_operator.cli._kopf.program import migrate
from appsdk_operator.client import AlreadyExists, ApiError, Client, ClientConfig, MergePatch
from appsdk_operator.controllers import until, wait_for
from tests.foreign.conftest import PATIENCE, PROGRAMS, Program, definition

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
POD = kinds.core.v1.Pod
CLAIM = kinds.core.v1.PersistentVolumeClaim
CONTAINERS = {"containers": [{"name": "main", "image": "busybox"}]}
CONFIGURATIONS = (
    kinds.admissionregistration.v1.MutatingWebhookConfiguration,
    kinds.admissionregistration.v1.ValidatingWebhookConfiguration,
)
EVENT = kinds.events.v1.Event


def widgets() -> dict[str, Any]:
    """The CRD of widgets, whose specs may have any field."""
    crd = definition("example.com", "widgets", "Widget")
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"] = schema["properties"]["status"]
    return crd


class Host:
    """The process that runs the programs."""

    def __init__(self, process: Program, folder: Path) -> None:
        self.process = process
        self.folder = folder
        """Where it finds translated programs."""

    def ask(self, **words: str) -> str:
        """Ask for something, and wait until it is done."""
        before = self._answers()
        self.process.ask(**words)
        answer = self.process.until("answer", lambda _: self._answers() > before)
        assert answer != "failed", "".join(self.process.errors[-50:])
        return str(answer)

    def _answers(self) -> int:
        return len(self.process.all_of("answer"))


@attrs.define
class Cluster:
    """A namespace in which a program runs, as the people see it who use it."""

    client: Client
    host: Host
    program: str
    namespace: str
    warnings: Callable[[], set[str]]
    """What the server has warned of."""
    seen: dict[str, Any] = attrs.field(factory=dict)
    """What else people have seen."""

    @property
    def is_kopf(self) -> bool:
        """Whether the program is the original."""
        return self.program.endswith("_kopf")

    def create(self, name: str, spec: Any = (), kind: Any = WIDGET, **metadata: Any) -> None:
        """Make an object."""
        self.client.create(
            MutableObject.new(
                kind, name, namespace=self.namespace, spec=dict(spec), metadata=metadata
            )
        )

    def patch(self, name: str, change: Any, kind: Any = WIDGET) -> None:
        """Change an object."""
        self.client.patch(kind, name, MergePatch(change), namespace=self.namespace)

    def delete(self, name: str, kind: Any = WIDGET) -> None:
        """Delete an object, and wait until it is gone."""
        self.client.delete(kind, name, namespace=self.namespace)
        self.gone(name, kind)

    def gone(self, name: str, kind: Any = WIDGET) -> None:
        """Wait until an object is gone."""
        self.wait_for(name, kind, until.deleted())

    def wait(self, name: str, *fields: str, kind: Any = WIDGET, **status: Any) -> None:
        """Wait until the status of an object has these fields, and these values."""

        def fits(obj: Object[Any, Any] | None) -> bool:
            found = dict((obj.status if obj else None) or {})
            return found.keys() >= {*fields} and all(found.get(k) == v for k, v in status.items())

        self.wait_for(name, kind, fits)

    def wait_for(self, name: str, kind: Any, fits: Callable[[Any], bool]) -> None:
        """Wait until an object, or its absence, fits."""
        wait_for(self.client, kind, name, fits, namespace=self.namespace, timeout=PATIENCE)

    def until(self, kind: Any, holds: Callable[[], bool]) -> None:
        """Look at each change of a kind, until something holds."""
        with self.client.watch(kind, timeout=PATIENCE) as changes:
            assert any(holds() for _ in changes), self.state()

    def notes(self) -> list[str]:
        """What the program has logged."""
        return self.host.process.all_of(self.program)

    def noted(self, *notes: str) -> None:
        """Wait until the program has logged all of these, as often as they are here."""
        wanted = Counter(notes)
        self.host.process.until(
            self.program, lambda _: wanted <= Counter(self.host.process.all_of(self.program))
        )

    def run(self) -> None:
        """Run the program, which is a user as well."""
        self.host.ask(main=self.program, **{"in": self.namespace})

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the operator."""
        self.start()
        try:
            yield
        except BaseException as error:
            error.add_note("".join(self.host.process.errors[-60:]))
            raise
        finally:
            self.stop()

    def restart(self) -> None:
        """Stop the program, and start it again."""
        self.stop()
        self.start()

    def start(self) -> None:
        """Start the program."""
        self.host.ask(start=self.program, **{"in": self.namespace})

    def stop(self) -> None:
        """Stop the program; the calls that run end before."""
        self.host.ask(stop=self.program)

    def state(self) -> dict[str, Any]:
        """What people see: of each object all but what the operator needs for itself."""
        objects = [
            *self.client.list(WIDGET, namespace=self.namespace),
            *self.client.list(POD, namespace=self.namespace),
            *self.client.list(CLAIM, namespace=self.namespace),
        ]
        seen = json.dumps({f"{one.kind.kind}/{name_of(one)}": seen_of(one) for one in objects})
        for one in objects:
            seen = seen.replace(one.uid, f"uid of {name_of(one)}")
        return {**json.loads(seen), **self.seen, "events": self.events(), "notes": self.notes()}

    def events(self) -> list[tuple[str, ...]]:
        """What the functions reported of the widgets; an App also tells of what it gives up."""
        return sorted(
            (one["regarding"]["name"], one["type"], one["reason"], one["note"])
            for one in self.client.list(EVENT, namespace=self.namespace)
            if one["regarding"]["kind"] == "Widget" and one["reason"] != "Failing"
        )


def name_of(obj: Object[Any, Any]) -> str:
    """The name, without what the server has added to it."""
    stem = obj.metadata.get("generateName")
    return f"{stem}*" if stem else obj.name


def seen_of(obj: Object[Any, Any]) -> dict[str, Any]:
    """An object without what operators and the server need for themselves."""
    found = {
        "annotations": {
            key: value
            for key, value in obj.annotations.items()
            if not key.startswith("kopf.zalando.org/") and "appsdk" not in key
        },
        "labels": dict(obj.labels),
        "owners": [(ref.kind, ref.name, ref.controller) for ref in obj.owner_references],
        "is being deleted": "deletionTimestamp" in obj.metadata,
    }
    if obj.kind == WIDGET:
        found.update(spec=dict(obj.spec or {}), status=dict(obj.status or {}))
    return found


def seen_as(status: Mapping[str, Any]) -> dict[str, Any]:
    """A widget that has nothing but a status."""
    widget = {"annotations": {}, "labels": {}, "owners": [], "is being deleted": False, "spec": {}}
    return {**widget, "status": status}


@attrs.frozen
class Case:
    """An example."""

    name: str
    history: Callable[[Cluster], None]
    differs: Mapping[str, tuple[Any, Any]] = attrs.field(factory=dict)
    """What is not the same, by its key in the state: with kopf, and with the App."""
    calls: Callable[[list[str]], list[str]] = sorted
    """What of the calls is compared: ``list`` where they have one order only."""


def once_each(notes: list[str]) -> list[str]:
    """Calls of which the number depends on time."""
    return sorted({*notes})


def minimal(cluster: Cluster) -> None:
    cluster.create("web")
    cluster.wait("web", greet={"text": "hello, web"})


def children(cluster: Cluster) -> None:
    cluster.create("web", {"color": "red"}, labels={"app": "web"})
    cluster.wait("web", "make")


def exceptions(cluster: Cluster) -> None:
    """What was given up is called again after a change of the object, but not by kopf."""
    calls = ("never", *["in the end"] * 4, *["three times"] * 3, "unexpected")
    cluster.create("web")
    cluster.noted(*calls)
    cluster.patch("web", {"spec": {"color": "red"}})
    if cluster.is_kopf:
        handled = "kopf.zalando.org/last-handled-configuration"
        cluster.wait_for("web", WIDGET, lambda web: "red" in web.annotations.get(handled, ""))
    else:
        cluster.noted(*calls, "never", *["three times"] * 3, "unexpected")


def claims(cluster: Cluster) -> None:
    with contextlib.suppress(AlreadyExists):
        growing: dict[str, Any] = {"provisioner": "example.com/disk", "allowVolumeExpansion": True}
        cluster.client.create(
            MutableObject.new(kinds.storage.v1.StorageClass, "growing", **growing)
        )
    cluster.create("none")
    cluster.create("web", {"size": "1G"}, labels={"app": "web", "tier": "front"})
    cluster.wait("web", provide={"claim": "web"})
    bound = MergePatch({"status": {"phase": "Bound"}})  # else it keeps its size
    cluster.client.status.patch(CLAIM, "web", bound, namespace=cluster.namespace)
    cluster.patch("web", {"spec": {"size": "2G"}})
    cluster.wait_for("web", CLAIM, lambda it: it.spec["resources"]["requests"]["storage"] == "2G")
    cluster.patch("web", {"metadata": {"labels": {"app": "shop", "tier": None}}})
    cluster.wait_for("web", CLAIM, lambda it: dict(it.labels) == {"app": "shop"})
    cluster.create("goes", {"size": "1G"})
    cluster.wait("goes", provide={"claim": "goes"})
    cluster.delete("goes")
    cluster.gone("goes", CLAIM)


def events(cluster: Cluster) -> None:
    cluster.create("web")
    cluster.until(EVENT, lambda: len(cluster.events()) == 4)


def causes(cluster: Cluster) -> None:
    cluster.create("web", {"color": "red"})
    cluster.noted("created", "created, too", "colored: None, red")
    cluster.patch("web", {"spec": {"color": "blue"}})
    cluster.noted("colored: red, blue")
    cluster.create("plain", {"size": 1})
    cluster.noted(*["created", "created, too"] * 2)
    cluster.patch("plain", {"spec": {"color": "green"}})
    cluster.noted("colored: None, green")
    cluster.delete("plain")
    cluster.restart()
    cluster.noted("resumed", "resumed, too")
    cluster.delete("web")


def parts(cluster: Cluster) -> None:
    cluster.create("bike", {"parts": ["frame", "wheel", "bell"]})
    cluster.noted("makes frame", "makes wheel", "makes wheel", "makes bell")


def raw_events(cluster: Cluster) -> None:
    cluster.create("web")
    cluster.noted("fails", "sees ADDED")
    cluster.patch("web", {"spec": {"color": "blue"}})
    cluster.noted("fails", "sees MODIFIED")
    cluster.delete("web")
    cluster.noted("fails", "sees DELETED")


def pods(cluster: Cluster) -> None:
    for name, seconds in (("short", 0.1), ("long", 1000), ("kube-proxy", 0)):
        cluster.create(name, CONTAINERS, POD, annotations={"lives": str(seconds)})
    cluster.gone("short", POD)
    cluster.noted("long is watched")
    cluster.delete("long", POD)
    cluster.noted("long: somebody else was first")


def filters(cluster: Cluster) -> None:
    metadata = {"labels": {"app": "web"}, "annotations": {"note": "new"}}
    cluster.create("web", {"color": "red"}, **metadata)
    cluster.noted("web is red", "field is there", "annotation is not there")
    cluster.patch("web", {"spec": {"color": "blue"}})
    cluster.noted("from red to blue", "web is red no more")
    cluster.create("other", {"color": "green"}, labels={"old": "yes"})
    twice = ["annotation is not there", "field is there"]
    cluster.noted("field equals another", *twice, *twice)


def nothing(cluster: Cluster) -> None:
    """The program is its own user."""


def hooks(cluster: Cluster) -> None:
    for name in ("one", "two"):
        cluster.create(name, CONTAINERS, POD)
    cluster.noted("serves one", "serves two")
    cluster.seen["probed"] = cluster.host.ask(probe=cluster.program)


def daemons(cluster: Cluster) -> None:
    cluster.create("web", annotations={"note": "new"})
    cluster.noted("pings web")
    cluster.wait("web", message="is on its own now")
    cluster.patch("web", {"metadata": {"annotations": {"note": "old"}}})
    cluster.noted("pings web no more")
    cluster.create("goes", annotations={"note": "new"})
    cluster.noted("pings goes", "accompanies goes")
    cluster.delete("goes")


def timers(cluster: Cluster) -> None:
    cluster.create("web", {"color": "red"})
    cluster.noted(*["pings red"] * 3)
    cluster.wait("web", rests="red")
    cluster.patch("web", {"spec": {"color": "blue"}})
    cluster.wait("web", rests="blue")
    cluster.noted(*["pings blue"] * 3)


def indexes(cluster: Cluster) -> None:
    for name in ("one", "two"):
        cluster.create(name, CONTAINERS, POD, labels={"app": "web"})
    cluster.create("other", CONTAINERS, POD)
    cluster.create("web")
    cluster.wait("web", running=[], web=["one", "two"])
    running = MergePatch({"status": {"phase": "Running"}})
    cluster.client.status.patch(POD, "one", running, namespace=cluster.namespace)
    cluster.delete("two", POD)
    cluster.wait("web", running=["one"], web=["one"])


def admission(cluster: Cluster) -> None:
    seen = cluster.seen["answers"] = []

    def try_to(act: Callable[[], None]) -> None:
        try:
            act()
            seen.append("stored")
        except ApiError as error:
            seen.append(f"{error.status} {error.message.partition('request: ')[2]}")

    def is_configured(kind: Any) -> bool:
        return any(each.get("webhooks") for each in cluster.client.list(kind))

    def color_status(color: str) -> None:
        change = MergePatch({"status": {"color": color}})
        cluster.client.status.patch(WIDGET, "web", change, namespace=cluster.namespace)

    for kind in CONFIGURATIONS:
        cluster.until(kind, functools.partial(is_configured, kind))
    try_to(lambda: cluster.create("web", {"color": "red"}, labels={"heavy": "yes"}))
    for color in ("pink", "octarine", "blue"):
        try_to(functools.partial(cluster.patch, "web", {"spec": {"color": color}}))
        try_to(functools.partial(color_status, color))
    cluster.seen["warnings"] = sorted(cluster.warnings())


def answers(refusal: int) -> list[str]:
    """What the server answers if that is the status of a refusal without one of its own."""
    return [
        "stored",
        f"{refusal} spec.color: any but this one",
        f"{refusal} status.color: not that of the spec",
        "409 spec.color: there are seven",
        f"{refusal} status.color: not that of the spec",
        "stored",
        "stored",
    ]


def everything(cluster: Cluster) -> None:
    cluster.create("web", {"sizes": [1]})
    cluster.noted("from None to [1]", "tries", "tries", "a pod of ours is there")
    cluster.wait("web", "report", "try_twice")
    cluster.patch("web", {"spec": {"sizes": [1, 2], "color": "red"}})
    cluster.noted("from [1] to [1, 2]", "sizes: [1], [1, 2]")
    cluster.until(EVENT, lambda: len(cluster.events()) == 2)
    cluster.create("stays", {"sizes": []})
    cluster.wait("stays", "report", "try_twice")
    cluster.delete("web")
    cluster.noted("deletes", "a pod of ours is gone")


REPORTED = [
    ("web", "Normal", "Measured", "it is small"),
    ("web", "Normal", "Seen", "a new widget"),
    ("web", "Warning", "Measured", "it may grow"),
]
FAILED = ("Weighed", "not yet: no scales")
RETRIED = ["in the end"] * 4
CASES = (
    Case("claims", claims),
    Case("minimal", minimal),
    Case("children", children),
    Case(
        "exceptions",
        exceptions,
        differs={  # what was given up
            "notes": (
                [*RETRIED, "never", *["three times"] * 3, "unexpected"],
                [*RETRIED, *["never"] * 2, *["three times"] * 6, *["unexpected"] * 2],
            ),
        },
    ),
    Case(
        "events",
        events,
        differs={  # the API knows no third type of Events
            "events": (
                [("web", "Error", *FAILED), *REPORTED],
                [*REPORTED, ("web", "Warning", *FAILED)],
            )
        },
    ),
    Case("causes", causes, calls=list),
    Case("parts", parts),
    Case("raw_events", raw_events),
    Case(
        "tested", nothing, differs={"Widget/web": (seen_as({"greet": "hello"}), None)}
    ),  # no server
    Case("pods", pods),
    Case("filters", filters),
    Case("embedded", nothing),
    Case("hooks", hooks, differs={"probed": ('{"serving": ["one", "two"]}', "ok")}),
    Case("daemons", daemons),
    Case("timers", timers, calls=once_each),
    Case("indexes", indexes),
    Case(
        "admission",
        admission,
        differs={"answers": (answers(refusal=500), answers(refusal=403))},
    ),
    Case("everything", everything),
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One for all cases, which take some tenths of a second each then."""
    pytest.importorskip("kopf")
    folder = tmp_path_factory.mktemp("ports")
    environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "HOME": str(folder)}
    program = str(PROGRAMS / "ports" / "host.py")
    process = Program([sys.executable, "-u", program, json.dumps([widgets()])], environment)
    try:
        yield Host(process, folder)
    finally:
        process.end()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_port_ends_in_the_state_of_the_original(
    case: Case, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    of_kopf, of_app = (state_of(case, which, host, caplog) for which in ("kopf", "app"))
    for where, (with_kopf, with_the_app) in case.differs.items():
        assert of_kopf.pop(where, None) == with_kopf
        assert of_app.pop(where, None) == with_the_app
    assert of_app == of_kopf
    migration = migrate(
        {"program.py": (PROGRAMS / "ports" / f"{case.name}_kopf.py").read_text(encoding="utf-8")},
        [widgets()],
        name=case.name.replace("_", "-"),
    )
    if not migration.todos:
        program = host.folder / f"{case.name}_translated.py"
        program.write_text(migration.texts["program.py"], encoding="utf-8")
        of_translation = state_of(case, "translated", host, caplog)
        for where, (_, with_the_app) in case.differs.items():
            assert of_translation.pop(where, None) == with_the_app
        assert of_translation == of_app


def state_of(
    case: Case, which: str, host: Host, caplog: pytest.LogCaptureFixture
) -> dict[str, Any]:
    """What people see after the history of a case, with one of its programs."""
    namespace = f"{case.name}-{which}".replace("_", "-")

    def warnings() -> set[str]:
        return {text for text in caplog.messages if text.startswith("the API server warns: ")}

    caplog.clear()
    with Client(ClientConfig(server=host.process.until("serves"))) as client:
        client.create(MutableObject.new(kinds.core.v1.Namespace, namespace))
        cluster = Cluster(client, host, f"{case.name}_{which}", namespace, warnings)
        if case.history is nothing:
            cluster.run()
        else:
            with cluster.running():
                case.history(cluster)
        state = cluster.state()
        return {**state, "notes": case.calls(state["notes"])}
