"""Webhook configurations that are made of rules: names, order, fields, and what servers take."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator import Client, Kind, kinds
from appsdk_operator.client import ApiError, ClientConfig, Forbidden, Hooks, InterceptedClient
from appsdk_operator.resource import MutableObject
from appsdk_operator.testing import APIServer
from appsdk_operator.webhooks import (
    WebhookRule,
    WebhookRuleOptions,
    install_configurations,
    remove_configurations,
    webhook_configurations,
)
from tests.hypothesis_profiles import scaled

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
OLD_WIDGET = Kind(group="example.com", version="v1alpha1", kind="Widget")
SERVICE = ("widgets", "hooks")
CA = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def rule(type: Any = "validating", path: str = "/validate", **more: Any) -> WebhookRule:  # noqa: A002
    return WebhookRule(**{"type": type, "path": path, "kinds": [WIDGET], **more})


def made(*rules: WebhookRule, **options: Any) -> list[dict[str, Any]]:
    where: dict[str, Any] = {} if {"service", "url"} & options.keys() else {"service": SERVICE}
    found = webhook_configurations(rules, name="widgets", **where, **options)
    return [each.to_dict() for each in found]


def test_an_option_of_a_rule_is_one_of_the_builder_too() -> None:
    fields = {field.name: field.type for field in attrs.fields(WebhookRule)}
    # The builder knows these itself.
    for known in ("type", "kinds", "operations", "path"):
        del fields[known]
    # Its converter makes a tuple.
    fields["resources"] = "Iterable[str]"
    options = WebhookRuleOptions.__annotations__
    assert {name: type_.__forward_arg__ for name, type_ in options.items()} == fields


def test_a_kind_with_defaults_and_checks_has_two_configurations() -> None:
    mutating, validating = made(
        rule("validating", "/validate-w", operations=["CREATE", "UPDATE", "DELETE"]),
        rule("mutating", "/mutate-w"),
        ca=CA,
    )
    assert mutating == {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "widgets"},
        "webhooks": [
            {
                "name": "default.widgets.example.com",
                "clientConfig": {
                    "service": {
                        "namespace": "widgets",
                        "name": "hooks",
                        "path": "/mutate-w",
                        "port": 443,
                    },
                    "caBundle": base64.b64encode(CA).decode(),
                },
                "rules": [
                    {
                        "apiGroups": ["example.com"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["widgets"],
                        "scope": "*",
                    }
                ],
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "sideEffects": "None",
                "timeoutSeconds": 10,
                "admissionReviewVersions": ["v1"],
                "reinvocationPolicy": "Never",
            }
        ],
    }
    (webhook,) = validating["webhooks"]
    assert validating["kind"] == "ValidatingWebhookConfiguration"
    assert webhook["name"] == "validate.widgets.example.com"
    assert webhook["rules"][0]["operations"] == ["CREATE", "UPDATE", "DELETE"]
    assert "reinvocationPolicy" not in webhook


def test_a_rule_s_options_are_the_webhook_s() -> None:
    (configuration,) = made(
        rule(
            "mutating",
            name="size.widgets.example.com",
            resources=["widgets", "widgets/status"],
            failure_policy="Ignore",
            match_policy="Exact",
            side_effects="NoneOnDryRun",
            timeout_seconds=3,
            object_selector={"matchLabels": {"a": "b"}},
            namespace_selector={
                "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}]
            },
            match_conditions={"real": "!has(request.dryRun) || !request.dryRun"},
            reinvocation_policy="IfNeeded",
            scope="Namespaced",
        ),
        labels={"app": "widgets"},
        annotations={"cert-manager.io/inject-ca-from": "widgets/serving"},
        port=9443,
    )
    (webhook,) = configuration["webhooks"]
    assert configuration["metadata"]["labels"] == {"app": "widgets"}
    assert configuration["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": "widgets/serving"
    }
    assert webhook.pop("clientConfig")["service"]["port"] == 9443
    assert webhook == {
        "name": "size.widgets.example.com",
        "rules": [
            {
                "apiGroups": ["example.com"],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["widgets", "widgets/status"],
                "scope": "Namespaced",
            }
        ],
        "failurePolicy": "Ignore",
        "matchPolicy": "Exact",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 3,
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {
            "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}]
        },
        "objectSelector": {"matchLabels": {"a": "b"}},
        "matchConditions": [
            {"name": "real", "expression": "!has(request.dryRun) || !request.dryRun"}
        ],
        "reinvocationPolicy": "IfNeeded",
    }


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        ([rule()], ["validate.widgets.example.com"]),
        ([rule(kinds=[kinds.core.v1.Pod])], ["validate.pods.core"]),
        (
            [rule(kinds=[kinds.core.v1.Pod], resources=["pods/exec"], operations=["CONNECT"])],
            ["validate.pods-exec.core"],
        ),
        (
            [rule(), rule(path="/b", kinds=[OLD_WIDGET])],
            ["validate.widgets.example.com", "validate.v1alpha1.widgets.example.com"],
        ),
        (
            [rule(kinds=[kinds.core.v1.Pod, kinds.apps.v1.Deployment])],
            ["validate.pods.core"],
        ),
        ([rule(kinds=[], name="all.example.com")], ["all.example.com"]),
    ],
)
def test_names_are_made_of_the_kind(rules: list[WebhookRule], names: list[str]) -> None:
    (configuration,) = made(*rules)
    assert [webhook["name"] for webhook in configuration["webhooks"]] == names


def test_rules_of_several_kinds_are_by_group_and_version() -> None:
    pod, service, deployment = (
        kinds.core.v1.Pod,
        kinds.core.v1.Service,
        kinds.apps.v1.Deployment,
    )
    (configuration,) = made(rule(kinds=[pod, deployment, service, pod]))
    assert [
        (each["apiGroups"], each["apiVersions"], each["resources"])
        for each in configuration["webhooks"][0]["rules"]
    ] == [([""], ["v1"], ["pods", "services"]), (["apps"], ["v1"], ["deployments"])]


def test_a_url_replaces_the_service_and_a_prefix_is_kept() -> None:
    (configuration,) = made(rule(), url="https://host.docker.internal:9443", prefix="/hooks")
    assert configuration["webhooks"][0]["clientConfig"] == {
        "url": "https://host.docker.internal:9443/hooks/validate"
    }


@pytest.mark.parametrize(
    ("rules", "options", "said"),
    [
        ([], {}, "there are no admission webhooks"),
        ([rule()], {"name": "No Name"}, "name='No Name' is not a name of an object"),
        ([rule()], {"service": None}, r"give service=\(namespace, name\), or url="),
        ([rule()], {"url": "https://a"}, r"give service=\(namespace, name\), or url="),
        ([rule()], {"service": "hooks"}, "service='hooks': give namespace and name"),
        ([rule()], {"service": None, "url": "http://a"}, "by https:// only"),
        ([rule()], {"service": None, "url": "https://a/b"}, "a path with prefix="),
        ([rule()], {"service": None, "url": "https://u@a"}, "by https:// only"),
        ([rule()], {"port": 0}, "port=0 is not a port"),
        ([rule()], {"prefix": "hooks/"}, "prefix='hooks/'"),
        ([rule()], {"ca": b"MIIB"}, "ca holds no certificate: give PEM"),
        ([rule(kinds=[])], {}, "is for all kinds, so its name cannot be made"),
        (
            [rule(), rule(path="/b"), rule(path="/c")],
            {},
            "the webhooks at /validate and /c would have the same name",
        ),
        (
            [rule(name="a.b.c"), rule(path="/b", name="a.b.c")],
            {},
            "the webhooks at /validate and /b would have the same name",
        ),
    ],
)
def test_what_no_server_accepts_is_refused(
    rules: list[WebhookRule], options: dict[str, Any], said: str
) -> None:
    given: dict[str, Any] = {"name": "widgets", "service": SERVICE, **options}
    with pytest.raises(ValueError, match=said):
        webhook_configurations(rules, **given)


def test_rules_come_from_what_has_some() -> None:
    @attrs.define
    class Table:
        rules: tuple[WebhookRule, ...]

    @attrs.define
    class Host:
        webhooks: Table

    table = Table((rule(),))
    for source in (table, Host(table), [rule()], iter([rule()])):
        assert len(webhook_configurations(source, name="a", service=SERVICE)) == 1
    wrong: Any
    for wrong in (rule(), object(), "a"):
        with pytest.raises(TypeError, match="has no rules of webhooks"):
            webhook_configurations(wrong, name="a", service=SERVICE)
    with pytest.raises(TypeError, match="rules="):
        webhook_configurations(["x"], name="a", service=SERVICE)  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"type": "both"}, "type='both': use 'mutating' or 'validating'"),
        ({"path": "x"}, "path='x': begin with a slash"),
        ({"path": "/x?y"}, "begin with a slash"),
        ({"operations": []}, "operations is empty"),
        ({"operations": ["create"]}, "operation 'create': use one of CREATE"),
        ({"operations": ["*", "CREATE"]}, r"'\*' includes all others"),
        ({"operations": ["CREATE", "CREATE"]}, "one is given twice"),
        ({"name": "widgets"}, "a domain name of at least three parts"),
        ({"name": "Default.widgets.x"}, "a domain name of at least three parts"),
        ({"resources": ["Widgets"]}, "resource 'Widgets': write the plural"),
        ({"timeout_seconds": 0}, "timeout_seconds=0: use 1 to 30"),
        ({"timeout_seconds": 31}, "timeout_seconds=31: use 1 to 30"),
        ({"failure_policy": "fail"}, "failure_policy='fail': use 'Fail' or 'Ignore'"),
        ({"object_selector": {"app": "web"}}, "give a label selector as JSON"),
        ({"reinvocation_policy": "IfNeeded"}, "is for mutating webhooks"),
        (
            {"kinds": [WIDGET, kinds.core.v1.Pod], "resources": ["pods"]},
            "make a WebhookRule for each group",
        ),
    ],
)
def test_a_rule_says_what_is_wrong_with_it(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rule(**options)


def test_a_rule_takes_no_wrong_types() -> None:
    for options in (
        {"kinds": ["Widget"]},
        {"operations": "CREATE"},
        {"resources": "widgets"},
        {"timeout_seconds": "10"},
        {"match_conditions": ["true"]},
    ):
        with pytest.raises(TypeError):
            rule(**options)


# -- servers take them -----------------------------------------------------------------------------

LABELS = st.dictionaries(st.sampled_from(["a", "b.example.com/c"]), st.sampled_from(["", "x"]))
SELECTORS = st.none() | st.builds(lambda labels: {"matchLabels": labels}, LABELS)
KINDS = [WIDGET, OLD_WIDGET, kinds.core.v1.Pod, kinds.apps.v1.Deployment, kinds.core.v1.Node]


@st.composite
def some_rules(draw: st.DrawFn) -> list[WebhookRule]:
    found = []
    for index in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["mutating", "validating"]))
        of = draw(st.lists(st.sampled_from(KINDS), max_size=3, unique=True))
        reinvocation = {}
        if kind == "mutating":
            reinvocation["reinvocation_policy"] = draw(st.sampled_from(["Never", "IfNeeded"]))
        found.append(
            WebhookRule(
                type=kind,
                path=f"/{kind}-{index}",
                kinds=of,
                name=f"w{index}.example.com" if not of or draw(st.booleans()) else "",
                operations=draw(
                    st.lists(
                        st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT"]),
                        min_size=1,
                        unique=True,
                    )
                    | st.just(["*"])
                ),
                failure_policy=draw(st.sampled_from(["Fail", "Ignore"])),
                match_policy=draw(st.sampled_from(["Equivalent", "Exact"])),
                side_effects=draw(st.sampled_from(["None", "NoneOnDryRun"])),
                timeout_seconds=draw(st.integers(1, 30)),
                object_selector=draw(SELECTORS),
                namespace_selector=draw(SELECTORS),
                match_conditions=draw(
                    st.just({}) | st.just({"c": "request.operation != 'CONNECT'"})
                ),
                scope=draw(st.sampled_from(["*", "Cluster", "Namespaced"])),
                **reinvocation,
            )
        )
    return found


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def config(request: pytest.FixtureRequest) -> Iterator[ClientConfig]:
    is_real = request.param == "real"
    shared = request.getfixturevalue("shared_plane").lent() if is_real else None
    with shared or APIServer() as server:
        yield server.client_config()


@pytest.fixture
def client(config: ClientConfig) -> Iterator[Client]:
    with Client(config) as found:
        yield found


@given(rules=some_rules(), is_url=st.booleans())
@settings(max_examples=scaled(60))
def test_servers_accept_what_is_made_of_any_rules_and_add_only_defaults(
    config: ClientConfig, rules: list[WebhookRule], is_url: bool
) -> None:
    where: Any = {"url": "https://10.0.0.1:9443"} if is_url else {"service": SERVICE}
    try:
        drafts = webhook_configurations(rules, name="generated", **where)
    except ValueError as error:
        if "the same name" not in str(error):
            raise
        return
    again = webhook_configurations(rules, name="generated", **where)
    assert [each.to_dict() for each in again] == [each.to_dict() for each in drafts]
    with Client(config) as client:
        answers = [client.create(draft, dry_run=True).to_dict() for draft in drafts]
    for draft, stored in zip(drafts, answers, strict=True):
        for made_one, stored_one in zip(draft["webhooks"], stored["webhooks"], strict=True):
            added = stored_one.keys() - made_one.keys()
            assert added <= {"namespaceSelector", "objectSelector"}
            changed = {key for key in made_one if made_one[key] != stored_one.get(key)}
            # 1.20 knows no match conditions, and drops them.
            assert changed <= {"matchConditions"}


def test_configurations_are_installed_updated_and_removed(client: Client) -> None:
    first = [rule("mutating", "/m"), rule("validating", "/v")]
    drafts = webhook_configurations(first, name="widgets", service=SERVICE)
    stored = install_configurations(client, drafts)
    assert [each.kind.kind for each in stored] == [draft.kind.kind for draft in drafts]
    # Another party injects its certificate, as ManagedCertificates and cert-manager do.
    kind = kinds.admissionregistration.v1.ValidatingWebhookConfiguration
    injected = client.get(kind, "widgets").mutable_copy()
    injected["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(CA).decode()
    client.update(injected, field_manager="somebody")
    # Installed again, with one webhook more, and another timeout.
    second = [rule("validating", "/v", timeout_seconds=5), rule(path="/b", kinds=[OLD_WIDGET])]
    (stored_one,) = install_configurations(
        client, webhook_configurations(second, name="widgets", service=SERVICE)
    )
    changed, added = stored_one.to_dict()["webhooks"]
    assert changed["timeoutSeconds"] == 5
    assert changed["clientConfig"]["caBundle"] == base64.b64encode(CA).decode()
    assert added["name"] == "validate.v1alpha1.widgets.example.com"
    # And with one less.
    (stored_one,) = install_configurations(
        client, webhook_configurations(second[:1], name="widgets", service=SERVICE)
    )
    assert len(stored_one.to_dict()["webhooks"]) == 1
    remove_configurations(client, drafts)
    remove_configurations(client, drafts)
    for draft in drafts:
        with pytest.raises(ApiError):
            client.get(draft.kind, draft.name)


def test_what_is_no_configuration_is_not_installed(client: Client) -> None:
    pod = MutableObject.new(kinds.core.v1.Pod, "a")
    with pytest.raises(TypeError, match="is not a webhook configuration"):
        install_configurations(client, [pod])
    wrong: Any = pod
    with pytest.raises(TypeError, match="give a list"):
        install_configurations(client, wrong)


@pytest.mark.parametrize("failing", ["create", "apply"])
def test_an_installation_that_fails_leaves_no_probe(client: Client, failing: str) -> None:
    rules = [rule("mutating", "/m"), rule("validating", "/v")]
    drafts = webhook_configurations(rules, name="widgets", service=SERVICE)
    calls: list[str] = []

    def refuse(inner: Any, draft: Any, **options: Any) -> Any:
        calls.append(failing)
        if failing == "create" or len(calls) == 2:
            raise Forbidden(f"{draft.kind} is forbidden")
        return inner.apply(draft, **options)

    hooks: Any = {failing: refuse}
    with pytest.raises(Forbidden):
        install_configurations(InterceptedClient(client, Hooks(**hooks)), drafts, wait=1.0)
    for draft in drafts if failing == "create" else drafts[:1]:
        webhooks = client.get(draft.kind, draft.name).to_dict()["webhooks"]
        assert [each["name"] for each in webhooks] == [e["name"] for e in draft["webhooks"]]
