"""Compares the account service with the cluster, for an alert."""

from __future__ import annotations

from tenants_operator import metrics
from tenants_operator.app import accounts, app
from tenants_operator.tenant import TENANT


@app.every(60)
def count_accounts() -> None:
    """Count open accounts, and those that have lost their tenant.

    There are none of the latter unless somebody takes a finalizer off by hand.
    """
    open_accounts = accounts.accounts()  # first: a tenant comes before its account
    tenants = {tenant.uid for tenant in app.live_client.list(TENANT)}
    metrics.ACCOUNTS.set(len(open_accounts))
    metrics.ORPHANS.set(len([each for each in open_accounts if each.id not in tenants]))
