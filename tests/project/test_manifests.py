"""Manifests as texts: what they say about an App, without a server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator import kinds
from appsdk_operator.app import App, Permission
from appsdk_operator.cli._commands import run as run_command
from appsdk_operator.manager import HealthServerOptions, MetricsServerOptions, TLSOptions
from appsdk_operator.project import Grants, ManifestOptions, helm_chart, manifests
from appsdk_operator.project._manifests.tree import Commented, document
from appsdk_operator.project._manifests.values import memory_limit
from appsdk_operator.resource import load_yaml
from appsdk_operator.webhooks import ManagedCertificates, WebhookServer, WebhookServerOptions
from tests.hypothesis_profiles import scaled
from tests.project.operators import BUCKET, elected_elsewhere, full, nothing, small

DOCS = Path(__file__).parents[2] / "docs"
Objects = dict[tuple[str, str, str], dict[str, Any]]


def objects(texts: Mapping[str, str], folder: str = "base/") -> Objects:
    """The objects of a folder by kind, namespace and name."""
    found: Objects = {}
    for path, text in texts.items():
        if path.startswith(folder) and not path.endswith("kustomization.yaml"):
            for each in yaml.safe_load_all(text):
                meta = each["metadata"]
                key = each["kind"], meta.get("namespace", ""), meta["name"]
                assert key not in found
                found[key] = each
    return found


def deployment(app: App, **options: Any) -> dict[str, Any]:
    """The Deployment of an App."""
    texts = manifests(app, ManifestOptions(**options))
    found: dict[str, Any] = yaml.safe_load(texts["base/deployment.yaml"])
    return found


def container(app: App, **options: Any) -> dict[str, Any]:
    """The container of an App's pods."""
    (found,) = deployment(app, **options)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def role(app: App, key: tuple[str, str, str], **options: Any) -> list[dict[str, Any]]:
    """The rules of a role."""
    found = objects(manifests(app, ManifestOptions(**options)))[key]
    return list(found["rules"])


def test_equal_apps_have_equal_texts() -> None:
    program = (
        "from tests.project.operators import full\n"
        "from appsdk_operator.project import helm_chart, manifests\n"
        "print(manifests(full()), helm_chart(full()))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=DOCS.parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1
    assert seen.pop().strip() == f"{manifests(full())} {helm_chart(full())}"


def test_the_memory_limit_is_that_of_the_performance_page() -> None:
    text = (DOCS / "performance.md").read_text()
    row = r"^\| (\d+) (Mi|Gi) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|"
    rows = re.findall(row, text, re.MULTILINE)
    assert len(rows) == 5
    for number, unit, *counts in rows:
        limit = int(number) * (1024 if unit == "Gi" else 1)
        for count, size in zip(counts, (500, 2_000, 10_000), strict=True):
            assert 0.95 * limit - 32 <= memory_limit(int(count.replace(",", "")), size)
            assert memory_limit(int(count.replace(",", "")), size) <= 1.08 * limit + 32


@given(st.integers(0, 10**7), st.integers(0, 10**5), st.integers(1, 10**6))
def test_more_objects_never_need_less_memory(objects: int, size: int, more: int) -> None:
    assert memory_limit(objects, size) <= memory_limit(objects + more, size)


def test_the_arguments_are_those_of_the_run_command() -> None:
    arguments = container(full(), target="buckets.app:app")["args"]
    assert arguments[:2] == ["run", "buckets.app:app"]
    context = run_command.command.make_context("run", arguments[1:])
    assert context.params["metrics_address"] == ":8080"
    assert context.params["probe_address"] == ":8081"
    assert context.params["webhook_address"] == ":9443"
    assert context.params["leader_election"] is True
    for changed in (["--log-level=debug"], ["--log-format=text"]):
        assert isinstance(run_command.command.make_context("run", ["x", *changed]), click.Context)


def test_a_development_overlay_changes_the_arguments_that_it_means() -> None:
    overlay = yaml.safe_load(manifests(small())["overlays/development/kustomization.yaml"])
    arguments = container(small())["args"]
    for operation in yaml.safe_load(overlay["patches"][0]["patch"])[1:]:
        index = int(operation["path"].rpartition("/")[2])
        assert arguments[index].partition("=")[0] == operation["value"].partition("=")[0]


def test_probes_ask_the_paths_of_the_app() -> None:
    health = HealthServerOptions(readiness_path="/ready", liveness_path="/live", check_timeout=2.5)
    found = container(App("probed", health_server=health))
    assert found["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "probes"}
    assert found["livenessProbe"]["httpGet"] == {"path": "/live", "port": "probes"}
    assert found["livenessProbe"]["timeoutSeconds"] == 3


@pytest.mark.parametrize(
    ("timeout", "grace"),
    [(30.0, 40), (12.5, 23), (0, 10), (None, 300), (-1, 300), (float("inf"), 300)],
)
def test_a_pod_may_take_as_long_to_end_as_the_app(timeout: float | None, grace: int) -> None:
    found = deployment(App("slow", graceful_shutdown_timeout=timeout))
    assert found["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == grace


def test_without_election_there_is_one_pod_at_a_time() -> None:
    spec = deployment(small())["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert "--leader-election" not in container(small())["args"]
    assert "base/disruption_budget.yaml" not in manifests(small())


def test_several_replicas_elect_a_leader_and_may_write_its_lease() -> None:
    spec = deployment(small(), replicas=3)["spec"]
    assert spec["replicas"] == 3
    assert spec["strategy"]["type"] == "RollingUpdate"
    assert "--leader-election" in container(small(), replicas=3)["args"]
    rules = role(small(), ("Role", "small-operator", "small-operator"), replicas=3)
    assert ["leases"] in [rule["resources"] for rule in rules]
    assert "base/disruption_budget.yaml" in manifests(small(), ManifestOptions(replicas=3))


def test_replicas_without_election_are_what_the_user_asked_for() -> None:
    arguments = container(full(), replicas=3, leader_election=False)["args"]
    assert "--leader-election" not in arguments
    assert "--no-leader-election" in arguments


def test_the_lease_may_be_written_where_it_is() -> None:
    rules = role(elected_elsewhere(), ("Role", "leases", "lease-operator"))
    assert {rule["resources"][0] for rule in rules} == {"leases"}
    own = role(full(), ("Role", "bucket-operator", "bucket-operator"))
    assert {rule["resources"][0] for rule in own} == {"leases"}


def test_each_permission_is_in_one_role_with_its_reasons() -> None:
    app = full()
    texts = manifests(app)
    found = objects(texts)
    rules = found["ClusterRole", "", "bucket-operator"]["rules"]
    for permission in app.permissions():
        if permission.namespace is None:
            assert permission.rule in rules
        for reason in permission.reasons:
            assert f"# {reason}\n" in texts["base/role.yaml"]
    assert found["Role", "backups", "bucket-operator"]["rules"][0]["resources"] == ["configmaps"]
    (subject,) = found["RoleBinding", "backups", "bucket-operator"]["subjects"]
    assert subject["namespace"] == "bucket-operator"


def test_an_app_of_some_namespaces_has_roles_there_alone() -> None:
    app = App("small", namespaces=["red", "green"])
    app.on_add(BUCKET)(nothing)
    app.uses(kinds.core.v1.Node)
    found = objects(manifests(app))
    for namespace in ("red", "green"):
        rules = found["Role", namespace, "small"]["rules"]
        assert ["buckets"] in [rule["resources"] for rule in rules]
        assert ("RoleBinding", namespace, "small") in found
    (rule,) = found["ClusterRole", "", "small"]["rules"]
    assert rule["resources"] == ["nodes"]


def test_an_app_of_patterns_has_a_role_of_the_cluster_that_says_why() -> None:
    app = App("small", namespaces=["team-*", "!team-x"], leader_election=True)
    app.on_add(BUCKET)(nothing)
    texts = manifests(app)
    found = objects(texts)
    rules = found["ClusterRole", "", "small"]["rules"]
    assert ["buckets"] in [rule["resources"] for rule in rules]
    (followed,) = [rule for rule in rules if rule["resources"] == ["namespaces"]]
    assert (followed["apiGroups"], followed["verbs"]) == ([""], ["list", "watch"])
    assert "it works in the namespaces team-*, !team-x, and follows which there are" in " ".join(
        line.strip(" #") for line in texts["base/role.yaml"].splitlines()
    )


@pytest.mark.parametrize("release", ["red", "backups", "small", "other"])
@pytest.mark.parametrize("namespaces", [[], ["red"], ["red", "small"]])
def test_a_release_in_any_namespace_has_all_its_roles(release: str, namespaces: list[str]) -> None:
    app = App("small", namespaces=namespaces or None, leader_election=True)
    app.on_add(BUCKET)(nothing)
    app.uses(kinds.core.v1.ConfigMap, verbs=["create"], namespace="backups")
    texts = {
        path: text.replace("{{ .Release.Namespace }}", release)
        for path, text in helm_chart(app).items()
        if path.endswith(("/role.yaml", "/role_binding.yaml"))
    }
    grants = Grants.of(objects(texts, "chart/templates/").values(), account="small")
    assert grants.namespace == release
    assert not grants.missing(app.permissions(), namespaces=namespaces)


def test_what_tests_needed_is_in_the_roles() -> None:
    recorded = Permission(groups=[""], resources=["pods"], verbs=["delete"], reasons=["test_a"])
    options = ManifestOptions(recorded=(recorded,))
    text = manifests(small(), options)["base/role.yaml"]
    assert "# delete recorded in test_a\n- apiGroups:\n  - ''\n  resources:\n  - pods\n" in text


def test_whoever_may_view_or_edit_may_do_so_with_the_kinds() -> None:
    found = objects(manifests(full()))
    view = found["ClusterRole", "", "bucket-operator-view"]
    edit = found["ClusterRole", "", "bucket-operator-edit"]
    assert view["rules"][0]["resources"] == ["buckets", "regions"]
    assert "create" not in view["rules"][0]["verbs"]
    assert "create" in edit["rules"][0]["verbs"]
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    assert view["metadata"]["labels"][f"{prefix}view"] == "true"
    assert edit["metadata"]["labels"][f"{prefix}edit"] == "true"
    assert edit["metadata"]["labels"][f"{prefix}admin"] == "true"


def test_cert_manager_injects_into_all_that_calls_the_operator() -> None:
    found = objects(manifests(full()))
    name = "bucket-operator/bucket-operator-webhooks"
    for key in (
        ("ValidatingWebhookConfiguration", "", "bucket-operator"),
        ("MutatingWebhookConfiguration", "", "bucket-operator"),
        ("CustomResourceDefinition", "", "buckets.example.com"),
    ):
        assert found[key]["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == name
    region = found["CustomResourceDefinition", "", "regions.example.com"]
    assert "annotations" not in region["metadata"]
    certificate = found["Certificate", "bucket-operator", "bucket-operator-webhooks"]
    assert "bucket-operator-webhooks.bucket-operator.svc" in certificate["spec"]["dnsNames"]
    pod = found["Deployment", "bucket-operator", "bucket-operator"]["spec"]["template"]["spec"]
    assert pod["volumes"][1]["secret"]["secretName"] == certificate["spec"]["secretName"]


def test_managed_certificates_may_do_what_they_say_they_need() -> None:
    found = objects(manifests(full(), ManifestOptions(certificates="managed")))
    certificates = ManagedCertificates(
        "bucket-operator-webhooks",
        "bucket-operator-webhooks-tls",
        namespace="bucket-operator",
        inject=[
            (kinds.admissionregistration.v1.MutatingWebhookConfiguration, "bucket-operator"),
            (kinds.admissionregistration.v1.ValidatingWebhookConfiguration, "bucket-operator"),
            (kinds.apiextensions.v1.CustomResourceDefinition, "buckets.example.com"),
        ],
    )
    for rules, key in (
        (certificates.role_rules(), ("Role", "bucket-operator", "bucket-operator")),
        (certificates.cluster_role_rules(), ("ClusterRole", "", "bucket-operator")),
    ):
        for rule in rules:
            assert rule in found[key]["rules"]
    certificates.close()
    assert not any(key[0] == "Certificate" for key in found)
    pod = found["Deployment", "bucket-operator", "bucket-operator"]["spec"]["template"]["spec"]
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]


def test_managed_certificates_of_an_app_that_reads_secrets_of_its_own_may_be_kept() -> None:
    app = full()
    app.uses(kinds.core.v1.Secret, verbs=["get"])
    found = objects(manifests(app, ManifestOptions(certificates="managed")))
    rules = found["Role", "bucket-operator", "bucket-operator"]["rules"]
    assert any(rule.get("resourceNames") == ["bucket-operator-webhooks-tls"] for rule in rules)
    (patched,) = (
        rule
        for rule in found["ClusterRole", "", "bucket-operator"]["rules"]
        if rule["resources"] == ["validatingwebhookconfigurations"]
    )
    assert patched["resourceNames"] == ["bucket-operator"]


def test_an_app_with_managed_certificates_needs_no_cert_manager() -> None:
    certificates = ManagedCertificates("hooks", "hooks-tls", namespace="buckets")
    app = full(webhook_server=WebhookServerOptions(certificates=certificates))
    assert "base/certificate.yaml" not in manifests(app)
    certificates.close()


def test_an_operator_that_has_to_make_its_certificates_is_told_so() -> None:
    told = container(full(), certificates="managed")
    assert told["env"] == [{"name": "APPSDK_WEBHOOK_SERVICE", "value": "bucket-operator-webhooks"}]
    assert "env" not in container(full())  # cert-manager makes them
    assert "env" not in container(small(), certificates="managed")  # no webhooks
    certificates = ManagedCertificates("hooks", "hooks-tls", namespace="buckets")
    app = full(webhook_server=WebhookServerOptions(certificates=certificates))
    assert "env" not in container(app)
    certificates.close()


def test_a_webhook_server_that_the_app_makes_is_told_nothing() -> None:
    assert "--webhook-address=:9443" in container(full())["args"]
    app = full(webhook_server=lambda: WebhookServer(":9443"))
    found = container(app, certificates="managed")
    assert "env" not in found
    assert not any(each.startswith("--webhook") for each in found["args"])


def test_certificates_are_mounted_where_the_app_reads_them() -> None:
    tls = TLSOptions(cert_file="/run/tls/tls.crt", key_file="/run/tls/tls.key")
    app = full(webhook_server=WebhookServerOptions(tls=tls))
    assert container(app)["volumeMounts"][1]["mountPath"] == "/run/tls"


def test_without_webhooks_nothing_listens_for_them() -> None:
    found = objects(manifests(small()))
    assert not any("Webhook" in kind or kind == "Certificate" for kind, *_ in found)
    assert "webhooks" not in manifests(small())["base/deployment.yaml"]


def test_prometheus_speaks_to_the_metrics_server_as_the_app_wants() -> None:
    app = App("small", metrics_server=MetricsServerOptions(tls=TLSOptions()))
    text = manifests(app)["components/monitoring/service_monitor.yaml"]
    (endpoint,) = yaml.safe_load(text)["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {"insecureSkipVerify": True}


_PART = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
_IMAGES = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "registry.example.com/", "localhost:5000/", "localhost:5000/team/"]),
        _PART,
        st.sampled_from(["", ":1.2", ":latest"]),
        st.sampled_from(["", f"@sha256:{'a' * 64}"]),
    ),
)


def replaced(image: str, entry: Mapping[str, str]) -> str:
    """An image after an entry in ``images``, by kustomize's rules."""
    name, digest, tag = entry["name"], entry.get("digest"), entry.get("newTag")
    assert re.match(rf"{re.escape(name)}($|[:@])", image), "the entry is for another image"
    if digest:
        return f"{name}:{tag}@{digest}" if tag else f"{name}@{digest}"
    return f"{name}:{tag}"


@settings(max_examples=scaled(30), deadline=None)
@given(image=_IMAGES)
def test_the_overlays_and_the_chart_deploy_the_image_of_the_option(image: str) -> None:
    options = ManifestOptions(image=image)
    texts = manifests(small(), options)
    explicit = image if "@" in image or ":" in image.rpartition("/")[2] else f"{image}:latest"
    for overlay in ("development", "production"):
        (entry,) = yaml.safe_load(texts[f"overlays/{overlay}/kustomization.yaml"])["images"]
        assert replaced(image, entry) == explicit
    values = yaml.safe_load(helm_chart(small(), options)["chart/values.yaml"])["image"]
    joined = f"{values['repository']}:{values['tag']}"
    # Of a tag and a digest the digest decides.
    assert joined.replace(":latest@", "@") == explicit.replace(":latest@", "@")


def test_the_image_has_two_stages_a_numeric_user_and_no_shell() -> None:
    text = manifests(full(), ManifestOptions(target="buckets:app"))["Dockerfile"]
    build, final = re.split(r"^FROM .*\n", text, flags=re.MULTILINE)[1:]
    listed = "> requirements.txt && python -m pip install --no-compile --target /dependencies"
    assert f"{listed} -r requirements.txt 'appsdk-operator[run]'" in build
    # The dependencies come before the code, which changes more often, and each is compiled.
    steps = [line for line in build.splitlines() if line.startswith(("COPY", "RUN"))]
    assert steps[0] == "COPY pyproject.toml ./"
    assert "compileall -q -j 0 /dependencies" in steps[2]
    check = "PYTHONPATH=/app:/dependencies python -m pip check"
    assert steps[3:] == [
        "COPY . .",
        "RUN python -m pip install --no-compile --no-deps --target /app .",
        f"RUN python -m compileall -q -j 0 /app && {check}",
    ]
    assert re.findall("^COPY (.*)$", final, re.MULTILINE) == [
        "--from=build /dependencies /dependencies",
        "--from=build /app /app",
    ]
    assert "RUN" not in final
    assert "USER 65532:65532" in final
    for name in ("ENTRYPOINT", "CMD"):
        (form,) = re.findall(rf"^{name} (.*)$", final, re.MULTILINE)
        assert isinstance(yaml.safe_load(form), list)
    context = deployment(full())["spec"]["template"]["spec"]["securityContext"]
    assert context["runAsUser"] == 65532


def test_the_image_has_what_makes_certificates_where_they_are_made() -> None:
    options = ManifestOptions(certificates="managed")
    assert "'appsdk-operator[run,webhooks]'" in manifests(full(), options)["Dockerfile"]
    signed = App("small", metrics_server=MetricsServerOptions(tls=TLSOptions()))
    assert "'appsdk-operator[run,webhooks]'" in manifests(signed)["Dockerfile"]


def test_a_file_is_copied_into_the_image_where_the_command_looks_for_it() -> None:
    text = manifests(small(), ManifestOptions(target="operators/small.py:app"))["Dockerfile"]
    assert "COPY operators/small.py /app/operators/small.py" in text
    assert 'CMD ["run", "operators/small.py:app"]' in text


def test_what_needs_the_crds_of_prometheus_is_in_no_overlay_unless_it_is_wanted() -> None:
    component = "../../components/monitoring"
    for options, found in [({}, None), ({"monitoring": True}, [component])]:
        texts = manifests(small(), ManifestOptions(**options))  # type: ignore[arg-type]
        for name in ("production", "development"):
            (overlay,) = load_yaml(texts[f"overlays/{name}/kustomization.yaml"])
            assert overlay.get("components") == (found if name == "production" else None)
        assert "components/monitoring/service_monitor.yaml" in texts
    with pytest.raises(TypeError, match="monitoring='no': give True or False"):
        ManifestOptions(monitoring="no")  # type: ignore[arg-type]


WHEEL = "wheels/appsdk_operator-0.1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("target", "kit", "lines"),
    [
        ("small:app", "index", [" -r requirements.txt 'appsdk-operator[run]'"]),
        ("small:app", WHEEL, [f"COPY {WHEEL} {WHEEL}", f" './{WHEEL}' './{WHEEL}[run]'"]),
        (
            "small.py:app",
            WHEEL,
            [f"COPY {WHEEL} {WHEEL}", f" /dependencies './{WHEEL}' './{WHEEL}[run]'"],
        ),
        (
            "small:app",
            "git+https://x.io/k@v1",
            ["git", " -r requirements.txt 'appsdk-operator[run] @ git+https://x.io/k@v1'"],
        ),
        ("small:app", "https://x.io/k.whl", [" 'appsdk-operator[run] @ https://x.io/k.whl'"]),
    ],
)
def test_the_image_gets_the_kit_from_where_the_options_say(
    target: str, kit: str, lines: list[str]
) -> None:
    text = manifests(small(), ManifestOptions(target=target, kit=kit))["Dockerfile"]
    for line in lines:
        assert f"{line}\n" in text
    assert ("apt-get install" in text) is kit.startswith("git+")


@pytest.mark.parametrize(
    "kit", ["", "latest", "../x.whl", "/x.whl", "git+https://x/'; rm", "a b.whl"]
)
def test_a_kit_that_no_image_can_have_is_refused(kit: str) -> None:
    with pytest.raises(ValueError, match="kit="):
        ManifestOptions(kit=kit)


def test_a_wheel_of_the_kit_is_sent_to_the_build_from_any_folder() -> None:
    def ignored(kit: str) -> list[str]:
        return manifests(small(), ManifestOptions(kit=kit))["Dockerfile.dockerignore"].splitlines()

    assert "dist" in ignored("index")
    assert ignored("dist/x.whl") == [*ignored("index"), "!dist/x.whl"]
    assert ignored("git+https://example.com/kit.git@v1") == ignored("index")


@pytest.mark.parametrize("user", ["me:hunter2", "hunter2"])
def test_a_kit_with_a_password_is_refused_without_showing_it(user: str) -> None:
    with pytest.raises(ValueError, match="kit: the URL has a password or a user") as raised:
        ManifestOptions(kit=f"git+https://{user}@example.com/kit.git@v1")
    assert "hunter2" not in str(raised.value)
    ManifestOptions(kit="git+ssh://git@example.com/kit.git@v1")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"replicas": 0}, "replicas=0: use 1 or more"),
        ({"namespace": "No_Label"}, "lower-case letters"),
        ({"image": "two words"}, "is not an image"),
        ({"certificates": "own"}, "use cert-manager, managed, secret"),
        ({"object_size": -1}, "use 0 or more"),
    ],
)
def test_an_option_that_no_server_takes_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        ManifestOptions(**options)


TEXTS = st.text(max_size=20) | st.sampled_from(
    ["{{ x }}", "a: b", "# c", "- d", "yes", "1e3", "two\nlines", "ends\n", " pad", "tab\there\n"]
)
# Names of fields and labels.
KEYS = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Zs"]), max_size=20)
TREES = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=scaled(25))
@given(st.dictionaries(KEYS, TREES, min_size=1, max_size=4), TEXTS)
def test_yaml_is_read_as_it_was_meant(tree: dict[str, Any], comment: str) -> None:
    assert load_yaml(document(tree)) == [tree]
    commented = {key: Commented(value, (comment,)) for key, value in tree.items()}
    assert load_yaml(document(commented)) == [tree]
    in_lists = {key: [Commented(value, (comment,))] for key, value in tree.items()}
    assert load_yaml(document(in_lists)) == [{key: [value] for key, value in tree.items()}]


def test_a_reason_of_several_lines_is_a_comment_of_one() -> None:
    app = small()
    app.uses(kinds.core.v1.Secret, names=["key"], reason="signs with it\nkind: {{ .Files }}")
    for text in (
        manifests(app)["base/role.yaml"],
        helm_chart(app)["chart/templates/role.yaml"],
    ):
        (line,) = (line for line in text.splitlines() if "signs with it" in line)
        assert line.strip().startswith("# signs with it kind: ")
    assert '{{ "{{" }} .Files' in line


@pytest.mark.parametrize("elects", [None, True, False])
@pytest.mark.parametrize("replicas", [None, 1, 3])
def test_the_values_of_a_chart_fit_its_schema(elects: bool | None, replicas: int | None) -> None:
    texts = helm_chart(small(), ManifestOptions(replicas=replicas, leader_election=elects))
    values = yaml.safe_load(texts["chart/values.yaml"])
    schema = json.loads(texts["chart/values.schema.json"])
    assert values["replicas"] <= schema["properties"]["replicas"].get("maximum", 3)
    assert ("nothing elects" in texts["chart/values.yaml"]) is (
        values["replicas"] == 1 and not elects
    )


def test_the_image_runs_the_target_whatever_is_in_its_name() -> None:
    target = 'my "own"\\operator.py:app'
    text = manifests(small(), ManifestOptions(target=target))["Dockerfile"]
    (command,) = re.findall(r"^CMD (.*)$", text, re.MULTILINE)
    assert json.loads(command) == ["run", target]
