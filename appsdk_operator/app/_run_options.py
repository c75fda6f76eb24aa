"""The options of a program, which ``appsdk-operator run`` and its environment share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Self

import attrs

from appsdk_operator.resource import check_followed_namespace, namespace_selector_of
from appsdk_operator.runtime import LOG_FORMATS, LogFormat, validation

_ALL: Final = "*"
_TRUTHS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _namespaces(value: Sequence[str] | str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        given = tuple(part.strip() for part in value.split(",") if part.strip())
        if value and not given:
            raise ValueError(f"namespaces={value!r} has no name: give some, or '*' for all")
    else:
        given = validation.checked_texts("namespaces", value)
    if given == (_ALL,):
        return ()
    if namespace_selector_of(given) is None:
        for name in given:
            check_followed_namespace(name, "namespaces")
    return given


def _truth(name: str, value: Any) -> Any:
    if isinstance(value, str):
        if value.lower() not in _TRUTHS:
            raise ValueError(f"{name}={value!r}: use true or false")
        return _TRUTHS[value.lower()]
    validation.check_flag(name, value)
    return value


def _election(value: bool | str | None) -> bool | None:
    return None if value is None else bool(_truth("leader_election", value))


def _narrate(value: bool | str) -> bool:
    return bool(_truth("narrate", value))


def _tracing(value: bool | str) -> bool:
    return bool(_truth("tracing", value))


def _text(_: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        validation.check_text(field.name, value)


def _choice(*choices: str) -> Callable[[object, attrs.Attribute[Any], str], None]:
    def check(_: object, field: attrs.Attribute[Any], value: str) -> None:
        if value not in choices:
            raise ValueError(f"{field.name}={value!r}: use {', '.join(choices)}")

    return check


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


@attrs.frozen(kw_only=True)
class RunOptions:
    """The options of a program, from arguments or from environment variables.

    The command ``appsdk-operator run`` has an option for each field, and the first paragraph below
    a field is its help.

    >>> RunOptions.from_environment({"APPSDK_NAMESPACES": "red,green"}).namespaces
    ('red', 'green')
    """

    kubeconfig: str = attrs.field(default="", validator=_text)
    """A kubeconfig file; default: as :meth:`ClientConfig.load`: ``$KUBECONFIG``, the service
    account of the pod, ``~/.kube/config``."""
    context: str = attrs.field(default="", validator=_text)
    """The context of the kubeconfig; default: its current one."""
    namespaces: tuple[str, ...] | None = attrs.field(default=None, converter=_namespaces)
    """The namespaces to work in, as names or as a text with commas; empty, or the text ``*``: all.
    None: those of the App.

    Names may be patterns, such as ``team-*,!team-x``; see ``namespaces`` of
    :class:`~appsdk_operator.cache.Cache`."""
    leader_election: bool | None = attrs.field(default=None, converter=_election)
    """Whether one replica works at a time. Default: as the App says."""
    leader_election_namespace: str = attrs.field(default="", validator=_text)
    """Namespace of the Lease; default: as the App says, or the namespace of the pod."""
    log_level: Literal["debug", "info", "warning", "error"] = attrs.field(
        default="info",
        converter=_lower,
        validator=_choice("debug", "info", "warning", "error"),
    )
    """The lowest level that is logged. Default: info."""
    log_format: LogFormat = attrs.field(
        default="auto", converter=_lower, validator=_choice(*LOG_FORMATS)
    )
    """Lines of text, or an object of JSON a line; auto (default): JSON in a pod, text elsewhere.

    See :func:`~appsdk_operator.runtime.setup_logging`."""
    narrate: bool = attrs.field(default=False, converter=_narrate)
    """Print each call of a watcher or reconciler, its outcome and its writes as it happens.

    It prints to standard output; for development."""
    metrics_address: str | None = attrs.field(default=None, validator=_text)
    """Where to serve metrics, such as :8080; 0: nowhere. Default: as the App says."""
    probe_address: str | None = attrs.field(default=None, validator=_text)
    """Where to serve /healthz and /readyz, such as :8081; 0: nowhere. Default: as the App says."""
    debug_address: str | None = attrs.field(default=None, validator=_text)
    """Where to serve /debug/, the page that shows what the operator does, such as 127.0.0.1:6060;
    0: nowhere. Default: as the App says; with --dev on.

    An address other than loopback needs ``profile_server`` options of the App with a
    ``filter_provider``."""
    webhook_address: str | None = attrs.field(default=None, validator=_text)
    """Where to serve webhooks, if the App has any. Default: as the App says."""
    webhook_service: str = attrs.field(default="", validator=_text)
    """Service that leads to the webhooks: the operator makes their certificates itself.

    Give a ``name`` in the namespace of the pod, or ``namespace/name``. The operator keeps the
    certificates in the Secret ``<service>-tls``. It injects their authority into the webhook
    configurations of the App's name, and into its CRDs of several versions. Default: certificates
    as the App says."""
    tracing: bool = attrs.field(default=False, converter=_tracing)
    """Send spans to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names. It needs the extra
    'tracing'.

    See :func:`~appsdk_operator.tracing.otlp_tracing`."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **given: Any) -> Self:
        """The options that environment variables ``APPSDK_…`` set.

        Args:
            environ: the variables; default: those of the process.
            given: fields that override them.

        Raises:
            ValueError: a variable has an invalid value; the text names the variable.
        """
        environ = os.environ if environ is None else environ
        found = {field: environ[name] for field, name in ENVIRONMENT.items() if environ.get(name)}
        for field, value in found.items():
            if field in given:
                continue
            try:
                cls(**{field: value})
            except ValueError as error:
                raise ValueError(f"{ENVIRONMENT[field]}: {error}") from None
        return cls(**{**found, **given})


ENVIRONMENT: Final[Mapping[str, str]] = {
    field.name: f"APPSDK_{field.name.upper()}" for field in attrs.fields(RunOptions)
}
"""The environment variable of each field of :class:`RunOptions`."""
