"""Dashboards and alerts on a real Prometheus that scrapes operators, well ones and sick ones."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import importlib.util
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from appsdk_operator import App, Client, ClientConfig, Kind, MutableObject, annotation, kinds
from appsdk_operator.cache import Informer
from appsdk_operator.client import ClientError
from appsdk_operator.controllers import TerminalError, TimerSource, controller_for
from appsdk_operator.manager import Elector, LeaderElection, Manager, MetricsServerOptions, Shards
from appsdk_operator.runtime import ManualClock, Metrics, WorkQueue, _environment
from appsdk_operator.serving import CertificateFiles
from appsdk_operator.testing import APIServer, FaultRule, install_crds, running
from appsdk_operator.watchers import (
    ConstantBackoff,
    InformerController,
    SimpleReconciler,
    SimpleWatcher,
    never_retry,
)
from tests.dashboards.scraping import Prometheus, Target, pages, prometheus_of
from tests.dashboards.test_alerts import NAMES, RULES
from tests.dashboards.test_dashboards import BOARDS, panels
from tests.ports import reserved_port
from tests.waiting import eventually

CONFIG_MAP = kinds.core.v1.ConfigMap
FREE = "127.0.0.1:0"


@pytest.mark.programs
@pytest.mark.long
@pytest.mark.timeout(400)
def test_on_a_real_prometheus_every_panel_has_data_and_each_alert_fires_where_it_should_alone(
    prometheus: str, tmp_path: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The program of the example has none of its own, and others have counted in the default ones.
    monkeypatch.setattr(_environment, "default_metrics", Metrics)
    with contextlib.ExitStack() as stack:
        scenery = Scenery(stack, tmp_path)
        targets = scenery.well()
        sick = scenery.sick()
        metrics = {job: each.metrics for job, each in sick.items()}
        targets += stack.enter_context(pages(metrics, scenery.down))
        found = stack.enter_context(prometheus_of(prometheus, tmp_path, free_port, RULES, targets))
        # Two scrapes of everything at 0, because what comes later has to be an increase.
        ready = f"count(count_over_time(up[1m]) >= 2) >= {len(targets)}"
        assert eventually(lambda: found.query(ready), 60.0)
        expected = {job: each.alerts for job, each in sick.items()}

        def has_come() -> bool:
            scenery.work()
            for each in sick.values():
                each.work()
            return found.fired() == expected

        with contextlib.suppress(AssertionError):  # the next line says what is missing
            eventually(has_come, 80.0, every=0.5)
        assert found.fired() == expected
        assert without_data(found) == []
        assert set().union(*expected.values()) == set(NAMES)
        check_annotations(found)
        check_queries_of_controller_runtime(found)


def check_annotations(found: Prometheus) -> None:
    """People get whole sentences: each label that is named has a value."""
    for alert in found.annotations():
        for text in alert.values():
            assert not re.search(r"  | [.:]|<no value>|<error|\{\{", text), text


def without_data(found: Prometheus) -> list[str]:
    """The queries of panels that give nothing, or no number."""
    empty = []
    for name in BOARDS:
        for panel in panels(name):
            for target in panel["targets"]:
                query = target["expr"].replace("$__rate_interval", "1m")
                query = re.sub(r'"\$\w+"', '".*"', query)
                values = [float(each["value"][1]) for each in found.query(query)]
                if all(map(math.isnan, values)):
                    empty.append(f"{name}: {panel['title']}: {query}")
    return empty


def check_queries_of_controller_runtime(found: Prometheus) -> None:
    """Those that controller-runtime's dashboards have, as kubebuilder's plugin writes them."""
    own = 'job="cronjob", namespace="operators"'
    pod = f'{own}, pod=~"cronjob-.*"'
    queries = [
        f"sum(rate(controller_runtime_reconcile_total{{{own}}}[5m])) by (instance, pod)",
        f"sum(rate(controller_runtime_reconcile_errors_total{{{own}}}[5m])) by (instance, pod)",
        f"controller_runtime_active_workers{{{own}}}",
        f"workqueue_depth{{{own}}}",
        f"sum(rate(workqueue_adds_total{{{own}}}[5m])) by (instance, name)",
        f"sum(rate(workqueue_retries_total{{{own}}}[5m])) by (instance, name)",
        f"rate(workqueue_unfinished_work_seconds{{{own}}}[5m])",
        f"rate(process_cpu_seconds_total{{{pod}}}[5m]) * 100",
        f"process_resident_memory_bytes{{{pod}}}",
        *(
            f"histogram_quantile({share}, sum(rate(workqueue_{name}_duration_seconds_bucket"
            f"{{{own}}}[5m])) by (instance, name, le))"
            for share in ("0.50", "0.90", "0.99")
            for name in ("queue", "work")
        ),
    ]
    for query in queries:
        values = [float(each["value"][1]) for each in found.query(query)]
        assert values, query
        assert not all(map(math.isnan, values)), query


@attrs.frozen
class Sick:
    """What is wrong with an operator: the alerts that tell, and what brings it about."""

    alerts: set[str]
    metrics: Sequence[Metrics]
    work: Callable[[], object] = lambda: None


class Scenery:
    """An API server, and operators on it."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path) -> None:
        self.stack = stack
        self.folder = folder
        self.down: set[str] = set()
        self.number = 0

    # Operators that are well.

    def well(self) -> list[Target]:
        """The examples, and one whose calls fail now and then."""
        from examples.cronjob import program
        from examples.cronjob.api import CronJob
        from tests.examples.cronjob.cron_tools import spec

        # Known before it runs: the API server is told where the Service leads to.
        webhooks = self.free_address()
        services = {f"{program.NAMESPACE}/{program.SERVICE}": f"https://{webhooks}"}
        # A request of each two for this object is sent again.
        busy = FaultRule.answer(429, name="busy", every=2, retry_after=0)
        self.server = self.stack.enter_context(APIServer(services=services, faults=[busy]))
        config = self.server.client_config()
        self.client = self.stack.enter_context(Client(config, metrics=Metrics()))
        for name in (program.NAMESPACE, "shaky", "sick"):
            self.client.create(MutableObject.new(kinds.core.v1.Namespace, name))
        for each in program.manifests():
            self.client.create(each)
        detailed = attrs.evolve(config, detailed_metrics=True, qps=1000.0)
        cronjob = program.make_manager(detailed, webhooks=webhooks, health=FREE, metrics=FREE)
        self.run(cronjob)
        self.cron_job, self.spec = CronJob, spec
        self.detailed = Client(detailed, metrics=cronjob.metrics)
        self.stack.enter_context(self.detailed)
        hello, hello_kind = hello_app()
        install_crds(self.client, hello.crds())
        greeter = hello.manager(
            config, metrics=Metrics(), metrics_server=MetricsServerOptions(address=FREE)
        )
        self.run(greeter)
        self.hello = hello_kind
        shaky = self.shaky(config)
        managers = {"cronjob": cronjob, "hello": greeter, "shaky": shaky}
        return [Target(job, each.addresses["metrics"]) for job, each in managers.items()]

    def free_address(self) -> str:
        return f"127.0.0.1:{self.stack.enter_context(reserved_port())}"

    def run(self, manager: Manager) -> None:
        self.stack.enter_context(running(manager, timeout=60.0))

    def shaky(self, config: ClientConfig) -> Manager:
        """Shards, handlers of a cache, and calls that fail once and then succeed."""
        manager = Manager(
            config,
            metrics=Metrics(),
            metrics_server=MetricsServerOptions(address=FREE),
        )
        failed: set[str] = set()

        def fail_once(obj: Any) -> None:
            if obj.name not in failed:
                failed.add(obj.name)
                raise ConnectionError("not yet")

        controller = InformerController(name="shaky", retry_policy=ConstantBackoff(0.05))
        controller.add_informer(Informer(CONFIG_MAP, manager.client, namespace="shaky"), CONFIG_MAP)
        controller.add_watcher(SimpleWatcher(add=fail_once), CONFIG_MAP)
        controller.add_reconciler(SimpleReconciler(lambda request: None), CONFIG_MAP)
        manager.add(controller)
        manager.cache.add(CONFIG_MAP)
        manager.cache.add_event_handler(CONFIG_MAP, Quiet())
        election = LeaderElection(id="shaky", namespace="shaky", identity="shaky-0")
        shards = Shards(self.client, election, 2, metrics=manager.metrics)
        manager.add(shards)
        self.run(manager)
        assert eventually(lambda: len(shards.held) == 2, 60.0)
        return manager

    def work(self) -> None:
        """What users do, again and again."""
        self.number += 1
        name = f"n{self.number}"
        with contextlib.suppress(ClientError):
            self.detailed.get(CONFIG_MAP, "busy", namespace="shaky")
        self.client.create(MutableObject.new(CONFIG_MAP, name, namespace="shaky"))
        self.client.create(MutableObject.new(self.hello, name, namespace="shaky"))
        spec = self.spec("* * * * *")
        self.client.create(MutableObject.new(self.cron_job, name, namespace="shaky", spec=spec))

    # Operators that are not.

    def sick(self) -> dict[str, Sick]:
        """One for each thing that can be wrong; each is well in the beginning."""
        return {
            "gone": self.gone(),
            "not-synced": self.not_synced(),
            "gave-up": self.failing_watcher({"OperatorGaveUp"}, add=fail),
            "clean-up": self.failing_watcher(
                {"OperatorGaveUp", "OperatorCleanUpsGivenUp"}, delete=fail
            ),
            "retries": self.failing_watcher({"OperatorRetriesGrow"}, count=20, add=fail),
            "reconcile": self.failing_controller(),
            "hangs": self.hanging_queue(),
            "requests": self.failing_requests(),
            "leaders": self.leaders(),
            "certificate": self.certificate(),
            "driven": self.driven(),
        }

    def gone(self) -> Sick:
        metrics = Metrics()
        metrics.gauge("appsdk_operator_info", "", ["version"]).labels("1").set(1)
        return Sick({"OperatorDown"}, [metrics], lambda: self.down.add("gone"))

    def not_synced(self) -> Sick:
        missing = Kind(group="example.com", version="v1", kind="Missing")
        metrics = Metrics()
        informer = Informer(missing, self.client, metrics=metrics)
        self.stack.enter_context(running(informer, wait=False))
        return Sick({"OperatorNotSynced", "OperatorInformerErrors"}, [metrics])

    def failing_watcher(self, alerts: set[str], *, count: int = 1, **calls: Any) -> Sick:
        metrics, job = Metrics(), f"watcher-{len(alerts)}-{count}"
        policy = ConstantBackoff(3600.0) if count > 1 else never_retry
        controller = InformerController(name=job, retry_policy=policy, metrics=metrics)
        selector = {"for": job}
        informer = Informer(
            CONFIG_MAP, self.client, namespace="sick", label_selector=selector, metrics=metrics
        )
        controller.add_informer(informer, CONFIG_MAP)
        controller.add_watcher(SimpleWatcher(**calls), CONFIG_MAP)
        self.stack.enter_context(running(controller))

        @functools.cache
        def work() -> None:
            for number in range(count):
                name = f"{job}-{number}"
                draft = MutableObject.new(CONFIG_MAP, name, namespace="sick")
                draft.labels.update(selector)
                self.client.create(draft)
                if "delete" in calls:
                    self.client.delete(CONFIG_MAP, name, namespace="sick")

        return Sick(alerts, [metrics], work)

    def failing_controller(self) -> Sick:
        metrics = Metrics()
        manager = Manager(self.client, metrics=metrics, metrics_server=None)
        errors = {"a": RuntimeError("no"), "b": KeyError("x"), "c": TerminalError("never")}

        def reconcile(request: Any) -> None:
            if request.name in errors:
                raise errors[request.name]

        (
            controller_for(manager)
            .for_(CONFIG_MAP)
            .named("failing")
            .watches_raw_source(TimerSource(3600.0, []))
            .complete(reconcile)
        )
        self.run(manager)

        @functools.cache
        def work() -> None:
            for name in errors:
                self.client.create(MutableObject.new(CONFIG_MAP, name, namespace="sick"))

        alerts = {"OperatorReconcileErrors", "OperatorTerminalErrors", "OperatorPanics"}
        return Sick(alerts, [metrics], work)

    def hanging_queue(self) -> Sick:
        clock, metrics = ManualClock(), Metrics()
        queue = WorkQueue[str]("web", clock=clock, metrics=metrics)

        @functools.cache
        def work() -> None:
            queue.add("a")
            queue.get()
            queue.add("b")
            clock.advance(601.0)

        return Sick({"OperatorHangs", "OperatorQueueOld"}, [metrics], work)

    def failing_requests(self) -> Sick:
        metrics = Metrics()
        closed = ClientConfig(server=f"http://{self.free_address()}", max_retries=0)
        client = self.stack.enter_context(Client(closed, metrics=metrics))

        def work() -> None:
            with contextlib.suppress(ClientError):
                client.get(CONFIG_MAP, "a", namespace="x")

        work()
        return Sick({"OperatorRequestsFail"}, [metrics], work)

    def leaders(self) -> Sick:
        """Two replicas with one job: a Lease that nobody holds, and one that both do."""
        replicas = [Metrics(), Metrics()]
        for metrics in replicas:
            options = LeaderElection(id="nobody", namespace="sick")
            # Never run, but its series are there.
            self.stack.callback(Elector(self.client, options, metrics=metrics).retire)
        changes = 0

        def work() -> None:
            nonlocal changes
            changes += 1
            for metrics in replicas:
                gauge(metrics, "leader_election_master_status", 1, name="both")
                gauge(metrics, "leader_election_lease_transitions", 30 + changes, name="both")

        alerts = {"OperatorHasNoLeader", "OperatorHasTwoLeaders", "OperatorLeaderFlaps"}
        return Sick(alerts, replicas, work)

    def certificate(self) -> Sick:
        metrics = Metrics()
        cert, key = self.folder / "tls.crt", self.folder / "tls.key"
        write_certificate(cert, key, hours=30)
        files = CertificateFiles(cert, key, metrics=metrics)
        self.stack.callback(files.close)

        @functools.cache
        def work() -> None:
            cert.write_bytes(b"half")
            files.read()

        alerts = {"OperatorCertificateExpires", "OperatorCertificateErrors"}
        return Sick(alerts, [metrics], work)

    def driven(self) -> Sick:
        """What a real operator gets into only after a long time, in the registry itself."""
        metrics = Metrics()
        requests = metrics.counter(
            "controller_runtime_webhook_requests_total", "", ["webhook", "code"]
        ).labels("/v", "500")
        latency = metrics.histogram(
            "controller_runtime_webhook_latency_seconds", "", ["webhook"], buckets=[1.0, 5.0]
        ).labels("/v")

        def work() -> None:
            gauge(metrics, "informer_undecodable_objects", 1, kind="pods.v1", namespace="")
            gauge(metrics, "shards", 6, name="web")
            gauge(metrics, "shards_held", 5, name="web")
            gauge(metrics, "api_server_unreachable_seconds", 121, server="https://10.0.0.1:443")
            requests.inc()
            latency.observe(4.0)

        alerts = {
            "OperatorObjectsUnreadable",
            "OperatorServerLost",
            "OperatorShardsNotHeld",
            "OperatorWebhookErrors",
            "OperatorWebhookSlow",
        }
        return Sick(alerts, [metrics], work)


class Quiet:
    """An event handler that does nothing."""

    def on_add(self, obj: Any, *, is_initial: bool = False) -> None: ...
    def on_update(self, old: Any, new: Any) -> None: ...
    def on_delete(self, obj: Any, *, is_final_state_unknown: bool = False) -> None: ...


def fail(*_: Any) -> None:
    raise ConnectionError("never")


def gauge(metrics: Metrics, metric: str, value: float, /, **labels: str) -> None:
    metrics.gauge(metric, "", list(labels)).labels(**labels).set(value)


def hello_app() -> tuple[App, Kind[Any, Any]]:
    """The App of the example; anew, because one takes no second manager's clients."""
    path = Path(__file__).parents[2] / "examples/app_hello.py"
    spec = importlib.util.spec_from_file_location("app_hello_of_dashboards", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    greeting = module.GREETING
    # With the metric of Apps whose objects can be paused.
    module.app = app = App("hello", paused=annotation("example.com/paused"))
    app.own(greeting)
    app.on_add(greeting)(module.greet)
    app.on_delete(greeting)(module.part)
    return app, greeting


def write_certificate(cert: Path, key: Path, *, hours: int) -> None:
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, secret.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=hours))
        .sign(secret, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    cert.write_bytes(made.public_bytes(pem))
    key.write_bytes(secret.private_bytes(pem, form, plain))
