"""Runs operators when it is asked to: those of kopf, and Apps, each in a namespace of its own.

It runs the API server, too, with the CRDs in its first argument. It reads a JSON object per line:
``{"start": "minimal_kopf", "in": "red"}``, and then ``stop``, ``probe`` or ``main``. It writes one
per line: its answers, and what the programs log.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import socket
import sys
import threading
import traceback
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import kopf
import kubernetes

from appsdk_operator import Client, ClientConfig
from appsdk_operator.manager import CacheSetup, HealthServerOptions
from appsdk_operator.testing import APIServer, install_webhooks, remove_webhooks, running
from appsdk_operator.webhooks import SelfSigned, WebhookServerOptions

FOLDER = Path(__file__).parent
TRANSLATED = Path(os.environ["HOME"])
_lock = threading.Lock()


def tell(**words: Any) -> None:
    with _lock:
        print(json.dumps(words), file=sys.__stdout__, flush=True)  # KopfRunner takes sys.stdout


class ToTheTest(logging.Handler):
    """Passes on what the programs log, by program."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(**{record.name: record.getMessage()})


def load(name: str) -> ModuleType:
    """A program as a new module."""
    logger = logging.getLogger(name)
    logger.setLevel(logging.INFO)
    logger.handlers[:] = [ToTheTest()]
    logger.propagate = False
    folder = TRANSLATED if name.endswith("_translated") else FOLDER
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Operator(Protocol):
    """An operator that runs."""

    probe: str

    def stop(self) -> None: ...


class OfKopf:
    """A kopf operator, in a thread with a loop of its own."""

    def __init__(self, name: str, namespace: str) -> None:
        registry = type(kopf.get_default_registry())()
        kopf.set_default_registry(registry)
        load(name)
        ready, self._stop = threading.Event(), threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.probe = f"http://127.0.0.1:{free.getsockname()[1]}/healthz"
        settings = kopf.OperatorSettings()
        settings.queueing.idle_timeout = 0.1  # else it waits for its workers when it ends

        def run() -> None:
            operator = kopf.operator(
                registry=registry,
                settings=settings,
                namespaces=[namespace],
                standalone=True,
                liveness_endpoint=self.probe,
                ready_flag=ready,
                stop_flag=self._stop,
            )
            asyncio.run(operator)

        self._thread = threading.Thread(target=run, name=name)
        self._thread.start()
        ready.wait()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class OfAnApp:
    """An App's manager."""

    def __init__(self, name: str, namespace: str) -> None:
        config = ClientConfig.load()
        manager = load(name).app.manager(
            config,
            cache=CacheSetup(namespaces=[namespace]),
            health_server=HealthServerOptions(address="127.0.0.1:0"),
            webhook_server=WebhookServerOptions(address="127.0.0.1:0", certificates=SelfSigned()),
        )
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(running(manager))
        self.probe = f"http://{manager.addresses['health']}/healthz"
        if manager.webhooks.rules:
            client = self._stack.enter_context(Client(config))
            self._stack.callback(remove_webhooks, client, install_webhooks(client, manager))

    def stop(self) -> None:
        self._stack.close()


def write_certificate() -> None:
    """The files of the certificate that kopf's webhooks are served with."""
    pair = SelfSigned().pair()
    for variable, content in (("CERTIFICATE", pair.certificate), ("KEY", pair.key)):
        path = Path(os.environ["HOME"]) / variable
        path.write_bytes(content)
        os.environ[variable] = str(path)


def obey(operators: dict[str, Operator], order: Mapping[str, str]) -> str:
    """Do what a line asks for."""
    match order:
        case {"start": name, "in": namespace}:
            operators[name] = (OfKopf if name.endswith("_kopf") else OfAnApp)(name, namespace)
        case {"stop": name}:
            operators.pop(name).stop()
        case {"main": name, "in": namespace}:
            kopf.set_default_registry(type(kopf.get_default_registry())())
            load(name).main(namespace)
        case {"probe": name}:
            with urllib.request.urlopen(operators[name].probe) as answer:
                return str(answer.read().decode())
    return "done"


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    with APIServer(crds=json.loads(sys.argv[1])) as server:
        server.write_kubeconfig(os.environ["KUBECONFIG"])
        kubernetes.config.load_config()  # type: ignore[no-untyped-call]
        write_certificate()
        tell(serves=server.url)
        operators: dict[str, Operator] = {}
        for line in sys.stdin:
            try:
                answer = obey(operators, json.loads(line))
            except Exception:
                traceback.print_exc()
                answer = "failed"
            tell(answer=answer)
        for operator in operators.values():
            operator.stop()


if __name__ == "__main__":
    main()
