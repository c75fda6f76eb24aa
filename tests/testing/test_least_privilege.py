"""Recorded roles are enough for the examples, and nothing can be taken from them."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections.abc import Callable, Iterator

import attrs
import pytest

from appsdk_operator import App, Client, ClientConfig, MergePatch, MutableObject, kinds
from appsdk_operator.app import Permission
from appsdk_operator.client import AlreadyExists
from appsdk_operator.controllers import until, wait_for
from appsdk_operator.project import Recording, Roles, roles
from appsdk_operator.testing import APIServer, ControlPlane, install_crds, running
from examples import app_hello

HAS_PROGRAMS = any(
    os.environ.get(name) for name in ("KUBEBUILDER_ASSETS", "TEST_ASSET_KUBE_APISERVER")
)
NAMESPACE, OPERATOR = "demo", "recorded-operator"
GREETING = app_hello.GREETING
PATIENCE = 150
_NUMBERS = itertools.count()


class Refusals(logging.Handler):
    """What the kit logs about requests that were refused."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text of a refusal."""
        text = f"{record.getMessage()} {record.exc_info[1] if record.exc_info else ''}"
        if "the account needs" in text:
            self.texts.append(text)


@contextlib.contextmanager
def refusals() -> Iterator[Refusals]:
    """The refusals within the block."""
    handler, logger = Refusals(), logging.getLogger("appsdk_operator")
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)


def play(admin: Client, config: ClientConfig, app: App) -> list[str]:
    """Run the example until it has greeted and parted, or was refused something."""
    name = f"g{next(_NUMBERS)}"
    steps: tuple[Callable[[], object], ...] = (
        lambda: admin.create(MutableObject.new(GREETING, name, namespace=NAMESPACE, spec={})),
        lambda: admin.delete(GREETING, name, namespace=NAMESPACE),
    )
    done: tuple[Callable[..., bool], ...] = (
        lambda found: found.get("status") == {"text": "hello world"},
        until.deleted(),
    )
    with refusals() as found, app.manager(config) as manager, running(manager, wait=False):
        for step, is_done in zip(steps, done, strict=True):
            step()
            for _ in range(PATIENCE):
                if found.texts:
                    return found.texts
                with contextlib.suppress(TimeoutError):
                    wait_for(admin, GREETING, name, is_done, namespace=NAMESPACE, timeout=0.2)
                    break
            else:
                raise TimeoutError(f"{app.name} has not reached {is_done}")
    return found.texts


def prepare(admin: Client) -> None:
    """Install what the example and its roles need."""
    install_crds(admin, app_hello.app.crds())
    for name in (NAMESPACE, "operators"):
        with contextlib.suppress(AlreadyExists):
            admin.create(MutableObject.new(kinds.core.v1.Namespace, name))


def tidy(admin: Client) -> None:
    """Remove what a refused operator has left."""
    for each in admin.list(GREETING):
        patch = MergePatch({"metadata": {"finalizers": None}})
        admin.patch(GREETING, each.name, patch, namespace=each.namespace)
        if not each.is_deleting:
            admin.delete(GREETING, each.name, namespace=each.namespace)


@pytest.fixture(scope="module")
def recorded() -> tuple[Permission, ...]:
    """What the example needs, recorded on a server that sends no lists as streams."""
    with (
        APIServer(streaming_lists=False) as server,
        Client(server.client_config()) as admin,
    ):
        prepare(admin)
        config = server.client_config(token=server.token_for("operator"))
        assert play(admin, config, app_hello.app) == []
        recording = Recording()
        recording.add("test", server.accesses("operator"), namespaces=[NAMESPACE])
    return recording.permissions()


def without_each_verb(made: Roles) -> Iterator[tuple[str, str, Roles]]:
    """A verb and resource, and the roles without it, for each."""
    for index, rule in enumerate(made.cluster):
        for verb in rule.verbs:
            verbs = [each for each in rule.verbs if each != verb]
            less = [attrs.evolve(rule, verbs=verbs)] if verbs else []
            cluster = (*made.cluster[:index], *less, *made.cluster[index + 1 :])
            yield verb, rule.resources[0], attrs.evolve(made, cluster=cluster)


def check_roles(
    admin: Client,
    config_of: Callable[[str, str], ClientConfig],
    recorded: tuple[Permission, ...],
) -> None:
    """Run the example with its declared and recorded roles, and with less than the latter."""

    def run(made: Roles) -> list[str]:
        made = attrs.evolve(made, name=f"operator-{next(_NUMBERS)}")
        for each in made.objects:
            admin.create(each)
        try:
            return play(admin, config_of(made.namespace, made.name), app_hello.app)
        finally:
            tidy(admin)

    assert run(roles(app_hello.app, namespace="operators", recorded=recorded)) == []
    made = roles(recorded, name=OPERATOR, namespace="operators")
    assert not made.by_namespace
    assert run(made) == []
    for verb, resource, less in without_each_verb(made):
        refused = run(less)
        assert any(f"'{verb}'" in text and resource in text for text in refused), (
            f"without {verb} on {resource}: {refused}"
        )


def test_the_record_of_an_example_is_short_and_has_no_more_than_its_kind(
    recorded: tuple[Permission, ...],
) -> None:
    found = {each.resources[0]: each.verbs for each in recorded}
    assert found == {
        "greetings": ("list", "watch", "patch"),
        "greetings/status": ("patch",),
    }


def test_with_less_than_its_role_an_example_is_refused_what_the_error_names(
    recorded: tuple[Permission, ...],
) -> None:
    with (
        APIServer(rbac=True, streaming_lists=False) as server,
        Client(server.client_config()) as admin,
    ):
        prepare(admin)

        def config_of(namespace: str, name: str) -> ClientConfig:
            token = server.token_for(f"system:serviceaccount:{namespace}:{name}")
            return server.client_config(token=token)

        check_roles(admin, config_of, recorded)


@pytest.mark.real
@pytest.mark.skipif(not HAS_PROGRAMS, reason="KUBEBUILDER_ASSETS is not set")
def test_so_it_is_on_a_real_server(recorded: tuple[Permission, ...]) -> None:
    with ControlPlane() as plane, Client(plane.client_config()) as admin:
        prepare(admin)

        def config_of(namespace: str, name: str) -> ClientConfig:
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
            user = f"system:serviceaccount:{namespace}:{name}"
            return plane.client_config(user, groups=groups)

        check_roles(admin, config_of, recorded)
