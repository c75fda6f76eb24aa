from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from appsdk_operator import client as c
from appsdk_operator.client import ClientConfig, ConfigError, Credential, RequestStopped
from appsdk_operator.client._auth import service_account
from appsdk_operator.client._auth.config import credentials_of
from appsdk_operator.client._auth.credentials import TokenFile
from appsdk_operator.client._auth.exec import ExecCredentials
from appsdk_operator.client._transport.proxy import proxy_for
from appsdk_operator.resource import dump_yaml
from appsdk_operator.runtime import ManualClock, StopSignal
from tests.client.conftest import WIDGET, answer, failure, widget
from tests.credentials import authorization_of, obtain, refuse
from tests.hypothesis_profiles import scaled

SERVER = "https://10.0.0.1:6443"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def write(
    folder: Path,
    *,
    user: Any = None,
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
    monkeypatch.setattr(service_account, "_SERVICE_ACCOUNT", str(folder))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return folder


def authorization(config: ClientConfig) -> str | None:
    return authorization_of(credentials_of(config, ManualClock()))


# -- which one ---------------------------------------------------------------------------------


@pytest.mark.parametrize("proxy", ["", "http://proxy.test:3128"])
def test_in_a_pod_no_yaml_is_loaded_and_no_other_http_client_but_for_a_proxy(pod, proxy):
    code = """
import sys
from appsdk_operator import Client, ClientConfig
from appsdk_operator.client._auth import service_account
service_account._SERVICE_ACCOUNT = sys.argv[1]
config = ClientConfig.load()
print(config.proxy_url, config.token_file == sys.argv[1] + "/token")
heavy = ("yaml", "http.client", "email", "tempfile", "encodings.idna", "kubernetes")
print(*(name for name in heavy if name in sys.modules))
"""
    variables = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    variables |= {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    variables |= {"HTTPS_PROXY": proxy} if proxy else {}
    done = subprocess.run(
        [sys.executable, "-c", code, str(pod)],
        env=variables,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    found, loaded = done.stdout.splitlines()
    assert found == f"{proxy or None} True"
    assert ("http.client" in loaded) is bool(proxy)
    assert "yaml" not in loaded


def test_a_name_of_a_host_loads_no_tables_of_international_names():
    code = """
import sys
from appsdk_operator import Client, ClientConfig
from appsdk_operator.client import TransportError
with Client(ClientConfig(server="https://localhost:1", max_retries=0)) as client:
    try:
        client.request("GET", "/version")
    except TransportError:
        print("encodings.idna" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n"


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
    with pytest.raises(
        ConfigError, match=r"give the path of a kubeconfig, set \$KUBECONFIG, run in a pod"
    ) as caught:
        ClientConfig.load()
    assert "Without a cluster: appsdk-operator run --dev " in str(caught.value)


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
    assert authorization_of(credentials) == "Bearer one"
    (tmp_path / "tok").write_text("second")
    clock.advance(59.0)
    assert authorization_of(credentials) == "Bearer one"
    clock.advance(1.0)
    assert authorization_of(credentials) == "Bearer second"


def test_a_token_file_goes_before_a_token_once_it_can_be_read(tmp_path, caplog):
    user = {"tokenFile": "tok", "token": "fixed"}
    credentials = ClientConfig.from_kubeconfig(write(tmp_path, user=user)).credentials
    assert authorization_of(credentials) == "Bearer fixed"
    assert (
        "could not renew the credentials; the former ones stay in use: the token file"
        in caplog.text
    )
    (tmp_path / "tok").write_text("followed")
    refuse(credentials)
    assert authorization_of(credentials) == "Bearer followed"
    (tmp_path / "tok").unlink()
    refuse(credentials)
    assert authorization_of(credentials) == "Bearer followed"


def test_a_token_beside_a_token_file_is_checked_too(tmp_path):
    path = write(tmp_path, user={"tokenFile": "tok", "token": "two words"})
    with pytest.raises(ConfigError, match=r"token in .* is not a bearer token"):
        ClientConfig.from_kubeconfig(path)


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


@pytest.mark.parametrize("name", ["ALL_PROXY", "all_proxy"])
def test_a_proxy_for_all_schemes_is_not_used_as_by_go_programs(tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, "socks5h://proxy:1080")
    assert ClientConfig.from_kubeconfig(write(tmp_path)).proxy_url is None


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.9.1", "[::1]"])
def test_a_proxy_of_the_environment_is_not_for_loopback_but_one_of_the_file_is(
    tmp_path, monkeypatch, host
):
    monkeypatch.setenv("https_proxy", "proxy:3128")
    cluster = {"server": f"https://{host}:6443"}
    assert ClientConfig.from_kubeconfig(write(tmp_path, cluster=cluster)).proxy_url is None
    cluster["proxy-url"] = "http://own:1"
    config = ClientConfig.from_kubeconfig(write(tmp_path, cluster=cluster))
    assert proxy_for("localhost", config.proxy_url, config.no_proxy) is not None


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
        ("", "is not a YAML map with clusters, contexts and users: is it a kubeconfig"),
        ("{", "cannot be read"),
        ("[]", "is not a YAML map with clusters, contexts and users"),
        ("hello", "is not a YAML map with clusters, contexts and users"),
        (
            "contexts: [{context: {}}]",
            "contexts in .* is not a list of entries that each have a name",
        ),
        ("clusters: here", "clusters in .* is not a list of entries that each have a name"),
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
    assert authorization_of(credentials) == "Bearer old"
    former = obtain(credentials)
    write(tmp_path, user={"token": "new"})
    connect(server, credentials=credentials).get(WIDGET, "a", namespace="x")
    assert [r.header("Authorization") for r in server.requests] == ["Bearer old", "Bearer new"]
    write(tmp_path, user={"token": "newer"})
    credentials.refused(former)
    assert authorization_of(credentials) == "Bearer new"


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


def test_an_auth_provider_without_the_package_names_the_extra(tmp_path, monkeypatch):
    for name in [each for each in sys.modules if each.startswith("kubernetes.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    path = write(tmp_path, user={"auth-provider": {"name": "oidc", "config": {}}})
    with pytest.raises(
        ConfigError, match=r"auth-provider 'oidc' needs .*appsdk-operator\[kubernetes\].* exec"
    ):
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
            print(text.replace("-RUN-", str(len(runs.read()))) if {code} == 0 else "")
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
        write(tmp_path, user={"exec": plugin(tmp_path, {"token": "t-RUN-"})})
    )
    assert authorization(config) == "Bearer t1"
    assert authorization(config) == "Bearer t1"
    assert config.credentials is not None
    assert obtain(config.credentials).certificate is None


def test_a_plugin_is_run_again_after_its_token_was_refused(tmp_path, serve, connect):
    server = serve(failure(401), answer(widget()))
    path = write(tmp_path, user={"exec": plugin(tmp_path, {"token": "t-RUN-"})})
    credentials = ClientConfig.from_kubeconfig(path).credentials
    connect(server, credentials=credentials).get(WIDGET, "a", namespace="x")
    assert [r.header("Authorization") for r in server.requests] == ["Bearer t1", "Bearer t2"]


def test_a_plugin_is_not_run_again_for_requests_that_are_refused_late(tmp_path, serve, connect):
    arrived, renewed = threading.Barrier(4), threading.Event()

    def reply(sock, request):
        if request.header("Authorization") != "Bearer t1":
            renewed.set()
            sock.sendall(answer(widget()))
            return True
        if arrived.wait(20.0):  # all but one
            renewed.wait(20.0)
        sock.sendall(failure(401))
        return True

    path = write(tmp_path, user={"exec": plugin(tmp_path, {"token": "t-RUN-"})})
    client = connect(serve(reply), credentials=ClientConfig.from_kubeconfig(path).credentials)
    with ThreadPoolExecutor(4) as pool:
        got = [pool.submit(client.get, WIDGET, "a", namespace="x") for _ in range(4)]
        assert [each.result().name for each in got] == ["a"] * 4
    assert (tmp_path / "runs").read_text() == "xx"


def test_a_plugin_is_run_again_before_its_token_expires(tmp_path):
    clock = ManualClock(epoch=0.0)
    status = {"token": "t-RUN-", "expirationTimestamp": "1970-01-01T00:10:00Z"}
    credentials = ExecCredentials(
        plugin(tmp_path, status), folder=str(tmp_path), cluster={}, clock=clock
    )
    assert authorization_of(credentials) == "Bearer t1"
    clock.advance(539.0)
    assert authorization_of(credentials) == "Bearer t1"
    clock.advance(1.0)
    assert authorization_of(credentials) == "Bearer t2"


@pytest.mark.parametrize("left", [-86400, -1, 0, 1, 5, 60, 3600, None])
def test_a_plugin_runs_once_for_a_request_and_once_more_after_a_401(tmp_path, left):
    clock = ManualClock(epoch=1_000_000.0)
    status = {"token": "t-RUN-"}
    if left is not None:
        expiry = dt.datetime.fromtimestamp(1_000_000 + left, dt.UTC)
        status["expirationTimestamp"] = expiry.strftime("%Y-%m-%dT%H:%M:%SZ")
    credentials = ExecCredentials(
        plugin(tmp_path, status), folder=str(tmp_path), cluster={}, clock=clock
    )
    # A thread, since what is to be shown wrong would not end.
    sent = []

    def requests():
        for _ in range(2):
            credential = obtain(credentials)
            sent.append(credential.authorization)
            credentials.refused(credential)

    thread = threading.Thread(target=requests)
    thread.start()
    thread.join(5.0)
    plugin(tmp_path, {"token": "too late"})
    thread.join()
    assert sent == ["Bearer t1", "Bearer t2"]


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
        ("junk", 0, "answer.status in what .* printed must be a map"),
        ({"token": "two words"}, 0, "is not a bearer token"),
        ({"token": "t", "expirationTimestamp": "soon"}, 0, "bad expirationTimestamp"),
        ({}, 3, "the plugin complains; install the plugin with pip"),
    ],
)
def test_a_plugin_that_fails_is_named_with_its_complaint(tmp_path, status, code, text):
    section = plugin(tmp_path, status, code=code)
    with pytest.raises(ConfigError, match=text) as caught:
        authorization_of(ExecCredentials(section, folder=str(tmp_path), cluster={}))
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
                authorization_of(credentials)
            found.add(str(caught.value))
        return found

    assert len(texts(50)) == 1
    clock.advance(0.9)
    credentials.refused(Credential())
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
        authorization_of(credentials)
    plugin(tmp_path, {"token": "t-RUN-"})
    with pytest.raises(ConfigError):
        authorization_of(credentials)
    clock.advance(1.0)
    assert authorization_of(credentials) == "Bearer t2"


STEPS = st.lists(
    st.one_of(
        st.sampled_from(["request", "request", "reload", "fails", "works", "due"]),
        st.sampled_from([0.3, 1.0, 5.0, 60.0]),
    ),
    max_size=30,
)


@settings(max_examples=scaled(200), deadline=None)
@given(life=st.sampled_from([1, 5, 15, 90, 3600, None]), steps=STEPS)
def test_a_failing_plugin_fails_no_request_while_its_credential_is_valid(life, steps):
    clock = ManualClock(epoch=1_000_000.0)
    section = {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}
    credentials = ExecCredentials(section, folder="", cluster={}, clock=clock)
    runs, valid_until, works = [], float("-inf"), True

    def run(_):
        nonlocal valid_until
        assert not runs or clock.monotonic() - runs[-1] >= 1.0 - 1e-9 or refused
        runs.append(clock.monotonic())
        if not works:
            raise ConfigError("it does not work")
        valid_until = clock.monotonic() + (life or float("inf"))
        expiry = dt.datetime.fromtimestamp(clock.time() + (life or 0), dt.UTC)
        stamp = expiry.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if life else ""
        return {"token": f"t{len(runs)}", "expirationTimestamp": stamp}

    credentials._plugin.run = run
    refused, present = False, Credential()
    for step in steps:
        if isinstance(step, float):
            clock.advance(step)
        elif step == "due":
            clock.advance(0.95 * (life or 1.0) if life != 3600 else 3545.0)
        elif step == "reload":
            credentials.refused(present)
            if present != Credential():
                refused, valid_until = True, float("-inf")
        elif step == "request":
            try:
                present = obtain(credentials)
            except ConfigError:
                assert clock.monotonic() >= valid_until
            else:
                # Another second, for a credential that has expired already.
                assert clock.monotonic() < max(valid_until, runs[-1] + 1.0)
            refused = False
        else:
            works = step == "works"


@pytest.mark.parametrize("source", ["kubeconfig", "token file", "plugin"])
def test_a_renewal_that_fails_is_warned_of_once_until_it_works(tmp_path, caplog, source):
    clock, token = ManualClock(epoch=0.0), tmp_path / "token"

    def provide(value):
        if not value:
            token.unlink()
            (tmp_path / "config").write_text("{")
            clock.advance(92.0)  # of the 100 s that a plugin's token is valid
            return plugin(tmp_path, {}, code=3)
        token.write_text(value)
        write(tmp_path, user={"token": value})
        expiry = dt.datetime.fromtimestamp(clock.time() + 100.0, dt.UTC).isoformat()
        return plugin(tmp_path, {"token": value, "expirationTimestamp": expiry})

    section = provide("first")
    credentials = {
        "kubeconfig": lambda: ClientConfig.from_kubeconfig(tmp_path / "config").credentials,
        "token file": lambda: TokenFile(str(token), clock=clock),
        "plugin": lambda: ExecCredentials(section, folder="", cluster={}, clock=clock),
    }[source]()
    assert authorization_of(credentials) == "Bearer first"

    def warnings(expected):
        caplog.clear()
        for _ in range(3):
            clock.advance(1.0)
            if source != "plugin":  # of which a refused token is not used again
                refuse(credentials)
            assert authorization_of(credentials) == expected
        return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]

    caplog.set_level(logging.WARNING, "appsdk_operator.client")
    provide("")
    (line,) = warnings("Bearer first")
    assert line.startswith("could not renew the credentials; the former ones stay in use: ")
    assert warnings("Bearer first") == []
    provide("second")
    assert warnings("Bearer second") == []
    provide("")
    assert warnings("Bearer second") == [line]


def test_a_plugin_without_the_key_of_its_certificate_is_an_error(tmp_path):
    section = plugin(tmp_path, {"clientCertificateData": "x"})
    with pytest.raises(ConfigError, match="without clientKeyData"):
        obtain(ExecCredentials(section, folder=str(tmp_path), cluster={}))


def test_a_plugin_that_is_not_installed_is_an_error_with_a_remedy(tmp_path):
    section = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./nowhere"}
    with pytest.raises(ConfigError, match="run it by hand to see its message"):
        authorization_of(ExecCredentials(section, folder=str(tmp_path), cluster={}))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"token": ["t"]}, r"status\.token in what .* must be text, but is a list"),
        ({"token": 5}, r"status\.token .* must be text, but is a number: put quotes"),
        ({"token": True}, r"status\.token .* but is true or false"),
        ({"token": {"t": "t"}}, r"status\.token .* but is a map"),
        ({"token": "tök"}, "one word of printable ASCII"),
        (
            {"clientCertificateData": ["c"], "clientKeyData": "k"},
            "clientCertificateData in .* text",
        ),
        ({"clientCertificateData": "c", "clientKeyData": 5}, "clientKeyData in .* must be text"),
        ({"token": "t", "expirationTimestamp": 5}, "expirationTimestamp in .* must be text"),
    ],
)
def test_what_a_plugin_prints_in_the_wrong_form_is_never_sent(tmp_path, status, text):
    credentials = ExecCredentials(plugin(tmp_path, status), folder=str(tmp_path), cluster={})
    with pytest.raises(ConfigError, match=text) as caught:
        authorization_of(credentials)
    assert "tök" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"command": None}, r"exec\.command in .* is missing"),
        ({"command": ["a"]}, r"exec\.command in .* must be text, but is a list"),
        ({"apiVersion": ""}, r"exec\.apiVersion in .* is missing"),
        ({"args": "abc"}, r"exec\.args in .* must be a list, but is text"),
        ({"args": [5]}, r"exec\.args\[0\] in .* must be text, but is a number: put quotes"),
        ({"env": {"A": "b"}}, r"exec\.env in .* must be a list, but is a map"),
        ({"env": [{"name": "A", "value": 5}]}, r"exec\.env\[0\]\.value in .* must be text"),
        ({"env": ["A=b"]}, r"exec\.env\[0\] in .* must be a map"),
        ({"provideClusterInfo": "false"}, r"exec\.provideClusterInfo in .* true or false"),
        ({"interactiveMode": 5}, r"exec\.interactiveMode in .* must be text"),
    ],
)
def test_an_exec_section_in_the_wrong_form_is_refused_with_its_place(tmp_path, change, text):
    section = {**plugin(tmp_path, {"token": "t"}), **change}
    path = write(tmp_path, user={"exec": section})
    with pytest.raises(ConfigError, match=rf"users\[me\]\.user\.{text}") as caught:
        ClientConfig.from_kubeconfig(path)
    assert path in str(caught.value)


def shell(script: str, **options: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "command": "sh",
        "args": ["-c", script],
        "interactiveMode": "Never",
        **options,
    }


TOKEN = json.dumps({"apiVersion": "v1", "kind": "ExecCredential", "status": {"token": "t"}})


class Telling:
    """A clock of which each look at the time says that a second has gone, once a file is written.

    A plugin may take its time until then.
    """

    def __init__(self, path: Path) -> None:
        self._clock = ManualClock()
        self._path = path

    def monotonic(self) -> float:
        if self._path.exists() and self._path.read_text().endswith("\n"):
            self._clock.advance(1.0)
        return self._clock.monotonic()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)


def is_running(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("child", ["sleep 600", "(trap '' TERM; sleep 600)"])
def test_a_plugin_that_hangs_is_ended_with_what_it_started(tmp_path, child):
    # The shell's child has its output, and would outlive the shell.
    script = f"{child} & echo $! > {tmp_path}/child; wait"
    credentials = ExecCredentials(
        shell(script),
        folder=str(tmp_path),
        cluster={},
        timeout=3.0,
        clock=Telling(tmp_path / "child"),
    )
    with pytest.raises(ConfigError, match=r"'sh' failed: it took more than 3 s and was ended"):
        authorization_of(credentials)
    # Killed it is; the kernel may still be about to end it.
    child, pause = (tmp_path / "child").read_text().strip(), StopSignal()
    assert any(not is_running(child) or pause.wait(0.02) for _ in range(1500))


def test_what_a_plugin_leaves_behind_keeps_nobody_waiting(tmp_path):
    script = f"sleep 600 & echo $! > {tmp_path}/child; echo '{TOKEN}'"
    credentials = ExecCredentials(shell(script), folder=str(tmp_path), cluster={})
    assert authorization_of(credentials) == "Bearer t"
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_a_plugin_that_prints_for_ever_is_ended(tmp_path):
    credentials = ExecCredentials(shell("yes"), folder=str(tmp_path), cluster={})
    with pytest.raises(ConfigError, match="printed more than 1048576 bytes"):
        authorization_of(credentials)


def hanging_plugin(tmp_path):
    """Credentials whose plugin hangs, and a pipe in which it says so; "runs" has a line a start."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    script = f"echo x >> {tmp_path}/runs; echo > {ready}; sleep 600"
    return ExecCredentials(shell(script), folder=str(tmp_path), cluster={}), ready


def test_a_stop_ends_the_plugin_and_the_requests_that_wait_for_it(tmp_path, connect):
    credentials, ready = hanging_plugin(tmp_path)
    client = connect("https://127.0.0.1:1", credentials=credentials)
    stop, found = StopSignal(), []

    def ask():
        with pytest.raises(RequestStopped) as caught:
            client.list_page(WIDGET, stop=stop)
        found.append(caught.value)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    ready.read_text()
    stop.set()
    for thread in threads:
        thread.join(30.0)
    assert [error.sent for error in found] == [False] * 3
    assert (tmp_path / "runs").read_text() == "x\n"


def test_a_stop_of_several_requests_starts_no_plugin_anew_for_the_later_ones(tmp_path, connect):
    credentials, ready = hanging_plugin(tmp_path)
    client = connect("https://127.0.0.1:1", credentials=credentials)
    stop = StopSignal()

    def ask():
        with pytest.raises(RequestStopped):
            client.list_page(WIDGET, stop=stop)

    first, second = threading.Thread(target=ask), threading.Thread(target=ask)

    def wait_for_both():
        first.join(10.0)
        second.join(10.0)

    first.start()
    ready.read_text()
    # The signal reaches the first request, then this, and then the second.
    stop.on_set(wait_for_both)
    second.start()
    pause = StopSignal()
    assert any(credentials._waiters.waiting or pause.wait(0.01) for _ in range(3000))
    stop.set()
    wait_for_both()
    assert (tmp_path / "runs").read_text() == "x\n"


def test_a_request_that_is_stopped_leaves_the_plugin_to_the_others(tmp_path):
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    script = f"if mkdir {tmp_path}/first; then echo > {ready}; sleep 600; fi; echo '{TOKEN}'"
    credentials = ExecCredentials(shell(script), folder=str(tmp_path), cluster={})
    stop = StopSignal()
    first = threading.Thread(target=credentials.obtain, args=(stop,))
    first.start()
    ready.read_text()
    second = threading.Thread(target=credentials.obtain, args=(StopSignal(),))
    second.start()
    stop.set()
    for thread in (first, second):
        thread.join(30.0)
    assert authorization_of(credentials) == "Bearer t"


def test_who_waits_for_the_plugin_of_another_request_is_stopped_alone(tmp_path):
    credentials, ready = hanging_plugin(tmp_path)
    running, waiting = StopSignal(), StopSignal()
    first = threading.Thread(target=credentials.obtain, args=(running,))
    first.start()
    ready.read_text()
    second = threading.Thread(target=credentials.obtain, args=(waiting,))
    second.start()
    waiting.set()
    second.join(30.0)
    assert (first.is_alive(), second.is_alive()) == (True, False)
    running.set()
    for thread in (first, second):
        thread.join(30.0)


def test_a_plugin_is_told_of_its_cluster_and_asks_at_no_terminal(tmp_path):
    script = (
        f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; cat > {tmp_path}/input; '
        f"pwd > {tmp_path}/folder; echo '{TOKEN}'"
    )
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"a": 1}}
    path = write(
        tmp_path,
        user={"exec": shell(script, provideClusterInfo=True)},
        cluster={"extensions": [extension]},
    )
    assert authorization(ClientConfig.from_kubeconfig(path)) == "Bearer t"
    assert json.loads((tmp_path / "info").read_text()) == {
        "apiVersion": "v1",
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {"server": SERVER, "extensions": [extension], "config": {"a": 1}},
        },
    }
    assert (tmp_path / "input").read_text() == ""
    assert (tmp_path / "folder").read_text().strip() == str(tmp_path)


def test_a_plugin_that_must_ask_needs_a_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    section = shell("true", interactiveMode="Always")
    with pytest.raises(ConfigError, match="interactiveMode is Always, but there is no terminal"):
        authorization_of(ExecCredentials(section, folder=str(tmp_path), cluster={}))


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("no json", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "the answer in what .* must be a map, but is a list"),
        ('{"apiVersion": "v2"}', "answered in apiVersion 'v2', but 'v1' was asked for"),
        ('{"apiVersion": "v1"}', "printed neither"),
    ],
    ids=["words", "deep", "list", "version", "empty"],
)
def test_what_is_no_credential_is_refused(tmp_path, output, text):
    (tmp_path / "output").write_text(output)
    section = shell(f"cat {tmp_path}/output")
    with pytest.raises(ConfigError, match=text):
        authorization_of(ExecCredentials(section, folder=str(tmp_path), cluster={}))


# -- values of the wrong form ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "text"),
    [
        ("hello", r"users\[me\]\.user in .* must be a map, but is text"),
        (["a"], r"users\[me\]\.user in .* must be a map, but is a list"),
        ({"token": ["x"]}, r"user\.token in .* must be text, but is a list"),
        ({"token": 12345}, r"user\.token in .* must be text, but is a number: put quotes"),
        ({"token": True}, r"user\.token in .* but is true or false: put quotes"),
        ({"token": "tök"}, r"user\.token in .* one word of printable ASCII"),
        ({"token": "two words"}, r"user\.token in .* one word of printable ASCII"),
        ({"tokenFile": ["x"]}, r"user\.tokenFile in .* must be text"),
        ({"username": 5, "password": "x"}, r"user\.username in .* must be text"),
        ({"username": "x", "password": 5}, r"user\.password in .* must be text"),
        ({"username": "x"}, r"user\.username in .* is given without a password"),
        ({"password": "x"}, r"user\.password in .* is given without a username"),
        ({"username": "a:b", "password": "x"}, r"user\.username in .* has a ':'"),
        ({"exec": "aws"}, r"user\.exec in .* must be a map, but is text"),
        ({"auth-provider": "gcp"}, r"user\.auth-provider in .* must be a map"),
        ({"as": ["jane"]}, r"user\.as in .* must be text"),
        ({"as-groups": ["dev"]}, "impersonation needs a user"),
        ({"as": "jane", "as-groups": "dev"}, r"user\.as-groups in .* must be a list"),
        ({"as": "jane", "as-groups": [5]}, r"user\.as-groups\[0\] in .* must be text"),
        ({"as": "jane", "as-user-extra": {"a": "b"}}, r"user\.as-user-extra\.a in .* a list"),
        ({"client-certificate": ["x"]}, r"user\.client-certificate in .* must be text"),
        ({"client-certificate-data": 5}, r"user\.client-certificate-data in .* must be text"),
        ({"client-key-data": "!"}, r"user\.client-key-data in .* is not base64"),
    ],
)
def test_a_user_of_the_wrong_form_is_refused_and_not_anonymous(tmp_path, user, text):
    path = write(tmp_path, user=user)
    with pytest.raises(ConfigError, match=text) as caught:
        ClientConfig.from_kubeconfig(path)
    assert path in str(caught.value)
    for secret in ("12345", "tök", "two words"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "text"),
    [
        ({"server": ["https://h"]}, r"clusters\[c\]\.cluster\.server in .* must be text"),
        ({"insecure-skip-tls-verify": "false"}, "insecure-skip-tls-verify in .* true or false"),
        ({"tls-server-name": 5}, "tls-server-name in .* must be text"),
        ({"proxy-url": 5}, "proxy-url in .* must be text"),
        ({"certificate-authority": ["x"]}, "certificate-authority in .* must be text"),
    ],
)
def test_a_cluster_of_the_wrong_form_is_refused(tmp_path, cluster, text):
    with pytest.raises(ConfigError, match=text):
        ClientConfig.from_kubeconfig(write(tmp_path, cluster=cluster))


def test_a_user_of_whom_nothing_is_known_is_warned_of(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "appsdk_operator.client"):
        config = ClientConfig.from_kubeconfig(write(tmp_path, user={"Token": "x"}))
    assert authorization(config) is None
    assert "nothing in users[me].user in" in caplog.text


def test_the_first_file_that_names_a_current_context_decides(tmp_path):
    one = write(tmp_path, user={"token": "one"}, name="one", context="")
    two = write(tmp_path, user={"token": "two"}, name="two", context="there")
    three = write(tmp_path, user={"token": "three"}, name="three", context="elsewhere")
    missing = tmp_path / "missing"
    config = ClientConfig.from_kubeconfig(f"{missing}:{two}:{three}:{one}")
    assert authorization(config) == "Bearer two"


LAUGHS = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
)
MERGES = "\n".join(
    ["a: &a {" + ", ".join(f"k{n}: {n}" for n in range(1000)) + "}"]
    + [f"b{n}: {{<<: *a}}" for n in range(1000)]
)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (LAUGHS.encode() + b"\nusers: [{name: me, user: {token: *a11}}]", "aliases multiply"),
        (MERGES.encode(), "merges multiply"),
        (b"a: &a [*a]", "cannot be read"),
        (b"[" * 100_000, "cannot be read: .*nested too deep"),
        (bytes(range(256)), "it is not text"),
        (b"\x00\x01\x02", "cannot be read"),
        ("kind: Config".encode("utf-16"), "it is not text"),
        (b"current-context: [a]", "current-context in .* must be text, but is a list"),
        (b"current-context: {a: b}", "current-context in .* must be text, but is a map"),
        (b"contexts: [{name: [a]}]", "contexts in .* is not a list of entries"),
        (b"current-context: x\ncontexts: [{name: x, context: [a]}]", r"contexts\[x\]\.context"),
        (b"current-context: x\ncontexts: [{name: x, context: {cluster: [a]}}]", r"t\.cluster in"),
        (b"x" * ((10 << 20) + 1), "has more than 10485760 bytes"),
    ],
    ids=itertools.count(),
)
def test_a_file_of_anything_is_refused_with_its_name(tmp_path, content, text):
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=text) as caught:
        ClientConfig.from_kubeconfig(path)
    assert str(path) in str(caught.value)


def test_a_device_or_a_pipe_is_no_kubeconfig(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe"):
        with pytest.raises(ConfigError, match="is not a regular file"):
            ClientConfig.from_kubeconfig(path)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"path": 5}, "path=5"),
        ({"path": ""}, "path=''"),
        ({"context": ["a"]}, "context="),
        ({"context": ""}, "context=''"),
        ({"exec_timeout": 0}, "exec_timeout=0"),
        ({"exec_timeout": "60"}, "exec_timeout='60'"),
        ({"exec_timeout": float("nan")}, "exec_timeout=nan"),
    ],
)
@pytest.mark.parametrize("load", [ClientConfig.load, ClientConfig.from_kubeconfig])
def test_what_is_asked_for_is_checked(load, options, text):
    with pytest.raises((TypeError, ValueError), match=text):
        load(**options)
