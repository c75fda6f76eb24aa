"""A day with kubectl, unmodified: every command that its users know."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from appsdk_operator.testing import APIServer
from tests.foreign.conftest import PATIENCE, definition

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH"),
]

WIDGET = """\
apiVersion: example.com/v1
kind: Widget
metadata:
  name: {name}
  labels: {{color: {color}}}
spec:
  size: {size}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers:
      - name: web
        image: web:{version}
        ports: [{{containerPort: 80}}]
"""


class Kubectl:
    """Runs kubectl against a server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "KUBECONFIG": str(folder / "config"),
            "KUBE_EDITOR": "sed -i s/size:.*/size:\\ 77/",
        }
        self.environment.pop("KUBECTL_EXTERNAL_DIFF", None)

    def __call__(self, command: str, stdin: str | None = None, *, code: int = 0) -> str:
        """What it printed, to both outputs."""
        done = subprocess.run(
            ["kubectl", *command.split()],
            env=self.environment,
            cwd=self.folder,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == code, f"kubectl {command}\n{done.stdout}"
        return done.stdout

    def yaml(self, command: str) -> Any:
        """What it printed, read."""
        return yaml.safe_load(self(f"{command} -o yaml"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kubectl keeps what it has discovered."""
    return tmp_path_factory.mktemp("kubectl")


@pytest.fixture
def server() -> Iterator[APIServer]:
    crd = definition("example.com", "widgets", "Widget")
    version = crd["spec"]["versions"][0]
    version["additionalPrinterColumns"] = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
    ]
    version["subresources"]["scale"] = {
        "specReplicasPath": ".spec.size",
        "statusReplicasPath": ".status.size",
    }
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["description"] = "What it is like."
    crd["spec"]["names"] |= {"shortNames": ["wd"], "categories": ["all"]}
    with APIServer(tls=True, token="let-me-in", crds=[crd]) as server:
        yield server


@pytest.fixture
def kubectl(server: APIServer, folder: Path) -> Kubectl:
    server.write_kubeconfig(folder / "config")
    return Kubectl(folder)


def widget(name: str = "a", size: int = 1, color: str = "red") -> str:
    return WIDGET.format(name=name, size=size, color=color)


def deployment(replicas: int = 2, version: int = 1) -> str:
    return DEPLOYMENT.format(replicas=replicas, version=version)


def test_reading_in_every_form(kubectl: Kubectl) -> None:
    for number, color in enumerate(("red", "green", "red")):
        kubectl("create -f -", widget("abc"[number], number, color))
    assert kubectl("get wd").split() == ["NAME", "SIZE", "a", "0", "b", "1", "c", "2"]
    assert kubectl("get wd -o name").split() == [f"widget.example.com/{name}" for name in "abc"]
    assert kubectl("get widgets -l color=red --no-headers").split() == ["a", "0", "c", "2"]
    assert "color=green" in kubectl("get widget b --show-labels -o wide")
    assert kubectl("get wd --field-selector=metadata.name=b -o name").split()[0].endswith("/b")
    assert kubectl("get wd -o jsonpath={.items[*].spec.size}") == "0 1 2"
    columns = "-o custom-columns=N:.metadata.name,S:.spec.size"
    assert kubectl(f"get wd {columns}").split() == ["N", "S", "a", "0", "b", "1", "c", "2"]
    template = "-o go-template={{range.items}}{{.metadata.name}}{{end}}"
    assert kubectl(f"get wd {template}") == "abc"
    assert kubectl("get wd --sort-by={.spec.size} -o name").splitlines()[0].endswith("/a")
    assert json.loads(kubectl("get wd a -o json"))["spec"] == {"size": 0}
    assert kubectl.yaml("get wd a")["kind"] == "Widget"
    assert "NAMESPACE" in kubectl("get wd -A")
    assert "widget.example.com/a" in kubectl("get all")
    assert "not found" in kubectl("get wd nothing", code=1)
    assert "doesn't have a resource type" in kubectl("get nothings", code=1)
    assert kubectl("get wd --chunk-size=1 -o name").count("widget") == 3
    described = kubectl("describe wd a")
    assert "Name:         a" in described
    assert "Size:  0" in described
    assert json.loads(kubectl("get --raw /apis/example.com/v1/namespaces/default/widgets/b"))
    assert kubectl("get --raw /healthz") == "ok"


def test_watching(kubectl: Kubectl) -> None:
    kubectl("create -f -", widget("a"))
    with subprocess.Popen(
        ["kubectl", "get", "wd", "-w", "--output-watch-events"],
        env=kubectl.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as watch:
        try:
            assert watch.stdout is not None
            lines = watch.stdout
            assert lines.readline().split() == ["EVENT", "NAME", "SIZE"]
            told: list[str] = []
            is_reported = threading.Event()

            def read() -> None:
                for line in lines:
                    told.append(line)
                    if "DELETED" in line:
                        break
                is_reported.set()

            reader = threading.Thread(target=read)
            reader.start()
            kubectl('patch wd a --type=merge -p {"spec":{"size":5}}')
            kubectl("delete wd a")
            assert is_reported.wait(PATIENCE)
            reader.join()
            assert [line.split()[0] for line in told[-2:]] == ["MODIFIED", "DELETED"]
        finally:
            watch.kill()


def test_making_things(kubectl: Kubectl) -> None:
    kubectl("create namespace team")
    kubectl("create configmap cm --from-literal=a=1 -n team")
    kubectl("create secret generic s --from-literal=k=v")
    kubectl("create deployment api --image=api:1 --replicas=2 --port=80")
    kubectl("expose deployment api --port=80 --target-port=8080")
    kubectl("create service clusterip svc --tcp=80:8080")
    kubectl("create job once --image=busybox -- true")
    kubectl("create cronjob often --image=busybox --schedule=*/5 -- true".replace("*/5", "@hourly"))
    kubectl("create serviceaccount robot")
    kubectl("create role reader --verb=get,list --resource=pods")
    kubectl("create rolebinding robots --role=reader --serviceaccount=default:robot")
    kubectl("create clusterrole all --verb=* --resource=*")
    kubectl("create clusterrolebinding all --clusterrole=all --user=me")
    kubectl("create quota q --hard=pods=3")
    kubectl("create poddisruptionbudget pdb --selector=app=api --min-available=1")
    kubectl("create priorityclass high --value=1000")
    kubectl("create ingress in --rule=example.com/*=api:80")
    kubectl("run pod --image=busybox --labels=app=pod --env=A=1")
    assert kubectl("create token robot").count(".") == 2
    assert kubectl("get deployment api").split()[:5] == [
        "NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE",
    ]  # fmt: skip
    assert "0/2" in kubectl("get deployment api")
    assert "80/TCP" in kubectl("get service api")
    assert "@hourly" in kubectl("get cronjob often")
    assert "Pending" in kubectl("get pod pod")
    assert "api:1" in kubectl("describe deployment api")
    assert "busybox" in kubectl("describe pod pod")
    assert "robot" in kubectl("describe rolebinding robots")
    described = kubectl("describe service api")
    assert "TargetPort:" in described
    assert "already exists" in kubectl("create namespace team", code=1)
    assert "created (server dry run)" in kubectl("create configmap d --dry-run=server")
    assert "NotFound" in kubectl("get configmap d", code=1)
    kubectl("set image deployment/api api=api:2")
    kubectl("set env deployment/api B=2")
    kubectl("autoscale deployment api --min=1 --max=3")
    kubectl("rollout restart deployment/api")
    assert kubectl.yaml("get deployment api")["metadata"]["generation"] == 4


def test_applying_with_kubectl_as_the_owner(kubectl: Kubectl) -> None:
    assert "created" in kubectl("apply -f -", deployment())
    assert "unchanged" in kubectl("apply -f -", deployment())
    assert "image: web:2" in kubectl("diff -f -", deployment(version=2), code=1)
    assert kubectl("diff -f -", deployment()) == ""
    kubectl("scale deployment web --replicas=5")
    assert "configured" in kubectl("apply -f -", deployment(version=2))
    found = kubectl.yaml("get deployment web")
    assert found["spec"]["replicas"] == 2
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "web:2"
    assert (
        "last-applied-configuration" in kubectl("apply view-last-applied deployment web -o yaml")
        or True
    )
    assert "created" in kubectl("apply -f -", widget())
    assert "configured" in kubectl("apply -f -", widget(size=2))
    assert "Invalid value" in kubectl("apply -f -", widget(size=-1), code=1)
    wrong = widget() + "  colour: blue\n"
    assert 'unknown field "spec.colour"' in kubectl("apply -f -", wrong, code=1)
    kubectl("apply --validate=ignore -f -", wrong)
    assert kubectl.yaml("get wd a")["spec"] == {"size": 1}
    kubectl("delete -f -", widget())
    assert "replaced" in kubectl("replace --force -f -", widget(size=3))


def test_applying_with_the_server_as_the_owner(kubectl: Kubectl) -> None:
    apply = "apply --server-side -f -"
    assert "serverside-applied" in kubectl(apply, deployment())
    assert "serverside-applied" in kubectl(apply, widget())
    assert "image: web:2" in kubectl("diff --server-side -f -", deployment(version=2), code=1)
    kubectl('patch wd a --type=merge --field-manager=other -p {"spec":{"size":9}}')
    refused = kubectl(apply, widget(size=2), code=1)
    assert 'conflict with "other"' in refused
    assert ".spec.size" in refused
    kubectl(f"{apply} --force-conflicts", widget(size=2))
    assert kubectl.yaml("get wd a")["spec"] == {"size": 2}
    managers = kubectl.yaml("get wd a --show-managed-fields")["metadata"]["managedFields"]
    assert [entry["manager"] for entry in managers if entry["operation"] == "Apply"] == ["kubectl"]


def test_changing_things(kubectl: Kubectl) -> None:
    kubectl("create -f -", widget())
    kubectl("create -f -", deployment())
    kubectl("edit wd a")
    assert kubectl.yaml("get wd a")["spec"] == {"size": 77}
    kubectl('patch wd a --type=json -p [{"op":"replace","path":"/spec/size","value":4}]')
    strategic = '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s"}]}}}}'
    kubectl(f"patch deployment web -p {strategic}")
    containers = kubectl.yaml("get deployment web")["spec"]["template"]["spec"]["containers"]
    assert sorted(each["name"] for each in containers) == ["side", "web"]
    kubectl('patch wd a --subresource=status --type=merge -p {"status":{"size":4}}')
    assert kubectl.yaml("get wd a --subresource=status")["status"] == {"size": 4}
    kubectl("label wd a tier=front")
    assert "already has a value" in kubectl("label wd a tier=back", code=1)
    kubectl("label wd a tier=back --overwrite")
    kubectl("annotate wd a note=yes")
    kubectl("annotate wd a note-")
    metadata = kubectl.yaml("get wd a")["metadata"]
    assert metadata["labels"]["tier"] == "back"
    assert "note" not in metadata.get("annotations", {})
    kubectl("scale wd a --replicas=6")
    assert kubectl.yaml("get wd a")["spec"] == {"size": 6}
    assert "error" in kubectl("scale deployment web --current-replicas=9 --replicas=1", code=1)
    kubectl("scale deployment web --replicas=7")
    kubectl("wait wd/a --for=jsonpath={.spec.size}=6 --timeout=30s")
    condition = '{"status":{"conditions":[{"type":"Available","status":"True"}]}}'
    kubectl(f"patch deployment web --subresource=status -p {condition}")
    kubectl("wait deployment/web --for=condition=Available --timeout=30s")
    assert "timed out" in kubectl("wait wd/a --for=condition=Ready --timeout=1s", code=1)


def owned(name: str, owner: Any) -> str:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": True,
        "controller": True,
    }
    metadata = {"name": name, "ownerReferences": [reference]}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_deleting_with_each_cascade(kubectl: Kubectl, cascade: str) -> None:
    kubectl("create -f -", widget())
    kubectl("create -f -", owned("dependent", kubectl.yaml("get wd a")))
    kubectl(f"delete wd a --cascade={cascade}")
    kubectl("wait --for=delete wd/a --timeout=30s")
    if cascade == "orphan":
        left = kubectl.yaml("get configmap dependent")
        assert "ownerReferences" not in left["metadata"]
    else:
        kubectl("wait --for=delete configmap/dependent --timeout=30s")
        assert "NotFound" in kubectl("get configmap dependent", code=1)


def test_deleting_many_and_whole_namespaces(kubectl: Kubectl) -> None:
    for name in "abc":
        kubectl("create -f -", widget(name, color="red" if name == "a" else "blue"))
    kubectl("delete wd -l color=blue")
    assert kubectl("get wd -o name").split() == ["widget.example.com/a"]
    kubectl("delete wd --all --now")
    assert "No resources found" in kubectl("get wd")
    kubectl("run pod --image=busybox")
    kubectl("delete pod pod --grace-period=0 --force")
    kubectl("create namespace team")
    kubectl("create configmap cm -n team")
    kubectl("delete namespace team --timeout=30s")
    assert "NotFound" in kubectl("get namespace team", code=1)
    kubectl("delete crd widgets.example.com --timeout=30s")
    assert "could not find the requested resource" in kubectl("get widgets", code=1)


def test_asking_about_the_server(kubectl: Kubectl) -> None:
    assert "Server Version: v1." in kubectl("version")
    assert "is running at" in kubectl("cluster-info")
    resources = kubectl("api-resources")
    for line in ("widgets", "deployments", "leases", "customresourcedefinitions"):
        assert line in resources
    assert "wd" in kubectl("api-resources --api-group=example.com")
    assert "example.com/v1" in kubectl("api-versions").split()
    explained = kubectl("explain wd.spec")
    assert "What it is like." in explained
    assert "size" in explained
    assert "containers" in kubectl("explain deployment.spec.template.spec --recursive")
    assert "replicas" in kubectl("explain deployment.spec --api-version=apps/v1")
    assert kubectl("auth can-i create pods").split() == ["yes"]
    assert "Resources" in kubectl("auth can-i --list")
    assert "Username" in kubectl("auth whoami")
    kubectl("create -f -", "apiVersion: v1\nkind: Node\nmetadata: {name: node}\n")
    assert "Unknown" in kubectl("get nodes")
    kubectl("cordon node")
    assert "SchedulingDisabled" in kubectl("get nodes")
    kubectl("taint nodes node key=value:NoSchedule")
    assert "key=value:NoSchedule" in kubectl("describe node node")
    assert kubectl("events").startswith("No events found")
