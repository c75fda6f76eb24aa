"""What the pytest plugin records of an operator's requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from appsdk_operator.app import Permission
from appsdk_operator.project import load_permissions

pytest_plugins = ["pytester"]

MODULE = "appsdk_operator.testing._pytest.plugin"
SUITE = """
    from appsdk_operator import MutableObject, kinds
    from appsdk_operator.app import App
    from appsdk_operator.controllers import wait_for
    import pytest

    ConfigMap, Secret = kinds.core.v1.ConfigMap, kinds.core.v1.Secret

    @pytest.mark.parametrize("name", ["a", "b"])
    def test_it(kube_config, kube_run, kube_client, kube_namespace, name):
        app = App("greeter", namespaces=[kube_namespace])

        @app.on_add(ConfigMap)
        def greet(found):
            for name in ("the-token", f"{found.name}-greeting"):
                app.live_client.create(
                    MutableObject.new(Secret, name, namespace=kube_namespace)
                )
                app.live_client.get(Secret, name, namespace=kube_namespace)

        kube_client.create(MutableObject.new(ConfigMap, name, namespace=kube_namespace))
        with app.manager(kube_config) as manager:
            kube_run(manager)
            wait_for(
                kube_client, Secret, f"{name}-greeting", lambda found: True,
                namespace=kube_namespace,
            )
"""
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest on the suite in a process of its own, and records."""
    monkeypatch.delenv("USE_EXISTING_CLUSTER", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(text: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(text)
        fixed = ("-p", "no:cacheprovider", "-p", MODULE, "--kube-rbac-record=record.yaml")
        return pytester.runpytest_subprocess(*fixed, *options)

    return run


def rules(path: Path) -> dict[str, Permission]:
    """The permissions in a record, by resource."""
    return {each.resources[0]: each for each in load_permissions(path)}


@pytest.mark.programs
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-p", "xdist.plugin", "-n2"),
        pytest.param(
            ("--kube=control-plane",),
            marks=pytest.mark.real,
        ),
    ],
    ids=["one-process", "xdist", "control-plane"],
)
def test_it_has_what_the_operator_needed_and_nothing_of_the_test(
    run: Run, options: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    result = run(SUITE, *options)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([f"{pytester.path}/record.yaml has * rules of 2 tests"])
    found = rules(pytester.path / "record.yaml")
    assert set(found) <= {"configmaps", "secrets", "events"}
    assert {*found["configmaps"].verbs, "get"} == {"get", "list", "watch", "patch"}
    # The test's get is not the operator's, and the other secret's name is made of a test's.
    assert found["secrets"].verbs == ("get", "create")
    assert all(each.namespace is None and not each.names for each in found.values())
    assert found["secrets"].reasons == ("test_it[a]", "test_it[b]")
