"""Declarations of an App, without a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from appsdk_operator import kinds
from appsdk_operator.app import App
from appsdk_operator.controllers import Request, Result
from appsdk_operator.manager import LeaderElection
from appsdk_operator.resource import (
    Kind,
    MutableObject,
    Object,
    PrinterColumn,
    Rule,
    Versions,
)
from appsdk_operator.runtime import StopSignal
from appsdk_operator.watchers import SimpleWatcher


@attrs.frozen
class BucketSpec:
    """What a user wants."""

    size: int = 1
    note: str = ""


BUCKET = Kind(group="example.com", version="v1", kind="Bucket", spec=BucketSpec)
OLD = Kind(group="example.com", version="v1alpha1", kind="Bucket")
CONFIG_MAP = kinds.core.v1.ConfigMap


def nothing(obj: Object[Any, Any]) -> None: ...


def copied(old: Object[Any, Any], new: MutableObject[Any, Any]) -> None: ...


def test_a_declared_function_stays_the_function() -> None:
    app = App("bucket-operator")

    def make(bucket: Object[BucketSpec]) -> str:
        return bucket.name

    assert app.on_add(BUCKET)(make) is make
    assert app.every(60, BUCKET)(make) is make
    assert app.validate(BUCKET)(make) is make


def test_two_apps_are_strangers() -> None:
    one, other = App("one"), App("other")
    one.on_add(BUCKET)(nothing)
    assert one.kinds == (BUCKET,)
    assert other.kinds == ()


@pytest.mark.parametrize("name", ["", "operator", "Bucket", "a" * 41, "a.b"])
def test_an_app_needs_a_name_that_can_stand_in_a_finalizer(name: str) -> None:
    with pytest.raises(ValueError, match="name="):
        App(name)


def test_an_unknown_option_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(TypeError, match=r"no option metrics_sever: it has previous_names, .*"):
        App("bucket-operator", metrics_sever=None)  # type: ignore[call-arg]


def test_the_options_carry_name_lease_field_manager_and_namespaces() -> None:
    app = App("bucket-operator", leader_election=True, namespaces=["team-red"])
    options = app.options
    assert options.name == "bucket-operator"
    assert options.leader_election == LeaderElection(id="bucket-operator")
    assert options.client is not None
    assert options.client.field_owner == "bucket-operator"
    assert app.namespaces == ("team-red",)


def test_a_function_of_other_arguments_is_refused_when_it_is_declared() -> None:
    app = App("bucket-operator")

    def changed(old: Object[Any, Any], new: Object[Any, Any]) -> None: ...

    declared: Any
    for declared in (
        app.on_add(BUCKET),
        app.on_delete(BUCKET),
        app.every(60, BUCKET),
        app.every(60),
        app.reconciler(BUCKET),
        app.default(BUCKET),
        app.validate(BUCKET),
        app.validate(BUCKET, on="delete"),
        app.task,
    ):
        with pytest.raises(TypeError):
            declared(changed)
    declared = app.on_update(BUCKET)
    with pytest.raises(TypeError, match="on_update"):
        declared(nothing)


@pytest.mark.parametrize("declare", ["on_add", "on_sync", "on_update", "on_delete", "own"])
def test_what_is_no_kind_is_refused(declare: str) -> None:
    with pytest.raises(TypeError, match="not a Kind"):
        getattr(App("bucket-operator"), declare)("Bucket")


def test_a_handled_kind_is_the_apps_unless_it_is_kubernetes_or_somebody_elses() -> None:
    app = App("bucket-operator")
    other = Kind(group="cert-manager.io", version="v1", kind="Certificate")
    app.on_add(CONFIG_MAP)(nothing)
    app.every(60, BUCKET)(nothing)
    app.on_add(other)(nothing)
    assert list(app.kinds) == [BUCKET, other]
    app.uses(other, foreign=True)
    assert list(app.kinds) == [BUCKET]
    assert [crd.name for crd in app.crds()] == ["buckets.example.com"]


def test_own_takes_the_options_of_a_crd_and_checks_them() -> None:
    app = App("bucket-operator")
    rules = [Rule("self.metadata.name != 'a'")]
    assert app.own(BUCKET, short_names=["bu"], description="A bucket.", rules=rules) is BUCKET
    [crd] = app.crds()
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert root["description"] == "A bucket."
    assert root["x-kubernetes-validations"] == [{"rule": "self.metadata.name != 'a'"}]
    assert crd["spec"]["names"]["shortNames"] == ["bu"]
    with pytest.raises(ValueError, match="called twice"):
        app.own(BUCKET)
    with pytest.raises(TypeError):
        App("bucket-operator").own(BUCKET, colour="red")


def test_converters_make_versions_with_the_newest_as_hub() -> None:
    app = App("bucket-operator")

    @app.convert(OLD, BUCKET)
    def up(old: Object[Any, Any], new: MutableObject[BucketSpec]) -> None: ...

    with pytest.raises(ValueError, match=r"@app.convert\(buckets.v1.example.com, buckets.v1alpha1"):
        _ = app.kinds

    @app.convert(BUCKET, OLD)
    def down(old: Object[BucketSpec], new: MutableObject[Any, Any]) -> None: ...

    [versions] = app.kinds
    assert isinstance(versions, Versions)
    assert versions.hub == BUCKET
    [crd] = app.crds(url="https://127.0.0.1:9443")
    assert crd["spec"]["conversion"]["strategy"] == "Webhook"
    assert [path for path, _ in app.webhooks.conversions] == ["/convert"]


def test_options_of_a_kind_are_those_of_its_version_where_another_one_is_converted() -> None:
    app = App("bucket-operator")
    app.own(
        BUCKET,
        short_names=["bu"],
        printer_columns=[PrinterColumn("Size", ".spec.size")],
        selectable_fields=[".spec.note"],
    )
    app.convert(OLD, BUCKET)(copied)
    app.convert(BUCKET, OLD)(copied)
    [crd] = app.crds(url="https://127.0.0.1:9443")
    new, old = crd["spec"]["versions"]
    assert crd["spec"]["names"]["shortNames"] == ["bu"]
    assert [column["name"] for column in new["additionalPrinterColumns"]] == ["Size"]
    assert new["selectableFields"] == [{"jsonPath": ".spec.note"}]
    assert not {"additionalPrinterColumns", "selectableFields"} & old.keys()


def test_a_kind_in_two_versions_without_conversion_is_refused() -> None:
    app = App("bucket-operator")
    app.on_add(BUCKET)(nothing)
    app.validate(OLD)(nothing)
    with pytest.raises(ValueError, match="handled in v1 and in v1alpha1"):
        app.crds()


FUNCTIONS: list[Callable[[App, Kind[Any, Any]], object]] = [
    lambda app, kind: app.on_add(kind)(nothing),
    lambda app, kind: app.on_update(kind)(lambda old, new: None),
    lambda app, kind: app.every(60, kind, name=kind.version)(nothing),
    lambda app, kind: app.background(kind, name=kind.version)(lambda live, stop: None),
]


@pytest.mark.parametrize("one", FUNCTIONS)
@pytest.mark.parametrize("other", FUNCTIONS)
def test_functions_of_one_kind_are_for_one_version(one: Any, other: Any) -> None:
    app = App("bucket-operator")
    app.every(60)(lambda: None)
    one(app, BUCKET)
    with pytest.raises(
        ValueError, match=r"has functions for v1, such as .*, so none can be for v1alpha1"
    ):
        other(app, OLD)
    with pytest.raises(ValueError, match="declare all functions for one version"):
        other(app, OLD)
    # All else has neither a finalizer nor a turn with them.
    app.validate(OLD)(nothing)
    app.object_reconciler(OLD)(nothing)
    app.watch(OLD, SimpleWatcher(add=nothing))
    other(app, Kind(group="other.example.com", version="v2", kind="Bucket"))


def test_functions_that_validate_a_kind_are_one_webhook() -> None:
    app = App("bucket-operator")

    @app.validate(BUCKET, failure_policy="Ignore")
    def check(bucket: Object[BucketSpec]) -> None: ...

    @app.validate(BUCKET, on="delete")
    def may_go(bucket: Object[BucketSpec]) -> None: ...

    with pytest.raises(ValueError, match="declared twice, by check and check"):
        app.validate(BUCKET, on="create")(check)
    [rule] = app.webhooks.rules
    assert rule.operations == ("CREATE", "UPDATE", "DELETE")
    assert rule.failure_policy == "Ignore"


def test_two_controllers_of_a_name_are_refused() -> None:
    app = App("bucket-operator")

    @app.reconciler(BUCKET)
    def reconcile(request: Request) -> Result | None:
        return None

    with pytest.raises(ValueError, match="give one by name="):
        app.reconciler(BUCKET)(reconcile)
    app.reconciler(BUCKET, name="second")(reconcile)


def test_a_watcher_is_an_object_or_made_with_the_client() -> None:
    app = App("bucket-operator")
    app.watch(CONFIG_MAP, SimpleWatcher(add=nothing))
    app.watch(CONFIG_MAP, lambda client: SimpleWatcher(add=nothing))
    wrong: Any
    for wrong in (3, lambda: None):
        with pytest.raises(TypeError, match="watcher="):
            app.watch(CONFIG_MAP, wrong)


def test_the_client_outside_of_a_manager_is_an_error_that_says_when_there_is_one() -> None:
    with pytest.raises(RuntimeError, match=r"none of bucket-operator runs: read it in the app's"):
        _ = App("bucket-operator").client


def test_a_task_may_be_declared_with_and_without_options() -> None:
    app = App("bucket-operator")

    @app.task
    def one(stop: StopSignal) -> None: ...

    @app.task(every_replica=True)
    def other(stop: StopSignal) -> None: ...

    assert callable(one)
    assert callable(other)
