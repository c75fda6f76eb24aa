"""Non-resource paths: health, version, metrics, discovery, OpenAPI, and OIDC keys."""

from __future__ import annotations

import hashlib
from typing import Any, Final, final

import msgspec
from aiohttp import hdrs, web

from appsdk_operator.apiserver._auth.service_account_tokens import ISSUER
from appsdk_operator.apiserver._core import Core
from appsdk_operator.apiserver._http import discovery, openapi, openapi_protobuf, routing_errors
from appsdk_operator.apiserver._http.accepted_types import JSON, JSON_TYPES, preferred_type
from appsdk_operator.apiserver._http.health import health, is_check
from appsdk_operator.apiserver._http.http_request import HttpRequest
from appsdk_operator.apiserver._http.representations import MEDIA_TYPES, STREAM_TYPES
from appsdk_operator.apiserver._http.responses import (
    json_response,
    page_not_found,
    text_response,
)
from appsdk_operator.apiserver._values.status import (
    StatusError,
    method_not_allowed,
    not_acceptable,
)

_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
_KEYS: Final = ("/.well-known/openid-configuration", "/openid/v1/jwks")


@final
class NonResourceHandler:
    """Answers requests for paths that are not those of resources."""

    def __init__(self, core: Core) -> None:
        """Describes the resources that ``core`` serves."""
        self._core = core
        self.address = ""
        """Host and port of the server, set when it listens."""

    def answer(self, request: HttpRequest) -> web.Response:
        """Answer one request.

        Raises:
            PageNotFoundError: the path is unknown.
            StatusError: the path does not support the method or the accepted media types.
        """
        path, method = request.path, request.method
        if is_check(path):
            report = health(
                path,
                verbose="verbose" in request.query,
                excluded=request.query.getall("exclude", ()),
            )
            return text_response(report)
        if path in ("/", "/index.html"):
            return json_response({"paths": discovery.roots(self._core.catalog)})
        if path.startswith("/openapi/"):
            return self._openapi(request, path)
        if path == "/metrics":
            return self._metrics()
        trimmed = path.removesuffix("/")
        if trimmed in _KEYS:
            return self._keys(trimmed) if method == "GET" else _refuse()
        if trimmed == "/version":
            return self._version(request) if method == "GET" else _refuse()
        return self._discovery(request)

    def _metrics(self) -> web.Response:
        """The number of stored objects by resource."""
        lines = [
            "# HELP apiserver_resource_objects [ALPHA] Number of stored objects by kind.",
            "# TYPE apiserver_resource_objects gauge",
        ]
        for resource in self._core.catalog:
            place = f'group="{resource.group}",resource="{resource.plural}"'
            count = len(resource.collection.records)
            lines.append(f"apiserver_resource_objects{{{place}}} {count}")
        body = "\n".join([*lines, ""]).encode()
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: _METRICS})

    def _version(self, request: HttpRequest) -> web.Response:
        if not _accepts(request.headers.get(hdrs.ACCEPT, ""), (JSON,)):
            raise _unrepresentable((JSON,))
        return web.Response(
            body=msgspec.json.format(msgspec.json.encode(discovery.VERSION), indent=2),
            headers={hdrs.CONTENT_TYPE: JSON},
        )

    def _discovery(self, request: HttpRequest) -> web.Response:
        catalog, path = self._core.catalog, request.path
        accept = request.headers.get(hdrs.ACCEPT, "")
        found = discovery.discover(catalog, path, address=self.address)
        if found is None:
            raise routing_errors.unknown_path(catalog, path)
        # In kube-apiserver two servers share these paths, and they refuse different requests.
        parts = path.strip("/").split("/")
        if parts[0] == "api" or len(parts) == 3:
            if request.method != "GET":
                return _refuse()
            check_media_types(accept)
        elif not _accepts(accept, (*MEDIA_TYPES, "application/*")):
            raise not_acceptable(MEDIA_TYPES)
        if len(parts) == 1 and discovery.wants_aggregated(accept):
            document = discovery.aggregated(catalog, legacy=parts[0] == "api")
            return _cacheable(request, document)
        return json_response(found)

    def _keys(self, path: str) -> web.Response:
        """The OIDC discovery document, or the public keys of service account tokens."""
        if path == _KEYS[0]:
            document = {
                "issuer": ISSUER,
                "jwks_uri": f"https://{self.address}{_KEYS[1]}",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            }
            response = json_response(document)
        else:
            key_set = self._core.service_account_tokens.key_set()
            response = json_response(key_set, content_type="application/jwk-set+json")
        response.headers[hdrs.CACHE_CONTROL] = "public, max-age=3600"
        return response

    def _openapi(self, request: HttpRequest, path: str) -> web.Response:
        """An OpenAPI document, or 304 when the client has it already."""
        as_protobuf = False
        if path == "/openapi/v2":
            accept, known = request.headers.get(hdrs.ACCEPT, ""), openapi_protobuf.ACCEPTED
            preferred = preferred_type(accept, (*known, *JSON_TYPES))
            if accept and not preferred:
                return web.Response(status=406, headers={hdrs.VARY: hdrs.ACCEPT})
            as_protobuf = preferred in known
        found = openapi.document(self._core.catalog, path, as_protobuf=as_protobuf)
        if found is None:
            below = path.startswith("/openapi/v3/")
            return web.Response(status=404) if below else page_not_found()
        etag = f'"{found.etag}"'
        # The real server, too, declares the list of documents as plain text.
        kind = "text/plain; charset=utf-8" if path == "/openapi/v3" else JSON
        if as_protobuf:
            kind = openapi_protobuf.MEDIA_TYPE
        headers = {hdrs.ETAG: etag, hdrs.VARY: hdrs.ACCEPT, hdrs.CONTENT_TYPE: kind}
        if "hash" in request.query and path != "/openapi/v3":
            # There is only one document, whatever the hash.
            headers[hdrs.CACHE_CONTROL] = "public, immutable"
        if etag in request.headers.get(hdrs.IF_NONE_MATCH, ""):
            return web.Response(status=304, headers=headers)
        return web.Response(body=found.body, headers=headers)


def _refuse() -> web.Response:
    raise method_not_allowed()


def _accepts(accept: str, types: tuple[str, ...]) -> bool:
    """Whether an ``Accept`` header accepts one of the media types."""
    return not accept or bool(preferred_type(accept, (*types, "*/*")))


def check_media_types(accept: str, *, streams: bool = False) -> None:
    """Refuse clients that accept none of the real server's media types.

    Args:
        accept: the ``Accept`` header.
        streams: whether the path can be watched.

    Raises:
        StatusError: 406.
    """
    if not _accepts(accept, MEDIA_TYPES):
        raise _unrepresentable((*MEDIA_TYPES, *STREAM_TYPES) if streams else MEDIA_TYPES)


def _unrepresentable(types: tuple[str, ...]) -> StatusError:
    listed = ", ".join(types)
    return StatusError(
        406, f"406: Not Acceptable\n\nAvailable representations: {listed}", details={}
    )


def _cacheable(request: HttpRequest, document: dict[str, Any]) -> web.Response:
    """A document that clients may cache and revalidate by its ETag."""
    body = msgspec.json.encode(document)
    tag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
    headers = {hdrs.CACHE_CONTROL: "public", hdrs.ETAG: tag, hdrs.VARY: hdrs.ACCEPT}
    if request.headers.get(hdrs.IF_NONE_MATCH) == tag:
        return web.Response(status=304, headers=headers)
    headers[hdrs.CONTENT_TYPE] = discovery.AGGREGATED
    return web.Response(body=body, headers=headers)
