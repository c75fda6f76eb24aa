"""What is secret in a write, or in a file with credentials, is in no error and no log."""

from __future__ import annotations

import json
import logging
import sys
import traceback
import types

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator import client as c
from appsdk_operator.client import ClientConfig, JsonPatch, MergePatch, StrategicMergePatch
from appsdk_operator.client._auth import kubeconfig
from appsdk_operator.client._auth.credentials import TokenFile
from appsdk_operator.client._auth.exec import ExecCredentials
from appsdk_operator.client._request import Request
from appsdk_operator.resource import DecodeError, EncodeError, Kind, MutableObject, Object, kinds
from appsdk_operator.runtime import ManualClock
from tests.client.conftest import answer, failure
from tests.credentials import authorization_of

SECRET = kinds.core.v1.Secret
ACCOUNT = kinds.core.v1.ServiceAccount
TOKEN_REQUEST = Kind(group="authentication.k8s.io", version="v1", kind="TokenRequest")
DATABASE = Kind(group="example.com", version="v1", kind="Database", secret=True)
OPEN = Kind(group="example.com", version="v1", kind="Database")
VALUE = "hunter2-correct-horse"
POLICY = "ValidatingAdmissionPolicy 'p' with binding 'b'"


def chain(error):
    """An error and all others that it leads to, suppressed ones included."""
    found, pending = [], [error]
    while pending:
        one = pending.pop()
        if one is not None and one not in found:
            found.append(one)
            pending += [one.__cause__, one.__context__]
    return found


def all_texts(error):
    parts = traceback.format_exception(error)
    for one in chain(error):
        parts += [str(one), repr(one), repr(one.args), repr(vars(one))]
    return "\n".join(parts)


def draft(kind=SECRET, **fields):
    return MutableObject.new(kind, "s", namespace="x", **fields)


def patching(patch, kind=SECRET):
    return lambda client: client.patch(kind, "s", patch, namespace="x")


WRITES = [
    lambda client: client.create(draft(stringData={"a": VALUE})),
    lambda client: client.update(draft(stringData={"a": VALUE})),
    lambda client: client.apply(draft(stringData={"a": VALUE}), field_manager="me"),
    lambda client: client.delete(SECRET, "s", namespace="x", uid="1"),
    patching(MergePatch({"stringData": {"a": VALUE}})),
    patching(StrategicMergePatch({"stringData": {"a": VALUE}})),
    patching(JsonPatch([{"op": "add", "path": "/stringData", "value": {"a": VALUE}}])),
    patching(MergePatch({"spec": {"password": VALUE}}), DATABASE),
    lambda client: client.create(draft(DATABASE, spec={"password": VALUE})),
    lambda client: client.subresource("status").update(draft(DATABASE, status={"a": VALUE})),
    lambda client: client.subresource("status").patch(
        DATABASE, "s", MergePatch({"status": {"a": VALUE}}), namespace="x"
    ),
    lambda client: client.subresource("token").create(
        draft(TOKEN_REQUEST, spec={"audiences": [VALUE]}), parent=ACCOUNT
    ),
    lambda client: client.request("POST", "/api/v1/namespaces/x/secrets", body=VALUE.encode()),
    lambda client: client.request("PUT", "/api/v1/namespaces/x/secrets/s", body=VALUE.encode()),
]
# Message, reason and code of answers as API servers give them; each quotes the value.
ECHOES = [
    (f'"" is invalid: patch: Invalid value: "{{\\"a\\":\\"{VALUE}\\"}}": illegal', "Invalid", 422),
    (
        f'Secret in version "v1" cannot be handled as a Secret: error found in ...|{VALUE}|...',
        "BadRequest",
        400,
    ),
    (f'admission webhook "w.example.com" denied the request: {VALUE} is weak', "", 400),
    (f'admission webhook "w.example.com" denied the request: {VALUE} is weak', "NotFound", 404),
    (
        f'secrets "s" is forbidden: {POLICY} denied request: {VALUE} is weak',
        "Conflict",
        409,
    ),
    (f'Internal error occurred: failed calling webhook "w": got {VALUE}', "InternalError", 500),
    (f"error decoding patch: {VALUE}", "", 500),
    (f'strict decoding error: unknown field "stringDatta.a", "{VALUE}"', "BadRequest", 400),
    (VALUE, "", 0),
]


@pytest.mark.parametrize(("message", "reason", "code"), ECHOES)
def test_no_refused_write_of_a_secret_shows_its_content(serve, connect, message, reason, code):
    cause = {
        "reason": "FieldValueInvalid",
        "message": f'Invalid value: "{VALUE}": no',
        "field": "a.b",
    }
    details = {"name": "s", "kind": "secrets", "causes": [cause], VALUE: VALUE, "uid": "u"}
    status = {"details": details}
    client = connect(serve(failure(code or 422, reason, message, **status)))
    for write in WRITES:
        with pytest.raises(c.ApiError) as caught:
            write(client)
        error = caught.value
        assert VALUE not in all_texts(error)
        assert VALUE not in json.dumps(error.to_status())
        assert "a.b: Invalid value" in str(error)
        assert error.causes == (c.Cause("FieldValueInvalid", "Invalid value", "a.b"),)
        assert (error.details["name"], error.details["kind"]) == ("s", "secrets")


def test_what_names_no_content_stays(serve, connect):
    texts = [
        ('secrets "s" not found', "NotFound", 404),
        (
            'Operation cannot be fulfilled on secrets "s": the object has been modified',
            "Conflict",
            409,
        ),
        (
            'secrets is forbidden: User "x" cannot create resource "secrets" in API group ""',
            "Forbidden",
            403,
        ),
        ('secrets "s" is forbidden: exceeded quota: q, requested: secrets=1', "Forbidden", 403),
        ("the server rejected our request due to an error in our request", "Invalid", 422),
    ]
    for message, reason, code in texts:
        client = connect(serve(failure(code, reason, message)))
        with pytest.raises(c.ApiError) as caught:
            WRITES[0](client)
        assert caught.value.message == message


def test_the_beginning_and_the_fields_are_shown(serve, connect):
    shown = []
    for message, reason, code in ECHOES[:8]:
        client = connect(serve(failure(code, reason, message)))
        with pytest.raises(c.ApiError) as caught:
            WRITES[0](client)
        shown.append(caught.value.message.partition(" (the rest")[0])
    assert shown == [
        '"" is invalid',
        'Secret in version "v1" cannot be handled as a Secret',
        *['admission webhook "w.example.com" denied the request'] * 2,
        f'secrets "s" is forbidden: {POLICY} denied request',
        'Internal error occurred: failed calling webhook "w"',
        "error decoding patch",
        'strict decoding error: unknown field "stringDatta.a"',
    ]


def test_other_kinds_and_reads_show_what_the_server_says(serve, connect):
    client = connect(serve(failure(422, "Invalid", f"spec.a: {VALUE}")))
    for call in (
        lambda: client.create(draft(OPEN, spec={"a": VALUE})),
        lambda: client.get(SECRET, "s", namespace="x"),
    ):
        with pytest.raises(c.Invalid, match=VALUE):
            call()


def test_an_answer_that_is_no_status_is_not_quoted(serve, connect):
    client = connect(serve(answer(f"<html>{VALUE}".encode(), 400)))
    with pytest.raises(c.BadRequest) as caught:
        WRITES[0](client)
    assert VALUE not in all_texts(caught.value)
    assert "27 bytes" in str(caught.value)


def test_warnings_about_a_secret_are_cut(serve, connect, caplog):
    warning = f'299 - "unknown field \\"stringDatta\\"", 299 - "{VALUE} is weak"'
    body = draft().freeze().raw
    client = connect(serve(answer(body, headers={"Warning": warning})))
    with caplog.at_level(logging.WARNING):
        client.create(draft())
    assert VALUE not in caplog.text
    assert 'unknown field "stringDatta"' in caplog.text
    assert "not shown" in caplog.text
    with caplog.at_level(logging.WARNING):
        client.get(SECRET, "s", namespace="x")
    assert f"{VALUE} is weak" in caplog.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(VALUE) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "causes", "field", "a", VALUE]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@given(
    status=st.fixed_dictionaries(
        {},
        optional={
            "message": JSON | st.sampled_from([one[0] for one in ECHOES]),
            "reason": st.sampled_from(["", "Invalid", "BadRequest", "InternalError", "Strange"]),
            "details": st.fixed_dictionaries(
                {},
                optional={
                    "causes": st.lists(
                        st.fixed_dictionaries(
                            {"message": JSON | st.just(f"Invalid value: {VALUE}")},
                            optional={"reason": st.just("R"), "field": st.just("a.b")},
                        )
                        | st.just(VALUE)
                    )
                    | st.just(VALUE),
                    VALUE: JSON,
                    "retryAfterSeconds": st.just(3),
                },
            )
            | st.just(VALUE),
        },
    ),
    code=st.sampled_from([400, 422, 500, 0]),
)
def test_whatever_status_comes_content_is_not_shown(status, code):
    request = Request(method="PATCH", path="/", secret=True)
    error = c.error_from_status(status, code=code, request=request)
    assert VALUE not in all_texts(error)


def test_kinds_with_secrets_are_known_or_told():
    assert SECRET.secret
    assert SECRET.typed(spec=dict).secret
    assert Kind(group="", version="v1", kind="Secret").secret
    assert not kinds.core.v1.ConfigMap.secret
    assert DATABASE == OPEN
    with pytest.raises(TypeError, match="secret"):
        Kind(group="a.b", version="v1", kind="A", secret="yes")  # type: ignore[arg-type]


def test_a_spec_that_does_not_fit_its_class_is_not_shown():
    pytest.importorskip("pydantic")
    import pydantic

    class Spec(pydantic.BaseModel, frozen=True):
        password: int

    kind = DATABASE.typed(spec=Spec)
    content = {"metadata": {"name": "s"}, "spec": {"password": VALUE}}
    for obj in (Object.from_dict(kind, content), MutableObject(kind, content)):
        with pytest.raises(DecodeError, match=r"\$\.spec\.password does not fit .*Spec") as caught:
            _ = obj.spec
        assert VALUE not in all_texts(caught.value)


def test_a_spec_that_its_class_refuses_is_not_shown():
    def refuse(obj, attribute, value):
        raise ValueError(f"{value} is too weak")

    @attrs.frozen
    class Spec:
        password: str = attrs.field(validator=refuse)

    with attrs.validators.disabled():
        spec = Spec(VALUE)
    with pytest.raises(EncodeError, match=r"does not fit .*Spec") as refused:
        MutableObject.new(DATABASE.typed(spec=Spec), "s", spec=spec)
    assert VALUE not in all_texts(refused.value)


# -- files with credentials --------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        f"users:\n- name: me\n  user: {{token: {VALUE}\n",
        f"users:\n- name: me\n  user:\n    token: *{VALUE}\n",
        f"users:\n- name: me\n  user:\n    token: !{VALUE} x\n",
        f"users:\n- name: me\n  user:\n    token: {VALUE}: b: c\n",
        f"users:\n- name: me\n  user:\n    token: '{VALUE}\n",
        f'users:\n- name: me\n  user:\n    token: "{VALUE}\\q"\n',
        f"users:\n- name: me\n  user:\n    token: {VALUE}\n\t- x\n",
        f"users: {VALUE}",
        VALUE,
        f"{VALUE}\xff".encode("latin-1"),
        f"token: {VALUE}\n".encode("utf-16"),
    ],
)
def test_no_error_of_a_kubeconfig_has_a_text_of_it(tmp_path, content):
    path = tmp_path / "config"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(c.ConfigError) as caught:
        ClientConfig.from_kubeconfig(str(path))
    assert VALUE not in all_texts(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [f"{VALUE}\xff".encode("latin-1"), f"{VALUE} {VALUE}".encode()])
def test_no_error_of_a_token_file_has_a_text_of_it(tmp_path, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    source = TokenFile(str(path), clock=ManualClock())
    with pytest.raises(c.ConfigError) as caught:
        authorization_of(source)
    assert VALUE not in all_texts(caught.value)


@pytest.mark.parametrize(
    "printed",
    [
        f'{{"status": {{"token": "{VALUE}"',
        f'{{"status": {{"token": "{VALUE}", "expirationTimestamp": "{VALUE}"}}}}',
        f'{{"status": {{"token": "{VALUE} {VALUE}"}}}}',
        f'"{VALUE}"',
    ],
)
def test_no_error_of_an_exec_plugin_has_what_it_printed(tmp_path, printed):
    version = "client.authentication.k8s.io/v1"
    script = tmp_path / "plugin.py"
    text = printed.replace('{"status"', f'{{"apiVersion": "{version}", "status"', 1)
    script.write_text(f"print({text!r})")
    section = {"apiVersion": version, "command": sys.executable, "args": [str(script)]}
    plugin = ExecCredentials(section, folder=str(tmp_path), cluster={})
    with pytest.raises(c.ConfigError) as caught:
        authorization_of(plugin)
    assert VALUE not in all_texts(caught.value)


def test_no_error_of_the_package_for_auth_providers_has_a_value_of_the_file(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError(f"cannot refresh with {VALUE}")

    module = types.SimpleNamespace(KubeConfigMerger=fail)
    monkeypatch.setattr(kubeconfig, "package", lambda *_: module)
    user = {"auth-provider": {"name": "oidc", "config": {"refresh-token": VALUE}}}
    content = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "me"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1"}}],
        "users": [{"name": "me", "user": user}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(content))
    with pytest.raises(c.ConfigError, match="cannot refresh with …") as caught:
        ClientConfig.from_kubeconfig(str(path))
    assert VALUE not in all_texts(caught.value)
