"""A client whose verbs can be replaced one by one: for tests, audits and fences."""

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
    """What to call instead of a verb; None, the default, leaves it as it is.

    A hook is called with the client that does the work (for the ``subresource_`` hooks, with its
    subresource client, whose ``name`` tells which) and then with the verb's own arguments, so that
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
    """Calls hooks instead of verbs.

    >>> from appsdk_operator.client import Conflict, InterceptedClient, Hooks
    >>> def fail(inner, obj, **options):
    ...     raise Conflict("by order of the test", status=409)
    >>> def broken(client):
    ...     return InterceptedClient(client, Hooks(update=fail))
    """

    def __init__(self, inner: ClientLike, hooks: Hooks | None = None, **verbs: Never) -> None:
        """A client with ``hooks``.

        Raises:
            TypeError: there are none; the text says how to give them.
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
                # On the instance, where it is found before the class' own.
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
