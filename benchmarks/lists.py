"""Lists of built-in objects a second, of the embedded API server and of a real one.

``python -m benchmarks.lists`` lists 100 Pods and 100 ConfigMaps over one connection with TLS, as
protobuf, which Go clients ask for, and as JSON. With ``--writes`` an object is changed before each
list, so that no answer is ready. Where ``KUBEBUILDER_ASSETS`` has a control plane, it does the same
there, and prints the ratio. The embedded server runs in the process of the client.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import ssl
from base64 import b64decode
from typing import Any, Final
from urllib.parse import urlsplit

from appsdk_operator.runtime import system_clock
from appsdk_operator.testing import APIServer, ControlPlane

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
JSON: Final = "application/json"
Figures = dict[tuple[str, str], float]
"""Lists a second by the plural and the media type."""


def pod(number: int) -> dict[str, Any]:
    """A Pod, about 3 KB as it is stored."""
    container = {
        "name": "main",
        "image": "registry.example.com/app:1",
        "env": [{"name": f"NAME_{index}", "value": "x" * 20} for index in range(10)],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        "ports": [{"containerPort": 80}],
    }
    metadata = {"name": f"pod-{number}", "labels": {"app": "bench", "number": str(number)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "annotations": {"example.com/text": "x" * 200}},
        "spec": {"containers": [container]},
    }


def config_map(number: int) -> dict[str, Any]:
    """A ConfigMap, about 0.7 KB as it is stored."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"map-{number}", "labels": {"app": "bench"}},
        "data": {"text": "x" * 300},
    }


_MADE: Final = {"pods": pod, "configmaps": config_map}


class _Requests:
    """One connection to a server."""

    def __init__(self, kubeconfig: dict[str, Any]) -> None:
        cluster = kubeconfig["clusters"][0]["cluster"]
        user = kubeconfig["users"][0]["user"]
        address = urlsplit(cluster["server"])
        assert address.hostname is not None
        context = ssl.create_default_context(
            cadata=b64decode(cluster["certificate-authority-data"]).decode()
        )
        self._connection = http.client.HTTPSConnection(
            address.hostname, address.port, context=context
        )
        self._headers = {"Authorization": f"Bearer {user.get('token', '')}"}

    def ask(self, verb: str, path: str, body: Any = None, accept: str = JSON) -> bytes:
        """The body of an answer.

        Raises:
            RuntimeError: the server refused, or answered in another form.
        """
        form = "application/merge-patch+json" if verb == "PATCH" else JSON
        headers = {**self._headers, "Accept": accept, "Content-Type": form}
        text = None if body is None else json.dumps(body)
        self._connection.request(verb, path, text, headers)
        answer = self._connection.getresponse()
        read = answer.read()
        if answer.status >= 300 or answer.getheader("Content-Type") != accept:
            raise RuntimeError(f"{verb} {path}: {answer.status} {read[:200]!r}")
        return read

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def measure(
    kubeconfig: dict[str, Any], *, seconds: float, objects: int = 100, has_writes: bool = False
) -> Figures:
    """Create the objects and list them for so many seconds in each form."""
    found: Figures = {}
    with contextlib.closing(_Requests(kubeconfig)) as requests:
        for plural, make in _MADE.items():
            path = f"/api/v1/namespaces/default/{plural}"
            names = []
            for number in range(objects):
                obj = make(number)
                requests.ask("POST", path, obj)
                names.append(obj["metadata"]["name"])
            listing = f"{path}?labelSelector=app%3Dbench"
            for form in (PROTOBUF, JSON):
                requests.ask("GET", listing, accept=form)
                count, began = 0, system_clock.monotonic()
                while (took := system_clock.monotonic() - began) < seconds:
                    if has_writes:
                        change = {"metadata": {"annotations": {"example.com/count": str(count)}}}
                        requests.ask("PATCH", f"{path}/{names[count % objects]}", change)
                    requests.ask("GET", listing, accept=form)
                    count += 1
                found[plural, form] = count / took
    return found


def lines(ours: Figures, real: Figures | None) -> list[str]:
    """What is printed."""
    text = []
    for (plural, form), rate in ours.items():
        line = f"{plural:10} {form.rpartition('.')[2].rpartition('/')[2]:8} {rate:7.1f} lists/s"
        if real is not None:
            there = real[plural, form]
            line += f", real server {there:7.1f} lists/s, ratio {rate / there:.2f}"
        text.append(line)
    return text


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lists", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each form; default 4")
    parser.add_argument("--writes", action="store_true", help="change an object before each list")
    options = parser.parse_args()
    real: Figures | None = None
    with APIServer(tls=True) as server:
        ours = measure(server.kubeconfig(), seconds=options.seconds, has_writes=options.writes)
    if "KUBEBUILDER_ASSETS" in os.environ:
        with ControlPlane(start_timeout=90) as plane:
            real = measure(plane.kubeconfig(), seconds=options.seconds, has_writes=options.writes)
    for line in lines(ours, real):
        print(line)


if __name__ == "__main__":
    main()
