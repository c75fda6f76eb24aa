"""TLS options of a server, and the TLS context that they make."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Literal

import attrs

if TYPE_CHECKING:
    import ssl

__all__ = ["TLSOptions", "new_server_context"]


def _path(value: str | os.PathLike[str] | None) -> str | None:
    return None if value is None else os.fspath(value)


@attrs.frozen(kw_only=True)
class TLSOptions:
    """The TLS options of a server."""

    cert_file: str | None = attrs.field(default=None, converter=_path)
    """The PEM file with the certificate and its intermediate certificates. Default: a self-signed
    certificate that the server makes, which encrypts but which clients cannot verify."""
    key_file: str | None = attrs.field(default=None, converter=_path)
    """The PEM file with the certificate's key, without a password."""
    client_ca_file: str | None = attrs.field(default=None, converter=_path)
    """The PEM file with the authorities of client certificates, which clients then must have;
    default: clients need none. A changed file is read again, except with a self-signed
    certificate."""
    minimum_version: Literal["TLSv1.2", "TLSv1.3"] = attrs.field(
        default="TLSv1.2", validator=attrs.validators.in_(("TLSv1.2", "TLSv1.3"))
    )
    """The oldest accepted version of TLS; default 1.2."""
    poll_interval: float = 10.0
    """Seconds between two checks of the files, besides the one before each connection; default
    10."""

    def __attrs_post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("give cert_file and key_file together, or neither of them")
        if not self.poll_interval > 0:
            raise ValueError(f"poll_interval={self.poll_interval}: use more than 0 seconds")


def new_server_context(options: TLSOptions) -> ssl.SSLContext:
    """A TLS context for a server, without its certificate."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions: dict[str, Any] = {
        "TLSv1.2": ssl.TLSVersion.TLSv1_2,
        "TLSv1.3": ssl.TLSVersion.TLSv1_3,
    }
    context.minimum_version = versions[options.minimum_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    with contextlib.suppress(NotImplementedError):
        context.set_alpn_protocols(["http/1.1"])
    if options.client_ca_file is not None:
        try:
            context.load_verify_locations(options.client_ca_file)
        except OSError as error:  # it names no file
            raise ValueError(
                f"client_ca_file={options.client_ca_file}: {error}: name a PEM file of authorities"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context
