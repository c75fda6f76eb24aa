"""Service account tokens: signed JWTs with audience, expiry, and the object they are bound to."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import math
import uuid
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from appsdk_operator.apiserver._schema import metadata as _metadata
from appsdk_operator.apiserver._storage.storage import Record, Storage
from appsdk_operator.apiserver._values.go_json import mismatch
from appsdk_operator.apiserver._values.status import (
    FieldError,
    StatusError,
    bad_request,
    check_namespace,
    conflict,
    invalid,
    not_found,
)
from appsdk_operator.apiserver._values.users import AUTHENTICATED, User, service_account_groups
from appsdk_operator.runtime import Clock

ISSUER: Final = "https://kubernetes.default.svc"
AUDIENCES: Final = ("api",)
"""The default audiences of a token."""

_EXTRA: Final = "authentication.kubernetes.io/"
_SHORTEST: Final = 600
_LONGEST: Final = 1 << 32
_LEEWAY: Final = 60.0
_BOUND: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


class TokenError(Exception):
    """A token is not valid; the text says why."""


@final
class ServiceAccountTokens:
    """Issues and verifies the tokens of the service accounts in a storage."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        """``clock`` decides when tokens expire."""
        self._storage = storage
        self._clock = clock

    # -- issue -------------------------------------------------------------------------------

    def request(self, namespace: str, name: str, review: dict[str, Any]) -> dict[str, Any]:
        """Answer a TokenRequest.

        Raises:
            StatusError: 400, 404, 409 or 422.
        """
        metadata = _section(review, "metadata", "v1.ObjectMeta")
        spec = _section(review, "spec", "v1.TokenRequestSpec")
        check_namespace(metadata, namespace)
        if metadata.get("name", name) != name:
            problem = FieldError.invalid(
                "metadata.name",
                metadata["name"],
                "must match the service account name if specified",
            )
            raise invalid("TokenRequest", "authentication.k8s.io", name, [problem])
        account = self._find("serviceaccounts", f"{namespace}/{name}", name)
        if metadata.get("uid", account.uid) != account.uid:
            why = (
                f"the UID in the token request ({metadata['uid']}) does not match the UID of the "
                f"service account ({account.uid})"
            )
            raise conflict("TokenRequest", "authentication.k8s.io", name, why)
        seconds = spec.get("expirationSeconds")
        seconds = 3600 if seconds is None else seconds
        _check_duration(seconds)
        now = self._clock.time()
        audiences = spec.get("audiences") or list(AUDIENCES)
        claims = {
            "aud": audiences,
            "exp": math.floor(now) + seconds,
            "iat": math.floor(now),
            "iss": ISSUER,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": account.uid},
                **self._bind(namespace, name, spec.get("boundObjectRef")),
            },
            "nbf": math.floor(now),
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        review["metadata"] = {
            **metadata,
            "name": name,
            "namespace": namespace,
            "uid": account.uid,
            "creationTimestamp": _metadata.timestamp(now),
        }
        review["spec"] = {
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": spec.get("boundObjectRef"),
        }
        review["status"] = {
            "token": self._sign(claims),
            "expirationTimestamp": _metadata.timestamp(now + seconds),
        }
        return review

    def _bind(self, namespace: str, account: str, bound: Any) -> dict[str, Any]:
        """The claims about the object that a token is bound to."""
        if not isinstance(bound, dict):
            return {}
        kind, name = str(bound.get("kind", "")), str(bound.get("name", ""))
        group, _, version = str(bound.get("apiVersion", "")).rpartition("/")
        plural = _BOUND.get(kind)
        if plural is None or group:
            raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
        record = self._find(plural, name if kind == "Node" else f"{namespace}/{name}", name)
        claims: dict[str, Any] = {kind.lower(): {"name": name, "uid": record.uid}}
        if kind == "Pod":
            spec = record.decode().get("spec") or {}
            if spec.get("serviceAccountName") != account:
                raise bad_request(
                    f'cannot bind token for serviceaccount "{account}" to pod running with '
                    "different serviceaccount name."
                )
            if spec.get("nodeName"):
                node = self._storage.collection("nodes").records.get(spec["nodeName"])
                claims["node"] = {"name": spec["nodeName"]}
                if node is not None:
                    claims["node"]["uid"] = node.uid
        if bound.get("uid", record.uid) != record.uid:
            why = (
                f"the UID in the bound object reference ({bound['uid']}) does not match the UID in "
                "record. The object might have been deleted and then recreated"
            )
            raise conflict(kind, "", name, why)
        return claims

    def _find(self, plural: str, key: str, name: str) -> Record:
        record = self._storage.collection(plural).records.get(key)
        if record is None:
            raise not_found(plural, "", name)
        return record

    # -- verify ------------------------------------------------------------------------------

    def user(self, token: str, audiences: tuple[str, ...] = AUDIENCES) -> tuple[User, list[str]]:
        """The user of a token, and the audiences of it that are among ``audiences``.

        Raises:
            TokenError: it is not valid, or has expired.
        """
        claims = self._verified(token)
        meant = [audience for audience in audiences if audience in claims["aud"]]
        if not meant:
            raise TokenError(
                f"token audiences {_listed(claims['aud'])} is invalid for the target audiences "
                f"{_listed(audiences)}"
            )
        now = self._clock.time()
        if now > claims["exp"] + _LEEWAY:
            raise TokenError("service account token has expired")
        if now < claims["nbf"] - _LEEWAY:
            raise TokenError("service account token is not valid yet")
        private = claims["kubernetes.io"]
        namespace, account = private["namespace"], private["serviceaccount"]
        self._check_account(namespace, account)
        extra = {f"{_EXTRA}credential-id": (f"JTI={claims['jti']}",)}
        for kind, plural in (("secret", "secrets"), ("pod", "pods"), ("node", "nodes")):
            bound = private.get(kind)
            # The node claim of a token that is bound to a pod is informational only.
            if bound is None or (kind == "node" and "pod" in private):
                continue
            key = bound["name"] if kind == "node" else f"{namespace}/{bound['name']}"
            self._check_bound(kind, plural, key, bound["uid"])
        for kind in ("pod", "node"):
            for part in ("name", "uid"):
                if private.get(kind, {}).get(part):
                    extra[f"{_EXTRA}{kind}-{part}"] = (private[kind][part],)
        groups = (*service_account_groups(namespace), AUTHENTICATED)
        return User(claims["sub"], account["uid"], groups, extra), meant

    def _check_account(self, namespace: str, account: Mapping[str, str]) -> None:
        accounts = self._storage.collection("serviceaccounts")
        record = accounts.records.get(f"{namespace}/{account['name']}")
        if record is None:
            raise TokenError(f'serviceaccounts "{account["name"]}" not found')
        if record.uid != account["uid"]:
            raise TokenError(
                f"service account UID ({record.uid}) does not match claim ({account['uid']})"
            )
        if self._was_deleted(record):
            raise TokenError(f"service account {record.key} has been deleted")

    def _check_bound(self, kind: str, plural: str, key: str, uid: str) -> None:
        record = self._storage.collection(plural).records.get(key)
        if record is None or self._was_deleted(record):
            raise TokenError("service account token has been invalidated")
        if record.uid != uid:
            raise TokenError(
                f"{kind if kind == 'node' else kind.capitalize()} UID ({record.uid}) does not "
                f"match service account {kind} ref claim ({uid})"
            )

    def _was_deleted(self, record: Record) -> bool:
        """Whether an object's deletionTimestamp is more than a minute ago."""
        if not record.deleting:
            return False
        ended = dt.datetime.fromisoformat(record.decode()["metadata"]["deletionTimestamp"])
        return ended.timestamp() < self._clock.time() - _LEEWAY

    # -- signatures --------------------------------------------------------------------------

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        return ec.generate_private_key(ec.SECP256R1())

    @cached_property
    def _key_id(self) -> str:
        data = self._key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return _encoded(hashlib.sha256(data).digest())

    def _sign(self, claims: Mapping[str, Any]) -> str:

        head = {"alg": "ES256", "kid": self._key_id}
        signed = ".".join(_encoded(msgspec.json.encode(part)) for part in (head, claims))
        r, s = utils.decode_dss_signature(
            self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256()))
        )
        return f"{signed}.{_encoded(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def _verified(self, token: str) -> Any:
        """The claims of a token, after its signature is verified."""
        parts = token.split(".")
        if len(parts) != 3 or "_key" not in self.__dict__:
            raise TokenError("")

        try:
            raw = _decoded(parts[2])
            numbers = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
            signature = utils.encode_dss_signature(*numbers)
            signed = f"{parts[0]}.{parts[1]}".encode()
            self._key.public_key().verify(signature, signed, ec.ECDSA(hashes.SHA256()))
            return msgspec.json.decode(_decoded(parts[1]))
        except (InvalidSignature, ValueError, msgspec.MsgspecError):
            raise TokenError("go-jose/go-jose: error in cryptographic primitive") from None

    def key_set(self) -> dict[str, Any]:
        """The public key, as a JSON Web Key Set."""
        numbers = self._key.public_key().public_numbers()
        key = {
            "use": "sig",
            "kty": "EC",
            "kid": self._key_id,
            "crv": "P-256",
            "alg": "ES256",
            "x": _encoded(numbers.x.to_bytes(32, "big")),
            "y": _encoded(numbers.y.to_bytes(32, "big")),
        }
        return {"keys": [key]}


def _section(review: Mapping[str, Any], name: str, wanted: str) -> Mapping[str, Any]:
    found = review.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        what = mismatch(found, f"struct field TokenRequest.{name}", wanted)
        text = f'TokenRequest in version "v1" cannot be handled as a TokenRequest: {what}'
        raise bad_request(text)
    return found


def _check_duration(seconds: Any) -> None:
    if not isinstance(seconds, int) or isinstance(seconds, bool):
        raise StatusError(400, "TokenRequest: spec.expirationSeconds must be an integer")
    why = ""
    if seconds < _SHORTEST:
        why = "may not specify a duration less than 10 minutes"
    elif seconds > _LONGEST:
        why = "may not specify a duration larger than 2^32 seconds"
    if why:
        problem = FieldError.invalid("spec.expirationSeconds", seconds, why)
        raise invalid("TokenRequest", "authentication.k8s.io", "", [problem])


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _listed(names: Any) -> str:
    return f"[{' '.join(msgspec.json.encode(name).decode() for name in names)}]"
