"""Reviews: who somebody is, and what they may do. Nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

from appsdk_operator.testing._server._writes import Outcome

__all__ = ["Authorizer", "Reviews"]

Authorizer = Callable[[Mapping[str, Any]], bool]
"""Decides on the ``spec`` of a SubjectAccessReview."""


@final
class Reviews:
    """Answers reviews; without options, everybody is ``admin`` and may do everything."""

    def __init__(
        self,
        tokens: Mapping[str, Mapping[str, Any]] | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        """Reviews that know the users of ``tokens`` only, and ask ``authorizer``."""
        self._tokens = None if tokens is None else {t: dict(user) for t, user in tokens.items()}
        self._authorizer = authorizer

    def answer(self, obj: dict[str, Any]) -> Outcome:
        """The review with its status."""
        obj.setdefault("metadata", {})
        spec = obj.get("spec") or {}
        match obj["kind"]:
            case "TokenReview":
                obj["status"] = self._token(spec)
            case "SelfSubjectReview":
                user = {"username": "admin", "groups": ["system:masters"]}
                obj["status"] = {"userInfo": user}
            case "SelfSubjectRulesReview":
                rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
                obj["status"] = {
                    "resourceRules": [rule],
                    "nonResourceRules": [],
                    "incomplete": False,
                }
            case "SubjectAccessReview" | "LocalSubjectAccessReview" if self._authorizer:
                obj["status"] = {"allowed": bool(self._authorizer(spec))}
            case _:
                obj["status"] = {"allowed": True}
        return Outcome(obj, 201)

    def _token(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        if self._tokens is None:
            return {"authenticated": True, "user": {"username": "admin"}}
        user = self._tokens.get(str(spec.get("token", "")))
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        status: dict[str, Any] = {"authenticated": True, "user": user}
        if spec.get("audiences"):
            status["audiences"] = list(spec["audiences"])
        return status
