"""Records what the operator of tests asks its server for: ``--kube-rbac-record``."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import pytest

from appsdk_operator.project import Recording, dump_permissions
from appsdk_operator.runtime import counted
from appsdk_operator.testing._pytest import hooks

if TYPE_CHECKING:
    from appsdk_operator.client import ClientConfig
    from appsdk_operator.testing import Access
    from appsdk_operator.testing._pytest.servers import KubeServer


OPERATOR: Final = "system:serviceaccount:appsdk-operator-pytest:operator"
"""The user of ``kube_config`` on the embedded server while its requests are recorded."""

_OUTPUT: Final = "appsdk_operator_rbac"


class _Accesses(Protocol):
    """A server or proxy that notes who asked for what."""

    def accesses(self) -> list[Access]: ...

    def clear_accesses(self) -> None: ...


@final
class RbacRecorder:
    """A plugin of pytest that writes the permissions that tests needed to a file.

    The operator is who uses ``kube_config``: on the embedded server a user of its own, on a control
    plane or an existing cluster whoever comes through a proxy.
    """

    def __init__(self, config: pytest.Config, path: str) -> None:
        self._config = config
        # Tests may change the folder.
        self._path = Path(config.invocation_params.dir, path)
        self._recording = Recording()
        self._operator: _Accesses | None = None
        self._others: _Accesses | None = None
        self._test = "before the first test"
        self._namespaces: set[str] = set()
        self._lost: list[str] = []
        self._has_failed = False

    @contextlib.contextmanager
    def observing(self, server: KubeServer) -> Iterator[tuple[ClientConfig, ClientConfig]]:
        """Record for the length of the block; the configurations of the operator and the test."""
        from appsdk_operator.testing import APIServer, FaultProxy

        if isinstance(server, APIServer):
            self._operator = self._others = server
            token = server.token_for(OPERATOR, groups=["system:masters"])
            configs = server.client_config(token=token), server.client_config()
            yield configs
            self._take()
        else:
            config = server.client_config()
            with FaultProxy(config) as operator, FaultProxy(config) as others:
                self._operator, self._others = operator, others
                yield operator.client_config(), others.client_config()
                self._take()
        self._operator = self._others = None

    def _take(self) -> None:
        """Move what was noted so far into the recording, for the present test."""
        if self._operator is None or self._others is None:
            return
        mine = self._operator.accesses()
        others: list[Access] = []
        if self._operator is self._others:
            others = [each for each in mine if each.user != OPERATOR]
            mine = [each for each in mine if each.user == OPERATOR]
        else:
            others = self._others.accesses()
            self._others.clear_accesses()
        self._operator.clear_accesses()
        self._recording.add(self._test, mine, others=others, namespaces=self._namespaces)

    # -- hooks -------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Take what the test and the fixtures that end with it asked for."""
        # A server ends in the teardown of the last test that uses it.
        self._test = item.name
        test = item.stash.get(hooks.STATE, None)
        if test is not None and test.namespace:
            self._namespaces.add(test.namespace)
        yield
        self._take()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Hand the recording to the main process, or write it."""
        output: dict[str, Any] | None = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[_OUTPUT] = self._recording.to_dict()
        elif not self._lost and not self._config.option.collectonly:
            self._has_failed = bool(exitstatus) and session.testsfailed > 0
            text = dump_permissions(self._recording.permissions())
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(text, encoding="utf-8")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:  # noqa: ARG002 - xdist's
        """Add the recording of a process of pytest-xdist."""
        found = (getattr(node, "workeroutput", None) or {}).get(_OUTPUT)
        if found is None:
            self._lost.append(str(node.gateway.id))
        else:
            self._recording.merge(Recording.from_dict(found))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say what was written."""
        if hasattr(self._config, "workerinput"):
            return
        if self._lost:
            terminalreporter.write_line(
                f"{self._path} was not written: {', '.join(self._lost)} ended without a record"
            )
            return
        rules, tests = self._recording.permissions(), self._recording.tests
        text = f"{self._path} has {counted(len(rules), 'rule')} of {counted(len(tests), 'test')}"
        if not rules:
            text += ": give the operator kube_config or kube_manager, which alone are recorded"
        elif self._has_failed:
            text += "; tests failed, so there may be more"
        terminalreporter.write_line(text)
