"""The same refusals from a server and from ``Invalid.of``: text, details and causes.

Each case is an object that a server refuses, and the errors of its fields as an admission webhook
would make them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from appsdk_operator.client import Client, Invalid, NotFound
from appsdk_operator.resource import (
    FieldError,
    FieldPath,
    Kind,
    MutableObject,
    Scope,
    Verbatim,
    field,
    kinds,
)
from appsdk_operator.runtime import Metrics
from tests.conformance.conftest import CONFIG_MAP, CRD, Server, World
from tests.waiting import eventually

CASE = Kind(group="example.com", version="v1", kind="Refused", plural="refused")
POD = kinds.core.v1.Pod
JOB = kinds.batch.v1.Job
SPEC = field("spec")
LABEL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
UNCHECKED = FieldPath("<nil>").invalid(
    None,
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
)
"""What recent servers add to errors of types, lengths and required fields of custom resources."""


def _rule(value: str, message: str, **more: str) -> dict[str, str]:
    return {"rule": f"self != '{value}'", "message": message, **more}


def _array(**more: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, **more}


SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "count": {"type": "integer", "minimum": 1},
                "ratio": {"type": "number", "maximum": 0.5},
                "name": {"type": "string", "maxLength": 3},
                "one": {"type": "string", "maxLength": 1},
                "short": {"type": "string", "minLength": 2},
                "policy": {"type": "string", "enum": ["Always", "Never"]},
                "level": {"type": "integer", "enum": [1, 2]},
                "tags": _array(maxItems=2),
                "few": _array(minItems=1),
                "set": _array(**{"x-kubernetes-list-type": "set"}),
                "numbers": {
                    **_array(**{"x-kubernetes-list-type": "set"}),
                    "items": {"type": "number"},
                },
                "ports": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "port"],
                    "items": {
                        "type": "object",
                        "required": ["name", "port"],
                        "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
                    },
                },
                "limits": {
                    "type": "object",
                    "maxProperties": 1,
                    "additionalProperties": {"type": "integer"},
                },
                "ruled": {
                    "type": "string",
                    "x-kubernetes-validations": [
                        _rule("no", "not that"),
                        _rule("forbidden", "not now", reason="FieldValueForbidden"),
                        _rule("required", "is needed", reason="FieldValueRequired"),
                        _rule("twice", "is there", reason="FieldValueDuplicate"),
                    ],
                },
            },
        }
    },
}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "refused.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "refused", "kind": "Refused"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": SCHEMA},
            }
        ],
    },
}


class Refusal(NamedTuple):
    kind: Kind
    fields: dict[str, Any]
    errors: list[FieldError]
    since: int = 0
    """The minor version of the first server with these words."""
    lanes: tuple[str, ...] = ("embedded", "real")
    """The lanes that check it at all."""


def custom(path: str, value: Any, *errors: FieldError, since: int = 0) -> Refusal:
    return Refusal(CASE, {"spec": {path: value}}, list(errors), since)


def pod(errors: list[FieldError], since: int = 0, **spec: Any) -> Refusal:
    spec = {"containers": [{"name": "c", "image": "i"}], **spec}
    return Refusal(POD, {"spec": spec}, errors, since)


def container(errors: list[FieldError], **fields: Any) -> Refusal:
    return pod(errors, containers=[{"name": "c", "image": "i", **fields}])


def job(
    errors: list[FieldError], since: int = 0, lanes: Any = ("embedded", "real"), **spec: Any
) -> Refusal:
    template = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
    return Refusal(JOB, {"spec": {"template": template, **spec}}, errors, since, lanes)


def service(errors: list[FieldError], since: int = 0, **spec: Any) -> Refusal:
    return Refusal(kinds.core.v1.Service, {"spec": spec}, errors, since)


def typed(path: FieldPath, given: str, wanted: str) -> FieldError:
    return path.type_invalid(given, f'{path} in body must be of type {wanted}: "{given}"')


C0 = SPEC["containers"][0]
# Kubernetes' messages, for as long as they stay as they are.
REFUSALS = {
    "an integer": custom(
        "count",
        0,
        SPEC["count"].invalid(0, "spec.count in body should be greater than or equal to 1"),
    ),
    "a number": custom(
        "ratio",
        12345678.9,
        SPEC["ratio"].invalid(12345678.9, "spec.ratio in body should be less than or equal to 0.5"),
    ),
    "a large number": custom(
        "ratio",
        1e21,
        SPEC["ratio"].invalid(1e21, "spec.ratio in body should be less than or equal to 0.5"),
    ),
    "a short text": custom(
        "short",
        "\x00",
        SPEC["short"].invalid("\x00", "spec.short in body should be at least 2 chars long"),
    ),
    "few items": custom(
        "few", [], SPEC["few"].invalid(0, "spec.few in body should have at least 1 items")
    ),
    "a text of another type": custom(
        "count", "x", typed(SPEC["count"], "string", "integer"), UNCHECKED, since=26
    ),
    "an object of another type": custom(
        "tags", {}, typed(SPEC["tags"], "object", "array"), UNCHECKED, since=26
    ),
    "a list of another type": custom(
        "limits", [1], typed(SPEC["limits"], "array", "object"), UNCHECKED, since=26
    ),
    "a long text": custom("name", "abcd", SPEC["name"].too_long("abcd", 3), UNCHECKED, since=33),
    "a text of two bytes": custom("one", "ab", SPEC["one"].too_long("ab", 1), UNCHECKED, since=33),
    "many items": custom("tags", ["a", "b", "c"], SPEC["tags"].too_many(3, 2), UNCHECKED, since=26),
    "many members": custom(
        "limits", {"a": 1, "b": 2}, SPEC["limits"].too_many(2, 1), UNCHECKED, since=26
    ),
    "an unknown text": custom(
        "policy",
        'Some"times',
        SPEC["policy"].not_supported('Some"times', ["Always", "Never"]),
        UNCHECKED,
        since=26,
    ),
    "an unknown number": custom(
        "level", 3, SPEC["level"].not_supported(3, [1, 2]), UNCHECKED, since=26
    ),
    "a missing member": custom(
        "ports", [{"name": "a"}], SPEC["ports"][0]["port"].required(), UNCHECKED, since=26
    ),
    "a member of a map": custom(
        "limits",
        {"a.b": "x"},
        typed(SPEC["limits"]["a.b"], "string", "integer"),
        UNCHECKED,
        since=26,
    ),
    "an item twice": custom("set", ["a", "b", "a"], SPEC["set"][2].duplicate("a")),
    "a text of odd characters twice": custom(
        "set", ["<é\n>", "<é\n>"], SPEC["set"][1].duplicate("<é\n>")
    ),
    "two numbers twice": custom(
        "numbers",
        [1.5, 1234567.5, 1.5, 1234567.5],
        SPEC["numbers"][2].duplicate(1.5),
        SPEC["numbers"][3].duplicate(1234567.5),
    ),
    "keys twice": custom(
        "ports",
        [{"name": "<a>", "port": 1}, {"port": 1, "name": "<a>"}],
        SPEC["ports"][1].duplicate({"port": 1, "name": "<a>"}),
        since=26,
    ),
    "a rule": custom("ruled", "no", SPEC["ruled"].invalid("no", "not that"), since=28),
    "a rule that forbids": custom(
        "ruled", "forbidden", SPEC["ruled"].forbidden("not now"), since=28
    ),
    "a rule that requires": custom(
        "ruled", "required", SPEC["ruled"].required("is needed"), since=28
    ),
    "a rule on duplicates": custom("ruled", "twice", SPEC["ruled"].duplicate("twice"), since=28),
    "labels of one error": Refusal(
        CASE,
        {"metadata": {"labels": {"a": "c d", "b": "c d"}}},
        [field("metadata", "labels").invalid("c d", LABEL)] * 2,
    ),
    "long annotations": Refusal(
        CASE,
        {"metadata": {"annotations": {"a": "x" * 300_000}}},
        [field("metadata", "annotations").too_long("", 262_144), UNCHECKED],
        since=33,
    ),
    "no containers": pod([SPEC["containers"].required()], containers=[]),
    "an unknown policy": pod(
        [SPEC["restartPolicy"].not_supported("Often", ["Always", "OnFailure", "Never"])],
        restartPolicy="Often",
    ),
    "a container twice": pod(
        [SPEC["containers"][1]["name"].duplicate("c")],
        containers=[{"name": "c", "image": "i"}] * 2,
    ),
    "an unknown volume": container(
        [C0["volumeMounts"][0]["name"].not_found("v")],
        volumeMounts=[{"name": "v", "mountPath": "/a"}],
    ),
    "no image": container([C0["image"].required()], image=""),
    "several errors of ports": container(
        [
            C0["ports"][0]["containerPort"].required(),
            C0["ports"][1]["containerPort"].invalid(
                70_000, "must be between 1 and 65535, inclusive"
            ),
            C0["ports"][1]["protocol"].not_supported("X", ["SCTP", "TCP", "UDP"]),
        ],
        ports=[{"containerPort": 0}, {"containerPort": 70_000, "protocol": "X"}],
    ),
    "a volume of two types": pod(
        [SPEC["volumes"][0]["hostPath"].forbidden("may not specify more than 1 volume type")],
        volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}],
    ),
    "a host port twice": container(
        [C0["ports"][1]["hostPort"].duplicate("TCP//80")],
        ports=[{"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 80}],
    ),
    "ports without names": service(
        [SPEC["ports"][0]["name"].required(), SPEC["ports"][1]["name"].required()],
        ports=[{"port": 80}, {"port": 81}],
    ),
    "an unknown type": service(
        [
            SPEC["type"].not_supported(
                "X", {"NodePort", "ClusterIP", "LoadBalancer", "ExternalName"}
            )
        ],
        type="X",
        ports=[{"port": 80}],
    ),
    "a struct twice": service(
        [
            SPEC["ports"][1].duplicate(
                # The server's own type, in the order of its fields.
                Verbatim(
                    '{"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,'
                    '"NodePort":0}'
                )
            )
        ],
        since=26,
        ports=[{"port": 80, "name": "a"}, {"port": 80, "name": "b"}],
    ),
    "an external name": service([SPEC["externalName"].required()], type="ExternalName"),
    "a key of a map": Refusal(
        CONFIG_MAP,
        {"data": {"a": "b"}, "binaryData": {"a": "aGk="}},
        [field("data").key("a").invalid("a", "duplicate of key present in binaryData")],
    ),
    "a long map": Refusal(
        CONFIG_MAP,
        {"data": {"a": "x" * 1_100_000}},
        [FieldPath("[]").too_long("", 1_048_576)],
        since=33,
    ),
    "missing keys": Refusal(
        kinds.core.v1.Secret,
        {"type": "kubernetes.io/tls", "data": {}},
        [field("data").key("tls.crt").required(), field("data").key("tls.key").required()],
    ),
    "a negative number": job(
        [SPEC["parallelism"].invalid(-1, "must be greater than or equal to 0")], parallelism=-1
    ),
    "a required policy": job(
        [SPEC["template"]["spec"]["restartPolicy"].required('valid values: "OnFailure", "Never"')],
        since=26,
        template={"spec": {"restartPolicy": "Always", "containers": [{"name": "c", "image": "i"}]}},
    ),
    "a code twice": job(
        [SPEC["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"][1].duplicate(1)],
        since=26,
        lanes=("real",),
        podFailurePolicy={
            "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 1]}}]
        },
    ),
    "many rules": job(
        [SPEC["podFailurePolicy"]["rules"].too_many(21, 20)],
        since=26,
        lanes=("real",),
        podFailurePolicy={
            "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}] * 21
        },
    ),
    "labels that do not match": Refusal(
        kinds.apps.v1.Deployment,
        {
            "spec": {
                "replicas": -1,
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"z": "d", "a": "c"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            }
        },
        [
            SPEC["replicas"].invalid(-1, "must be greater than or equal to 0"),
            SPEC["template"]["metadata"]["labels"].invalid(
                {"z": "d", "a": "c"}, "`selector` does not match template `labels`"
            ),
        ],
        since=26,
    ),
    "a role without verbs": Refusal(
        kinds.rbac.v1.Role,
        {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}]},
        [field("rules")[0]["verbs"].required("verbs must contain at least one value")],
    ),
    "a value that is too high": Refusal(
        kinds.scheduling.v1.PriorityClass,
        {"value": 2_000_000_000},
        [
            field("value").forbidden(
                "maximum allowed value of a user defined priority is 1000000000"
            )
        ],
    ),
}


@pytest.fixture(scope="module")
def refusing(server: Server) -> Iterator[Server]:
    """The server with the kind of the cases."""
    with Client(server.config(), metrics=Metrics()) as client:
        client.create(MutableObject(CRD, DEFINITION))

        def is_served() -> bool:
            try:
                client.list_page(CASE, namespace="default")
            except NotFound:
                return False
            return True

        assert eventually(is_served)
        yield server
        client.delete(CRD, "refused.example.com")


@pytest.mark.parametrize("case", REFUSALS)
def test_a_server_and_invalid_say_the_same(refusing: Server, world: World, case: str) -> None:
    refusal = REFUSALS[case]
    if refusing.name not in refusal.lanes:
        return
    if refusal.since > world.client.discovery.server_version().minor:
        return  # It has other words for it, or accepts it.
    namespace = "" if refusal.kind.scope is Scope.CLUSTER else world.namespace
    draft = MutableObject.new(refusal.kind, "a", namespace=namespace, **refusal.fields)
    with pytest.raises(Invalid) as refused:
        world.client.create(draft, dry_run=True)
    expected = Invalid.of(refusal.kind, "a", refusal.errors)
    said, wanted = refused.value.to_status(), expected.to_status()
    if refusal.kind.secret or refusal.kind == kinds.core.v1.Secret:
        # The client shows the names and paths of such a text only, without its brackets.
        plain = wanted["message"].replace("[data[", "data[").removesuffix("]")
        assert said["message"].startswith(plain)
        wanted["message"] = said["message"]
    assert said == wanted
    assert refused.value.causes == expected.causes
