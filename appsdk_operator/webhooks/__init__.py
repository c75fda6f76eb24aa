"""Webhooks: admission, conversion and authentication for an API server, and their certificates.

The API server sends a review, a JSON document, to a path of a :class:`WebhookServer` over HTTPS.
The webhook of this path answers it: it allows, denies or changes a request (admission), converts
objects between the versions of a kind (conversion), or says whose token it is (authentication).
"""

from appsdk_operator._lazy import room

__all__, __dir__, __getattr__ = room(__name__)
