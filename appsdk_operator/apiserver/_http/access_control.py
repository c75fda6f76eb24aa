"""Access control of one server: authentication, impersonation and authorization."""

from __future__ import annotations

import copy
import ssl
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Any, Final, final

import attrs

from appsdk_operator.apiserver._auth.access_table import AccessTable
from appsdk_operator.apiserver._auth.authentication import (
    Authenticator,
    certificate_user,
    users_by_token,
)
from appsdk_operator.apiserver._auth.authorization import (
    AllowAll,
    Authorizer,
    FunctionAuthorizer,
    RequestAttributes,
    check,
    forbidden_error,
)
from appsdk_operator.apiserver._auth.bootstrap_roles import RBAC_GROUP, bootstrap_objects
from appsdk_operator.apiserver._auth.impersonation import Impersonation, impersonated_user
from appsdk_operator.apiserver._auth.rbac import RBACAuthorizer, RoleAggregator
from appsdk_operator.apiserver._auth.rbac_objects import EscalationCheck
from appsdk_operator.apiserver._auth.reviews import Reviews
from appsdk_operator.apiserver._core import Core
from appsdk_operator.apiserver._http.http_request import HttpRequest
from appsdk_operator.apiserver._registry.write_requests import Change, Target
from appsdk_operator.apiserver._values.routes import Route, selected_name, verb_of
from appsdk_operator.apiserver._values.status import forbidden
from appsdk_operator.apiserver._values.users import (
    ADMIN,
    User,
    service_account_groups,
    service_account_of,
)

# The verb on the signer that a write to a subresource of a CertificateSigningRequest needs.
_SIGNER_VERBS: Final = {
    ("certificates.k8s.io", "approval"): "approve",
    ("certificates.k8s.io", "status"): "sign",
}
_EXTRA_SPACE: Final = (
    "the provided Authorization header contains extra space before the bearer token, and is ignored"
)


@final
class AccessControl:
    """Authenticates and authorizes requests, and the grants in writes."""

    def __init__(
        self,
        core: Core,
        *,
        token: str | None = None,
        users: Mapping[str, Mapping[str, Any]] | None = None,
        rbac: bool = False,
        authorizer: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> None:
        """The arguments are options of the server.

        Raises:
            ValueError: an option out of its range.
        """
        if rbac and authorizer is not None:
            raise ValueError("rbac=True and authorizer: give only one of them")
        self.is_open: bool = token is None and users is None and not rbac and authorizer is None
        self._authenticator = Authenticator(core.service_account_tokens, is_open=self.is_open)
        self._users = users_by_token(users or {})
        self._made: dict[str, User] = {}
        self._token = token
        if token is None and not self.is_open:
            self._token = token_hex(16)
        self._update_users()
        self._impersonation = Impersonation()
        self.authorizer: Authorizer = AllowAll()
        self.accesses: AccessTable = AccessTable()
        """The authorized requests. For use in the server's event loop only."""
        self.escalation: EscalationCheck | None = None
        roles: RBACAuthorizer | None = None
        if authorizer is not None:
            self.authorizer = FunctionAuthorizer(authorizer)
        if rbac:
            roles = self.authorizer = RBACAuthorizer(core.storage)
            self.escalation = EscalationCheck(roles)
            aggregator = RoleAggregator(core.storage, roles)

            def create_roles() -> None:
                for plural, obj in bootstrap_objects():
                    core.create(RBAC_GROUP, "v1", plural, obj, manager="kube-apiserver")
                aggregator.aggregate()

            core.first_writes.write(b"roles", create_roles)
            core.event_handlers.append(aggregator.on_event)
        self.reviews: Reviews = Reviews(self._authenticator, self.authorizer, core.clock)

    # -- tokens ------------------------------------------------------------------------------

    @property
    def token(self) -> str | None:
        """The administrator's token; None on a server without authentication."""
        return self._token

    @token.setter
    def token(self, token: str | None) -> None:
        if token is None:
            raise ValueError(
                "token=None: authentication cannot be switched off; give another token"
            )
        if self.is_open:
            raise ValueError("this server has no authentication: give token= when you create it")
        users_by_token({token: ADMIN.info()})
        self._token = token
        self._update_users()

    def set_users(self, users: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the known users; those of :meth:`token_for` stay."""
        if self.is_open:
            raise ValueError("this server has no authentication: give users={} when you create it")
        self._users = users_by_token(users)
        self._update_users()

    def token_for(self, info: Mapping[str, Any]) -> str:
        """A new token of a user; a service account without groups gets its default ones."""
        user = User.of(info)
        account = service_account_of(user.username)
        if account is not None and not user.groups:
            user = attrs.evolve(user, groups=service_account_groups(account[0]))
        token = token_hex(16)
        self._made |= users_by_token({token: user.info()})
        self._update_users()
        return token

    def _update_users(self) -> None:
        # A new mapping: requests may be reading the old one.
        users = {**self._users, **self._made}
        if self._token is not None:
            users[self._token] = ADMIN
        self._authenticator.users = users

    # -- requests ----------------------------------------------------------------------------

    def authorize(self, request: HttpRequest, route: Route | None, *, watch: bool) -> User:
        """Authenticate and authorize a request; return its user, impersonated or not.

        Raises:
            StatusError: 400, 401 or 403.
        """
        user = _by_certificate(request)
        if user is None:
            shown = request.headers.get("Authorization", "")
            user = self._authenticator.authenticate(shown)
            if shown[:8].lower() == "bearer  ":
                request.warnings.append(_EXTRA_SPACE)
        request.user = user.username
        other = impersonated_user(request.headers)
        if other is None and isinstance(self.authorizer, AllowAll):
            self._note(user, request, route, watch=watch)
            return user
        attributes: RequestAttributes = RequestAttributes.of(
            user, request.method, request.path, route, watch=watch
        )
        if attributes.verb in ("list", "watch"):
            attributes = attrs.evolve(
                attributes, name=selected_name(request.query.get("fieldSelector", ""))
            )
        if other is not None:
            user = self._impersonation.user(other, attributes, self.authorizer)
            request.user = user.username
            attributes = attrs.evolve(attributes, user=user)
        decision = check(self.authorizer, attributes)
        if not decision.allowed:
            raise forbidden_error(attributes, decision)
        self._note(user, request, route, watch=watch)
        return user

    def _note(self, user: User, request: HttpRequest, route: Route | None, *, watch: bool) -> None:
        if route is None:
            self.accesses.note(user.username, request.method.lower(), path=request.path)
            return
        verb = verb_of(request.method, route, watch=watch)
        if verb:
            self.accesses.note(
                user.username,
                verb,
                group=route.group,
                resource=route.plural,
                subresource=route.subresource,
                namespace=route.namespace,
                name=route.name
                or (
                    selected_name(request.query.get("fieldSelector", ""))
                    if verb in ("list", "watch")
                    else ""
                ),
            )

    def note_creation(self, user: User, target: Target, name: str) -> None:
        """Note that ``user`` may create, or has created, the object of this name."""
        resource = target.served.resource
        self.accesses.note(
            user.username,
            "create",
            group=resource.group,
            resource=resource.plural,
            namespace=target.namespace,
            name=name,
        )

    # -- writes ------------------------------------------------------------------------------

    def check_grant(self, user: User, target: Target, new: dict[str, Any]) -> None:
        """Refuse a new role or binding that grants more than ``user`` has.

        Raises:
            StatusError: 403 or 404.
        """
        resource = target.served.resource
        if self.escalation is not None and resource.group == RBAC_GROUP:
            self.escalation.check(user, resource.plural, target.namespace, target.name, new, None)

    def guarded(self, user: User, target: Target, change: Change, subresource: str = "") -> Change:
        """Wrap a change of an object or subresource in the authorization checks for ``user``."""
        resource = target.served.resource
        escalation = self.escalation
        checks_grants = escalation is not None and resource.group == RBAC_GROUP
        verb = _SIGNER_VERBS.get((resource.group, subresource))
        if not checks_grants and not verb and not resource.strategy.create_on_update:
            return change

        async def guarded(old: dict[str, Any]) -> dict[str, Any]:
            is_new = not old
            before = copy.deepcopy(old) if checks_grants or verb else {}
            new = await change(old)
            if verb:
                self._check_signer(user, target, verb, new, before)
            if is_new:
                self.check_create(user, target)
            if escalation is not None and checks_grants:
                place = (resource.plural, target.namespace, target.name)
                escalation.check(user, *place, new, before or None)
            return new

        return guarded

    def _check_signer(
        self, user: User, target: Target, verb: str, new: dict[str, Any], old: dict[str, Any]
    ) -> None:
        """Refuse to approve or sign a CertificateSigningRequest without the verb on its signer.

        Raises:
            StatusError: 403.
        """
        status, before = new.get("status") or {}, old.get("status") or {}
        decided = ("certificate", "conditions")
        if verb == "sign" and all(status.get(name) == before.get(name) for name in decided):
            return
        resource, signer = target.served.resource, str(old["spec"].get("signerName", ""))
        wish = RequestAttributes(user=user, verb=verb, group=resource.group, resource="signers")
        names = (signer, f"{signer.partition('/')[0]}/*")
        if not any(check(self.authorizer, attrs.evolve(wish, name=name)).allowed for name in names):
            why = f'user not permitted to {verb} requests with signerName "{signer}"'
            raise forbidden(resource.plural, resource.group, target.name, why)
        self.accesses.note(
            user.username, verb, group=resource.group, resource="signers", name=signer
        )

    def check_create(self, user: User, target: Target, subresource: str = "") -> None:
        """Refuse a request that creates, unless ``user`` may create the object or subresource.

        Raises:
            StatusError: 403.
        """
        resource = target.served.resource
        attributes = RequestAttributes(
            user=user,
            verb="create",
            group=resource.group,
            version=target.served.version,
            resource=resource.plural,
            subresource=subresource,
            name=target.name,
            namespace=target.namespace,
        )
        decision = check(self.authorizer, attributes)
        if not decision.allowed:
            raise forbidden_error(attributes, decision)
        self.note_creation(user, target, target.name)


def _by_certificate(request: HttpRequest) -> User | None:
    transport = request.transport
    secured = transport.get_extra_info("ssl_object") if transport is not None else None
    if not isinstance(secured, (ssl.SSLObject, ssl.SSLSocket)):
        return None
    certificate = secured.getpeercert()
    if not certificate:
        return None
    return certificate_user(certificate, secured.getpeercert(binary_form=True) or b"")
