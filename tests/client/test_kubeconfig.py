from __future__ import annotations

import base64
import json
import logging
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from appsdk_operator import client as c
from appsdk_operator.client import ClientConfig, ConfigError, _kubeconfig
from appsdk_operator.client._credentials import credentials_of
from appsdk_operator.client._exec import ExecCredentials
from appsdk_operator.resource import dump_yaml
from appsdk_operator.runtime import ManualClock
from tests.client.conftest import WIDGET, answer, failure, widget

SERVER = "https://10.0.0.1:6443"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write(
    folder: Path,
    *,
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    name: str = "config",
    context: str = "here",
) -> str:
    path = folder / name
    users = [] if user is None else [{"name": "me", "user": user}]
    where = {"cluster": "c", **({} if user is None else {"user": "me"})}
    path.write_text(
        dump_yaml(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": context,
                "contexts": [{"name": context, "context": where}],
                "clusters": [{"name": "c", "cluster": {"server": SERVER, **(cluster or {})}}],
                "users": users,
            }
        )
    )
    return str(path)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch, tmp_path):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))


@pytest.fixture
def pod(monkeypatch, tmp_path):
    """A pod with its service account mounted."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("pod-token")
    (folder / "ca.crt").write_text("ca")
    monkeypatch.setattr(_kubeconfig, "_SERVICE_ACCOUNT", str(folder))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return folder


def authorization(config: ClientConfig) -> str | None:
    return credentials_of(config, ManualClock()).authorization()


# -- which one ---------------------------------------------------------------------------------


def test_the_first_configuration_that_is_there_is_used(monkeypatch, tmp_path, pod):
    home = tmp_path / "home" / ".kube"
    home.mkdir()
    write(home, cluster={"server": "https://home"})
    env = write(tmp_path, cluster={"server": "https://env"}, name="env")
    given = write(tmp_path, cluster={"server": "https://given"}, name="given")
    monkeypatch.setenv("KUBECONFIG", env)
    assert ClientConfig.load(given).server == "https://given"
    assert ClientConfig.load().server == "https://env"
    monkeypatch.delenv("KUBECONFIG")
    assert ClientConfig.load().server == "https://[fd00::1]:443"
    assert ClientConfig.load(context="here").server == "https://home"
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert ClientConfig.load().server == "https://home"
    assert ClientConfig.from_kubeconfig().server == "https://home"


def test_no_configuration_at_all_is_an_error_that_lists_the_ways(tmp_path):
    with pytest.raises(ConfigError, match=r"give a path, set \$KUBECONFIG, run in a pod"):
        ClientConfig.load()


def test_a_pod_is_its_service_account(pod):
    config = ClientConfig.in_cluster()
    assert config.server == "https://[fd00::1]:443"
    assert config.ca_file == str(pod / "ca.crt")
    assert authorization(config) == "Bearer pod-token"


def test_a_pod_without_its_service_account_says_what_to_mount(pod):
    (pod / "token").unlink()
    with pytest.raises(ConfigError, match="automountServiceAccountToken"):
        ClientConfig.in_cluster()


def test_what_is_no_pod_says_so():
    with pytest.raises(ConfigError, match="does not run in a pod"):
        ClientConfig.in_cluster()


# -- kubeconfig files --------------------------------------------------------------------------


def test_a_token_and_a_ca_are_taken_from_the_file(tmp_path):
    path = write(
        tmp_path,
        user={"token": "tok"},
        cluster={"certificate-authority-data": b64(b"PEM"), "tls-server-name": "api.test"},
    )
    config = ClientConfig.from_kubeconfig(path)
    assert config.ca_data == b"PEM"
    assert config.tls_server_name == "api.test"
    assert authorization(config) == "Bearer tok"
    assert "tok" not in repr(config).replace("token", "")


def test_certificates_are_found_beside_the_file_and_leave_no_copy(tmp_path):
    path = write(
        tmp_path,
        user={"client-certificate": "c.crt", "client-key": "/abs/c.key"},
        cluster={"certificate-authority": "ca.crt"},
    )
    config = ClientConfig.from_kubeconfig(path)
    assert config.ca_file == str(tmp_path / "ca.crt")
    assert config.cert_file == str(tmp_path / "c.crt")
    assert config.key_file == "/abs/c.key"
    assert config.credentials is None


def test_a_certificate_may_be_a_file_and_its_key_data(tmp_path):
    (tmp_path / "c.crt").write_bytes(b"CERT")
    path = write(tmp_path, user={"client-certificate": "c.crt", "client-key-data": b64(b"KEY")})
    config = ClientConfig.from_kubeconfig(path)
    assert (config.cert_data, config.key_data) == (b"CERT", b"KEY")
    (tmp_path / "c.crt").unlink()
    with pytest.raises(ConfigError, match=r"c\.crt cannot be read"):
        ClientConfig.from_kubeconfig(path)


def test_a_password_is_sent_as_basic_authentication(tmp_path):
    path = write(tmp_path, user={"username": "jane", "password": "pw"})
    assert authorization(ClientConfig.from_kubeconfig(path)) == "Basic amFuZTpwdw=="


def test_a_token_file_is_followed_as_it_rotates(tmp_path):
    (tmp_path / "tok").write_text("one")
    config = ClientConfig.from_kubeconfig(write(tmp_path, user={"tokenFile": "tok"}))
    clock = ManualClock()
    credentials = credentials_of(config, clock)
    assert credentials.authorization() == "Bearer one"
    (tmp_path / "tok").write_text("second")
    clock.advance(59.0)
    assert credentials.authorization() == "Bearer one"
    clock.advance(1.0)
    assert credentials.authorization() == "Bearer second"


def test_a_user_without_anything_is_anonymous(tmp_path):
    assert authorization(ClientConfig.from_kubeconfig(write(tmp_path))) is None
    assert authorization(ClientConfig.from_kubeconfig(write(tmp_path, user={}))) is None


def test_impersonation_is_taken_over(tmp_path):
    path = write(
        tmp_path,
        user={
            "token": "t",
            "as": "jane",
            "as-uid": "7",
            "as-groups": ["dev"],
            "as-user-extra": {"reason": ["x"]},
        },
    )
    impersonate = ClientConfig.from_kubeconfig(path).impersonate
    assert impersonate == c.Impersonation(
        user="jane", uid="7", groups=["dev"], extra={"reason": ["x"]}
    )


def test_skipping_the_check_is_taken_over_but_not_with_a_ca(tmp_path):
    path = write(tmp_path, cluster={"insecure-skip-tls-verify": True})
    assert ClientConfig.from_kubeconfig(path).unsafe_skip_tls_verify
    path = write(
        tmp_path,
        cluster={"insecure-skip-tls-verify": True, "certificate-authority-data": b64(b"x")},
    )
    with pytest.raises(ConfigError, match=r"context 'here': unsafe_skip_tls_verify"):
        ClientConfig.from_kubeconfig(path)


def test_proxies_come_from_the_file_or_the_environment(tmp_path, monkeypatch, pod):
    monkeypatch.setenv("https_proxy", "proxy:3128")
    monkeypatch.setenv("no_proxy", "a.test,10.0.0.0/8")
    config = ClientConfig.from_kubeconfig(write(tmp_path))
    assert config.proxy_url == "http://proxy:3128"
    assert config.no_proxy == ("a.test", "10.0.0.0/8")
    assert ClientConfig.in_cluster().proxy_url == "http://proxy:3128"
    config = ClientConfig.from_kubeconfig(write(tmp_path, cluster={"proxy-url": "http://own:1"}))
    assert (config.proxy_url, config.no_proxy) == ("http://own:1", ())


def test_several_files_are_merged(tmp_path):
    one = write(tmp_path, user={"token": "one"}, name="one")
    two = write(tmp_path, user={"token": "two"}, name="two", context="there")
    both = f"{one}:{two}"
    assert authorization(ClientConfig.from_kubeconfig(both, context="there")) == "Bearer one"


def with_cluster(fields: str, user: str = "") -> str:
    return (
        f"current-context: x\ncontexts: [{{name: x, context: {{cluster: c{user}}}}}]\n"
        f"clusters: [{{name: c, cluster: {{{fields}}}}}]"
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "is no YAML map with clusters, contexts and users: is it a kubeconfig"),
        ("{", "cannot be read"),
        ("[]", "is no YAML map with clusters, contexts and users"),
        ("hello", "is no YAML map with clusters, contexts and users"),
        ("contexts: [{context: {}}]", "contexts in .* is no list of entries that each have a name"),
        ("clusters: here", "clusters in .* is no list of entries that each have a name"),
        ("kind: Config", "has no context ''"),
        ("current-context: x\ncontexts: []", "has no context 'x'"),
        (with_cluster("").partition("clusters")[0], "names the cluster 'c'"),
        (with_cluster("server: 'https://h'", ", user: u"), "names the user 'u'"),
        (with_cluster(""), "cluster has no server"),
        (
            with_cluster("server: 'https://h', certificate-authority-data: '!'"),
            "is not base64",
        ),
        (with_cluster("server: 'h:1'"), "server must be"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_what_is_wrong(tmp_path, content, text):
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConfigError, match=text) as caught:
        ClientConfig.from_kubeconfig(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="there is no kubeconfig at"):
        ClientConfig.from_kubeconfig(tmp_path / "nothing")


def test_a_directory_is_no_kubeconfig(tmp_path):
    with pytest.raises(ConfigError, match=r"is a directory: .* for example .*config"):
        ClientConfig.from_kubeconfig(tmp_path)


def test_another_context_can_be_asked_for_and_the_ones_there_are_listed(tmp_path):
    path = write(tmp_path, user={"token": "t"})
    assert ClientConfig.from_kubeconfig(path, context="here").server == SERVER
    with pytest.raises(ConfigError, match=r"has no context 'nope', it has \['here'\]"):
        ClientConfig.from_kubeconfig(path, context="nope")


def test_a_refused_token_is_read_from_the_file_anew(tmp_path, serve, connect):
    server = serve(failure(401), answer(widget()))
    path = write(tmp_path, user={"token": "old"})
    credentials = ClientConfig.from_kubeconfig(path).credentials
    assert credentials is not None
    assert credentials.authorization() == "Bearer old"
    write(tmp_path, user={"token": "new"})
    connect(server, credentials=credentials).get(WIDGET, "a", namespace="x")
    assert [r.header("Authorization") for r in server.requests] == ["Bearer old", "Bearer new"]


def test_a_file_that_broke_meanwhile_keeps_the_former_token(tmp_path, caplog):
    path = write(tmp_path, user={"token": "old"})
    credentials = ClientConfig.from_kubeconfig(path).credentials
    assert credentials is not None
    Path(path).write_text("{")
    credentials.reload()
    with caplog.at_level(logging.WARNING, "appsdk_operator.client"):
        assert credentials.authorization() == "Bearer old"
    assert "keeping the former credentials" in caplog.text


def jwt(expires: int) -> str:
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, {"exp": expires})]
    words = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
    return ".".join([*words, "sig"])


def test_an_auth_provider_is_left_to_the_package(tmp_path):
    token = jwt(4_000_000_000)
    provider = {"name": "oidc", "config": {"id-token": token}}
    config = ClientConfig.from_kubeconfig(write(tmp_path, user={"auth-provider": provider}))
    assert authorization(config) == f"Bearer {token}"


@pytest.mark.parametrize(
    "provider",
    [{"name": "unheard-of"}, {"name": "oidc", "config": {"id-token": "no jwt"}}],
)
def test_an_auth_provider_that_gives_nothing_is_an_error(tmp_path, provider):
    path = write(tmp_path, user={"auth-provider": provider})
    with pytest.raises(ConfigError, match=r"auth-provider .* gives no credentials"):
        ClientConfig.from_kubeconfig(path)


def test_an_auth_provider_that_the_package_cannot_load_is_an_error(tmp_path):
    path = write(tmp_path, user={"auth-provider": {"name": "oidc", "config": {}}})
    with pytest.raises(ConfigError, match="the kubernetes package cannot load"):
        ClientConfig.from_kubeconfig(path)


# -- exec plugins ------------------------------------------------------------------------------


def plugin(folder: Path, status: Any, *, code: int = 0) -> dict[str, Any]:
    """An exec section whose plugin counts its runs and prints a credential."""
    script = folder / "plugin.py"
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    script.write_text(
        textwrap.dedent(
            f"""
            import json, os, sys
            runs = open({str(folder / "runs")!r}, "a+")
            runs.write("x"); runs.flush(); runs.seek(0)
            text = {json.dumps({**answer, "status": status})!r}
            print(text.replace("RUN", str(len(runs.read()))) if {code} == 0 else "")
            print("the plugin complains", file=sys.stderr)
            sys.exit({code})
            """
        )
    )
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(script)],
        "env": [{"name": "A", "value": "b"}],
        "installHint": "install the plugin with pip",
    }


def test_a_plugin_gives_a_token_and_is_run_once(tmp_path):
    config = ClientConfig.from_kubeconfig(
        write(tmp_path, user={"exec": plugin(tmp_path, {"token": "tRUN"})})
    )
    assert authorization(config) == "Bearer t1"
    assert authorization(config) == "Bearer t1"
    assert config.credentials is not None
    assert config.credentials.client_certificate() is None


def test_a_plugin_is_run_again_after_its_token_was_refused(tmp_path, serve, connect):
    server = serve(failure(401), answer(widget()))
    path = write(tmp_path, user={"exec": plugin(tmp_path, {"token": "tRUN"})})
    credentials = ClientConfig.from_kubeconfig(path).credentials
    connect(server, credentials=credentials).get(WIDGET, "a", namespace="x")
    assert [r.header("Authorization") for r in server.requests] == ["Bearer t1", "Bearer t2"]


def test_a_plugin_is_run_again_before_its_token_expires(tmp_path):
    clock = ManualClock(epoch=0.0)
    status = {"token": "tRUN", "expirationTimestamp": "1970-01-01T00:10:00Z"}
    credentials = ExecCredentials(
        plugin(tmp_path, status), folder=str(tmp_path), cluster={}, clock=clock
    )
    assert credentials.authorization() == "Bearer t1"
    clock.advance(539.0)
    assert credentials.authorization() == "Bearer t1"
    clock.advance(1.0)
    assert credentials.authorization() == "Bearer t2"


def test_a_plugin_may_give_a_certificate(tmp_path, serve, connect, authority):
    peers = []

    def reply(sock, request):
        peers.append(dict(pair[0] for pair in sock.getpeercert()["subject"])["commonName"])
        sock.sendall(answer(widget()))

    server = serve(reply, context=authority.server_context(ask_client=True))
    pair = authority.client
    status = {
        "clientCertificateData": pair.cert.decode(),
        "clientKeyData": pair.key.decode(),
    }
    credentials = ExecCredentials(plugin(tmp_path, status), folder=str(tmp_path), cluster={})
    client = connect(server, ca_data=authority.ca.cert, credentials=credentials)
    client.get(WIDGET, "a", namespace="x")
    assert peers == ["jane"]
    assert server.requests[0].header("Authorization") is None


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        ({}, 0, "printed neither"),
        ("junk", 0, "printed neither"),
        ({"token": "two words"}, 0, "is not a bearer token"),
        ({"token": "t", "expirationTimestamp": "soon"}, 0, "bad expirationTimestamp"),
        ({}, 3, "the plugin complains; install the plugin with pip"),
    ],
)
def test_a_plugin_that_fails_is_named_with_its_complaint(tmp_path, status, code, text):
    section = plugin(tmp_path, status, code=code)
    with pytest.raises(ConfigError, match=text) as caught:
        ExecCredentials(section, folder=str(tmp_path), cluster={}).authorization()
    assert "the exec plugin" in str(caught.value) or "what the exec plugin" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code"),
    [({}, 3), ({}, 0), ({"token": "t", "expirationTimestamp": "soon"}, 0)],
)
def test_a_plugin_that_failed_is_left_alone_for_a_second(tmp_path, status, code):
    clock = ManualClock()
    credentials = ExecCredentials(
        plugin(tmp_path, status, code=code), folder=str(tmp_path), cluster={}, clock=clock
    )

    def texts(count):
        found = set()
        for _ in range(count):
            with pytest.raises(ConfigError) as caught:
                credentials.authorization()
            with pytest.raises(ConfigError):
                credentials.client_certificate()
            found.add(str(caught.value))
        return found

    assert len(texts(50)) == 1
    clock.advance(0.9)
    credentials.reload()
    texts(1)
    assert (tmp_path / "runs").read_text() == "x"
    clock.advance(0.1)
    texts(2)
    assert (tmp_path / "runs").read_text() == "xx"


def test_a_plugin_that_works_again_is_used_after_that_second(tmp_path):
    clock = ManualClock()
    section = plugin(tmp_path, {}, code=3)
    credentials = ExecCredentials(section, folder=str(tmp_path), cluster={}, clock=clock)
    with pytest.raises(ConfigError):
        credentials.authorization()
    plugin(tmp_path, {"token": "tRUN"})
    with pytest.raises(ConfigError):
        credentials.authorization()
    clock.advance(1.0)
    assert credentials.authorization() == "Bearer t2"


def test_a_plugin_without_the_key_of_its_certificate_is_an_error(tmp_path):
    section = plugin(tmp_path, {"clientCertificateData": "x"})
    with pytest.raises(ConfigError, match="without clientKeyData"):
        ExecCredentials(section, folder=str(tmp_path), cluster={}).client_certificate()


def test_a_plugin_that_is_not_installed_is_an_error_with_a_remedy(tmp_path):
    section = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./nowhere"}
    with pytest.raises(ConfigError, match="run it by hand to see what it wants"):
        ExecCredentials(section, folder=str(tmp_path), cluster={}).authorization()
