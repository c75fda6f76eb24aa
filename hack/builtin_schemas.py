"""Write the schemas of the built-in kinds that the embedded API server is held to.

It reads the OpenAPI documents of a running kube-apiserver, and, with the machine's Go toolchain,
the types that they were made of: Go's types say which fields are written even when they are empty,
and what the error texts call them. Structure is kept, descriptions are not::

    KUBEBUILDER_ASSETS=<folder of a current release> python hack/builtin_schemas.py
    python hack/builtin_schemas.py --kubeconfig ~/.kube/config

Run it for a new release of Kubernetes, then ``hack/builtin_fields.py``, and look at what the tests
then say.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import ssl
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from go_types import DATA, told_by, write

from appsdk_operator.testing import ControlPlane

TARGET = DATA / "_schema/builtin_schemas.json.gz"
GVK = "x-kubernetes-group-version-kind"

Fetch = Callable[[str], Any]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kubeconfig", help="of the server to read; default: one is started")
    arguments = parser.parse_args()
    with _server(arguments.kubeconfig) as fetch:
        version = fetch("/version")["gitVersion"]
        schemas, kinds = _schemas(fetch)
    data = {
        "provenance": (
            f"OpenAPI documents and Go types of Kubernetes {version} (Apache License 2.0), "
            "without descriptions; made by hack/builtin_schemas.py"
        ),
        "version": version,
        "kinds": kinds,
        "schemas": schemas,
        "types": _types(version, schemas),
    }
    write(TARGET, data)
    print(f"{TARGET}: {len(schemas)} definitions, {TARGET.stat().st_size} bytes")


@contextlib.contextmanager
def _server(kubeconfig: str | None) -> Iterator[Fetch]:
    if kubeconfig is not None:
        yield _fetcher(yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8")))
        return
    with ControlPlane(start_timeout=60) as server:
        yield _fetcher(server.kubeconfig())


def _fetcher(config: dict[str, Any]) -> Fetch:
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    headers = {"Authorization": f"Bearer {user.get('token', '')}"}

    def fetch(path: str) -> Any:
        request = urllib.request.Request(cluster["server"] + path, headers=headers)
        with urllib.request.urlopen(request, context=context) as answer:
            return json.load(answer)

    return fetch


def _schemas(fetch: Fetch) -> tuple[dict[str, Any], list[list[str]]]:
    """The definitions by name, and ``[group, version, kind, definition]`` of what has a kind."""
    found: dict[str, Any] = {}
    for entry in fetch("/openapi/v3")["paths"].values():
        document = fetch(entry["serverRelativeURL"])
        for name, schema in document.get("components", {}).get("schemas", {}).items():
            bare = _bare(schema)
            if name in found:
                # Every group tells a few shared definitions for its own versions only.
                bare.pop(GVK, None)
                bare = {**bare, GVK: found[name][GVK]} if GVK in found[name] else bare
                if bare != found[name]:
                    raise SystemExit(f"{name} has two shapes: the data file has room for one")
                continue
            found[name] = bare
    for name in ("DeleteOptions", "WatchEvent"):
        found[f"io.k8s.apimachinery.pkg.apis.meta.v1.{name}"].pop(GVK)
    kinds = [
        [gvk["group"], gvk["version"], gvk["kind"], name]
        for name, schema in sorted(found.items())
        for gvk in schema.get(GVK, ())
    ]
    return dict(sorted(found.items())), kinds


def _bare(node: Any, *, named: bool = False) -> Any:
    """Without descriptions; ``named`` when the keys are names of fields."""
    if isinstance(node, dict):
        return {
            key: _bare(value, named=key == "properties" and not named)
            for key, value in node.items()
            if named or key != "description"
        }
    if isinstance(node, list):
        return [_bare(item) for item in node]
    return node.rpartition("/")[2] if _is_reference(node) else node


def _is_reference(node: Any) -> bool:
    return isinstance(node, str) and node.startswith("#/components/schemas/")


def _types(version: str, schemas: dict[str, Any]) -> dict[str, dict[str, str]]:
    """For each definition its fields, each with its class and Go type, see ``main.go``."""
    release = "v0." + version.removeprefix("v1.")
    types: dict[str, dict[str, str]] = {}
    for full, fields in told_by("builtin_types", release).items():
        host, _, path = full.partition("/")
        name = ".".join([*reversed(host.split(".")), *path.split("/")])
        if name in schemas:
            types[name] = {field["name"]: field["class"] + field["type"] for field in fields or ()}
    return dict(sorted(types.items()))


if __name__ == "__main__":
    main()
