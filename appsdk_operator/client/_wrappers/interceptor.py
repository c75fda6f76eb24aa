"""A client with hooks for single verbs: for tests, audits and fences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never

import attrs

from appsdk_operator.client._api.client_like import ClientLike
from appsdk_operator.client._wrappers.call import Call, Forward, ResultT
from appsdk_operator.client._wrappers.wrapper import ClientWrapper
from appsdk_operator.runtime.validation import check_function

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
            TypeError: ``hooks`` is not a :class:`Hooks`; the text says how to give them.
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

    def _send(self, call: Call[ResultT], forward: Forward[ResultT]) -> ResultT:
        inner: object = self.inner
        name = call.verb
        if call.subresource:
            inner = self.inner.subresource(call.subresource)
            name = f"subresource_{name}"
        hook: Hook | None = getattr(self._hooks, name)
        if hook is None:
            return forward(call)
        answer: ResultT = hook(inner, *call.arguments, **call.options)
        return answer
