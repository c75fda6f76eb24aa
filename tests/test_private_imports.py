"""Tests import public names; a private module is imported by the tests of its own room alone.

The tests of a room are in the folder of its name, those of ``serving`` beside the manager's.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = "appsdk_operator"

# Rooms whose tests are not in a folder of their name.
FOLDERS = {"serving": "manager"}

# Tests of an internal from elsewhere, and why.
EXCEPTIONS = {
    # Know in which process of a world their thread runs.
    "app/test_background_handover.py": "testing",
    "app/test_background_refusals.py": "testing",
    # Plants defects where the finalizers of kopf and of the App are told apart.
    "app/test_kopf.py": "watchers",
    # Starts another App in the place of the first one, as check_operator does.
    "app/test_versions.py": "testing",
    # Lends workers under the scheduler of threads that a World has.
    "cache/test_lending.py": "testing",
    # Feeds a server's answers to the informer without a server.
    "cache/test_hostile_server.py": "client",
    # Waits as short as an informer does before it tries again.
    "client/test_calls_that_fail.py": "cache",
    # Compares the embedded server's protobuf with the real one's.
    "conformance/test_protobuf.py": "apiserver",
    # The table of alerts, which the dashboards and the manifests are made of.
    "dashboards/test_alerts.py": "project",
    # Gives the managers of a program of examples metrics of their own.
    "dashboards/test_prometheus.py": "runtime",
    # Knows by its class that an operator does not start beside a live one.
    "foreign/test_adopted.py": "app",
    # Runs what the command writes beside the original.
    "foreign/test_migrated.py": "cli",
    "foreign/test_ports.py": "cli",
    # Holds a fence and the client's check before each write together.
    "manager/test_writes.py": "client",
    # Parses the arguments of the manifests as the command does that gets them.
    "project/test_manifests.py": "cli",
    # What Python's patterns become is tried by the reader of Go's.
    "resource/test_go_patterns.py": "apiserver",
    # The state machine of fault rules is shared by the server and the proxy.
    "testing/test_faults.py": "apiserver",
    # The forms of what no room offers, for type checkers.
    "typing/cases/protocols.py": "controllers",
}


def private_imports(path: Path) -> Iterator[str]:
    """The rooms whose private modules a test imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules = []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
            if any(part.startswith("_") for part in node.module.split(".")):
                modules = [node.module]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            parts = module.split(".")
            if parts[0] != PACKAGE or len(parts) < 3:
                continue
            if any(part.startswith("_") and not part.startswith("__") for part in parts[2:]):
                yield parts[1]


def test_a_private_module_is_imported_by_the_tests_of_its_room_alone() -> None:
    found = {}
    for path in sorted(TESTS.rglob("*.py")):
        name = path.relative_to(TESTS).as_posix()
        for room in private_imports(path):
            if not name.startswith(f"{FOLDERS.get(room, room)}/"):
                found[name] = room
    assert found == EXCEPTIONS
