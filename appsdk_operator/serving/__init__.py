"""The HTTP(S) server and the certificates of every server that an operator runs.

Probes, metrics, profiles and webhooks use it: a listening socket, a bounded number of connections
with a thread each, limits on the time and size of each request, and certificates that are read
again when their files change. The parser of requests, threads, time limits, eviction and draining
are this room's own.
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
