"""A kube-apiserver asks an authentication webhook of the kit whose tokens it gets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from appsdk_operator import Client, kinds
from appsdk_operator.apiserver import kubeconfig, write_kubeconfig
from appsdk_operator.client import Forbidden, Unauthorized
from appsdk_operator.resource import MutableObject
from appsdk_operator.serving import HTTPLimits, HTTPServer, TLSOptions
from appsdk_operator.testing import ControlPlane, running
from appsdk_operator.webhooks import (
    TokenReviewRequest,
    TokenReviewResponse,
    TokenReviewWebhook,
    UserInfo,
)

pytestmark = pytest.mark.real


@attrs.define
class Login:
    """An authentication webhook and the server that asks it."""

    plane: ControlPlane
    version: str
    seen: list[TokenReviewRequest] = attrs.field(factory=list)

    async def check(self, review: TokenReviewRequest) -> UserInfo | TokenReviewResponse | None:
        """Say whose token it is."""
        self.seen.append(review)
        match review.token:
            case "janes":
                return UserInfo("jane", uid="7", groups=["devs"], extra={"scopes": ["read"]})
            case "expired":
                return TokenReviewResponse.unauthenticated("it expired in 1999")
            case "broken":
                raise OSError("the directory is away")
        return None

    def client(self, token: str) -> Client:
        """A client with that token."""
        return Client(self.plane.client_config(token=token))


@pytest.fixture(scope="module", params=["v1", "v1beta1"])
def login(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Login]:
    folder: Path = tmp_path_factory.mktemp("login")
    # The server outlives a test, the API server's connections to it should not.
    limits = HTTPLimits(idle_timeout=0.05)
    server = HTTPServer("127.0.0.1:0", name="login", tls=TLSOptions(), limits=limits)
    certificates: Any = server.certificates
    config = kubeconfig(
        f"{server.url}/authenticate", certificates.pem, "apiserver", name="login", token="unused"
    )
    write_kubeconfig(folder / "login", config)
    plane = ControlPlane(
        flags={
            "authentication-token-webhook-config-file": str(folder / "login"),
            "authentication-token-webhook-version": request.param,
            "authentication-token-webhook-cache-ttl": "0s",
        }
    )
    login = Login(plane, request.param)
    webhook = TokenReviewWebhook(login.check)
    server.add_handler("/authenticate", webhook, methods=["POST"])
    with running(server), plane:
        yield login


@pytest.fixture(autouse=True)
def _forget(login: Login) -> None:
    login.seen.clear()


def test_a_token_that_the_webhook_knows_is_that_user(login: Login) -> None:
    review = MutableObject(
        kinds.authentication.v1.TokenReview,
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "metadata": {},
            "spec": {"token": "janes"},
        },
    )
    with Client(login.plane.client_config()) as admin:
        answer = admin.create(review).to_dict()
    user = answer["status"]["user"]
    assert answer["status"]["authenticated"] is True
    assert (user["username"], user["uid"]) == ("jane", "7")
    assert "devs" in user["groups"]
    assert user["extra"]["scopes"] == ["read"]
    (seen,) = login.seen
    assert seen.api_version == f"authentication.k8s.io/{login.version}"
    assert seen.token == "janes"


def test_a_user_of_the_webhook_gets_what_its_roles_allow(login: Login) -> None:
    with login.client("janes") as jane, pytest.raises(Forbidden, match=r'User "jane" cannot list'):
        jane.list_page(kinds.core.v1.Secret, namespace="default")


@pytest.mark.parametrize("token", ["expired", "nobodys", "broken"])
def test_other_tokens_are_refused(login: Login, token: str) -> None:
    with login.client(token) as somebody, pytest.raises(Unauthorized):
        somebody.list_page(kinds.core.v1.Secret, namespace="default")
    assert login.seen[0].token == token


def test_the_server_logs_why_a_token_was_refused(login: Login) -> None:
    with login.client("expired") as somebody, pytest.raises(Unauthorized):
        somebody.list_page(kinds.core.v1.Secret, namespace="default")
    pause = threading.Event()
    assert any(
        "it expired in 1999" in login.plane.log_tail(lines=400) or pause.wait(0.05)
        for _ in range(600)
    )
