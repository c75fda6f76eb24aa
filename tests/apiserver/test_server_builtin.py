"""Built-in kinds: how they are read, what is filled in, and what is refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appsdk_operator.apiserver._schema import builtin_types as types
from appsdk_operator.apiserver._schema.merge_keys import merge_keys
from appsdk_operator.apiserver._values.quantity import QuantityError, canonical
from appsdk_operator.apiserver._values.times import normalize_micro_time, normalize_time
from tests.hypothesis_profiles import scaled

PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1500m", "1500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("512", "512"),
        ("100Ki", "100Ki"),
        ("2000", "2k"),
        ("1e3", "1e3"),
        ("1E6", "1E6"),
        (0.25, "250m"),
        (3, "3"),
        ("0Mi", "0"),
        ("0.0000000001", "1n"),
    ],
)
def test_a_quantity_has_one_form(given: Any, kept: str) -> None:
    assert canonical(given) == kept
    assert canonical(kept) == kept


@pytest.mark.parametrize("text", ["", "x", "1x", "1..2", "1 Mi", "--1"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        canonical(text)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T01:00:00+01:00", None),
        ("0001-01-01T00:00:00+23:00", "0000-12-31T01:00:00Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ("0009-02-03T04:05:06+24:60", "0009-02-02T03:05:06Z"),
        ("2024-02-03T04:05:06+25:00", "time zone offset hour out of range"),
        ("2024-02-03T04:05:06+23:61", "time zone offset minute out of range"),
    ],
)
def test_times_at_the_ends_of_the_calendar_are_those_of_go(
    api: Any, given: str, kept: str | None
) -> None:
    event = {"metadata": {"generateName": "e"}, "involvedObject": {"namespace": "default"}}
    made = api.create("/api/v1/namespaces/default/events", {**event, "firstTimestamp": given})
    if kept is not None and kept.startswith("time"):
        assert made.status == 400
        assert kept in made["message"]
    else:
        assert made.status == 201
        assert made["firstTimestamp"] == kept


def test_times_are_told_in_utc() -> None:
    assert normalize_time("2024-02-03T04:05:06.789+01:00") == "2024-02-03T03:05:06Z"
    assert normalize_micro_time("2024-02-03T04:05:06.000007-02:00") == "2024-02-03T06:05:06.000007Z"
    with pytest.raises(ValueError, match='cannot parse "x" as "2006"'):
        normalize_time("x")
    with pytest.raises(ValueError, match=r'cannot parse "Z" as ".000000"'):
        normalize_micro_time("2024-02-03T04:05:06Z")
    with pytest.raises(ValueError, match="day out of range"):
        normalize_time("2024-02-30T00:00:00Z")


def test_every_built_in_kind_can_be_read_and_stays_what_it_became() -> None:
    data = types.builtin_schemas.data()
    for group, version, kind in data.kinds:
        if not types.has_type(group, version, kind):
            continue
        first, unknown = types.read(group, version, kind, {"metadata": {"name": "a"}})
        again, _ = types.read(group, version, kind, first)
        assert unknown in ([], ["metadata", "metadata.name"], ["metadata.name"], ["metadata"])
        assert again == first, kind


def test_what_is_read_is_not_changed() -> None:
    pod = {"spec": {"containers": [{"name": "c", "image": "x", "ports": None}]}}
    made, _ = types.read("", "v1", "Pod", pod)
    assert pod == {"spec": {"containers": [{"name": "c", "image": "x", "ports": None}]}}
    made["spec"]["containers"][0]["resources"]["limits"] = {}
    other, _ = types.read("", "v1", "Pod", pod)
    assert other["spec"]["containers"][0]["resources"] == {}


def test_merge_keys_are_those_of_the_schema() -> None:
    keys = merge_keys("apps", "v1", "Deployment")
    containers = ("spec", "template", "spec", "containers")
    rule = keys.rule(containers)
    assert rule is not None
    assert rule.key == "name"
    ports = keys.rule((*containers, "ports"))
    assert ports is not None
    assert ports.key == "containerPort"
    assert keys.rule((*containers, "args")) is None
    assert keys.rule(("spec", "nowhere", "ports")) is None
    service = merge_keys("", "v1", "Service").rule(("spec", "ports"))
    assert service is not None
    assert service.key == "port"


def test_services_get_addresses_of_their_own(api: Any) -> None:
    made = [
        api.create(SERVICES, {"metadata": {"name": n}, "spec": {"ports": [{"port": 80}]}})
        for n in ("a", "b")
    ]
    addresses = [service["spec"]["clusterIP"] for service in made]
    assert len(set(addresses)) == 2
    wanted = {"ports": [{"port": 80}], "clusterIP": "10.0.0.200", "type": "NodePort"}
    chosen = api.create(SERVICES, {"metadata": {"name": "c"}, "spec": wanted})
    assert chosen["spec"]["clusterIPs"] == ["10.0.0.200"]
    assert 30_000 <= chosen["spec"]["ports"][0]["nodePort"] <= 32_767
    changed = api.patch(f"{SERVICES}/c", {"spec": {"clusterIP": "10.0.0.201"}})
    assert changed.status == 422
    assert changed["details"]["causes"][0]["field"] == "spec.clusterIPs[0]"


def test_priority_classes_give_pods_their_priority(api: Any) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    api.create(classes, {"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"})
    spec = {"containers": [{"name": "c", "image": "x"}]}
    named = {"metadata": {"name": "a"}, "spec": {**spec, "priorityClassName": "high"}}
    pod = api.create(PODS, named)
    assert (pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (7, "Never")
    named["spec"]["priorityClassName"] = "none"
    refused = api.create(PODS, named)
    assert refused.status == 403
    assert "no PriorityClass with name none was found" in refused["message"]


def test_claims_are_protected_and_can_be_deleted(api: Any) -> None:
    path = "/api/v1/namespaces/default/persistentvolumeclaims"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made = api.create(path, {"metadata": {"name": "a"}, "spec": spec})
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert api.delete(f"{path}/a").status == 200
    assert api.get(f"{path}/a").status == 404


def test_a_kind_without_checks_is_still_read(api: Any) -> None:
    path = "/apis/storage.k8s.io/v1/csinodes"
    refused = api.create(path, {"metadata": {"name": "a"}, "spec": {"drivers": "x"}})
    assert refused.status == 400
    assert (
        "cannot unmarshal string into Go struct field CSINodeSpec.spec.drivers"
        in refused["message"]
    )


SERVICE_STEPS = st.tuples(
    st.sampled_from("abcd"),
    st.sampled_from(["create", "change", "delete"]),
    st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer"]),
    st.sampled_from([None, 30_000, 30_001, 30_002]),
    st.sampled_from([None, "None", "10.0.0.2", "10.0.0.3", "10.0.0.4"]),
    st.sampled_from(["Cluster", "Local"]),
)


@settings(
    max_examples=scaled(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(SERVICE_STEPS, max_size=12))
def test_no_two_services_have_one_address_or_one_node_port(api: Any, steps: list[Any]) -> None:
    for name, step, kind, port, address, policy in steps:
        spec: dict[str, Any] = {"type": kind, "ports": [{"port": 80}]}
        if kind != "ClusterIP":
            spec["externalTrafficPolicy"] = policy
            spec["ports"][0] |= {"nodePort": port} if port else {}
        match step:
            case "create":
                found = {"metadata": {"name": name}, "spec": spec}
                found["spec"] |= {"clusterIP": address} if address else {}
                reply = api.create(SERVICES, found)
            case "change":
                reply = api.patch(f"{SERVICES}/{name}", {"spec": spec})
            case _:
                reply = api.delete(f"{SERVICES}/{name}")
        assert reply.status in (200, 201, 404, 409, 422), reply.body
        taken: list[Any] = []
        for service in api.get(SERVICES)["items"]:
            spec = service["spec"]
            taken += [one for one in spec.get("clusterIPs", ()) if one != "None"]
            taken += [one["nodePort"] for one in spec["ports"] if "nodePort" in one]
            taken += [spec["healthCheckNodePort"]] if "healthCheckNodePort" in spec else []
        assert len(taken) == len(set(taken))
    for name in "abcd":
        api.delete(f"{SERVICES}/{name}")


def test_a_service_cannot_have_its_health_check_at_a_node_port_of_its_own(api: Any) -> None:
    spec = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]}
    made = api.create(SERVICES, {"metadata": {"name": "a"}, "spec": spec})
    port = made["spec"]["healthCheckNodePort"]
    reply = api.patch(f"{SERVICES}/a", {"spec": {"ports": [{"port": 80, "nodePort": port}]}})
    assert reply.status == 422
    assert "provided port is already allocated" in reply["message"]
    api.delete(f"{SERVICES}/a")


def test_a_service_that_finds_no_node_port_left_is_refused(api: Any) -> None:
    ports = [{"port": 1 + number, "name": f"p{number}"} for number in range(1000)]
    found = [
        api.create(
            SERVICES, {"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": ports}}
        )
        for name in ("a", "b", "c")
    ]
    assert [reply.status for reply in found] == [201, 201, 500]
    assert found[-1]["message"].endswith("failed to allocate a nodePort: range is full")
    api.delete(f"{SERVICES}/a")
    spec = {"type": "NodePort", "ports": [{"port": 1}]}
    assert api.create(SERVICES, {"metadata": {"name": "d"}, "spec": spec}).status == 201


@pytest.mark.parametrize(
    ("classes", "field", "path", "spec"),
    [
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            "storageClassName",
            "/api/v1/namespaces/default/persistentvolumeclaims",
            {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        ),
        (
            "/apis/networking.k8s.io/v1/ingressclasses",
            "ingressClassName",
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}},
        ),
    ],
)
def test_the_default_class_is_set(
    api: Any, classes: str, field: str, path: str, spec: dict[str, Any]
) -> None:
    api.create(path, {"metadata": {"name": "before"}, "spec": spec})
    kind = "storageclass" if "storage" in classes else "ingressclass"
    default = {f"{kind}.kubernetes.io/is-default-class": "true"}
    body = {"provisioner": "a.b/c"} if kind == "storageclass" else {"spec": {"controller": "a.b/c"}}
    for name, marks in (("plain", {}), ("x", default), ("w", default)):
        made = api.create(classes, {"metadata": {"name": name, "annotations": marks}, **body})
        assert made.status == 201, made.body
    api.create(path, {"metadata": {"name": "after"}, "spec": spec})
    api.create(path, {"metadata": {"name": "own"}, "spec": {**spec, field: "other"}})
    found = [api.get(f"{path}/{name}")["spec"].get(field) for name in ("before", "after", "own")]
    assert found in ([None, "w", "other"], [None, "x", "other"])


AUTOSCALERS = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
_AMOUNTS = st.integers(1, 999).map(lambda number: f"{number}m")


def _metrics_of(source: str, fields: Any, *targets: str) -> Any:
    """Metrics of a source, with each of the targets that it may have."""
    goals = {
        "Utilization": st.builds(lambda n: {"averageUtilization": n}, st.integers(1, 50)),
        "AverageValue": st.builds(lambda text: {"averageValue": text}, _AMOUNTS),
        "Value": st.builds(lambda text: {"value": text}, _AMOUNTS),
    }
    target = st.one_of(
        [goals[name].map(lambda goal, name=name: {"type": name, **goal}) for name in targets]
    )
    kind = f"{source[0].upper()}{source[1:]}"
    return st.builds(
        lambda given, goal: {"type": kind, source: {**given, "target": goal}}, fields, target
    )


_NAMED = st.builds(
    lambda selector: {
        "metric": {"name": "m"} | ({} if selector is None else {"selector": selector})
    },
    st.sampled_from([None, {}, {"matchLabels": {"a": "b"}}]),
)
_RESOURCES = st.sampled_from([{"name": "memory"}, {"name": "x.io/gpu"}])
_OBJECT = {"describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"}}
METRICS = st.lists(
    st.one_of(
        _metrics_of("resource", _RESOURCES, "Utilization", "AverageValue"),
        _metrics_of("resource", st.just({"name": "cpu"}), "AverageValue"),
        _metrics_of(
            "containerResource",
            _RESOURCES.map(lambda given: {**given, "container": "c"}),
            "Utilization",
            "AverageValue",
        ),
        _metrics_of("pods", _NAMED, "AverageValue"),
        _metrics_of("external", _NAMED, "Value", "AverageValue"),
        _metrics_of(
            "object", _NAMED.map(lambda given: {**given, **_OBJECT}), "Value", "AverageValue"
        ),
    ),
    max_size=4,
)
# A write through the first version moves it to the end.
CPU = _metrics_of("resource", st.just({"name": "cpu"}), "Utilization")
BEHAVIOR = st.dictionaries(
    st.sampled_from(["scaleUp", "scaleDown"]),
    st.fixed_dictionaries(
        {"policies": st.just([{"type": "Pods", "value": 2, "periodSeconds": 9}])},
        optional={
            "stabilizationWindowSeconds": st.integers(0, 9),
            "selectPolicy": st.sampled_from(["Min", "Max", "Disabled"]),
        },
    ),
)


@settings(
    max_examples=scaled(100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(metrics=METRICS, cpu=st.lists(CPU, max_size=1), behavior=BEHAVIOR)
def test_writes_of_an_autoscaler_by_its_first_version_keep_the_fields_of_the_second(
    api: Any, metrics: list[Any], cpu: list[Any], behavior: dict[str, Any]
) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    spec = {"maxReplicas": 3, "scaleTargetRef": target, "metrics": metrics + cpu}
    spec |= {"behavior": behavior} if behavior else {}
    old, new = (f"{AUTOSCALERS.format(version)}/h" for version in ("v1", "v2"))
    status = {"conditions": [{"type": "AbleToScale", "status": "True"}], "desiredReplicas": 2}
    api.delete(new)
    made = api.create(AUTOSCALERS.format("v2"), {"metadata": {"name": "h"}, "spec": spec})
    assert made.status == 201, made.body
    made = api.patch(f"{new}/status", {"status": status})
    seen = api.get(old).body
    assert (
        api.update(old, seen)["metadata"]["resourceVersion"] == seen["metadata"]["resourceVersion"]
    )
    assert api.patch(old, {"spec": {"maxReplicas": 5}}).status == 200
    assert api.patch(f"{old}/status", {"status": {"desiredReplicas": 4}}).status == 200
    after = api.get(new)
    assert after["spec"] == {**made["spec"], "maxReplicas": 5}
    assert after["status"] == {**made["status"], "desiredReplicas": 4}
    # A write without the annotations drops what they carry, but for what is not its own.
    seen["metadata"].pop("annotations", None)
    seen["metadata"].pop("resourceVersion")
    assert api.update(old, seen).status == 200
    assert api.get(new)["status"] == after["status"]


_KEYS = ("type", "resource", "pods", "metricName", "targetAverageValue", "current", "selector")
_KEYS += ("ScaleUp", "Policies", "metadata", "spec", "status", "name")
_TEXTS = st.one_of(
    st.text(max_size=20),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "resource",
                        "pods",
                        "targetAverageValue",
                        "ScaleUp",
                        "Policies",
                        "metadata",
                        "spec",
                        "name",
                        "status",
                        "metricName",
                        "current",
                        "selector",
                    ]
                ),
                inner,
                max_size=3,
            )
        ),
    ).map(json.dumps),
    st.sampled_from(["[" * 5000, "1" * 5000, '{"a":' * 3000, "[{}]", '{"metadata":null}']),
)
_CARRY = "autoscaling.alpha.kubernetes.io/"
_DAEMONS = "/apis/apps/v1/namespaces/default/daemonsets"
READ_ANNOTATIONS = [
    *(
        (AUTOSCALERS.format("v1"), f"{_CARRY}{name}")
        for name in ("metrics", "behavior", "current-metrics", "conditions")
    ),
    (_DAEMONS, "deprecated.daemonset.template.generation"),
    (_DAEMONS, "kubectl.kubernetes.io/last-applied-configuration"),
]


@settings(
    max_examples=scaled(100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(read=st.sampled_from(READ_ANNOTATIONS), text=_TEXTS, status=st.booleans())
def test_any_text_may_be_in_an_annotation_that_the_server_reads(
    api: Any, read: Any, text: str, status: bool
) -> None:
    path, annotation = read
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    pod = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec: dict[str, Any] = {"selector": {"matchLabels": {"a": "b"}}, "template": pod}
    if path.endswith("autoscalers"):
        spec = {"maxReplicas": 3, "scaleTargetRef": target}
    api.delete(f"{path}/a")
    change = {"metadata": {"annotations": {annotation: text}}}
    made = api.create(path, {"metadata": {"name": "a", **change["metadata"]}, "spec": spec})
    assert made.status in (201, 422), made.body
    if made.status == 422:
        assert api.create(path, {"metadata": {"name": "a"}, "spec": spec}).status == 201
    at = f"{path}/a/status" if status else f"{path}/a"
    assert api.patch(at, change).status in (200, 422)
    group, _, version = path.removeprefix("/apis/").partition("/namespaces")[0].rpartition("/")
    applied = api.patch(
        f"{path}/a?fieldManager=kubectl&force=true",
        {
            "apiVersion": f"{group}/{version}",
            "kind": "DaemonSet" if group == "apps" else "HorizontalPodAutoscaler",
            "metadata": {"name": "a"},
            "spec": spec,
        },
        "application/apply-patch+yaml",
    )
    assert applied.status in (200, 422), applied.body
    assert api.patch(f"{path}/a", {"metadata": {"labels": {"x": "y"}}}).status in (200, 422)
    assert api.get(path).status == 200


CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("*/5 * * * *", ""),
        ("0 0 1,15 JAN-dec MON-FRI", ""),
        ("1,, * ? * *", ""),
        ("3/20 , * * *", ""),
        ("*-9 * * * *", ""),
        ("@daily", ""),
        ("@every 1h30m", ""),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
        ("*/x * * * *", "failed to parse int from x"),
        ("*/1/1 * * * *", "too many slashes: */1/1"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("-1 * * * *", 'failed to parse int from : strconv.Atoi: parsing "": invalid syntax'),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("MON * * * *", "failed to parse int from MON"),
        ("* * * * jan", "failed to parse int from jan"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("@often", "unrecognized descriptor: @often"),
        ("@every 1x", "failed to parse duration @every 1x: time: "),
        ("TZ=UTC * * * * *", "cannot use TZ or CRON_TZ in schedule"),
    ],
)
def test_schedules_have_the_syntax_of_cron(api: Any, schedule: str, why: str) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    spec = {"schedule": schedule, "jobTemplate": {"spec": {"template": {"spec": pod}}}}
    made = api.create(f"{CRON_JOBS}?dryRun=All", {"metadata": {"name": "a"}, "spec": spec})
    assert made.status == (422 if why else 201), made.body
    assert why in made.body.get("message", "")


@pytest.mark.parametrize(
    ("plural", "field"), [("secrets", "data"), ("configmaps", "binaryData"), ("configmaps", "data")]
)
@pytest.mark.parametrize("spare", [-1, 0, 1, 2])
def test_a_mebibyte_of_data_is_the_most(api: Any, plural: str, field: str, spare: int) -> None:
    data = {"a": "x" * 1000, "b": "x" * ((1 << 20) - 1000 - spare)}
    if (plural, field) != ("configmaps", "data"):
        data = {name: base64.b64encode(text.encode()).decode() for name, text in data.items()}
    path = f"/api/v1/namespaces/default/{plural}?dryRun=All"
    made = api.create(path, {"metadata": {"name": "a"}, field: data})
    assert made.status == (422 if spare < 0 else 201), made.body


_SPREAD = {
    "maxSkew": 1,
    "topologyKey": "a",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {},
}
_LOCAL = {"type": "Localhost", "localhostProfile": "a/b"}
_PROBE = {"path": "/", "port": 80, "httpHeaders": [{"name": "X-A", "value": "b"}]}


def _security(**fields: Any) -> dict[str, Any]:
    return {"securityContext": fields}


def _mount(**fields: Any) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "v", "mountPath": "/a", **fields}]}


@pytest.mark.parametrize(
    ("spec", "container", "field"),
    [
        (_security(seccompProfile={"type": "RuntimeDefault"}), {}, ""),
        (_security(seccompProfile=_LOCAL, appArmorProfile=_LOCAL), {}, ""),
        (_security(seccompProfile={"type": "x"}), {}, "seccompProfile.type"),
        (_security(seccompProfile={}), {}, "seccompProfile.type"),
        (_security(seccompProfile={"type": "Localhost"}), {}, "localhostProfile"),
        (_security(appArmorProfile={**_LOCAL, "type": "Unconfined"}), {}, "localhostProfile"),
        ({}, _security(seccompProfile={**_LOCAL, "localhostProfile": "/a"}), "localhostProfile"),
        ({}, _security(appArmorProfile={"type": "Localhost"}), "localhostProfile"),
        (_security(fsGroupChangePolicy="OnRootMismatch"), {}, ""),
        (_security(fsGroupChangePolicy="x"), {}, "fsGroupChangePolicy"),
        (_security(fsGroupChangePolicy=""), {}, "fsGroupChangePolicy"),
        (_security(supplementalGroupsPolicy="x"), {}, "supplementalGroupsPolicy"),
        (_security(seLinuxChangePolicy="x"), {}, "seLinuxChangePolicy"),
        (_security(sysctls=[{"name": "a.b", "value": "1"}] * 2), {}, "sysctls[1].name"),
        ({"topologySpreadConstraints": [_SPREAD, {**_SPREAD, "topologyKey": "b"}]}, {}, ""),
        ({"topologySpreadConstraints": [_SPREAD] * 2}, {}, "{topologyKey, whenUnsatisfiable}"),
        (
            {
                "topologySpreadConstraints": [
                    {**_SPREAD, "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}
                ]
            },
            {},
            "minDomains",
        ),
        (
            {"topologySpreadConstraints": [{**_SPREAD, "nodeTaintsPolicy": "x"}]},
            {},
            "nodeTaintsPolicy",
        ),
        ({}, _mount(mountPropagation="HostToContainer"), ""),
        ({}, _mount(mountPropagation="Bidirectional") | _security(privileged=True), ""),
        ({}, _mount(mountPropagation="Bidirectional"), "mountPropagation"),
        ({}, _mount(mountPropagation="x"), "mountPropagation"),
        ({}, _mount(recursiveReadOnly="Enabled", readOnly=True), ""),
        ({}, _mount(recursiveReadOnly="Enabled"), "recursiveReadOnly"),
        ({}, _mount(subPath="x", subPathExpr="y"), "subPathExpr"),
        ({}, {"livenessProbe": {"httpGet": _PROBE}}, ""),
        (
            {},
            {"livenessProbe": {"httpGet": {**_PROBE, "httpHeaders": [{"name": "a b"}]}}},
            "livenessProbe.httpGet.httpHeaders",
        ),
        ({"volumes": [{"name": "x", "flexVolume": {"driver": "a/b"}}]}, {}, ""),
        ({"volumes": [{"name": "x", "rbd": {"monitors": ["m"]}}]}, {}, "volumes[0].rbd.image"),
        ({"volumes": [{"name": "x", "csi": {"driver": "A_b"}}]}, {}, "volumes[0].csi.driver"),
        (
            {
                "volumes": [
                    {
                        "name": "x",
                        "projected": {
                            "sources": [
                                {"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}},
                                {"configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}},
                            ]
                        },
                    }
                ]
            },
            {},
            "volumes[0].projected",
        ),
    ],
)
def test_pods_are_validated(
    api: Any, spec: dict[str, Any], container: dict[str, Any], field: str
) -> None:
    given = {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{"name": "c", "image": "i", **container}],
        **spec,
    }
    made = api.create(f"{PODS}?dryRun=All", {"metadata": {"name": "a"}, "spec": given})
    assert made.status == (422 if field else 201), made.body
    assert not field or made["details"]["causes"][0]["field"].endswith(field)


_STRICT: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def _security_of(container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "i", **container}], **spec}


@pytest.mark.parametrize(
    ("spec", "level", "reason"),
    [
        (_security_of({}), "baseline", ""),
        (_security_of(_security(**_STRICT)), "restricted", ""),
        (
            _security_of(
                _security(allowPrivilegeEscalation=False, capabilities={"drop": ["ALL"]}),
                **_security(runAsNonRoot=True, seccompProfile=_LOCAL),
            ),
            "restricted",
            "",
        ),
        (_security_of({}), "unknown", "runAsNonRoot != true"),
        (_security_of({}), "restricted", "allowPrivilegeEscalation != false"),
        (_security_of({}), "restricted", "seccompProfile"),
        (_security_of({}), "restricted", "unrestricted capabilities"),
        (
            _security_of(_security(**_STRICT, runAsUser=0)),
            "restricted",
            'runAsUser=0 (container "c" must not set runAsUser=0)',
        ),
        (
            _security_of(
                _security(**{**_STRICT, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}})
            ),
            "restricted",
            "unrestricted capabilities",
        ),
        (
            _security_of(
                _security(**_STRICT), volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}]
            ),
            "restricted",
            "restricted volume types",
        ),
        (_security_of(_security(privileged=True)), "baseline", 'privileged (container "c" must'),
        (_security_of(_security(capabilities={"add": ["CHOWN"]})), "baseline", ""),
        (
            _security_of(_security(capabilities={"add": ["SYS_ADMIN"]})),
            "baseline",
            "non-default capabilities",
        ),
        (_security_of({"ports": [{"containerPort": 1, "hostPort": 1}]}), "baseline", "hostPort"),
        (_security_of({}, hostNetwork=True, hostPID=True), "baseline", "host namespaces"),
        (
            _security_of({}, volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
            "baseline",
            "hostPath volumes",
        ),
        (
            _security_of({}, **_security(seccompProfile={"type": "Unconfined"})),
            "baseline",
            "seccompProfile (pod must not",
        ),
        (
            _security_of({}, **_security(sysctls=[{"name": "kernel.x", "value": "1"}])),
            "baseline",
            "forbidden sysctls",
        ),
        (
            _security_of(_security(seLinuxOptions={"user": "u"})),
            "baseline",
            "seLinuxOptions",
        ),
    ],
)
def test_a_namespace_enforces_the_security_of_its_pods(
    api: Any, spec: dict[str, Any], level: str, reason: str
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level}
    api.create("/api/v1/namespaces", {"metadata": {"name": "safe", "labels": labels}})
    pod = {"metadata": {"name": "a"}, "spec": spec}
    assert api.create(PODS, pod).status == 201
    made = api.create("/api/v1/namespaces/safe/pods", pod)
    assert made.status == (403 if reason else 201), made.body
    assert reason in made.body.get("message", "")
    if reason:
        assert f'violates PodSecurity "{level}:latest": ' in made["message"]


def test_a_pod_gets_what_its_runtime_class_asks(api: Any) -> None:
    asked = {
        "handler": "h",
        "overhead": {"podFixed": {"cpu": "1"}},
        "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]},
    }
    api.create("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "x"}, **asked})

    def make(name: str, **spec: Any) -> Any:
        return api.create(PODS, {"metadata": {"name": name}, "spec": _security_of({}, **spec)})

    made = make("a", runtimeClassName="x", nodeSelector={"c": "d"})
    assert made["spec"]["overhead"] == {"cpu": "1"}
    assert made["spec"]["nodeSelector"] == {"a": "b", "c": "d"}
    assert {"operator": "Exists"} in made["spec"]["tolerations"]
    for spec, why in (
        ({"runtimeClassName": "none"}, 'pod rejected: RuntimeClass "none" not found'),
        ({"runtimeClassName": "x", "overhead": {"cpu": "2"}}, "doesn't match"),
        ({"runtimeClassName": "x", "nodeSelector": {"a": "c"}}, "conflict: "),
    ):
        refused = make("b", **spec)
        assert refused.status == 403
        assert why in refused["message"]


def test_one_priority_class_is_the_default(api: Any) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"

    def make(name: str, default: bool) -> Any:
        body = {"metadata": {"name": name}, "value": 5, "globalDefault": default}
        return api.create(path, body)

    assert [make("a", True).status, make("b", True).status, make("c", False).status] == (
        [201, 403, 201]
    )
    assert api.patch(f"{path}/c", {"globalDefault": True}).status == 403
    assert api.patch(f"{path}/a", {"description": "x"}).status == 200


@pytest.mark.parametrize("controller", ["", "x", "/", "x/", "/x", "A_b/x"])
def test_the_controller_of_an_ingress_class_has_a_domain(api: Any, controller: str) -> None:
    path = "/apis/networking.k8s.io/v1/ingressclasses"
    made = api.create(path, {"metadata": {"name": "a"}, "spec": {"controller": controller}})
    assert (made.status, made["details"]["causes"][0]["field"]) == (422, "spec.controller")


_SOURCE = {"persistentVolumeName": "p"}


@pytest.mark.parametrize(
    ("plural", "spec", "field"),
    [
        ("csidrivers", {"volumeLifecycleModes": ["Ephemeral"], "fsGroupPolicy": "File"}, ""),
        ("csidrivers", {"volumeLifecycleModes": ["x"]}, "spec.volumeLifecycleModes"),
        ("csidrivers", {"fsGroupPolicy": "x"}, "spec.fsGroupPolicy"),
        ("volumeattachments", {"attacher": "a.io", "nodeName": "n", "source": _SOURCE}, ""),
        ("volumeattachments", {"attacher": "A_b", "nodeName": "n", "source": _SOURCE}, "attacher"),
        ("volumeattachments", {"attacher": "a.io", "source": _SOURCE}, "spec.nodeName"),
        ("volumeattachments", {"attacher": "a.io", "nodeName": "n", "source": {}}, "spec.source"),
    ],
)
def test_drivers_and_attachments_of_volumes_are_validated(
    api: Any, plural: str, spec: dict[str, Any], field: str
) -> None:
    path = f"/apis/storage.k8s.io/v1/{plural}"
    made = api.create(path, {"metadata": {"name": "a"}, "spec": spec})
    assert made.status == (422 if field else 201), made.body
    assert not field or made["details"]["causes"][0]["field"].endswith(field)


def test_a_pod_with_scheduling_gates_is_not_bound(api: Any) -> None:
    pods = "/api/v1/namespaces/default/pods"
    gates, containers = [{"name": "a"}, {"name": "b"}], [{"name": "c", "image": "i"}]
    spec = {"schedulingGates": gates, "containers": containers}
    assert api.create(pods, {"metadata": {"name": "p"}, "spec": spec}).status == 201
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    refused = api.create(f"{pods}/p/binding", binding)
    assert refused.status == 409
    assert refused["message"] == (
        'Operation cannot be fulfilled on pods/binding "p": pod p has non-empty '
        ".spec.schedulingGates"
    )
    assert api.patch(f"{pods}/p", {"spec": {"schedulingGates": None}}).status == 200
    assert api.create(f"{pods}/p/binding", binding).status == 201


def test_a_budget_with_too_many_unconfirmed_evictions_allows_none(api: Any) -> None:
    pods = "/api/v1/namespaces/default/pods"
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"containers": [{"name": "c", "image": "i"}]}
    api.create(pods, {"metadata": {"name": "p", "labels": {"app": "a"}}, "spec": spec})
    api.patch(f"{pods}/p/status", {"status": {"phase": "Running"}})
    selector = {"matchLabels": {"app": "a"}}
    budget = {"metadata": {"name": "b"}, "spec": {"selector": selector, "minAvailable": 1}}
    api.create(budgets, budget)
    disrupted = {f"gone-{number}": "2026-01-01T00:00:00Z" for number in range(2001)}
    status = {"observedGeneration": 1, "disruptionsAllowed": 1, "disruptedPods": disrupted}
    assert api.patch(f"{budgets}/b/status", {"status": status}).status == 200
    refused = api.create(f"{pods}/p/eviction", {"metadata": {"name": "p"}})
    assert refused.status == 403
    assert refused["message"].startswith('poddisruptionbudget.policy "b" is forbidden: Disrupted')
    assert api.get(f"{pods}/p").status == 200
