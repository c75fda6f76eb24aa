"""The builder of the webhooks of one kind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Generic, Self, Unpack, final

from appsdk_operator._generics import SpecT, StatusT, subscript
from appsdk_operator.resource import Kind, Versions, check_kind
from appsdk_operator.runtime import get_logger, validation
from appsdk_operator.webhooks._admission.admission import Admission
from appsdk_operator.webhooks._admission.handlers import (
    Defaulter,
    DefaultFunction,
    Defaulting,
    ObjectFunction,
    UpdateFunction,
    Validating,
    Validator,
)
from appsdk_operator.webhooks._conversion.webhook import ConversionWebhook
from appsdk_operator.webhooks._rules import WebhookRule, WebhookRuleOptions
from appsdk_operator.webhooks._server.webhooks import WebhookHost, Webhooks

_log: Final = get_logger("appsdk_operator.webhooks")
_CONVERT: Final = "/convert"
_PATH: Final = re.compile(r"((/[a-zA-Z0-9-_]+)+|/)")


def webhook_for(host: WebhookHost, kind: Kind[SpecT, StatusT]) -> WebhookBuilder[SpecT, StatusT]:
    """A builder for the webhooks of ``kind``, which ``host`` will serve.

        webhook_for(manager, WIDGET).default(set_size).validate(create=check_size).complete()

    Args:
        host: a :class:`Manager`, a :class:`WebhookServer`, or :class:`Webhooks`.
        kind: the kind; with types for spec and status the handlers get typed objects.

    Raises:
        TypeError: ``host`` has no webhooks, or ``kind`` is not a Kind.
    """
    if not hasattr(type(host), "webhooks") and not hasattr(host, "webhooks"):
        raise TypeError(
            f"host={host!r} has no webhooks: give a Manager, a WebhookServer, or Webhooks()"
        )
    return WebhookBuilder(host, kind)


@final
class WebhookBuilder(Generic[SpecT, StatusT]):
    """Builds the webhooks of a kind; each method returns the builder, and ``complete`` ends it.

    The default paths are controller-runtime's: ``/mutate-example-com-v1-widget``,
    ``/validate-example-com-v1-widget`` and ``/convert``.
    """

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(self, host: WebhookHost, kind: Kind[SpecT, StatusT]) -> None:
        """Use :func:`webhook_for`."""
        self._host = host
        self._kind = check_kind(kind)
        self._handlers: dict[str, tuple[Any, WebhookRule]] = {}
        self._versions: Versions | None = None
        self._recover_panic = True
        self._is_complete = False

    def default(
        self,
        defaulter: DefaultFunction[SpecT, StatusT] | Defaulter[SpecT, StatusT],
        *,
        path: str | None = None,
        **options: Unpack[WebhookRuleOptions],
    ) -> Self:
        """Complete new and changed objects with ``defaulter``.

        Args:
            defaulter: a function of a MutableObject, plain or ``async def``, or an object with such
                a method ``default``.
            path: its path; default ``/mutate-<group>-<version>-<kind>``.
            options: fields of :class:`WebhookRule`, such as ``failure_policy="Ignore"``.

        Raises:
            TypeError: the defaulter cannot be called with an object.
            ValueError: the builder already has a defaulter; or a malformed path or option.
        """
        return self._add("mutating", Defaulting(self._kind, defaulter), path, options)

    def validate(
        self,
        validator: Validator[SpecT, StatusT] | None = None,
        *,
        create: ObjectFunction[SpecT, StatusT] | None = None,
        update: UpdateFunction[SpecT, StatusT] | None = None,
        delete: ObjectFunction[SpecT, StatusT] | None = None,
        path: str | None = None,
        **options: Unpack[WebhookRuleOptions],
    ) -> Self:
        """Check objects with functions, plain or ``async def``, or with a ``validator``'s methods.

        The webhook is called for the operations that have a function.

        Args:
            validator: an object with methods ``validate_create(new)``, ``validate_update(old,
                new)``, ``validate_delete(old)``, or some of them.
            create: checks new objects.
            update: checks changes, with the old object and the new one.
            delete: checks deletions.
            path: its path; default ``/validate-<group>-<version>-<kind>``.
            options: fields of :class:`WebhookRule`.

        Raises:
            TypeError: there is nothing to call, or a function has a wrong signature.
            ValueError: the builder already has a validator; or a malformed path or option.
        """
        handler = Validating(self._kind, validator, create=create, update=update, delete=delete)
        return self._add("validating", handler, path, options)

    def convert(self, versions: Versions) -> Self:
        """Convert between the versions of the kind; all kinds share the path ``/convert``.

        Args:
            versions: the ``Versions`` of the kind.

        Raises:
            ValueError: it was called before, or the versions are of another kind.
            TypeError: they are not Versions.
        """
        validation.check_instance(
            "versions", versions, Versions, "Versions(V1).older(V1Alpha1, up=…, down=…)"
        )
        if self._versions is not None:
            raise ValueError(f"convert(…) of {self._kind} is called twice: give one Versions")
        hub = versions.hub
        if (hub.group, hub.kind) != (self._kind.group, self._kind.kind):
            raise ValueError(f"the versions are of {hub}, but the webhooks of {self._kind}")
        self._versions = versions
        return self

    def recover_panic(self, value: bool) -> Self:
        """Whether errors of handlers deny the request (default) or leave it to the
        ``failurePolicy``; see :class:`Admission`."""
        validation.check_flag("recover_panic", value)
        self._recover_panic = value
        return self

    def complete(self) -> None:
        """Have the host serve the webhooks.

        Raises:
            ValueError: there is nothing to serve, or a path is taken; then it adds nothing.
            RuntimeError: it was called before.
        """
        if self._is_complete:
            raise RuntimeError(f"the webhooks of {self._kind} are complete already")
        if not self._handlers and self._versions is None:
            raise ValueError(
                f"{self._kind} has no webhooks: call default(…), validate(…) or convert(…) before "
                "complete()"
            )
        webhooks = self._host.webhooks
        self._check_paths(webhooks)
        if self._versions is not None:
            self._add_conversion(webhooks, self._versions)
        for handler, rule in self._handlers.values():
            admission = Admission(handler, recover_panic=self._recover_panic, clock=webhooks.clock)
            webhooks.add(rule.path, admission, rule=rule)
            self._say("serving a %s webhook of %s at %s", rule.type, self._kind, rule.path)
        self._is_complete = True

    def _check_paths(self, webhooks: Webhooks) -> None:
        """Check all paths before anything is added.

        Raises:
            ValueError: one is taken, or two of the webhooks have the same.
        """
        paths: dict[str, object] = {}
        shared = webhooks.get(_CONVERT)
        if self._versions is not None:
            if shared is not None and not isinstance(shared, ConversionWebhook):
                raise ValueError(
                    f"{_CONVERT} is the path of {shared!r}, but the conversion webhook needs it: "
                    f"serve {shared!r} at another path"
                )
            paths[_CONVERT] = "the conversion webhook"
        for handler, rule in self._handlers.values():
            other = webhooks.get(rule.path) or paths.get(rule.path)
            if other is not None:
                raise ValueError(
                    f"{rule.path} is the path of {other} already: choose another path with path="
                )
            paths[rule.path] = handler

    def _add_conversion(self, webhooks: Webhooks, versions: Versions) -> None:
        shared = webhooks.get(_CONVERT)
        if isinstance(shared, ConversionWebhook):
            shared.add(versions)
        else:
            webhooks.add(_CONVERT, ConversionWebhook(versions))
        self._say("converting %s at %s", versions.hub.qualified_name, _CONVERT)

    def _say(self, text: str, *args: object) -> None:
        # Webhooks alone are made for their rules as well, and serve nothing.
        if not isinstance(self._host, Webhooks):
            _log.info(text, *args)

    def _add(self, kind: Any, handler: Any, path: str | None, options: WebhookRuleOptions) -> Self:
        if kind in self._handlers:
            verb = "default" if kind == "mutating" else "validate"
            raise ValueError(
                f"{verb}(…) of {self._kind} is called twice: combine the functions into one, or "
                "give the other its own path=, with another webhook_for(…)"
            )
        operations = getattr(handler, "operations", ("CREATE", "UPDATE"))
        rule = WebhookRule(
            type=kind,
            path=_checked_path(path, "mutate" if kind == "mutating" else "validate", self._kind),
            kinds=(self._kind,),
            operations=operations,
            **options,
        )
        self._handlers[kind] = handler, rule
        return self


def _checked_path(path: str | None, verb: str, kind: Kind) -> str:
    if path is None:
        group = kind.group.replace(".", "-")
        return f"/{verb}-{group}-{kind.version}-{kind.kind.lower()}"
    validation.check_text("path", path)
    if not _PATH.fullmatch(path):
        raise ValueError(
            f"path={path!r} does not match ^((/[a-zA-Z0-9-_]+)+|/)$: write for example "
            f"/{verb}-{kind.kind.lower()}"
        )
    return path
