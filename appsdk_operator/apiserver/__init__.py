"""The embedded Kubernetes API server; users meet it as :class:`appsdk_operator.testing.APIServer`.

It answers HTTP requests as kube-apiserver does: discovery, lists, watches, writes, server-side
apply, custom resources, admission, RBAC. It has no kubelet, no scheduler and no controllers, except
for garbage collection and the deletion of namespaces.

``docs/internals/apiserver.md`` describes its layers, which an import contract holds, and how to add
a built-in kind, a list option or a CEL function.
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
