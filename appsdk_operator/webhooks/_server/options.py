"""The options of a webhook server, checked when they are given."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import attrs

from appsdk_operator.runtime import validation
from appsdk_operator.serving import Certificates, HTTPLimits, TLSOptions, check_address

_POD_DELAY = 3.0

DEFAULT_LIMITS = HTTPLimits(max_connections=256, idle_timeout=120.0)
"""An API server has a connection for each request under way, and keeps it open for 90 seconds: it
must not be this side that closes it, just when the next request is sent."""


def default_tls() -> TLSOptions:
    """The files where controller-runtime expects them, and TLS 1.3."""
    folder = Path(tempfile.gettempdir()) / "k8s-webhook-server" / "serving-certs"
    return TLSOptions(
        cert_file=folder / "tls.crt", key_file=folder / "tls.key", minimum_version="TLSv1.3"
    )


def default_delay() -> float:
    """The seconds after which, in a pod, no Service sends requests any more; else 0."""
    return _POD_DELAY if "KUBERNETES_SERVICE_HOST" in os.environ else 0.0


def _check_certificates(_: object, __: object, value: Any) -> None:
    if value is None:
        return
    missing = [
        name for name in ("pair", "run", "close") if not callable(getattr(value, name, None))
    ]
    if missing or isinstance(value, type):
        raise TypeError(
            f"certificates={value!r} is not a source of certificates: give CertificateFiles(…), "
            "ManagedCertificates(…) or SelfSigned(…)"
        )


@attrs.frozen(kw_only=True)
class WebhookServerOptions:
    """The options of a :class:`WebhookServer`, for managers that make it themselves."""

    address: str = attrs.field(default=":9443", validator=check_address)
    """``host:port``; default ``:9443``, on all addresses. ``""`` or ``"0"``: no port is opened, and
    webhooks can still be added."""
    certificates: Certificates | None = attrs.field(default=None, validator=_check_certificates)
    """The source of the certificate; default: the files of ``tls``."""
    tls: TLSOptions | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.instance_of(TLSOptions))
    )
    """The certificate files, unless ``certificates`` is given; the CAs of client certificates; the
    oldest allowed version of TLS. Default: ``tls.crt`` and ``tls.key`` in
    ``<tmp>/k8s-webhook-server/serving-certs``, and TLS 1.3."""
    limits: HTTPLimits | None = None
    """Limits for clients. Default: 256 connections, which may be idle for 120 seconds; the other
    limits are the defaults of :class:`HTTPLimits`. Each webhook limits the size of its bodies."""
    shutdown_timeout: float = 60.0
    """Seconds at a stop for running requests; default 60."""
    shutdown_delay: float | None = None
    """Seconds after the stop for which it still accepts connections and answers requests; each
    answer then closes its connection. A Service sends requests to a pod until all nodes know that
    it ends. Default: 3 in a pod, else 0."""

    def __attrs_post_init__(self) -> None:
        validation.checked_seconds("shutdown_timeout", self.shutdown_timeout)
        if self.shutdown_delay is not None:
            validation.checked_seconds("shutdown_delay", self.shutdown_delay)
