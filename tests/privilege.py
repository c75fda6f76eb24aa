"""Proves that an operator's roles are enough, and that nothing can be taken from them.

An :class:`Example` is an operator with a timeline that leads it through all that it does. Its role
is recorded once, and then the timeline is played again with the role, and with all of it but one
verb.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Final, cast

import attrs

from appsdk_operator import App, Client, ClientConfig, Manager, MutableObject, kinds
from appsdk_operator.app import Permission
from appsdk_operator.client import AlreadyExists, Forbidden
from appsdk_operator.project import Recording, Roles, roles
from appsdk_operator.runtime import system_clock
from appsdk_operator.testing import APIServer, running
from tests.shared_plane import SharedPlane

__all__ = [
    "Example",
    "RbacServer",
    "Stage",
    "check_roles",
    "control_plane_server",
    "embedded_server",
    "recorded",
]

OWN_NAMESPACE: Final = "operators"
REVIEW: Final = kinds.authorization.v1.SelfSubjectAccessReview
PATIENCE: Final = 60.0
_REMEDY: Final = "the account needs"
_NUMBERS: Final = itertools.count(1)


class RefusedError(Exception):
    """The operator was refused something, so that its timeline cannot go on."""


class Stage(logging.Handler):
    """Where a timeline is played once; it notes what the operator was refused.

    The kit logs that, or raises it; what an example prints counts as well.
    """

    def __init__(self, admin: Client) -> None:
        super().__init__(logging.DEBUG)
        self.admin = admin
        """The client of the operator's users."""
        self.name = f"play-{next(_NUMBERS)}"
        """A name for objects that no other play has."""
        self.refusals: list[str] = []
        """The texts of the errors."""
        self._is_refused = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Note a refusal that the kit logs."""
        text = f"{record.getMessage()} {record.exc_info[1] if record.exc_info else ''}"
        if _REMEDY in text:
            self.note(text)

    def write(self, text: str) -> int:
        """As standard output: note a refusal that the example prints."""
        if _REMEDY in text:
            self.note(text)
        return len(text)

    def note(self, text: str) -> None:
        """Note a refusal."""
        self.refusals.append(text)
        self._is_refused.set()

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Wait until the condition holds.

        Raises:
            RefusedError: the operator was refused something.
            TimeoutError: it does not hold within a minute.
        """
        deadline = system_clock.monotonic() + PATIENCE
        while not condition():
            if self._is_refused.wait(0.02):
                raise RefusedError
            if system_clock.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: {what or condition}")


@attrs.frozen(kw_only=True, eq=False)
class Example:
    """An operator with a timeline in which it needs all of its permissions."""

    name: str
    operator: Callable[[ClientConfig, Stage], contextlib.AbstractContextManager[Manager]]
    """Makes the operator of a program that has this configuration; nothing runs yet."""
    timeline: Callable[[Stage], None]
    """What users do, by ``stage.admin``, and wait for, by ``stage.until``; it runs beside it."""
    prepare: Callable[[Client], None] = lambda _: None
    """Installs what is there before the operator, CRDs for instance; once on each server."""
    tidy: Callable[[Stage], None] = lambda _: None
    """Removes what a play has left, also one that was refused something."""
    app: App | None = None
    """What declares permissions, if anything does."""
    own_namespace: str = OWN_NAMESPACE
    """The namespace of the operator's service account, Lease and Secrets."""
    proved_elsewhere: Sequence[str] = ()
    """Resources of which another example proves that each verb is needed, and faster."""
    namespaces: Sequence[str] = ()
    """Those of the timeline, which stand for all namespaces where the operator works in all."""


@attrs.frozen(kw_only=True)
class RbacServer:
    """An API server where roles decide."""

    config: ClientConfig
    """The configuration of an administrator."""
    config_of: Callable[[str, str], ClientConfig]
    """The configuration of a service account, by namespace and name."""
    is_slow: bool = False
    """Whether few plays have to do."""
    streams_lists: bool = False
    """Whether a client that may watch can do without ``list``."""
    _prepared: set[str] = attrs.field(factory=set)

    def prepare(self, example: Example, admin: Client) -> None:
        """Install what an example needs, once."""
        if example.name in self._prepared:
            return
        self._prepared.add(example.name)
        for name in {OWN_NAMESPACE, example.own_namespace}:
            with contextlib.suppress(AlreadyExists):
                admin.create(MutableObject.new(kinds.core.v1.Namespace, name))
        example.prepare(admin)

    def await_roles(self, made: Roles) -> None:
        """Wait until the server obeys roles that were created before."""
        with Client(self.config_of(made.namespace, made.name)) as client:
            granted = {"": made.cluster, **made.by_namespace}
            for place, rules in granted.items():
                for rule in rules[-1:]:
                    resource, _, subresource = rule.resources[0].partition("/")
                    wanted = {
                        "group": rule.groups[0],
                        "resource": resource,
                        "subresource": subresource,
                        "verb": rule.verbs[0],
                        "name": rule.names[0] if rule.names else "",
                        "namespace": place,
                    }
                    spec = {"resourceAttributes": wanted}
                    review = MutableObject.new(REVIEW, "", spec=spec)
                    Stage(client).until(functools.partial(_is_allowed, client, review))


def _is_allowed(client: Client, review: MutableObject) -> bool:
    return bool(client.create(review).status["allowed"])


@contextlib.contextmanager
def embedded_server() -> Iterator[RbacServer]:
    """The embedded server with RBAC; it sends no lists as streams, so that ``list`` is needed."""
    with APIServer(rbac=True, streaming_lists=False) as server:

        def config_of(namespace: str, name: str) -> ClientConfig:
            user = f"system:serviceaccount:{namespace}:{name}"
            return server.client_config(token=server.token_for(user))

        yield RbacServer(config=server.client_config(), config_of=config_of)


@contextlib.contextmanager
def control_plane_server(shared: SharedPlane) -> Iterator[RbacServer]:
    """The real server."""
    with shared.lent() as plane:
        with Client(plane.client_config()) as client:
            version = json.loads(client.request("GET", "/version"))

        def config_of(namespace: str, name: str) -> ClientConfig:
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
            return plane.client_config(f"system:serviceaccount:{namespace}:{name}", groups=groups)

        minor = int(version["minor"].rstrip("+") or 20)  # built without a version: that of CI
        yield RbacServer(
            config=plane.client_config(),
            config_of=config_of,
            is_slow=minor < 25,  # that of CI, which shall not take long
            streams_lists=minor >= 32,
        )


def play(example: Example, admin: Client, config: ClientConfig) -> list[str]:
    """Play the timeline of an example; what the operator was refused."""
    stage, logger = Stage(admin), logging.getLogger("appsdk_operator")
    logger.addHandler(stage)
    try:
        with (
            contextlib.suppress(RefusedError),
            contextlib.redirect_stdout(cast("IO[str]", stage)),
            example.operator(config, stage) as manager,
            running(manager, wait=False),
        ):
            example.timeline(stage)
    except Forbidden as error:
        stage.note(str(error))
    finally:
        logger.removeHandler(stage)
        example.tidy(stage)
    return stage.refusals


def recorded(example: Example) -> tuple[Permission, ...]:
    """What an example needs each time, recorded on servers that send no lists as streams.

    What it needs after a race alone, to read an object anew for instance, is not always missed.
    """
    first, *others = (
        {attrs.evolve(each, verbs=(), reasons=()): each for each in found}
        for found in (_recorded(example) for _ in range(3))
    )
    return tuple(
        attrs.evolve(
            each,
            verbs=[verb for verb in each.verbs if all(verb in one[key].verbs for one in others)],
        )
        for key, each in first.items()
        if all(key in one for one in others)
    )


def _recorded(example: Example) -> tuple[Permission, ...]:
    user = "operator"
    with (
        APIServer(streaming_lists=False) as server,
        Client(server.client_config()) as admin,
    ):
        config = server.client_config(token=server.token_for(user))
        RbacServer(config=config, config_of=lambda *_: config).prepare(example, admin)
        assert play(example, admin, config) == []
        recording, accesses = Recording(), server.accesses()
        for test in ("one test", "another test"):  # which agree on the names that are fixed
            recording.add(
                test,
                [each for each in accesses if each.user == user],
                others=[each for each in accesses if each.user != user],
                namespaces=example.namespaces,
            )
    return recording.permissions()


def check_roles(server: RbacServer, example: Example, needed: Sequence[Permission]) -> None:
    """Play the example with its whole role, and with all of it but each verb in turn.

    Args:
        server: where; on a slow one all of the role but one verb of each rule.
        example: the example.
        needed: what it needs, as :func:`recorded` found it.
    """

    def named(source: App | Sequence[Permission]) -> Roles:
        name = f"operator-{next(_NUMBERS)}"
        return roles(source, name=name, namespace=example.own_namespace, recorded=needed)

    whole = named(example.app or needed)
    less = [
        each
        for each in without_each_verb(named(needed), only_last=server.is_slow)
        if each[1] not in example.proved_elsewhere
    ]
    with Client(server.config) as admin:
        server.prepare(example, admin)
        for made in (whole, *(each for _, _, each in less)):
            for obj in made.objects:
                admin.create(obj)
        server.await_roles(less[-1][2])
        assert play(example, admin, server.config_of(whole.namespace, whole.name)) == []
        for verb, resource, made in less:
            if verb == "list" and server.streams_lists:
                continue
            refused = play(example, admin, server.config_of(made.namespace, made.name))
            assert any(is_named(verb, resource, text) for text in refused), (
                f"{example.name} without {verb} on {resource}: {refused}"
            )


def is_named(verb: str, resource: str, text: str) -> bool:
    """Whether the text of an error names the verb and the resource that are to be granted."""
    name, _, subresource = resource.partition("/")
    remedy = text.partition(_REMEDY)[2]
    return f"'{verb}'" in remedy and f"on {name}" in remedy and subresource in remedy


def without_each_verb(made: Roles, *, only_last: bool = False) -> Iterator[tuple[str, str, Roles]]:
    """A verb and resource, and the roles without it under a name of their own, for each.

    Args:
        made: the roles.
        only_last: take only the last verb of each rule away.
    """
    for place in ("", *made.by_namespace):
        rules = made.by_namespace[place] if place else made.cluster
        for index, rule in enumerate(rules):
            for verb in rule.verbs[-1:] if only_last else rule.verbs:
                verbs = [each for each in rule.verbs if each != verb]
                one = [attrs.evolve(rule, verbs=verbs)] if verbs else []
                left = (*rules[:index], *one, *rules[index + 1 :])
                change = (
                    {"by_namespace": {**made.by_namespace, place: left}}
                    if place
                    else {"cluster": left}
                )
                name = f"{made.name}-{next(_NUMBERS)}"
                yield verb, rule.resources[0], attrs.evolve(made, name=name, **change)
