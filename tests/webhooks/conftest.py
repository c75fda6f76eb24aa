"""Tools that the tests of webhooks share."""

from __future__ import annotations
