"""CRDs with several versions."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from appsdk_operator.resource import Kind, Rule, Versions, custom_resource_definition
from tests.resource.version_kinds import GROUP, V1, V1Alpha1, widgets


def spec(*args: Any, **options: Any) -> Any:
    return custom_resource_definition(*args, **options).to_dict()["spec"]


def test_each_version_has_its_schema_and_flags() -> None:
    versions = widgets().older(
        Kind(group=GROUP, version="v1alpha0", kind="Widget"),
        up=lambda old, new: None,
        down=lambda old, new: None,
        deprecated=True,
        served=False,
    )
    made = {version["name"]: version for version in spec(versions)["versions"]}
    flags = [(name, one["served"], one["storage"]) for name, one in made.items()]
    assert flags == [
        ("v1", True, True),
        ("v1alpha1", True, False),
        ("v2", True, False),
        ("v1alpha0", False, False),
    ]
    parts = {name: one["schema"]["openAPIV3Schema"]["properties"] for name, one in made.items()}
    assert parts["v1"]["spec"]["properties"]["size"]["type"] == "integer"
    assert parts["v1alpha1"]["spec"]["properties"]["size"]["type"] == "string"
    assert parts["v2"]["spec"]["x-kubernetes-preserve-unknown-fields"]
    assert all(one["subresources"] == {"status": {}} for one in made.values())
    warnings = [(one.get("deprecated"), one.get("deprecationWarning")) for one in made.values()]
    assert warnings == [(None, None), (True, "use example.com/v1"), (None, None), (True, None)]


def test_the_webhook_is_a_service_or_a_url() -> None:
    assert spec(widgets())["conversion"] == {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {
                "service": {
                    "namespace": "default",
                    "name": "webhook-service",
                    "path": "/convert",
                    "port": 443,
                }
            },
            "conversionReviewVersions": ["v1"],
        },
    }
    own = spec(widgets(), service=("ops", "hooks"), path="/c", port=8443, ca=b"PEM")
    assert own["conversion"]["webhook"]["clientConfig"] == {
        "service": {"namespace": "ops", "name": "hooks", "path": "/c", "port": 8443},
        "caBundle": base64.b64encode(b"PEM").decode(),
    }
    url = spec(widgets(), url="https://10.0.0.1:9443/convert")
    assert url["conversion"]["webhook"]["clientConfig"] == {"url": "https://10.0.0.1:9443/convert"}


@pytest.mark.parametrize(
    ("url", "options", "full"),
    [
        ("https://10.0.0.1:9443", {}, "https://10.0.0.1:9443/convert"),
        ("https://10.0.0.1:9443/", {}, "https://10.0.0.1:9443/convert"),
        ("https://[::1]:9443", {"path": "/c"}, "https://[::1]:9443/c"),
        ("https://hooks.example.com/c/d", {}, "https://hooks.example.com/c/d"),
        ("https://hooks.example.com/c/", {"path": "/d"}, "https://hooks.example.com/c/"),
    ],
)
def test_a_url_without_a_path_gets_that_of_the_webhook(
    url: str, options: dict[str, Any], full: str
) -> None:
    made = spec(widgets(), url=url, **options)["conversion"]["webhook"]["clientConfig"]
    assert made == {"url": full}


@pytest.mark.parametrize(
    "url", ["http://a", "a:9443", "https://", "https://a/?x=1", "https://a/#x", "https://me@a"]
)
def test_a_url_that_api_servers_do_not_call_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"^url='.*': API servers call webhooks by https:// only"):
        spec(widgets(), url=url)


def test_one_version_needs_no_conversion() -> None:
    assert spec(Versions(V1)) == spec(V1)
    assert "conversion" not in spec(V1)


def test_options_are_by_version() -> None:
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    made = spec(
        widgets(),
        storage=V1Alpha1,
        printer_columns={"v1": columns},
        schema={"v2": schema},
        short_names=["wi"],
        categories=["all"],
        description="A widget.",
        rules={"v2": [Rule("true")]},
    )
    one, old, new = made["versions"]
    assert one["schema"]["openAPIV3Schema"]["description"] == "A widget."
    assert "x-kubernetes-validations" not in one["schema"]["openAPIV3Schema"]
    assert one["additionalPrinterColumns"] == columns
    assert "additionalPrinterColumns" not in old
    assert (one["storage"], old["storage"], new["storage"]) == (False, True, False)
    root = {"description": "A widget.", "x-kubernetes-validations": [{"rule": "true"}]}
    assert new["schema"]["openAPIV3Schema"] == {**schema, **root}
    assert made["names"]["shortNames"] == ["wi"]


@pytest.mark.parametrize(
    ("kind", "options", "error", "text"),
    [
        (
            V1,
            {"service": ("a", "b")},
            ValueError,
            "service: widgets.v1.example.com has one version",
        ),
        (V1, {"storage": V1, "url": "https://x"}, ValueError, "storage, url: "),
        (widgets(), {"schema": {"type": "object"}}, TypeError, "schema={'v1': …}"),
        (
            widgets(),
            {"schema": {"v1": {}, "v3": {}}},
            ValueError,
            "'v3', which is not a version of",
        ),
        (widgets(), {"printer_columns": [{}]}, TypeError, "printer_columns is one for all"),
        (widgets(), {"description": {"v3": "x"}}, TypeError, "description={'v1': …}"),
        (widgets(), {"rules": {"v1": [], "v3": []}}, ValueError, "rules has an entry for 'v3'"),
        (widgets(), {"storage": "v1"}, TypeError, "storage='v1' is not a Kind"),
        (
            widgets(),
            {"storage": Kind(group=GROUP, version="v9", kind="Widget")},
            ValueError,
            "storage=widgets.v9.example.com is not one of the versions: use one of widgets.v1",
        ),
        (widgets(), {"service": "hooks"}, TypeError, "service='hooks': give namespace and name"),
        (widgets(), {"service": ("a", "b"), "url": "https://x"}, ValueError, "give one"),
        (widgets(), {"url": "http://x"}, ValueError, "API servers call webhooks by https://"),
        (widgets(), {"path": "convert"}, ValueError, "begin it with '/'"),
        (widgets(), {"port": 0}, ValueError, "port=0: use 1 to 65535"),
        (
            Versions(Kind(group="", version="v1", kind="Pod")),
            {},
            ValueError,
            "give it a group such as example.com",
        ),
    ],
)
def test_an_option_that_does_not_fit_is_refused(
    kind: Any, options: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        custom_resource_definition(kind, **options)
    assert text in str(caught.value)
