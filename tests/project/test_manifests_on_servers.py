"""Manifests as tools and API servers read them: kubectl, Helm, both servers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from appsdk_operator import Client, Forbidden, MutableObject, kinds
from appsdk_operator.apiserver import APIServer
from appsdk_operator.app import App
from appsdk_operator.client import ClientConfig
from appsdk_operator.project import ManifestOptions, helm_chart, manifests
from appsdk_operator.resource import Kind, custom_resource_definition
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import install_crds
from tests.apiserver.kubectl_tools import run_kubectl
from tests.project.operators import full, small

HELM = Path(__file__).parents[2] / "hack" / "helm"
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
NAMESPACE = kinds.core.v1.Namespace
POD = kinds.core.v1.Pod
THEIRS = [
    Kind(group="cert-manager.io", version="v1", kind="Issuer"),
    Kind(group="cert-manager.io", version="v1", kind="Certificate"),
    Kind(group="monitoring.coreos.com", version="v1", kind="ServiceMonitor"),
    Kind(group="monitoring.coreos.com", version="v1", kind="PrometheusRule"),
]
Objects = dict[tuple[str, str, str], dict[str, Any]]


def write(folder: Path, texts: Mapping[str, str]) -> Path:
    """Write files, and return their folder."""
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def by_name(text: str) -> Objects:
    """The objects of a stream by kind, namespace and name."""
    found = [each for each in yaml.safe_load_all(text) if each]
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in found
    }


def kustomized(folder: Path) -> str:
    """What kubectl makes of a folder."""
    return subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True
    ).stdout


# -- Helm --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def helm() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs helm."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parts = [(HELM / name).read_bytes() for name in ("go.mod", "go.sum", "build.sh")]
    total = subprocess.run(["cksum"], input=b"".join(parts), capture_output=True, check=True)
    checksum = total.stdout.split()[0].decode()
    found = [*(cache / "appsdk-operator" / "helm").glob(f"*-{checksum}/helm")]
    if not found:
        pytest.skip("helm is not built: make helm")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(found[0]), *arguments], capture_output=True, text=True, check=False, timeout=100
        )

    return run


OPTIONS = [
    ManifestOptions(namespace="buckets", image="team/buckets:1.2", certificates="cert-manager"),
    ManifestOptions(namespace="buckets", certificates="managed", priority_class="high"),
    ManifestOptions(namespace="buckets", certificates="secret", extra_memory=500),
]


@needs_kubectl
@pytest.mark.programs
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options.certificates)
def test_a_chart_makes_the_objects_of_kustomize(
    helm: Callable[..., subprocess.CompletedProcess[str]], options: ManifestOptions, tmp_path: Path
) -> None:
    write(tmp_path, manifests(full(), options))
    write(tmp_path, helm_chart(full(), options))
    chart = str(tmp_path / "chart")
    linted = helm("lint", "--strict", chart)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    rendered = helm(
        "template",
        "any-release",
        chart,
        "--namespace=buckets",
        "--set=monitoring.create=true,crds.keep=false",
    )
    assert rendered.returncode == 0, rendered.stderr
    # A release may be in a namespace that the App names, and has a Role there as well.
    theirs = by_name(rendered.stdout.replace("bucket-operator-own", "bucket-operator"))
    ours = by_name(kustomized(tmp_path / "overlays" / "production"))
    namespace = ours.pop(("Namespace", "", "buckets"))
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert theirs.keys() == ours.keys()
    for key, each in ours.items():
        assert theirs[key] == each


@pytest.mark.programs
def test_a_chart_can_be_changed_by_its_values_and_refuses_wrong_ones(
    helm: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    options = ManifestOptions(certificates="managed")
    chart = str(write(tmp_path, helm_chart(full(), options)) / "chart")
    values = {
        "image": {"repository": "mirror/buckets", "tag": "2", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "mirror"}],
        "replicas": 5,
        "resources": {"limits": {"memory": "1Gi"}},
        "priorityClassName": "high",
        "extraArguments": ["--log-level=debug", "-n=red"],
        "environment": [{"name": "A", "value": "b"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"a": "b"},
        "serviceAccount": {"annotations": {"c": "d"}},
        "crds": {"keep": True},
        "networkPolicy": {"create": False},
        "userRoles": {"create": False},
        "podDisruptionBudget": {"create": False},
    }
    path = tmp_path / "values.json"
    path.write_text(json.dumps(values))
    rendered = helm("template", "r", chart, "--namespace=other", "--values", str(path))
    assert rendered.returncode == 0, rendered.stderr
    found = by_name(rendered.stdout)
    spec = found["Deployment", "other", "bucket-operator"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["replicas"] == 5
    assert spec["template"]["metadata"]["annotations"] == {"a": "b"}
    assert (container["image"], container["imagePullPolicy"]) == ("mirror/buckets:2", "Always")
    assert container["args"][-2:] == ["--log-level=debug", "-n=red"]
    told = {"name": "APPSDK_WEBHOOK_SERVICE", "value": "bucket-operator-webhooks"}
    assert container["env"] == [told, {"name": "A", "value": "b"}]
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    assert pod["priorityClassName"] == "high"
    for name in ("imagePullSecrets", "nodeSelector", "tolerations", "affinity"):
        assert pod[name] == values[name]
    account = found["ServiceAccount", "other", "bucket-operator"]
    assert account["metadata"]["annotations"] == {"c": "d"}
    for name in ("buckets.example.com", "regions.example.com"):
        crd = found["CustomResourceDefinition", "", name]
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    write(tmp_path / "theirs", helm_chart(full(), ManifestOptions()))
    rendered = helm("template", "r", str(tmp_path / "theirs" / "chart"), "--namespace=other")
    certificate = by_name(rendered.stdout)["Certificate", "other", "bucket-operator-webhooks"]
    assert "bucket-operator-webhooks.other.svc" in certificate["spec"]["dnsNames"]
    kinds_of = {kind for kind, *_ in found}
    assert not kinds_of & {"NetworkPolicy", "PodDisruptionBudget", "ServiceMonitor"}
    assert ("ClusterRole", "", "bucket-operator-view") not in found
    for wrong in ("replicas=many", "log.level=loud", "image.name=x", "replica=3"):
        refused = helm("template", "r", chart, "--set", wrong)
        assert refused.returncode != 0
        assert "values don't meet the specifications of the schema" in refused.stderr


@pytest.mark.programs
def test_a_chart_of_an_operator_without_election_allows_one_replica(
    helm: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    chart = str(write(tmp_path, helm_chart(small(), ManifestOptions())) / "chart")
    assert helm("template", "r", chart).returncode == 0
    assert "maximum" in helm("template", "r", chart, "--set", "replicas=2").stderr


# -- servers -----------------------------------------------------------------------------------


class Lane:
    """A server with the kinds of cert-manager and of Prometheus' operator."""

    def __init__(self, client: Client, kubeconfig: Path, *, is_real: bool) -> None:
        self.client = client
        self.kubeconfig = kubeconfig
        self.version = client.discovery.server_version().minor
        self.enforces_levels = is_real and self.version >= 25

    def fits(self, each: Mapping[str, Any]) -> bool:
        """Whether the server is new enough for an object."""
        return self.version >= 21 or each["kind"] != "PodDisruptionBudget"


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def lane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lane]:
    path = tmp_path_factory.mktemp("kubectl") / "kubeconfig"
    is_real = request.param == "real"
    shared = request.getfixturevalue("shared_plane").lent() if is_real else None
    with shared or APIServer(tls=True, token="let-me-in") as server:
        server.write_kubeconfig(path)
        config = ClientConfig.load(path)
        with Client(config, metrics=Metrics()) as client:
            install_crds(client, [custom_resource_definition(kind) for kind in THEIRS])
            yield Lane(client, path, is_real=is_real)


def applied(lane: Lane, objects: Objects) -> None:
    """Apply objects in the order in which kubectl does."""
    for each in sorted(objects.values(), key=lambda each: _ORDER.get(each["kind"], 2)):
        if lane.fits(each):
            draft = MutableObject(kind_of(each), each)
            lane.client.apply(draft, field_manager="test", force=True)


_ORDER = {"Namespace": 0, "CustomResourceDefinition": 1, "ServiceAccount": 1}


def kind_of(each: Mapping[str, Any]) -> Kind[Any, Any]:
    """The kind of an object."""
    for known in kinds.builtin_kinds():
        if (known.kind.api_version, known.kind.kind) == (each["apiVersion"], each["kind"]):
            return known.kind
    return next(kind for kind in THEIRS if kind.kind == each["kind"])


@needs_kubectl
@pytest.mark.programs
@pytest.mark.parametrize("make", [full, small], ids=["full", "small"])
def test_servers_take_what_kubectl_applies(
    lane: Lane, make: Callable[[], App], tmp_path: Path
) -> None:
    write(tmp_path, manifests(make(), ManifestOptions(replicas=2)))
    for overlay in ("development", "production"):
        text = kustomized(tmp_path / "overlays" / overlay)
        found = by_name(text)
        namespaces = {key[1] for key in found if key[1]}
        for name in namespaces:
            draft = MutableObject.new(NAMESPACE, name)
            lane.client.apply(draft, field_manager="namespaces", force=True)
        sent = [each for each in found.values() if lane.fits(each)]
        path = tmp_path / f"{overlay}.yaml"
        path.write_text(yaml.safe_dump_all(sent))
        done = run_kubectl(lane.kubeconfig, "apply", "--dry-run=server", "-f", str(path))
        assert len(done.stdout.splitlines()) == len(sent)
        # With its own check of fields, which is that of the server where it has one.
        strict = ("--dry-run=server", "--server-side", "--validate=strict")
        done = run_kubectl(lane.kubeconfig, "apply", *strict, "-f", str(path))
        assert len(done.stdout.splitlines()) == len(sent)


@needs_kubectl
def test_the_pods_are_restricted(lane: Lane, tmp_path: Path) -> None:
    app, options = full(), ManifestOptions(namespace="restricted-buckets")
    write(tmp_path, manifests(app, options))
    found = by_name(kustomized(tmp_path / "base"))
    wanted = {"Namespace", "ServiceAccount"}
    applied(lane, {key: each for key, each in found.items() if key[0] in wanted})
    template = found["Deployment", options.namespace, app.name]["spec"]["template"]
    draft = MutableObject.new(POD, "sample", namespace=options.namespace, spec=template["spec"])
    made = lane.client.create(draft)
    assert made["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    if lane.enforces_levels:
        # The level is in force, or the pod above would prove nothing.
        spec = {**template["spec"], "hostNetwork": True}
        draft = MutableObject.new(POD, "free", namespace=options.namespace, spec=spec)
        with pytest.raises(Forbidden, match="restricted"):
            lane.client.create(draft)
    lane.client.delete(POD, "sample", namespace=options.namespace)


def test_what_was_applied_is_what_was_written(lane: Lane) -> None:
    app, options = full(), ManifestOptions(namespace="stored-buckets")
    texts = manifests(app, options)
    objects: Objects = {}
    for path, text in texts.items():
        if path.startswith(("base/", "components/")) and "kustomization" not in path:
            objects |= by_name(text)
    for name in ("backups",):
        lane.client.apply(MutableObject.new(NAMESPACE, name), field_manager="namespaces")
    applied(lane, objects)
    for each in objects.values():
        if lane.fits(each):
            metadata = each["metadata"]
            stored = lane.client.get(
                kind_of(each), metadata["name"], namespace=metadata.get("namespace", "")
            )
            assert missing(each, stored.to_dict()) == []
    for name in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        kind = next(k.kind for k in kinds.builtin_kinds() if k.kind.kind == name)
        lane.client.delete(kind, app.name)


def missing(wanted: Any, found: Any, path: str = "") -> list[str]:
    """The fields that a server has dropped or changed."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            problem
            for key, value in wanted.items()
            for problem in missing(value, found.get(key), f"{path}.{key}")
        ]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [
            problem
            for index, value in enumerate(wanted)
            for problem in missing(value, found[index], f"{path}[{index}]")
        ]
    return [] if wanted == found or (not wanted and not found) else [f"{path}: {wanted} {found}"]
