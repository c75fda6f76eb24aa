"""A client for one namespace."""

from __future__ import annotations

from typing import Any

from appsdk_operator.client._api.client_like import ClientLike
from appsdk_operator.client._api.request_builders import check_object
from appsdk_operator.client._wrappers.call import Call, Forward, ResultT
from appsdk_operator.client._wrappers.wrapper import ClientWrapper
from appsdk_operator.resource import MutableObject, check_kind, check_path_segment


class NamespacedClient(ClientWrapper):
    """Adds its namespace if a call has none, and refuses every other namespace.

    Cluster-scoped kinds pass unchanged. An object that gets the namespace is copied.

    Raises, from every verb:
        ValueError: another namespace is given.
    """

    def __init__(self, inner: ClientLike, namespace: str) -> None:
        super().__init__(inner)
        check_path_segment("namespace", namespace)
        self.namespace = namespace

    def _around_live(self, live: Any) -> NamespacedClient:
        return NamespacedClient(live, self.namespace)

    def _send(self, call: Call[ResultT], forward: Forward[ResultT]) -> ResultT:
        if call.sends_object:
            check_object(call.body)
        namespace = self._filled(call)
        # An eviction, a binding or a token may be posted without the namespace of its parent.
        if not call.sends_object or (call.subresource and call.verb == "create"):
            return forward(call.having(namespace=namespace))
        (obj,) = call.arguments
        if namespace != obj.namespace:
            obj = MutableObject(obj.kind, obj.to_dict())
            obj.metadata["namespace"] = namespace
        return forward(Call(call.verb, (obj,), call.options, call.subresource))

    def _filled(self, call: Call[Any]) -> str:
        """The namespace of a call: the given one, or the client's."""
        kind, namespace = call.kind, call.namespace
        if not check_kind(kind).is_namespaced or namespace == self.namespace:
            return namespace
        if namespace:
            raise ValueError(
                f"namespace {namespace} of the object {call.name or kind.qualified_name} does not "
                f"match the namespace {self.namespace} on the client"
            )
        return self.namespace
