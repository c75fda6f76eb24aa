"""Servers of webhooks, each in a process of its own, and what they are asked.

``python -m benchmarks._webhooks NAME FOLDER`` serves with the certificate in the folder, prints its
port, and ends with its standard input. A defaulter sets ``spec.color``, a validator looks at
``spec.size``, and a conversion calls the size a width.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from appsdk_operator import ClientConfig, Kind, MutableObject, Object
from appsdk_operator.resource import Versions
from appsdk_operator.runtime import Metrics, StopSignal, ThreadGroup
from appsdk_operator.serving import CertificateFiles, SelfSigned
from appsdk_operator.webhooks import Denied, WebhookServer, webhook_for

__all__ = ["SIZE", "Review", "review", "served", "write_certificate"]

SIZE: Final = 2000
"""The bytes of the object in a review."""


# -- reviews ---------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Review:
    """What a webhook is sent, and how its answer is known."""

    path: str
    body: bytes
    wanted: str
    """What each answer has to contain."""


def review(verb: str) -> Review:
    """One of ``validate``, ``mutate`` and ``convert``."""
    if verb == "convert":
        request: dict[str, Any] = {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "desiredAPIVersion": "example.com/v1beta1",
            "objects": [_widget(color="blue")],
        }
        body = {"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1"}
        return Review(
            path="/convert",
            body=_compact({**body, "request": request}),
            wanted='"width":3',
        )
    kind = {"group": "example.com", "version": "v1", "kind": "Widget"}
    resource = {"group": "example.com", "version": "v1", "resource": "widgets"}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": "widget-0000001",
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:flux-system:kustomize-controller",
            "uid": "014fbff9-a07e-4bb8-a5a2-4b1b4a5ea8b3",
            "groups": [
                "system:serviceaccounts",
                "system:serviceaccounts:flux-system",
                "system:authenticated",
            ],
        },
        "object": _widget(),
        "oldObject": None,
        "dryRun": False,
        "options": {
            "kind": "CreateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "fieldManager": "kustomize-controller",
        },
    }
    body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
    return Review(
        path=f"/{verb}-example-com-v1-widget",
        body=_compact({**body, "request": request}),
        wanted='"patch":"' if verb == "mutate" else '"allowed":true',
    )


def _widget(**spec: Any) -> dict[str, Any]:
    """A widget of exactly ``SIZE`` bytes."""
    texts = {f"text{number:02}": f"some words for {number:02}" for number in range(30)}
    managed = {
        "manager": "kustomize-controller",
        "operation": "Apply",
        "apiVersion": "example.com/v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:size": {}, "f:texts": {}}},
    }
    widget: dict[str, Any] = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {
            "name": "widget-0000001",
            "namespace": "default",
            "uid": "3f0a1c2d-0c7f-4d1c-9a43-5a1a5c1a2b3c",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "generation": 1,
            "labels": {"app.kubernetes.io/name": "widgets", "app.kubernetes.io/part-of": "bench"},
            "managedFields": [managed],
        },
        "spec": {"size": 3, **spec, "texts": texts},
    }
    texts["note"] = "x" * (SIZE - len(_compact(widget)) - len(',"note":""'))
    return widget


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# -- processes -------------------------------------------------------------------------------


def write_certificate(folder: Path) -> None:
    """Put ``tls.crt`` and ``tls.key`` there."""
    pair = SelfSigned("127.0.0.1").pair()
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


@contextlib.contextmanager
def served(command: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Run a server; its process and port."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.strip().isdigit():
            raise RuntimeError(f"the server did not start: {command}")
        try:
            yield process.pid, int(line)
        finally:
            try:
                process.communicate("", timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


# -- this kit --------------------------------------------------------------------------------


@attrs.frozen
class WidgetSpec:
    """The spec of a widget."""

    size: int
    color: str | None = None
    texts: dict[str, str] = attrs.field(factory=dict)


@attrs.frozen
class OldWidgetSpec:
    """The same, with a width."""

    width: int
    color: str | None = None
    texts: dict[str, str] = attrs.field(factory=dict)


PLAIN: Final = Kind(group="example.com", version="v1", kind="Widget")
PLAIN_OLD: Final = Kind(group="example.com", version="v1beta1", kind="Widget")
TYPED: Final = Kind(group="example.com", version="v1", kind="Widget", spec=WidgetSpec)
TYPED_OLD: Final = Kind(group="example.com", version="v1beta1", kind="Widget", spec=OldWidgetSpec)


def _plain(server: WebhookServer) -> None:
    def default(obj: MutableObject) -> None:
        obj.spec.setdefault("color", "red")

    def check(obj: Object) -> None:
        if obj.spec["size"] < 0:
            raise Denied("spec.size is negative")

    def up(_: Object, new: MutableObject) -> None:
        new.spec["size"] = new.spec.pop("width")

    def down(_: Object, new: MutableObject) -> None:
        new.spec["width"] = new.spec.pop("size")

    versions = Versions(PLAIN).older(PLAIN_OLD, up=up, down=down)
    webhook_for(server, PLAIN).default(default).validate(create=check).convert(versions).complete()


def _typed(server: WebhookServer) -> None:
    def default(obj: MutableObject[WidgetSpec, Any]) -> None:
        if obj.spec.color is None:
            obj.spec = attrs.evolve(obj.spec, color="red")

    def check(obj: Object[WidgetSpec, Any]) -> None:
        if obj.spec.size < 0:
            raise Denied("spec.size is negative")

    def up(old: Object[OldWidgetSpec, Any], new: MutableObject[WidgetSpec, Any]) -> None:
        spec = old.spec
        new.spec = WidgetSpec(spec.width, spec.color, spec.texts)

    def down(old: Object[WidgetSpec, Any], new: MutableObject[OldWidgetSpec, Any]) -> None:
        spec = old.spec
        new.spec = OldWidgetSpec(spec.size, spec.color, spec.texts)

    versions = Versions(TYPED).older(TYPED_OLD, up=up, down=down)
    webhook_for(server, TYPED).default(default).validate(create=check).convert(versions).complete()


def _serve_ours(folder: Path, register: Callable[[WebhookServer], None]) -> None:
    files = CertificateFiles(folder / "tls.crt", folder / "tls.key")
    server = WebhookServer("127.0.0.1:0", certificates=files, metrics=Metrics())
    register(server)
    stop, threads = StopSignal(), ThreadGroup("webhooks")
    threads.start("server", lambda: server.run(stop))
    print(server.port, flush=True)
    sys.stdin.read()
    stop.set()
    threads.join()


# -- kopf ------------------------------------------------------------------------------------


def _serve_kopf(folder: Path) -> None:
    """An operator of kopf on the embedded API server, with its own server of webhooks."""
    import os

    import kopf

    from benchmarks._embedded import serving

    with serving() as cluster:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(cluster.config())))
        os.environ["KUBECONFIG"] = str(kubeconfig)
        ready = asyncio.Event()

        class Server(kopf.WebhookServer):
            """That of kopf, which says when it listens."""

            async def __call__(self, fn: Any) -> Any:
                async for config in super().__call__(fn):
                    print(str(config["url"]).rpartition(":")[2].rstrip("/"), flush=True)
                    yield config

        @kopf.on.startup()
        def set_up(settings: Any, **_: Any) -> None:
            settings.admission.server = Server(
                addr="127.0.0.1",
                host="127.0.0.1",
                certfile=folder / "tls.crt",
                pkeyfile=folder / "tls.key",
            )

        @kopf.on.login()
        def log_in(**arguments: Any) -> Any:
            return kopf.login_with_kubeconfig(**arguments)

        @kopf.on.validate("widgets", id="validate-example-com-v1-widget")
        def check(spec: Mapping[str, Any], **_: Any) -> None:
            if spec["size"] < 0:
                raise kopf.AdmissionError("spec.size is negative")

        @kopf.on.mutate("widgets", id="mutate-example-com-v1-widget")
        def default(spec: Mapping[str, Any], patch: Any, **_: Any) -> None:
            if "color" not in spec:
                patch.spec["color"] = "red"

        async def operate() -> None:
            operator = asyncio.create_task(kopf.operator(standalone=True, clusterwide=True))
            loop = asyncio.get_running_loop()
            threading.Thread(
                target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ready.set)),
                daemon=True,
            ).start()
            await ready.wait()
            operator.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await operator

        asyncio.run(operate())


def _kubeconfig(config: ClientConfig) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": config.server}}],
        "users": [{"name": "bench", "user": {"token": "none"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    }


def main() -> None:
    """Serve until standard input ends."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    servers: dict[str, Callable[[], None]] = {
        "plain": lambda: _serve_ours(folder, _plain),
        "typed": lambda: _serve_ours(folder, _typed),
        "kopf": lambda: _serve_kopf(folder),
    }
    servers[name]()


if __name__ == "__main__":
    main()
