"""The pytest plugin: fixtures for a server, a namespace per test, and a running operator.

Every pytest run loads it where the package is installed. So it imports nothing but pytest, and does
nothing for tests that do not use it: imports and hooks wait until a fixture is first used.
``-p no:appsdk_operator`` disables it. With a pytest that is too old it adds no options, and its
fixtures fail with the version to install.

Fixtures: ``kube_server``, ``kube_config``, ``kube_client``, ``kube_kubeconfig``,
``kube_namespace``, ``kube_crds``, ``kube_run``, ``kube_manager`` and ``kube_webhooks``. Options:
``--appsdk-kube``, ``--appsdk-kube-context``, ``--appsdk-kube-rbac``, ``--appsdk-kube-rbac-roles``
and ``--appsdk-kube-rbac-record``, without ``appsdk-`` as well where no other plugin has an option
of that name; in the ini file ``kube``, ``kube_crds``, ``kube_contexts``, ``kube_rbac``,
``kube_rbac_roles``, ``kube_own_planes``, ``kube_report_lines`` and ``kube_webhook_host``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from appsdk_operator.client import Client, ClientConfig
    from appsdk_operator.manager import Manager
    from appsdk_operator.resource import Kind
    from appsdk_operator.runtime import StopSignal
    from appsdk_operator.testing._pytest.kube_test import KubeTest
    from appsdk_operator.testing._pytest.servers import KubeServer
    from appsdk_operator.webhooks import DevelopmentServer

_OLDEST: Final = (8, 2)
_IS_TOO_OLD: Final = tuple(map(int, pytest.__version__.split(".")[:2])) < _OLDEST
_HOOKS: Final = "appsdk_operator_hooks"
_RECORDER: Final = "appsdk_operator_rbac"
_ROLES: Final = "appsdk_operator_roles"
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "kube": {
        "choices": ("embedded", "control-plane", "existing"),
        "help": "the server of the kube_ fixtures: embedded in the process (default), a real "
        "control-plane from KUBEBUILDER_ASSETS, or the existing one that a kubeconfig names",
    },
    "kube-context": {
        "metavar": "NAME",
        "help": "with --appsdk-kube=existing: the context of the kubeconfig whose cluster may be "
        "used",
    },
    "kube-rbac": {
        "action": "store_true",
        "help": "let roles and bindings decide who may do what on the embedded server",
    },
    "kube-rbac-roles": {
        "metavar": "PATH",
        "action": "append",
        "help": "let the operator, which is who uses kube_config, do what the roles in this YAML "
        "file or folder allow, and fail tests in which it needs more; may be given several times",
    },
    "kube-rbac-record": {
        "metavar": "FILE",
        "help": "write the permissions that the operator, which is who uses kube_config, needed in "
        "the tests",
    },
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command-line options and the ini options."""
    if _IS_TOO_OLD:
        return
    group = parser.getgroup("appsdk-operator", "Kubernetes operators")
    for name, facts in _OPTIONS.items():
        group.addoption(f"--appsdk-{name}", dest=_dest(name), **facts)
    parser.addini("kube", "the server when --appsdk-kube is not given: embedded or control-plane")
    parser.addini("kube_rbac", "the same as --appsdk-kube-rbac", "bool", default=False)
    parser.addini("kube_rbac_roles", "the same as --appsdk-kube-rbac-roles", "paths", default=[])
    parser.addini(
        "kube_crds", "CRDs for the server: YAML files, or folders of them", "paths", default=[]
    )
    parser.addini(
        "kube_contexts",
        "contexts that --appsdk-kube=existing may use without naming one, with * and ?",
        "linelist",
        default=["kind-*", "k3d-*", "minikube", "docker-desktop", "rancher-desktop"],
    )
    parser.addini(
        "kube_own_planes",
        "with a control plane and pytest-xdist: one for each worker instead of one for all",
        "bool",
        default=False,
    )
    parser.addini(
        "kube_webhook_host",
        "with --appsdk-kube=existing: the name by which the cluster reaches this machine",
        default="",
    )
    parser.addini(
        "kube_report_lines", "lines in each section of a failed test's report", default="40"
    )


def _dest(name: str) -> str:
    return f"appsdk_{name.replace('-', '_')}"


@pytest.hookimpl(trylast=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> None:
    """Add the short option names, after all plugins and conftests have added their options."""
    if _IS_TOO_OLD:
        return
    group = parser.getgroup("appsdk-operator")
    for name, facts in _OPTIONS.items():
        if _is_free(parser, f"--{name}"):
            short = {**facts, "help": f"short for --appsdk-{name}"}
            group.addoption(f"--{name}", dest=_dest(name), **short)


def pytest_configure(config: pytest.Config) -> None:
    """Record what the operator asks for, or give it its shipped roles, if that is wanted."""
    if _IS_TOO_OLD:
        return
    path = config.getoption(_dest("kube-rbac-record"))
    if path:  # of all that it needs, whatever roles the ini file names
        from appsdk_operator.testing._pytest.rbac import RbacRecorder

        if config.getoption(_dest("kube-rbac-roles")):
            raise pytest.UsageError(
                "--kube-rbac-record records what roles would refuse: leave --kube-rbac-roles out"
            )
        config.pluginmanager.register(RbacRecorder(config, path), _RECORDER)
    elif config.getoption(_dest("kube-rbac-roles")) or config.getini("kube_rbac_roles"):
        from appsdk_operator.testing._pytest.servers import roles_of
        from appsdk_operator.testing._pytest.shipped_roles import ShippedRoles

        config.pluginmanager.register(ShippedRoles(config, roles_of(config)), _ROLES)


def _is_free(parser: pytest.Parser, option: str) -> bool:
    """Whether no plugin has an option of that name."""
    try:
        _, unknown = parser.parse_known_and_unknown_args([f"{option}=x"])
    except pytest.UsageError:
        return False  # another plugin has it, and it takes other values
    return bool(unknown)


def _server_name(config: pytest.Config) -> str:
    from appsdk_operator.testing._pytest.servers import server_name

    return server_name(config.getoption(_dest("kube")), config.getini("kube"))


# -- servers ---------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def kube_server(request: pytest.FixtureRequest) -> Iterator[KubeServer]:
    """The server of this run, with the CRDs of the ini file; ``--appsdk-kube`` chooses it."""
    if _IS_TOO_OLD:
        raise pytest.UsageError(
            f"the kube_ fixtures of appsdk_operator need pytest {'.'.join(map(str, _OLDEST))} or "
            f"newer, and this is {pytest.__version__}: pip install 'appsdk-operator[testing]'"
        )
    from appsdk_operator.testing._pytest import servers

    config = request.config
    plane = getattr(config, "workerinput", {}).get("kube_plane")
    with servers.serving(_server_name(config), config, plane) as server:
        servers.install(server, config.getini("kube_crds"))
        yield server


@pytest.fixture(scope="session")
def _kube_configs(
    request: pytest.FixtureRequest, kube_server: KubeServer
) -> Iterator[tuple[ClientConfig, ClientConfig]]:
    """The configurations of the operator and of the test."""
    plugins = request.config.pluginmanager
    observer = plugins.get_plugin(_RECORDER) or plugins.get_plugin(_ROLES)
    if observer is None:
        config = kube_server.client_config()
        yield config, config
    else:
        with observer.observing(kube_server) as configs:
            yield configs


@pytest.fixture(scope="session")
def kube_config(_kube_configs: tuple[ClientConfig, ClientConfig]) -> ClientConfig:
    """The configuration of the operator's client: ``app.manager(kube_config)``.

    ``--appsdk-kube-rbac-record`` records what is done with it, and nothing else; with
    ``--appsdk-kube-rbac-roles`` it is that of a service account with the shipped roles.
    """
    return _kube_configs[0]


@pytest.fixture(scope="session")
def kube_kubeconfig(kube_server: KubeServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of a kubeconfig for the server, for kubectl and other programs."""
    path = tmp_path_factory.mktemp("kube") / "kubeconfig"
    kube_server.write_kubeconfig(path)
    return path


# -- the test --------------------------------------------------------------------------------------


@pytest.fixture
def _kube_test(request: pytest.FixtureRequest, kube_server: KubeServer) -> Iterator[KubeTest]:
    from appsdk_operator.testing._pytest import hooks
    from appsdk_operator.testing._pytest.kube_test import KubeTest

    lines = int(request.config.getini("kube_report_lines"))
    host = str(request.config.getini("kube_webhook_host"))
    roles = request.config.pluginmanager.get_plugin(_ROLES)
    test = KubeTest(
        kube_server,
        str(request.node.name),
        lines=lines,
        webhook_host=host,
        on_namespace=roles and roles.bind,
    )
    request.node.stash[hooks.STATE] = test
    manager = request.config.pluginmanager
    if not manager.has_plugin(_HOOKS):
        manager.register(hooks, _HOOKS)
    try:
        yield test
        test.end_runs()
    finally:
        test.close()


@pytest.fixture
def kube_client(
    _kube_test: KubeTest, _kube_configs: tuple[ClientConfig, ClientConfig]
) -> Iterator[Client]:
    """A client of the server for the test itself, closed after the test."""
    from appsdk_operator.client import Client

    with Client(_kube_configs[1]) as client:
        yield client


@pytest.fixture
def kube_namespace(_kube_test: KubeTest) -> str:
    """The name of a new namespace for this test; deleted after the test."""
    return _kube_test.make_namespace()


@pytest.fixture
def kube_crds(kube_server: KubeServer) -> Callable[..., list[Kind]]:
    """Installs CRDs and waits until they are served: ``kube_crds(crd, "folder", …)``.

    They are not removed, not even from an existing cluster: other programs may use them.
    """
    from appsdk_operator.testing._pytest.servers import install

    def crds(*sources: Any) -> list[Kind]:
        return install(kube_server, sources)

    return crds


@pytest.fixture
def kube_run(_kube_test: KubeTest) -> Callable[..., StopSignal]:
    """Runs a manager, controller or function in a thread until the test function has returned.

    ``kube_run(manager)`` returns once the manager is ready; ``wait=False`` and ``timeout=30.0`` are
    those of :func:`~appsdk_operator.testing.running`. The test fails if the runnable failed, did
    not end in time, or left a thread.
    """
    return _kube_test.run


@pytest.fixture
def kube_manager(
    _kube_test: KubeTest, kube_config: ClientConfig, kube_namespace: str
) -> Iterator[Manager]:
    """A manager for the namespace of the test; add controllers, then ``kube_run(kube_manager)``.

    Its webhook server is that of ``kube_webhooks``.
    """
    from appsdk_operator.manager import CacheSetup, Manager
    from appsdk_operator.runtime import Metrics

    manager = Manager(
        kube_config,
        cache=CacheSetup(namespaces=[kube_namespace]),
        metrics=Metrics(),
        webhook_server=lambda: _kube_test.webhook_server,
    )
    yield manager
    _kube_test.end_runs()
    manager.close()


@pytest.fixture
def kube_webhooks(_kube_test: KubeTest) -> DevelopmentServer:
    """A webhook server whose webhooks are installed on the server while it runs.

    Add webhooks, ``webhook_for(kube_webhooks, KIND)…``, then ``kube_run(kube_webhooks)``, or give
    it to a manager of one's own, ``Manager(kube_config, webhook_server=kube_webhooks)``.
    """
    return _kube_test.webhook_server


# -- pytest-xdist ----------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give each worker the shared control plane, which is started for the first one."""
    config: pytest.Config = node.config
    asked = not _IS_TOO_OLD and (config.getoption(_dest("kube")) or config.getini("kube"))
    if asked != "control-plane" or config.getini("kube_own_planes"):
        return
    from appsdk_operator.testing._pytest import servers
    from appsdk_operator.testing._pytest.hooks import PLANE

    if PLANE not in config.stash:
        config.stash[PLANE] = servers.start_control_plane()
        config.add_cleanup(config.stash[PLANE].stop)
    node.workerinput["kube_plane"] = servers.connection_facts(config.stash[PLANE])
