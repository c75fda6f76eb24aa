"""The cases as they are written down, and what is made of them: a table of webhooks, and steps.

README.md tells the format. What is carried out is a :class:`tests.differential.scripts.Case`: the
same conversations as those that compare the embedded server with the real one.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import yaml

from appsdk_operator.resource import apply_merge_patch
from tests.differential.scripts import Case, ScriptError, version_of

HERE = Path(__file__).parent
GROUP = "webhooks.example.com"
MARKER = "/marker"

_CASE_KEYS = {"name", "since", "because", "embedded", "differs", "webhooks", "steps"}
_WEBHOOK_KEYS = {
    "default",
    "validate",
    "mutate",
    "review",
    "raw",
    "kind",
    "rules",
    "with",
    "at",
    "as",
}
_ACTS = ("default", "validate", "mutate", "review", "raw")
_MUTATING = {"default", "mutate"}
_VERSIONS = {"": "v1", "old": "v1beta1", "oldest": "v1alpha1"}
_NAMES = ("one", "two", "three", "four")
_OWN = {"matchLabels": {"case": "$ns"}}
_HOOKS = "/apis/admissionregistration.k8s.io/v1"
_FILLER = re.compile(r"\$x(\d+)")
_KINDS = {"subjects": "Subject", "configmaps": "ConfigMap", "secrets": "Secret", "pods": "Pod"}
_RESOURCES = {"Subject": "subjects", "ConfigMap": "configmaps", "Pod": "pods"}


@attrs.frozen(kw_only=True)
class Difference:
    """Where the kit does otherwise on purpose: these places are not compared."""

    reason: str
    paths: tuple[str, ...]
    is_certain: bool = True
    """Whether they always differ."""


@attrs.frozen(kw_only=True)
class Where:
    """How a server of webhooks is reached."""

    port: int
    authority: bytes
    """The certificate of its authority, as Base64 of PEM."""
    other_authority: bytes
    """That of another one."""


@attrs.frozen(kw_only=True, eq=False)
class Script:
    """A conversation about the objects of a namespace, and the webhooks that are asked in it."""

    area: str
    name: str
    webhooks: tuple[dict[str, Any], ...]
    steps: tuple[dict[str, Any], ...]
    since: tuple[int, int] = (0, 0)
    because: str = ""
    embedded: str = ""
    """What of it the embedded server does otherwise than the real one."""
    differs: tuple[Difference, ...] = ()
    is_last: bool = False
    """Whether it disturbs those that run beside it, if they are none of its kind."""

    @property
    def id(self) -> str:
        """What tests and reports call it."""
        return f"{self.area}: {self.name}"

    @property
    def digest(self) -> str:
        """Changes with what is sent and done, so that outdated recordings are found."""
        text = json.dumps([_definition_text(), self.webhooks, self.steps], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def table(self) -> list[dict[str, Any]]:
        """The entries of its webhooks, as the servers of webhooks read them."""
        return [
            {
                "path": self._path(number),
                "kind": webhook.get("kind", "Subject"),
                **{act: _filled(webhook[act]) for act in _ACTS if act in webhook},
            }
            for number, webhook in enumerate(self.webhooks)
        ]

    def case(self, where: Where) -> Case:
        """The conversation, with webhooks that are there."""
        label = {"metadata": {"labels": {"case": "$ns"}}}
        setup = [{"do": "PATCH /api/v1/namespaces/$ns", "body": label}, *_label_is_known(where)]
        for verdict in ("mutating", "validating"):
            setup += self._configuration(verdict, where)
        return Case(
            area=self.area, name=self.name, setup=tuple(setup), steps=tuple(map(_step, self.steps))
        )

    def _path(self, number: int) -> str:
        return f"/{self.digest}/{number}"

    def _configuration(self, verdict: str, where: Where) -> list[dict[str, Any]]:
        """Steps that create a configuration and wait until the server follows it."""
        found = [
            self._webhook(number, webhook, where)
            for number, webhook in enumerate(self.webhooks)
            if _verdict(webhook) == verdict
        ]
        if not found:
            return []
        return _installed(verdict, "$ns", [*found, _marker(verdict, where)], verdict, "default")

    def _webhook(self, number: int, webhook: dict[str, Any], where: Where) -> dict[str, Any]:
        more = dict(webhook.get("with", {}))
        selector = more.pop("namespaceSelector", {})
        resource = _RESOURCES[webhook.get("kind", "Subject")]
        operations = "CREATE,UPDATE" + (",DELETE" if "validate" in webhook else "")
        return {
            "name": f"{_NAMES[number]}.{GROUP}",
            "clientConfig": _client(where, self._path(number), webhook.get("at", "")),
            "rules": [_rule(text) for text in webhook.get("rules", [f"{resource} {operations}"])],
            "namespaceSelector": {**selector, **_OWN},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }


def _verdict(webhook: dict[str, Any]) -> str:
    usual = "mutating" if webhook.keys() & _MUTATING else "validating"
    return str(webhook.get("as", usual))


def _client(where: Where, path: str, at: str) -> dict[str, Any]:
    host, authority = f"127.0.0.1:{where.port}", where.authority
    if at == "nowhere":
        host = "127.0.0.1:1"
    elif at == "misnamed":
        host = f"127.0.0.2:{where.port}"
    elif at == "untrusted":
        authority = where.other_authority
    elif at == "unknown":
        path = f"{path}/unknown"
    elif at:
        raise ScriptError(f"at: {at}: use nowhere, misnamed, untrusted or unknown")
    return {"url": f"https://{host}{path}", "caBundle": authority.decode()}


def _rule(text: str) -> dict[str, Any]:
    """From ``subjects/status UPDATE``."""
    resource, operations = text.split()
    prefix, _, name = resource.rpartition("/") if resource.startswith("old") else ("", "", resource)
    group = "" if name.split("/")[0] in ("pods", "configmaps", "secrets") else GROUP
    is_all = name.startswith("*")
    return {
        "apiGroups": ["*" if is_all else group],
        "apiVersions": ["*" if is_all else _VERSIONS[prefix] if group else "v1"],
        "resources": [name],
        "operations": operations.split(","),
    }


def _installed(
    verdict: str, name: str, webhooks: list[dict[str, Any]], mark: str, namespace: str
) -> list[dict[str, Any]]:
    """Steps that create a configuration and wait until the server follows its marker."""
    kind = f"{verdict.title()}WebhookConfiguration"
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": webhooks,
    }
    return [
        {"do": f"POST {_HOOKS}/{kind.lower()}s", "body": body},
        {
            "do": f"POST /api/v1/namespaces/{namespace}/configmaps?dryRun=All",
            "body": {"metadata": {"name": "marker", "labels": {"marker": f"$ns-{mark}"}}},
            "wait": {"headers.Warning": '299 - "marker"'},
        },
    ]


def _label_is_known(where: Where) -> list[dict[str, Any]]:
    """Steps that wait until the server finds webhooks by the label of the namespace.

    It may know of a configuration before it knows of the label. A configuration of its own, because
    the webhooks of the case may be for all that there is.
    """
    marker = {**_marker("label", where), "namespaceSelector": _OWN}
    return [
        *_installed("validating", "$ns-label", [marker], "label", "$ns"),
        {"do": f"DELETE {_HOOKS}/validatingwebhookconfigurations/$ns-label"},
    ]


def _marker(verdict: str, where: Where) -> dict[str, Any]:
    """A webhook that warns about one object: a warning says that the configuration is in force."""
    return {
        "name": f"marker.{GROUP}",
        "clientConfig": _client(where, MARKER, ""),
        "rules": [_rule("configmaps CREATE")],
        "objectSelector": {"matchLabels": {"marker": f"$ns-{verdict}"}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


def _step(step: dict[str, Any]) -> dict[str, Any]:
    """The step with whole paths, and with what all objects have."""
    if "do" not in step:
        return step
    method, _, path = step["do"].partition(" ")
    if path.startswith("/"):
        return step
    prefix, _, rest = path.partition("/")
    if prefix not in ("old", "oldest"):
        prefix, rest = "", path
    resource = re.split(r"[/?]", rest)[0]
    version = f"{GROUP}/{_VERSIONS[prefix]}" if resource == "subjects" else "v1"
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    found = {**step, "do": f"{method} {root}/namespaces/$ns/{rest}"}
    name = rest.split("?")[0].removeprefix(resource).removeprefix("/")
    if (method == "POST" and not name) or step.get("patch") == "apply":
        usual: dict[str, Any] = {
            "apiVersion": version,
            "kind": _KINDS[resource],
            "metadata": {"name": name or "one"},
            **({"spec": {}} if resource == "subjects" else {}),
        }
        found["body"] = apply_merge_patch(usual, step.get("body", {}))
    return found


def _filled(value: Any) -> Any:
    """The value with what ``$x300`` stands for."""
    if isinstance(value, dict):
        return {key: _filled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item) for item in value]
    if isinstance(value, str):
        return _FILLER.sub(lambda found: "x" * int(found[1]), value)
    return value


def table(scripts: list[Script]) -> list[dict[str, Any]]:
    """All that a server of webhooks has to do."""
    marker = {"path": MARKER, "kind": "ConfigMap", "review": [{"warnings": ["marker"]}]}
    return [marker, *(entry for script in scripts for entry in script.table())]


@cache
def _definition_text() -> str:
    return (HERE / "definitions.yaml").read_text(encoding="utf-8")


def definition(where: Where) -> dict[str, Any]:
    """The kind Subject, converted there."""
    found: dict[str, Any] = yaml.safe_load(_definition_text())
    found["spec"]["conversion"]["webhook"]["clientConfig"] = _client(where, "/convert", "")
    return found


@cache
def all_scripts() -> tuple[Script, ...]:
    """All cases in their order."""
    found = []
    for path in sorted((HERE / "cases").glob("*.yaml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        is_last = content.get("last", False)
        found += [_script(path.stem, each, is_last=is_last) for each in content["cases"]]
    return tuple(found)


def _script(area: str, case: dict[str, Any], *, is_last: bool) -> Script:
    where = f"{area}: {case.get('name')}"
    if unknown := case.keys() - _CASE_KEYS:
        raise ScriptError(f"{where}: nobody reads {sorted(unknown)}: use {sorted(_CASE_KEYS)}")
    for webhook in case.get("webhooks", ()):
        if unknown := webhook.keys() - _WEBHOOK_KEYS:
            raise ScriptError(f"{where}: nobody reads {sorted(unknown)}")
        if len(webhook.keys() & set(_ACTS)) != 1:
            raise ScriptError(f"{where}: each webhook is one of {', '.join(_ACTS)}")
    if "since" in case and "because" not in case:
        raise ScriptError(f"{where}: say since when, and because of what")
    return Script(
        area=area,
        name=case["name"],
        webhooks=tuple(case.get("webhooks", ())),
        steps=tuple(case["steps"]),
        since=version_of(case["since"]) if "since" in case else (0, 0),
        because=case.get("because", ""),
        embedded=case.get("embedded", ""),
        differs=tuple(
            Difference(
                reason=each["reason"],
                paths=tuple(each["paths"]),
                is_certain=not each.get("sometimes", False),
            )
            for each in case.get("differs", ())
        ),
        is_last=is_last,
    )
