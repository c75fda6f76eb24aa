"""The pytest plugin: a server, a namespace for each test, and what it takes to run an operator.

It is loaded by every pytest run where the package is installed, so it imports nothing but pytest;
whatever a fixture needs is imported when the fixture is first asked for. ``-p no:appsdk_operator``
leaves it out.

Fixtures: ``kube_server``, ``kube_config``, ``kube_client``, ``kube_kubeconfig``,
``kube_namespace``, ``kube_crds``, ``kube_run`` and ``kube_manager``. Options: ``--kube``,
``--kube-context``; in the ini file ``kube``, ``kube_crds``, ``kube_contexts``, ``kube_own_planes``
and ``kube_report_lines``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from appsdk_operator.client import Client, ClientConfig
    from appsdk_operator.manager import Manager
    from appsdk_operator.resource import Kind
    from appsdk_operator.runtime import StopSignal
    from appsdk_operator.testing._plugin_servers import KubeServer
    from appsdk_operator.testing._plugin_state import KubeTest

_SERVERS: Final = ("embedded", "control-plane", "existing")
_STATE: Final = pytest.StashKey[Any]()
_PLANE: Final = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, and what may stand in the ini file."""
    group = parser.getgroup("kube", "Kubernetes operators")
    group.addoption(
        "--kube",
        choices=_SERVERS,
        help="the server of the kube_ fixtures: embedded in the process (default), a real "
        "control-plane from KUBEBUILDER_ASSETS, or the existing one that a kubeconfig names",
    )
    group.addoption(
        "--kube-context",
        metavar="NAME",
        help="with --kube=existing: the context of the kubeconfig whose cluster may be used",
    )
    parser.addini("kube", "the server when --kube is not given: embedded or control-plane")
    parser.addini(
        "kube_crds", "CRDs for the server: YAML files, or folders of them", "paths", default=[]
    )
    parser.addini(
        "kube_contexts",
        "contexts that --kube=existing may use without --kube-context, with * and ?",
        "linelist",
        default=["kind-*", "k3d-*", "minikube", "docker-desktop", "rancher-desktop"],
    )
    parser.addini(
        "kube_own_planes",
        "with --kube=control-plane and pytest-xdist: one for each worker instead of one for all",
        "bool",
        default=False,
    )
    parser.addini(
        "kube_report_lines", "lines in each section of a failed test's report", default="40"
    )


def _choice(config: pytest.Config) -> str:
    from appsdk_operator.testing._plugin_servers import choice

    return choice(config.getoption("--kube"), config.getini("kube"))


# -- servers ---------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def kube_server(request: pytest.FixtureRequest) -> Iterator[KubeServer]:
    """The server of this run, with the CRDs of the ini file: see ``--kube``."""
    from appsdk_operator.testing import _plugin_servers

    config = request.config
    plane = getattr(config, "workerinput", {}).get("kube_plane")
    with _plugin_servers.serving(_choice(config), config, plane) as server:
        _plugin_servers.install(server, config.getini("kube_crds"))
        yield server


@pytest.fixture(scope="session")
def kube_config(kube_server: KubeServer) -> ClientConfig:
    """The configuration of a client for the server."""
    return kube_server.client_config()


@pytest.fixture(scope="session")
def kube_kubeconfig(kube_server: KubeServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a kubeconfig for the server, for kubectl and other programs."""
    path = tmp_path_factory.mktemp("kube") / "kubeconfig"
    kube_server.write_kubeconfig(path)
    return path


# -- the test --------------------------------------------------------------------------------------


@pytest.fixture
def _kube_test(request: pytest.FixtureRequest, kube_server: KubeServer) -> Iterator[KubeTest]:
    from appsdk_operator.testing._plugin_state import KubeTest

    lines = int(request.config.getini("kube_report_lines"))
    test = KubeTest(kube_server, str(request.node.name), lines=lines)
    request.node.stash[_STATE] = test
    try:
        yield test
        test.end_runs()
    finally:
        test.close()


@pytest.fixture
def kube_client(_kube_test: KubeTest, kube_config: ClientConfig) -> Iterator[Client]:
    """A client of the server, closed after the test."""
    from appsdk_operator.client import Client

    with Client(kube_config) as client:
        yield client


@pytest.fixture
def kube_namespace(_kube_test: KubeTest) -> str:
    """The name of a namespace that this test has to itself; deleted after the test."""
    return _kube_test.make_namespace()


@pytest.fixture
def kube_crds(kube_server: KubeServer) -> Callable[..., list[Kind]]:
    """Installs CRDs and waits until they are served: ``kube_crds(crd, "folder", …)``.

    They stay, on an existing cluster after the run as well: others may use them, too.
    """
    from appsdk_operator.testing._plugin_servers import install

    def crds(*sources: Any) -> list[Kind]:
        return install(kube_server, sources)

    return crds


@pytest.fixture
def kube_run(_kube_test: KubeTest) -> Callable[..., StopSignal]:
    """Runs anything beside the test, and stops it when the test function has returned.

    ``kube_run(manager)`` returns once it is ready; ``wait=False`` and ``timeout=30.0`` are those of
    :func:`~appsdk_operator.testing.running`. The test fails if what ran failed, did not end in
    time, or left a thread.
    """
    return _kube_test.run


@pytest.fixture
def kube_manager(
    _kube_test: KubeTest, kube_config: ClientConfig, kube_namespace: str
) -> Iterator[Manager]:
    """A manager for the namespace of the test; add controllers, then ``kube_run(kube_manager)``."""
    from appsdk_operator.manager import CacheSetup, Manager
    from appsdk_operator.runtime import Metrics

    manager = Manager(kube_config, cache=CacheSetup(namespaces=[kube_namespace]), metrics=Metrics())
    yield manager
    _kube_test.end_runs()
    manager.close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """What ran beside the test ends with it, and fails it where it failed itself."""
    test: KubeTest | None = item.stash.get(_STATE, None)
    if test is None:
        return (yield)
    try:
        result = yield
    except BaseException as error:
        test.observe()
        test.end_runs(error)
        raise
    test.end_runs()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],  # noqa: ARG001 - named by pytest
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test tells what the server saw and what the operator did."""
    report = yield
    test: KubeTest | None = item.stash.get(_STATE, None)
    if test is not None and report.failed:
        report.sections.extend(test.sections())
    return report


# -- pytest-xdist ----------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give each worker the one control plane, which is started for the first."""
    config: pytest.Config = node.config
    if _choice(config) != "control-plane" or config.getini("kube_own_planes"):
        return
    from appsdk_operator.testing import _plugin_servers

    if _PLANE not in config.stash:
        config.stash[_PLANE] = _plugin_servers.start_plane()
        config.add_cleanup(config.stash[_PLANE].stop)
    node.workerinput["kube_plane"] = _plugin_servers.described(config.stash[_PLANE])
