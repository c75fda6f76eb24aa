"""The client of an API server: verbs on kinds, watches with a limit on silence, one error tree.

A :class:`ClientConfig` holds the server's address and the credentials; :meth:`ClientConfig.load`
finds the configuration of this process. A :class:`Client` sends requests with it:

    config = ClientConfig.load()
    with Client(config) as client:
        for pod in client.list(POD, namespace="default", label_selector={"app": "web"}):
            client.delete(POD, pod.name, namespace=pod.namespace, uid=pod.uid)

Objects are sent as :class:`~appsdk_operator.resource.Object` or
:class:`~appsdk_operator.resource.MutableObject` and come back as ``Object``. A watch is a
:class:`WatchStream`, which yields the raw lines of the events in batches; informers read it.
Wrappers change what a client does: :class:`NamespacedClient`, :class:`FieldOwnerClient`,
:class:`DryRunClient`, :class:`InterceptedClient`.

Guarantees:
    * No call waits without limit. Connections, handshakes and answers have time-outs, a watch
      without a byte for too long raises :class:`WatchSilent`, and a stop signal or
      :meth:`Client.close` ends every wait.
    * The client retries a request only if that does no harm: reads; requests that the server
      refused before it began (429, 503 with ``Retry-After``, 401 once, with fresh credentials);
      requests that were never sent; and, after a lost connection, applies, and writes that the
      server refuses once the object has changed (an update with a resource version, a delete with
      a precondition).
    * The client reads tokens, keys and certificates again when they rotate on disk.
    * The client verifies TLS unless ``unsafe_skip_tls_verify`` is set. Secrets and bodies are in no
      log and no repr. Answers have a maximum size.

Caveats:
    * The server may have carried out a write that raises a :class:`TransportError` with ``sent``.
    * Nothing can interrupt the system's name resolver; it has its own time-outs.
    * The client imports ``kubernetes`` when it reads a kubeconfig, and never otherwise.

Errors:
    :class:`ClientError` is the root. :class:`ApiError` and its subclasses are answers, named for
    their reason. :class:`TransportError` and its subclasses mean that there was no answer.
    :class:`ConfigError` means that the configuration or the credentials are unusable.
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
