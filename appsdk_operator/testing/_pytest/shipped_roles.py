"""Lets the operator of tests do what shipped roles allow, and no more: ``--kube-rbac-roles``."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import pytest

from appsdk_operator.apiserver import parse_path
from appsdk_operator.app import Permission, merged
from appsdk_operator.client import AlreadyExists, Client, ClientConfig, Impersonation
from appsdk_operator.project import Grants
from appsdk_operator.resource import Kind, MutableObject, dump_yaml, kinds
from appsdk_operator.testing._pytest import hooks
from appsdk_operator.testing._pytest.servers import USER_AGENT, ExistingCluster

if TYPE_CHECKING:
    from appsdk_operator.testing import LoggedRequest
    from appsdk_operator.testing._pytest.servers import KubeServer


_NAMESPACE: Final = "appsdk-operator-pytest"
_ACCOUNT: Final = "operator"
_USER: Final = f"system:serviceaccount:{_NAMESPACE}:{_ACCOUNT}"
_GROUPS: Final = (
    "system:serviceaccounts",
    f"system:serviceaccounts:{_NAMESPACE}",
    "system:authenticated",
)
_EVERYWHERE: Final = f"{_NAMESPACE}:everywhere"
_IN_TESTS: Final = f"{_NAMESPACE}:in-tests"
_READS: Final = frozenset({"get", "list", "watch"})
_RBAC: Final = kinds.rbac.v1


@final
class ShippedRoles:
    """A plugin of pytest: the operator, who is who uses ``kube_config``, has the shipped roles.

    A request that they do not allow fails the test, also one that the operator survives, and the
    report has the rule that is missing.
    """

    def __init__(self, config: pytest.Config, paths: Sequence[str]) -> None:
        """Read the roles.

        Raises:
            pytest.UsageError: there are none.
        """
        folder = config.invocation_params.dir
        try:
            grants = Grants.load(*(Path(folder, path) for path in paths))
        except (OSError, ValueError) as error:
            raise pytest.UsageError(f"--kube-rbac-roles: {error}") from error
        self._named = ", ".join(paths)
        everywhere = [each for each in grants.permissions if each.namespace is None]
        # A test has one namespace: that of the operator's pods, and one in which it works.
        own = (None, "", grants.namespace)
        elsewhere = [each for each in grants.permissions if each.namespace not in own]
        in_tests = [each for each in grants.permissions if each.namespace == grants.namespace]
        if not grants.is_for_all_namespaces:
            in_tests += elsewhere
        self._everywhere, self._in_tests, self._elsewhere = everywhere, in_tests, elsewhere

    @contextlib.contextmanager
    def observing(self, server: KubeServer) -> Iterator[tuple[ClientConfig, ClientConfig]]:
        """Create the roles; the configurations of the operator and of the test.

        Raises:
            pytest.UsageError: it is an existing cluster, whose roles are not ours to write.
        """
        if isinstance(server, ExistingCluster):
            raise pytest.UsageError(
                "--kube-rbac-roles: on an existing cluster the operator has the roles of its "
                "kubeconfig; leave the option out, or use the embedded server"
            )
        config = server.client_config()
        with self._client(server) as client:
            _create(client, _role(_EVERYWHERE, self._everywhere))
            _create(client, _role(_IN_TESTS, self._in_tests))
            _create(client, _binding(_RBAC.ClusterRoleBinding, _EVERYWHERE, _EVERYWHERE))
            for place in dict.fromkeys(str(each.namespace) for each in self._elsewhere):
                name = f"{_NAMESPACE}:{place}"
                rules = [each for each in self._elsewhere if each.namespace == place]
                _create(client, MutableObject.new(kinds.core.v1.Namespace, place))
                _create(client, _role(name, rules))
                _create(client, _binding(_RBAC.RoleBinding, name, name, namespace=place))
        operator = Impersonation(user=_USER, groups=_GROUPS)
        yield attrs.evolve(config, impersonate=operator), config

    def bind(self, server: KubeServer, namespace: str) -> None:
        """Let the operator do in the namespace of a test what it may do in its own."""
        with self._client(server) as client:
            draft = _binding(_RBAC.RoleBinding, _IN_TESTS, _IN_TESTS, namespace=namespace)
            _create(client, draft)

    def _client(self, server: KubeServer) -> Client:
        return Client(server.client_config(user_agent=USER_AGENT))

    # -- hooks -------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Fail a test in which the operator was refused something."""
        report = yield
        test = item.stash.get(hooks.STATE, None)
        if call.when != "call" or test is None:
            return report
        lacking = self._lacking(test.requests(), test.namespace)
        if lacking:
            text = (
                f"the roles in {self._named} do not allow what the operator asked for in this "
                f"test; add, or declare with app.uses():\n{lacking}"
            )
            report.sections.append(("kube: missing rules", text))
            if report.passed:
                report.outcome = "failed"
                report.longrepr = text
        return report

    def _lacking(self, requests: Iterable[LoggedRequest], own: str) -> str:
        """The rules that were missing in a test with a namespace of its own, as YAML."""
        missing: dict[str, list[Permission]] = {}
        for request in requests:
            if request.user == _USER and request.status == 403 and not self._allows(request, own):
                place = request.namespace
                where = f"namespace {place}" if place and place != own else ""
                where = where or ("the operator's namespaces" if place else "the whole cluster")
                missing.setdefault(where, []).append(_permission(request))
        return "".join(
            f"# in {where}\n{dump_yaml({'rules': [each.rule for each in merged(found)]})}"
            for where, found in missing.items()
        )

    def _allows(self, request: LoggedRequest, own: str) -> bool:
        """Whether a webhook or a policy refused what the roles allow."""
        if request.verb in _READS:
            return False
        granted = [*self._everywhere]
        if request.namespace == own:
            granted += self._in_tests
        granted += [each for each in self._elsewhere if each.namespace == request.namespace]
        anywhere = [attrs.evolve(each, namespace=None) for each in granted]
        return not Grants(permissions=tuple(anywhere)).missing([_permission(request)])


def _permission(request: LoggedRequest) -> Permission:
    """The permission that a request needs."""
    route = parse_path(request.path)
    if route is None:
        return Permission(paths=[request.path], verbs=[request.verb or request.method.lower()])
    resource = "/".join(filter(None, (route.plural, route.subresource)))
    return Permission(groups=[route.group], resources=[resource], verbs=[request.verb])


def _role(name: str, permissions: Iterable[Permission]) -> MutableObject:
    rules = [each.rule for each in permissions]
    return MutableObject.new(_RBAC.ClusterRole, name, rules=rules)


def _binding(kind: Kind, name: str, role: str, **options: Any) -> MutableObject:
    return MutableObject.new(
        kind,
        name,
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        subjects=[{"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": _NAMESPACE}],
        **options,
    )


def _create(client: Client, draft: MutableObject) -> None:
    # Processes of pytest-xdist share a control plane.
    with contextlib.suppress(AlreadyExists):
        client.create(draft)
