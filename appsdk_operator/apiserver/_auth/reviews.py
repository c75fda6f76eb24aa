"""Token reviews and access reviews, which are answered and not stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, final

from appsdk_operator.apiserver._auth.authentication import Authenticator
from appsdk_operator.apiserver._auth.authorization import (
    AllowAll,
    Authorizer,
    RequestAttributes,
    check,
)
from appsdk_operator.apiserver._auth.rbac import RBACAuthorizer
from appsdk_operator.apiserver._auth.rbac_rules import EVERYTHING, Rule
from appsdk_operator.apiserver._registry.write_requests import WriteResult
from appsdk_operator.apiserver._schema import metadata as _metadata
from appsdk_operator.apiserver._values.status import (
    FieldError,
    bad_request,
    check_namespace,
    invalid,
)
from appsdk_operator.apiserver._values.users import MASTERS, User
from appsdk_operator.runtime import Clock

_AUTHORIZATION: Final = "authorization.k8s.io"


@final
class Reviews:
    """Answers reviews."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer, clock: Clock) -> None:
        """Reviews are answered by the authenticator and the authorizer of requests."""
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._clock = clock

    def answer(self, obj: dict[str, Any], user: User, namespace: str) -> WriteResult:
        """The review with its status.

        Raises:
            StatusError: 400 or 422, the review is not valid.
        """
        metadata = obj.setdefault("metadata", {})
        spec = obj.get("spec")
        spec = obj["spec"] = spec if isinstance(spec, dict) else {}
        if namespace:
            check_namespace(metadata, namespace)
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        match obj["kind"]:
            case "TokenReview":
                obj["status"] = self._token(spec)
            case "SelfSubjectReview":
                del obj["spec"]
                now = _metadata.timestamp(self._clock.time())
                obj["metadata"] = {"creationTimestamp": now}
                obj["status"] = {"userInfo": user.info()}
            case "SelfSubjectRulesReview":
                obj["status"] = self._rules(user, spec)
                obj["spec"] = {}
            case kind:
                obj["status"] = self._access(kind, obj, user, namespace)
        return WriteResult(obj, 201)

    def _token(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        if not spec.get("token"):
            raise bad_request("token is required for TokenReview in authentication")
        audiences = tuple(map(str, spec.get("audiences") or ()))
        return self._authenticator.review(str(spec["token"]), audiences)

    def _access(self, kind: str, obj: dict[str, Any], user: User, namespace: str) -> dict[str, Any]:
        spec = obj["spec"]
        problems = [*_access_problems(kind, spec), *_metadata_problems(obj["metadata"])]
        if problems:
            raise invalid("", _AUTHORIZATION, "", problems)
        if kind == "LocalSubjectAccessReview":
            asked = (spec.get("resourceAttributes") or {}).get("namespace") or ""
            if asked != namespace:
                raise invalid(
                    "",
                    _AUTHORIZATION,
                    "",
                    [
                        FieldError.invalid(
                            "spec.resourceAttributes.namespace",
                            asked,
                            "must match metadata.namespace",
                        )
                    ],
                )
        if kind != "SelfSubjectAccessReview":
            extra = {k: tuple(map(str, v or ())) for k, v in (spec.get("extra") or {}).items()}
            groups = tuple(map(str, spec.get("groups") or ()))
            user = User(str(spec.get("user") or ""), str(spec.get("uid") or ""), groups, extra)
        decision = check(self._authorizer, RequestAttributes.reviewed(user, spec))
        status: dict[str, Any] = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        return status

    def _rules(self, user: User, spec: Mapping[str, Any]) -> dict[str, Any]:
        if not spec.get("namespace"):
            raise bad_request("no namespace on request")
        errors: list[str] = []
        incomplete = False
        rules: Iterable[Rule] = EVERYTHING
        if isinstance(self._authorizer, RBACAuthorizer):
            rules, errors = self._authorizer.rules_for(user, str(spec["namespace"]))
        elif not isinstance(self._authorizer, AllowAll) and MASTERS not in user.groups:
            rules, incomplete = (), True
            errors = ["the authorizer is a function, which cannot list the permissions of a user"]
        listed = [rule.as_object() for rule in dict.fromkeys(rules)]
        status: dict[str, Any] = {
            "resourceRules": [rule for rule in listed if "nonResourceURLs" not in rule],
            "nonResourceRules": [rule for rule in listed if "nonResourceURLs" in rule],
            "incomplete": incomplete,
        }
        if errors:
            status["evaluationError"] = ", ".join(errors)
        return status


def _access_problems(kind: str, spec: Mapping[str, Any]) -> list[FieldError]:
    """The validation errors of an access review's spec."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    problems: list[FieldError] = []
    if kind == "LocalSubjectAccessReview" and path is not None:
        shown = _shown_path(path)
        detail = "disallowed on this kind of request"
        return [FieldError.invalid("spec.nonResourceAttributes", shown, detail)]
    if resource is not None and path is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        problems.append(FieldError.invalid("spec.nonResourceAttributes", _shown_path(path), detail))
    if resource is None and path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        problems.append(FieldError.invalid("spec.resourceAttributes", None, detail))
    if kind != "SelfSubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        detail = "at least one of user or group must be specified"
        problems.append(FieldError.invalid("spec.user", "", detail))
    for name in ("fieldSelector", "labelSelector"):
        selector = (resource or {}).get(name) or {}
        if selector.get("rawSelector") and selector.get("requirements"):
            detail = "may not specified at the same time as requirements"
            field = f"spec.resourceAttributes.{name}.rawSelector"
            problems.append(FieldError.invalid(field, selector["rawSelector"], detail))
    return problems


def _metadata_problems(metadata: Mapping[str, Any]) -> list[FieldError]:
    left = {key: value for key, value in metadata.items() if key != "namespace" and value}
    if not left.keys() - {"managedFields"}:
        return []
    return [FieldError.invalid("metadata", left, "must be empty")]


def _shown_path(path: Mapping[str, Any]) -> dict[str, Any]:
    return {"Path": path.get("path") or "", "Verb": path.get("verb") or ""}
