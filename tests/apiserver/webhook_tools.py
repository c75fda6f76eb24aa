"""A webhook server over TLS that answers as a test says, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import base64
import copy
import itertools
import json
import threading
from collections.abc import Callable
from typing import Any, Self

from aiohttp import web

from appsdk_operator.apiserver import Authority
from appsdk_operator.apiserver._http.listeners import ClosableServer, close_listeners
from appsdk_operator.runtime import system_clock

Answer = Callable[[dict[str, Any]], Any]
"""From the request of a review to its response; an ``(int, text)`` is an HTTP status and body, and
None is no answer at all."""


def allow(_request: dict[str, Any]) -> dict[str, Any]:
    """Let it pass."""
    return {"allowed": True}


def patching(*operations: dict[str, Any], **more: Any) -> Answer:
    """Let it pass with a JSON patch."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda _request: {"allowed": True, "patchType": "JSONPatch", "patch": patch, **more}


class WebhookServer:
    """Serves ``/<name>`` for every name; what has no answer of its own is allowed."""

    def __init__(self, host: str = "127.0.0.1", *, valid_in: float = 0.0) -> None:
        """Its certificate is for ``host`` and the addresses of this machine.

        It is valid for a year, in so many seconds from now on.
        """
        self.answers: dict[str, Answer] = {}
        self.reviews: list[tuple[str, dict[str, Any]]] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="webhooks")
        authority = Authority(system_clock.time() + valid_in)
        self._context, self._ca = authority.context(host), authority.certificate

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self.gate = asyncio.Event()
        http = ClosableServer(self._handle, access_log=None)
        server = await self._loop.create_server(http, "127.0.0.1", 0, ssl=self._context)
        self.port: int = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopping.wait()
        http.is_closing = True
        await close_listeners(server)
        await http.end_connections(0.1)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        review = json.loads(await request.read())
        name = request.path.strip("/")
        asked = {**review, "path": request.path, "query": request.query_string}
        self.reviews.append((name, asked))
        answer: Answer = self.answers.get(name, allow)
        # An answer may take its time, and make requests that are asked about themselves.
        response: Any = await asyncio.to_thread(answer, review["request"])
        if response is None:
            await self._stopping.wait()
            return web.Response(status=500)
        if isinstance(response, tuple):
            return self._closing(web.Response(status=response[0], text=response[1]))
        if "kind" not in response:
            response = {
                "apiVersion": review["apiVersion"],
                "kind": review["kind"],
                "response": {"uid": review["request"]["uid"], **response},
            }
        return self._closing(web.json_response(response))

    @staticmethod
    def _closing(response: web.Response) -> web.Response:
        # So that no connection of a server that outlives the test does so, too.
        response.force_close()
        return response

    def client(self, name: str) -> dict[str, Any]:
        """The ``clientConfig`` that leads to ``name``."""
        return {
            "url": f"https://127.0.0.1:{self.port}/{name}",
            "caBundle": base64.b64encode(self._ca).decode(),
        }

    @property
    def asked(self) -> list[str]:
        """The names that were asked, in order."""
        return [name for name, _ in self.reviews]

    def requests(self, name: str) -> list[dict[str, Any]]:
        """The requests that ``name`` was asked about, in order."""
        return [copy.deepcopy(review["request"]) for asked, review in self.reviews if asked == name]


def rule(resource: str = "configmaps", *operations: str, **more: Any) -> dict[str, Any]:
    """A rule for one resource of any group and version."""
    return {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "resources": [resource],
        "operations": list(operations or ("*",)),
        **more,
    }


def configuration(
    kind: str, name: str, *webhooks: dict[str, Any], **metadata: Any
) -> dict[str, Any]:
    """A ``Mutating`` or ``Validating`` configuration."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name, **metadata},
        "webhooks": list(webhooks),
    }


def webhook(server: WebhookServer, name: str, *rules: dict[str, Any], **more: Any) -> Any:
    """A webhook called ``<name>.example.com`` that asks ``server``."""
    return {
        "name": f"{name}.example.com",
        "clientConfig": server.client(name),
        "rules": list(rules or [rule()]),
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


_PROBES = itertools.count()
HOOKS = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"


class World:
    """An API server, a webhook server, and webhooks that a test has it ask.

    Each webhook is for the config maps with the label ``hook: <its name>``, or what it says.
    """

    def __init__(self, api: Any, hooks: WebhookServer, *, settles: bool = False) -> None:
        self.api = api
        self.hooks = hooks
        # Real servers take note of configurations some moments after they are written.
        self._settles = settles
        self._made: dict[str, str] = {}

    def admit(self, kind: str, name: str, *webhooks: dict[str, Any]) -> None:
        """Create a configuration and wait for its effect."""
        path = f"{HOOKS}/{kind.lower()}webhookconfigurations"
        probe = f"probe-{next(_PROBES)}"
        selector = {"objectSelector": {"matchLabels": {"probe": probe}}}
        probing = webhook(self.hooks, probe, **selector)
        made = self.api.create(path, configuration(kind, name, probing, *webhooks))
        assert made.status == 201, made.body
        self._made[f"{path}/{name}"] = probe
        assert self._eventually(lambda: self._asks(probe))
        self.hooks.reviews.clear()

    def _asks(self, probe: str) -> bool:
        self.hooks.reviews.clear()
        self.api.create(
            f"{MAPS}?dryRun=All", {"metadata": {"name": probe, "labels": {"probe": probe}}}
        )
        return probe in self.hooks.asked

    def _eventually(self, condition: Callable[[], bool]) -> bool:
        pause = threading.Event()
        return any(condition() or (self._settles and pause.wait(0.05)) for _ in range(200))

    def map(self, name: str, hook: str, **more: Any) -> Any:
        """Create a config map that the webhook ``hook`` is for."""
        metadata = {"name": name, "labels": {"hook": hook}}
        return self.api.create(MAPS, {"metadata": metadata, **more})

    def close(self) -> None:
        """Remove what the test has left."""
        self.hooks.answers.clear()
        for path in self._made:
            self.api.delete(path)
        for probe in self._made.values():
            assert self._eventually(lambda probe=probe: not self._asks(probe))
        self.api.delete(f"{MAPS}?labelSelector=hook")


def only(name: str) -> dict[str, Any]:
    """An ``objectSelector`` for what carries the label ``hook: <name>``."""
    return {"objectSelector": {"matchLabels": {"hook": name}}}
