"""A client with hooks for single verbs: for tests, audits and fences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never

import attrs

from appsdk_operator.client._api.protocols import ClientLike, SubresourceLike
from appsdk_operator.client._wrappers.wrapper import ClientWrapper, SubresourceWrapper
from appsdk_operator.runtime.validation import check_function

__all__ = ["Hooks", "InterceptedClient"]

Hook = Callable[..., Any]


@attrs.frozen(kw_only=True)
class Hooks:
    """Functions to call instead of verbs; None, the default, leaves a verb unchanged.

    A hook gets the wrapped client (a ``subresource_`` hook gets its subresource client, which has a
    ``name``), and then the verb's own arguments:
    ``lambda inner, *args, **options: inner.create(*args, **options)`` changes nothing.
    """

    get: Hook | None = None
    list: Hook | None = None
    list_page: Hook | None = None
    watch: Hook | None = None
    create: Hook | None = None
    update: Hook | None = None
    patch: Hook | None = None
    apply: Hook | None = None
    delete: Hook | None = None
    delete_collection: Hook | None = None
    subresource_get: Hook | None = None
    subresource_create: Hook | None = None
    subresource_update: Hook | None = None
    subresource_patch: Hook | None = None
    subresource_apply: Hook | None = None

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(Hooks):
            check_function(field.name, getattr(self, field.name))


class InterceptedClient(ClientWrapper):
    """Calls a hook instead of each verb that has one.

    >>> from appsdk_operator.client import Conflict, InterceptedClient, Hooks
    >>> def fail(inner, obj, **options):
    ...     raise Conflict("by order of the test", status=409)
    >>> def broken(client):
    ...     return InterceptedClient(client, Hooks(update=fail))
    """

    def __init__(self, inner: ClientLike, hooks: Hooks | None = None, **verbs: Never) -> None:
        """A client with ``hooks``.

        Raises:
            TypeError: ``hooks`` is no :class:`Hooks`; the text says how to give them.
        """
        super().__init__(inner)
        if verbs or not isinstance(hooks, Hooks):
            given = "".join(f", {name}=…" for name in verbs) or f", {hooks!r}"
            names = ", ".join(f"{name}=…" for name in verbs) or "get=…"
            raise TypeError(
                f"InterceptedClient(client{given}): hooks come together, "
                f"InterceptedClient(client, Hooks({names}))"
            )
        self._hooks = hooks
        for field in attrs.fields(Hooks):
            hook = getattr(hooks, field.name)
            if hook is not None and not field.name.startswith("subresource_"):
                # On the instance, where it shadows the method of the class.
                setattr(self, field.name, _bound(hook, inner))

    def subresource(self, name: str) -> SubresourceLike:
        """A subresource with the same hooks."""
        return _InterceptedSubresource(self.inner.subresource(name), self._hooks)


class _InterceptedSubresource(SubresourceWrapper):
    def __init__(self, inner: SubresourceLike, hooks: Hooks) -> None:
        super().__init__(inner)
        for verb in ("get", "create", "update", "patch", "apply"):
            hook = getattr(hooks, f"subresource_{verb}")
            if hook is not None:
                setattr(self, verb, _bound(hook, inner))


def _bound(hook: Hook, inner: object) -> Hook:
    def call(*args: Any, **options: Any) -> Any:
        return hook(inner, *args, **options)

    return call
