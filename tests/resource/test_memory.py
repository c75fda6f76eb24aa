"""What a cached object costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Two ways in, as informers have them: pages of a list, or events of a streamed one.
PROGRAM = r"""
import gc, json, os, sys
from pathlib import Path
from appsdk_operator.resource import Kind, decode_list, decode_watch_event

COUNT, PAGE = 20_000, 500
KIND = Kind(group="example.com", version="v1", kind="Widget")

def rss():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def widget(n):
    name, namespace = f"widget-{n:05d}", f"team-{n % 40}"
    fields = {f"f:{k}": {} for k in ("image", "replicas", "ports", "resources", "env", "paused")}
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {
            "annotations": {"example.com/checksum": f"{n:064x}", "example.com/owner": "platform"},
            "creationTimestamp": "2024-05-01T10:00:00Z",
            "finalizers": ["example.com/cleanup"],
            "generation": n % 9,
            "labels": {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "shop",
                       "tier": f"t{n % 3}"},
            "managedFields": [
                {"apiVersion": "example.com/v1", "fieldsType": "FieldsV1", "manager": manager,
                 "operation": "Update", "time": "2024-05-01T10:00:00Z",
                 "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:x": {}}}, "f:spec": fields}}
                for manager in ("kubectl-client-side-apply", "widget-operator")
            ],
            "name": name,
            "namespace": namespace,
            "resourceVersion": str(1_000_000 + n),
            "uid": f"6f1b2c3d-0000-4000-8000-{n:012d}",
        },
        "spec": {
            "image": f"registry.example.com/shop/{name}:v1.{n % 50}",
            "replicas": n % 7,
            "ports": [{"name": "http", "port": 8080}, {"name": "metrics", "port": 9090}],
            "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}},
            "env": [{"name": f"VARIABLE_{i}", "value": f"value-{n}-{i}"} for i in range(8)],
        },
        "status": {
            "observedGeneration": n % 9,
            "conditions": [
                {"type": t, "status": "True", "reason": "AsExpected", "message": "All is well.",
                 "lastTransitionTime": "2024-05-01T10:00:00Z"} for t in ("Ready", "Available")
            ],
        },
    }

def text(data):
    return json.dumps(data, separators=(",", ":")).encode()

def by_list(numbers):
    page = decode_list(KIND, text({"metadata": {}, "items": [widget(n) for n in numbers]}))
    return page.items

def by_watch(numbers):
    for n in numbers:
        yield decode_watch_event(KIND, text({"type": "ADDED", "object": widget(n)})).object

source = by_list if sys.argv[1] == "list" else by_watch
store, size = {}, 0
for obj in source(range(PAGE)):  # warm up: decoders, arenas
    pass
del obj
before = rss()
for start in range(0, COUNT, PAGE):
    for obj in source(range(start, start + PAGE)):
        store.setdefault(obj.namespace, {})[obj.name] = obj
        size += len(obj.raw)
used = rss() - before
assert sum(map(len, store.values())) == COUNT
print(size / COUNT, used / COUNT)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux' /proc")
@pytest.mark.parametrize("way", ["list", "watch"])
def test_twenty_thousand_cached_objects_cost_a_third_more_than_their_json_at_most(way: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, way],
        check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    json_size, cost = map(float, run.stdout.split())
    assert 1900 < json_size < 2200
    assert cost <= 1.35 * json_size, (
        f"{cost:.0f} bytes of memory for each object of {json_size:.0f} bytes of JSON: "
        f"{cost / json_size:.3f} times, at most 1.35 are allowed"
    )
    print(f"{way}: {cost:.0f} bytes for {json_size:.0f}, {cost / json_size:.3f} times")  # noqa: T201
