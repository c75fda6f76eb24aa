"""Webhooks of the kit come to what is recorded of controller-runtime's; see README.md."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential import lanes as servers
from tests.differential.conversation import Server
from tests.differential.scripts import version_of
from tests.shared_plane import SharedPlane
from tests.webhooks.differential import lanes, programs
from tests.webhooks.differential.scripts import Script, all_scripts, table

# Some twenty conversations each, on a server that may have all other tests beside it.
pytestmark = pytest.mark.timeout(600)

AREAS = sorted({script.area for script in all_scripts()})
NEWEST = "1.36"


@pytest.fixture(scope="session")
def embedded() -> Iterator[Server]:
    with servers.embedded() as server:
        yield server


@pytest.fixture(scope="module")
def real(shared_plane: SharedPlane) -> Iterator[Server]:
    with shared_plane.lent() as plane:
        yield servers.on(plane)


def problems(server: Server, scripts: list[Script], version: str) -> dict[str, str]:
    """What the kit came to otherwise than is recorded, by the names of the cases."""
    recorded = lanes.recorded(version)
    with programs.kit(table(scripts)) as where:
        found = lanes.run(server, scripts, where)
        lanes.clear(server)
    compared = {
        script.id: lanes.problem(script, found[script.id], recorded[script.id][1])
        for script in scripts
    }
    return {name: problem for name, problem in compared.items() if problem}


@pytest.mark.parametrize("area", AREAS)
def test_on_the_embedded_server(area: str, embedded: Server) -> None:
    scripts = [each for each in all_scripts() if each.area == area]
    found = problems(embedded, scripts, NEWEST)
    known = {script.id: script.embedded for script in scripts if script.embedded}
    assert not {name: problem for name, problem in found.items() if name not in known}
    assert not known.keys() - found.keys(), "they are the same now: take `embedded` out"


@pytest.mark.real
@pytest.mark.parametrize("area", AREAS)
def test_on_a_real_server(area: str, real: Server) -> None:
    version = ".".join(map(str, real.version))
    if not lanes.recorded(version):
        pytest.skip(f"nothing is recorded of kube-apiserver {version}")
    scripts = [
        each for each in all_scripts() if each.area == area and each.since <= version_of(version)
    ]
    assert not problems(real, scripts, version)
