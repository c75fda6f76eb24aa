"""The pytest plugin, in runs of pytest within the test."""

from __future__ import annotations

import functools
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from _pytest.pytester import SysModulesSnapshot

from appsdk_operator import Kind, custom_resource_definition
from appsdk_operator.apiserver import kubeconfig as kubeconfig_of
from appsdk_operator.apiserver import write_kubeconfig
from appsdk_operator.testing import APIServer

pytest_plugins = ["pytester"]

MODULE = "appsdk_operator.testing._pytest.plugin"
ENTRY = "appsdk_operator"

Run = Callable[..., pytest.RunResult]


@pytest.fixture(autouse=True)
def _imports_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what runs within import, but for their test files.

    Modules that were forgotten and are imported anew have classes and registries that the rest of
    this process knows nothing of.
    """
    snapshot = functools.partial(SysModulesSnapshot, preserve=lambda name: "test_" not in name)
    monkeypatch.setattr("_pytest.pytester.SysModulesSnapshot", lambda preserve: snapshot())


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest on a test file of this text, in this process, without any other plugin."""
    monkeypatch.delenv("USE_EXISTING_CLUSTER", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(text: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(text)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", MODULE, *options)

    return run


# -- the plugin itself ---------------------------------------------------------------------------


def test_it_is_installed_with_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {ENTRY: MODULE}


def test_a_run_that_does_not_use_it_imports_next_to_nothing_of_the_kit() -> None:
    program = (
        f"import sys, {MODULE}\n"
        "heavy = {'aiohttp', 'kubernetes', 'urllib3', 'msgspec', 'cryptography', 'asyncio'}\n"
        "kit = [m for m in sys.modules if m.startswith('appsdk_operator.')]\n"
        "print(sorted(heavy & set(sys.modules)), len(kit))\n"
    )
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.startswith("[] ")
    assert int(said.split()[-1]) < 10


def test_its_fixtures_are_explained(run: Run) -> None:
    result = run("", "--fixtures", "-q")
    names = (
        "server",
        "config",
        "client",
        "kubeconfig",
        "namespace",
        "crds",
        "run",
        "manager",
        "webhooks",
    )
    for name in names:
        assert f"kube_{name}" in result.stdout.str()


# -- fixtures ------------------------------------------------------------------------------------


def test_each_test_has_a_namespace_to_itself_that_is_gone_afterwards(run: Run) -> None:
    run(
        """
        from appsdk_operator import MutableObject, kinds

        seen = []

        def test_one(kube_client, kube_namespace):
            seen.append(kube_namespace)
            draft = MutableObject.new(kinds.core.v1.ConfigMap, "a", namespace=kube_namespace)
            kube_client.create(draft)

        def test_two(kube_client, kube_namespace, kube_server):
            assert kube_namespace not in seen
            assert seen[0].startswith("test-one-")
            names = [n.name for n in kube_client.list(kinds.core.v1.Namespace)]
            assert kube_namespace in names
            assert seen[0] not in names
            assert not kube_server.objects(kinds.core.v1.ConfigMap)
        """
    ).assert_outcomes(passed=2)


def test_the_server_is_reached_by_config_and_by_kubeconfig(run: Run) -> None:
    run(
        """
        import os
        from appsdk_operator import Client, ClientConfig

        def test_it(kube_server, kube_config, kube_kubeconfig):
            assert kube_config.server == kube_server.url
            assert ClientConfig.from_kubeconfig(kube_kubeconfig).server == kube_server.url
            assert kube_kubeconfig.stat().st_mode & 0o777 == 0o600
        """
    ).assert_outcomes(passed=1)


def test_crds_come_from_the_ini_file_and_from_the_test(run: Run, pytester: pytest.Pytester) -> None:
    widget = Kind(group="example.com", version="v1", kind="Widget")
    crd = custom_resource_definition(widget).to_dict()
    (pytester.mkdir("crds") / "widget.yaml").write_text(yaml.safe_dump(crd))
    pytester.makeini("[pytest]\nkube_crds = crds\n")
    run(
        """
        from appsdk_operator import Kind, MutableObject, custom_resource_definition

        def test_it(kube_client, kube_namespace, kube_crds):
            gadget = Kind(group="example.com", version="v1", kind="Gadget")
            widget = Kind(group="example.com", version="v1", kind="Widget")
            assert kube_crds(custom_resource_definition(gadget)) == [gadget]
            for kind in (gadget, widget):
                kube_client.create(MutableObject.new(kind, "a", namespace=kube_namespace))
        """
    ).assert_outcomes(passed=1)


def test_what_runs_is_ready_in_the_test_and_has_ended_after_it(run: Run) -> None:
    run(
        """
        from appsdk_operator import MutableObject, kinds
        from appsdk_operator.controllers import controller_for, wait_for

        ConfigMap = kinds.core.v1.ConfigMap
        managers = []

        def test_it(kube_manager, kube_run, kube_namespace, kube_client):
            def stamp(request):
                found = kube_manager.live_client.get(
                    ConfigMap, request.name, namespace=request.namespace
                )
                if "stamped" not in found.labels:
                    draft = found.mutable_copy()
                    draft.labels["stamped"] = "yes"
                    kube_manager.live_client.update(draft)

            controller_for(kube_manager).for_(ConfigMap).named("stamper").complete(stamp)
            kube_run(kube_manager)
            assert kube_manager.elected.is_set()
            kube_client.create(MutableObject.new(ConfigMap, "a", namespace=kube_namespace))
            wait_for(
                kube_client, ConfigMap, "a", lambda obj: "stamped" in obj.labels,
                namespace=kube_namespace,
            )
            managers.append(kube_manager)

        def test_afterwards():
            assert managers[0].debug_snapshot()["stopping"]

        def test_one_that_never_runs(kube_manager):
            pass
        """
    ).assert_outcomes(passed=3)


def test_a_test_fails_if_what_ran_beside_it_failed(run: Run) -> None:
    result = run(
        """
        import threading

        def test_fails(kube_run):
            def broken(stop):
                stop.wait()
                raise ConnectionError("lost")

            kube_run(broken)

        def test_leaves_a_thread(kube_run, monkeypatch):
            from appsdk_operator.testing._pytest import kube_test
            monkeypatch.setattr(kube_test, "_THREAD_PATIENCE", 0.1)
            global release
            release = threading.Event()
            kube_run(lambda stop: threading.Thread(target=release.wait, name="mine").start())

        def test_is_told_of_both(kube_run):
            def broken(stop):
                stop.wait()
                raise ConnectionError("lost")

            release.set()
            kube_run(broken)
            assert False, "wrong"
        """
    )
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "*ConnectionError: lost",
            "*RuntimeError: *<lambda> ended, but threads that were started*have not: mine",
            "*AssertionError: wrong",
            "*an operator of the test failed, too: ConnectionError('lost')",
        ],
        consecutive=False,
    )


def test_what_a_fixture_runs_ends_before_other_fixtures_do(run: Run) -> None:
    run(
        """
        import pytest

        steps = []

        @pytest.fixture
        def operator(kube_run):
            def work(stop):
                stop.wait()
                steps.append("ended")

            yield kube_run(work)
            steps.append("fixture")

        def test_one(operator):
            assert not operator.is_set()

        def test_two():
            assert steps == ["ended", "fixture"]
        """
    ).assert_outcomes(passed=2)


# -- what a failure tells ------------------------------------------------------------------------

FAILING = """
    import queue
    from appsdk_operator import InformerController, KubernetesInformer, SimpleWatcher
    from appsdk_operator import MutableObject, kinds
    from appsdk_operator.controllers import controller_for
    from appsdk_operator.watchers import ConstantBackoff

    ConfigMap = kinds.core.v1.ConfigMap

    def test_it(kube_manager, kube_run, kube_namespace, kube_client):
        refused, failed = queue.SimpleQueue(), queue.SimpleQueue()

        def refuse(request):
            kube_client.create(MutableObject(kinds.core.v1.Event, {
                "metadata": {"generateName": "e", "namespace": kube_namespace},
                "involvedObject": {
                    "kind": "ConfigMap", "name": request.name, "namespace": kube_namespace
                },
                "type": "Warning", "reason": "Refused", "message": "not today",
            }))
            refused.put(request)
            raise ValueError("not today")

        def fail(obj):
            failed.put(obj)
            raise KeyError("no such key")

        controller_for(kube_manager).for_(ConfigMap).named("refuser").complete(refuse)
        kube_run(kube_manager)
        watching = InformerController(retry_policy=ConstantBackoff(3600.0))
        watching.add_informer(
            KubernetesInformer(ConfigMap, kube_client, namespace=kube_namespace), ConfigMap
        )
        watching.add_watcher(SimpleWatcher(add=fail), ConfigMap)
        kube_run(watching)
        kube_client.create(MutableObject.new(ConfigMap, "mine", namespace=kube_namespace))
        for told in (refused, failed):
            told.get(timeout=60)
        assert watching.wait_idle(timeout=60)
        assert False, "to see the report"
"""


def test_a_failed_test_tells_what_the_server_saw_and_what_the_operator_did(run: Run) -> None:
    result = run(FAILING)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*- kube: requests -*",
            "* watch * 200 * ms  /api/v1/namespaces/test-it-*/configmaps[?]*",
            "* create * 201 * ms  /api/v1/namespaces/test-it-*/configmaps",
            "*- kube: events -*",
            "* Warning Refused ConfigMap/mine: not today",
            "*- kube: operator -*",
            "*controller: refuser",
            "* object=test-it-*/mine, callback=*, why=retry of *, attempt=1, *no such key*",
            "*- kube: errors -*",
            "ERROR * not today*",
        ],
        consecutive=False,
    )


def test_a_report_is_bounded_and_a_passed_test_has_none(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\nkube_report_lines = 5\n")
    text = """
        from appsdk_operator import kinds
        from appsdk_operator.testing import FaultRule

        def test_it(kube_client, kube_namespace, kube_server):
            kube_server.inject([FaultRule.delay(0.001, times=1, verb="list")])
            for _ in range(9):
                list(kube_client.list(kinds.core.v1.ConfigMap, namespace=kube_namespace))
            assert {outcome}
    """
    said = run(text.format(outcome="False")).stdout.str()
    assert "(4 more)" in said
    assert said.count("/configmaps?") == 5
    said = run(text.format(outcome="True"), "-rA").stdout.str()
    assert "kube: requests" not in said


def test_the_fault_that_befell_a_request_stands_beside_it(run: Run) -> None:
    result = run(
        """
        from appsdk_operator import kinds
        from appsdk_operator.testing import FaultRule

        def test_it(kube_client, kube_namespace, kube_server):
            kube_server.inject([FaultRule.answer(404, verb="list", times=1)])
            list(kube_client.list(kinds.core.v1.ConfigMap, namespace=kube_namespace))
        """
    )
    result.stdout.fnmatch_lines(["* list * 404 *  <- FaultRule.answer(404, verb='list', times=1)"])


def test_faults_end_with_their_test(run: Run) -> None:
    run(
        """
        from appsdk_operator import kinds
        from appsdk_operator.testing import FaultRule

        def test_one(kube_client, kube_server):
            kube_server.inject([FaultRule.answer(404)])

        def test_two(kube_client):
            assert list(kube_client.list(kinds.core.v1.Namespace))
        """
    ).assert_outcomes(passed=2)


def test_a_broken_promise_tells_its_timeline_without_frames_of_the_kit(run: Run) -> None:
    result = run(
        """
        from appsdk_operator import kinds
        from appsdk_operator.testing import World, check_operator

        ConfigMap = kinds.core.v1.ConfigMap

        def test_of_an_invariant():
            def at_rest(world):
                assert not world.objects(), "some are left"

            make = lambda replica: lambda request: None
            check_operator(make, ConfigMap, at_rest=at_rest, replay=["create a {}"])

        def test_of_a_world():
            make = lambda replica: lambda request: None
            with World(ConfigMap, make) as world:
                world.create("a")
                world.break_promise("as it happens", "default/a")
                world.run(1.0)
        """
    )
    result.assert_outcomes(failed=2)
    said = result.stdout.str()
    assert "some are left" in said
    # pytest says it once more in its summary where a CI system runs it.
    failures = said.partition("short test summary info")[0]
    assert failures.count("somebody creates a") == 2
    assert "The above exception was the direct cause" in said
    assert "appsdk_operator/testing/_" not in said


# -- many processes ------------------------------------------------------------------------------

PARALLEL = """
    import os
    from pathlib import Path
    import pytest
    from appsdk_operator import MutableObject, kinds

    @pytest.mark.parametrize("number", range(6))
    def test_it(number, kube_server, kube_client, kube_namespace):
        draft = MutableObject.new(kinds.core.v1.ConfigMap, "a", namespace=kube_namespace)
        kube_client.create(draft)
        worker = os.environ["PYTEST_XDIST_WORKER"]
        Path(f"{worker}-{number}").write_text(kube_server.url)
"""


def in_parallel(pytester: pytest.Pytester, *options: str) -> tuple[list[str], pytest.RunResult]:
    """Run the tests in two processes; the servers that they used, and what pytest said."""
    pytest.importorskip("xdist")
    pytester.makepyfile(PARALLEL)
    arguments = ("-p", "no:cacheprovider", "-p", "xdist", "-p", MODULE, "-n", "2", *options)
    result = pytester.runpytest_subprocess(*arguments)
    notes = list(pytester.path.glob("gw*-*"))
    assert {note.name.partition("-")[0] for note in notes} == {"gw0", "gw1"}
    return sorted({note.read_text() for note in notes}), result


@pytest.mark.programs
def test_each_process_of_a_parallel_run_has_an_embedded_server_of_its_own(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    urls, result = in_parallel(pytester)
    result.assert_outcomes(passed=6)
    assert len(urls) == 2


@pytest.mark.real
def test_the_processes_of_a_parallel_run_share_one_control_plane_and_tell_what_it_saw(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        test_other="""
        from appsdk_operator import MutableObject, kinds

        ConfigMap = kinds.core.v1.ConfigMap

        def test_fails(kube_client, kube_namespace):
            kube_client.create(MutableObject.new(ConfigMap, "a", namespace=kube_namespace))
            assert False, "to see the report"
        """
    )
    (url,), result = in_parallel(pytester, "--kube=control-plane")
    assert url.startswith("https://127.0.0.1:")
    result.assert_outcomes(passed=6, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*- kube: requests -*",
            "admin * create * 201 * ms  /api/v1/namespaces/test-fails-*/configmaps*",
        ]
    )


# -- choosing the server -------------------------------------------------------------------------

TRIVIAL = "def test_it(kube_server):\n    print('at', kube_server.url)\n"


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Makes a kubeconfig with one context of that name the current one."""

    def make(context: str, server: str) -> None:
        path = tmp_path / "their-kubeconfig"
        write_kubeconfig(path, kubeconfig_of(server, b"", name=context, token="abc"))
        monkeypatch.setenv("KUBECONFIG", str(path))

    return make


def test_an_existing_cluster_is_used_when_its_context_says_that_it_is_for_tests(
    run: Run, kubeconfig: Callable[[str, str], None]
) -> None:
    kubeconfig("kind-dev", "http://127.0.0.1:9")
    result = run(TRIVIAL, "--kube=existing", "-s")
    result.assert_outcomes(passed=1)
    assert "at http://127.0.0.1:9" in result.stdout.str()


def test_somebodys_cluster_is_not_used_by_accident(
    run: Run, kubeconfig: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig("prod", "http://127.0.0.1:9")
    result = run(TRIVIAL, "--kube=existing")
    assert result.ret != 0
    result.stdout.fnmatch_lines(
        ["*the current context is 'prod'*say so by --appsdk-kube-context=prod*"]
    )
    run(TRIVIAL, "--kube=existing", "--kube-context=prod").assert_outcomes(passed=1)
    monkeypatch.setenv("USE_EXISTING_CLUSTER", "true")
    assert run(TRIVIAL).ret != 0


def test_the_ini_file_cannot_ask_for_somebodys_cluster(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkube = existing\n")
    result = run(TRIVIAL)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*asked for on the command line*"])


def test_without_programs_a_control_plane_is_an_error_that_says_what_to_set(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    for name in ("TEST_ASSET_ETCD", "TEST_ASSET_KUBE_APISERVER"):
        monkeypatch.delenv(name, raising=False)
    result = run(TRIVIAL, "--kube=control-plane")
    result.stdout.fnmatch_lines(["*set KUBEBUILDER_ASSETS to the folder*"])


# -- beside others -------------------------------------------------------------------------------


def test_a_run_that_does_not_use_it_has_no_hook_of_it_in_its_tests(run: Run) -> None:
    run(
        """
        import sys

        def test_it(request):
            assert not request.config.pluginmanager.has_plugin("appsdk_operator_hooks")

        def test_one_that_uses_it(request, kube_client):
            assert request.config.pluginmanager.has_plugin("appsdk_operator_hooks")
        """
    ).assert_outcomes(passed=2)


@pytest.mark.parametrize("comes", ["before", "after"])
def test_another_plugin_may_have_options_of_the_same_names(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, comes: str
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("USE_EXISTING_CLUSTER", raising=False)
    pytester.makepyfile(
        other_plugin="""
        def pytest_addoption(parser):
            parser.addoption("--kube-context", help="theirs")
            parser.addoption("--kube", help="theirs")
        """,
        test_it="""
        def test_it(request, kube_server):
            assert request.config.getoption("--kube-context") == "their-own"
            assert request.config.getoption("--kube") == "their-own, too"
            assert kube_server.url
        """,
    )
    pytester.syspathinsert()
    plugins = [MODULE, "other_plugin"] if comes == "after" else ["other_plugin", MODULE]
    theirs = ["--kube-context", "their-own", "--kube=their-own, too"]
    result = pytester.runpytest_inprocess(
        *("-p", "no:cacheprovider", "-p", plugins[0], "-p", plugins[1]),
        *theirs,
        "--appsdk-kube=embedded",
    )
    result.assert_outcomes(passed=1)


def test_where_pytest_is_too_old_only_those_who_use_it_hear_of_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from appsdk_operator.testing._pytest import plugin

    monkeypatch.setattr(plugin, "_IS_TOO_OLD", True)
    result = run("def test_it(kube_client): pass\ndef test_other(): pass")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*the kube_ fixtures of appsdk_operator need pytest 8.2*install*"])
    assert "kube" not in run("", "--help").stdout.str()


@pytest.mark.parametrize("way", ["option", "short option", "ini file"])
def test_roles_decide_on_the_embedded_server_if_it_is_told_so(
    run: Run, pytester: pytest.Pytester, way: str
) -> None:
    text = """
        import pytest
        from appsdk_operator import Client, Forbidden, kinds

        def test_it(kube_server, kube_client):
            list(kube_client.list(kinds.core.v1.ConfigMap))
            with Client(kube_server.client_config(token=None)) as nobody, pytest.raises(Forbidden):
                list(nobody.list(kinds.core.v1.ConfigMap))
        """
    if way == "ini file":
        pytester.makeini("[pytest]\nkube_rbac = true\n")
    options = {"option": ["--appsdk-kube-rbac"], "short option": ["--kube-rbac"]}.get(way, [])
    run(text, *options).assert_outcomes(passed=1)


WEBHOOKS = """
    import pytest
    from appsdk_operator import Manager, kinds
    from appsdk_operator.client import Forbidden
    from appsdk_operator.resource import MutableObject
    from appsdk_operator.webhooks import Denied, webhook_for

    ConfigMap = kinds.core.v1.ConfigMap
    MUTATING = kinds.admissionregistration.v1.MutatingWebhookConfiguration

    def add(host, namespace):
        def default(obj):
            obj.setdefault("data", {}).setdefault("color", "blue")

        def check(obj):
            if obj.to_dict()["data"]["color"] == "red":
                raise Denied("red is no color")

        options = {"object_selector": {"matchLabels": {"colorful": namespace}}}
        webhook_for(host, ConfigMap).default(default, **options).validate(
            create=check, **options
        ).complete()

    def look(client, namespace):
        draft = MutableObject.new(ConfigMap, "a", namespace=namespace)
        draft.labels["colorful"] = namespace
        assert client.create(draft, dry_run=True).to_dict()["data"] == {"color": "blue"}
        draft["data"] = {"color": "red"}
        with pytest.raises(Forbidden, match="red is no color"):
            client.create(draft, dry_run=True)

    def test_a_server(kube_webhooks, kube_run, kube_client, kube_namespace):
        add(kube_webhooks, kube_namespace)
        kube_run(kube_webhooks)
        look(kube_client, kube_namespace)

    def test_a_manager(kube_manager, kube_run, kube_client, kube_namespace):
        add(kube_manager, kube_namespace)
        kube_run(kube_manager)
        look(kube_client, kube_namespace)

    def test_a_manager_of_ones_own(
        kube_config, kube_webhooks, kube_run, kube_client, kube_namespace
    ):
        with Manager(kube_config, webhook_server=kube_webhooks) as manager:
            add(manager, kube_namespace)
            stop = kube_run(manager)
            look(kube_client, kube_namespace)
            stop.set()

    def test_one_that_never_runs(kube_webhooks):
        assert kube_webhooks.port

    def test_nothing_is_left(kube_client):
        assert not list(kube_client.list(MUTATING))
"""


@pytest.mark.parametrize(
    "server", ["embedded", pytest.param("control-plane", marks=pytest.mark.real)]
)
def test_webhooks_are_installed_on_any_server_and_removed(run: Run, server: str) -> None:
    run(WEBHOOKS, f"--appsdk-kube={server}").assert_outcomes(passed=5)


def test_tests_without_webhooks_load_none_of_their_server(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it(kube_client, kube_manager, kube_run):
            kube_run(kube_manager)
            assert "appsdk_operator.webhooks._install.development" not in sys.modules
        """
    )
    # A process of its own: this one has loaded everything.
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_an_existing_cluster_that_nobody_knows_needs_a_host(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    with APIServer() as server:
        server.write_kubeconfig(pytester.path / "kubeconfig")
        monkeypatch.setenv("KUBECONFIG", str(pytester.path / "kubeconfig"))
        options = ("--appsdk-kube=existing", "--appsdk-kube-context=embedded")
        test = "def test_it(kube_webhooks): assert kube_webhooks.port"
        result = run(test, *options)
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["*set kube_webhook_host in the ini file*"])
        pytester.makeini("[pytest]\nkube_webhook_host = 127.0.0.1\n")
        run(test, *options).assert_outcomes(passed=1)


ROLES = """
    apiVersion: v1
    kind: ServiceAccount
    metadata: {name: greeter, namespace: greeters}
    ---
    apiVersion: rbac.authorization.k8s.io/v1
    kind: ClusterRole
    metadata: {name: greeter}
    rules:
    - {apiGroups: [""], resources: [configmaps], verbs: [list, watch]}
    ---
    apiVersion: rbac.authorization.k8s.io/v1
    kind: ClusterRoleBinding
    metadata: {name: greeter}
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: greeter}
    subjects: [{kind: ServiceAccount, name: greeter, namespace: greeters}]
    ---
    apiVersion: rbac.authorization.k8s.io/v1
    kind: Role
    metadata: {name: greeter, namespace: greeters}
    rules:
    - {apiGroups: [""], resources: [secrets], verbs: [create]}
    ---
    apiVersion: rbac.authorization.k8s.io/v1
    kind: RoleBinding
    metadata: {name: greeter, namespace: greeters}
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: greeter}
    subjects: [{kind: ServiceAccount, name: greeter, namespace: greeters}]
    """
GREETERS = """
    import pytest
    from appsdk_operator import Client, Forbidden, MutableObject, kinds

    ConfigMap, Secret = kinds.core.v1.ConfigMap, kinds.core.v1.Secret

    @pytest.fixture
    def operator(kube_config):
        with Client(kube_config) as client:
            yield client

    def test_it_may_do_what_the_roles_say(operator, kube_client, kube_namespace):
        kube_client.create(MutableObject.new(ConfigMap, "a", namespace=kube_namespace))
        assert [each.name for each in operator.list(ConfigMap, namespace=kube_namespace)] == ["a"]
        operator.create(MutableObject.new(Secret, "a", namespace=kube_namespace))

    def test_it_lacks_a_rule(operator, kube_namespace):
        with pytest.raises(Forbidden, match="the account needs verb 'patch' on configmaps"):
            operator.patch(ConfigMap, "a", MergePatch({}), namespace=kube_namespace)

    def test_its_own_namespace_is_no_other(operator, kube_namespace):
        with pytest.raises(Forbidden):
            operator.create(MutableObject.new(Secret, "a", namespace="default"))
    """.replace("import Client, Forbidden", "import Client, Forbidden, MergePatch")


@pytest.mark.parametrize("way", ["option", "ini file"])
def test_the_operator_has_the_shipped_roles_and_lacks_what_a_report_names(
    run: Run, pytester: pytest.Pytester, way: str
) -> None:
    folder = pytester.mkdir("deploy")
    (folder / "roles.yaml").write_text(textwrap.dedent(ROLES))
    if way == "ini file":
        pytester.makeini("[pytest]\nkube_rbac_roles = deploy\n")
    result = run(GREETERS, *(["--kube-rbac-roles=deploy"] if way == "option" else []))
    result.assert_outcomes(passed=1, failed=2)
    said = result.stdout.str()
    assert "roles in " in said
    assert "# in the operator's namespaces\nrules:\n- apiGroups:\n  - ''\n  resources:\n" in said
    assert "  - configmaps\n  verbs:\n  - patch\n" in said
    assert "# in namespace default\nrules:\n" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kube-rbac-roles=none.yaml"], "*--kube-rbac-roles: *none.yaml*"),
        (["--kube-rbac-roles=.", "--kube-rbac-record=r.yaml"], "*leave --kube-rbac-roles out*"),
    ],
)
def test_roles_that_cannot_be_used_end_the_run(run: Run, options: list[str], said: str) -> None:
    result = run(GREETERS, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])
