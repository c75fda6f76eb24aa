"""What is no resource: health, version, discovery, OpenAPI, and the keys of tokens."""

from __future__ import annotations

from typing import Final, final

from aiohttp import hdrs, web

from appsdk_operator.testing._server import _discovery, _openapi, _places
from appsdk_operator.testing._server._accounts import ISSUER
from appsdk_operator.testing._server._core import Core
from appsdk_operator.testing._server._exchange import Exchange
from appsdk_operator.testing._server._replies import JSON, as_json, no_page

__all__ = ["Documents"]

_KEYS: Final = ("/.well-known/openid-configuration", "/openid/v1/jwks")


@final
class Documents:
    """Answers requests for paths that are not those of resources."""

    def __init__(self, core: Core) -> None:
        """They describe what ``core`` serves."""
        self._core = core
        self.address = ""
        """Host and port of the server; set when it listens."""

    def answer(self, request: Exchange) -> web.Response:
        """Answer one request.

        Raises:
            NoPageError: there is nothing at that path.
        """
        path = request.path.rstrip("/") or "/"
        accept = request.headers.get(hdrs.ACCEPT, "")
        if path.startswith(("/healthz", "/livez", "/readyz")):
            return web.Response(text="ok")
        if path == "/version":
            return as_json(_discovery.VERSION)
        if path in _KEYS:
            return self._keys(path)
        if path.startswith("/openapi/"):
            return self._openapi(request, path)
        aggregated = _discovery.wants_aggregated(accept)
        found = _discovery.discover(
            self._core.catalog, path, aggregated=aggregated, address=self.address
        )
        if found is None:
            raise _places.unknown_path(self._core.catalog, path)
        kind = _discovery.AGGREGATED if found["kind"] == "APIGroupDiscoveryList" else JSON
        return as_json(found, content_type=kind)

    def _keys(self, path: str) -> web.Response:
        """Where the keys of tokens are, and the keys."""
        if path == _KEYS[0]:
            document = {
                "issuer": ISSUER,
                "jwks_uri": f"https://{self.address}{_KEYS[1]}",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            }
            response = as_json(document)
        else:
            key_set = self._core.accounts.key_set()
            response = as_json(key_set, content_type="application/jwk-set+json")
        response.headers[hdrs.CACHE_CONTROL] = "public, max-age=3600"
        return response

    def _openapi(self, request: Exchange, path: str) -> web.Response:
        """A document, or that it is the one the client has already."""
        found = _openapi.document(self._core.catalog, path)
        if found is None:
            return no_page()
        etag = f'"{found.etag}"'
        # The real server calls the list of documents a text, too.
        kind = "text/plain; charset=utf-8" if path == "/openapi/v3" else JSON
        headers = {hdrs.ETAG: etag, hdrs.VARY: hdrs.ACCEPT, hdrs.CONTENT_TYPE: kind}
        if "hash" in request.query and path != "/openapi/v3":
            # Whatever the hash says: there is one document.
            headers[hdrs.CACHE_CONTROL] = "public, immutable"
        if etag in request.headers.get(hdrs.IF_NONE_MATCH, ""):
            return web.Response(status=304, headers=headers)
        return web.Response(body=found.body, headers=headers)
