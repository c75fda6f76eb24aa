"""What this operator is: its name and its options. The other modules declare the rest."""

from __future__ import annotations

import os
from typing import Final

from appsdk_operator import kinds
from appsdk_operator.app import App
from appsdk_operator.cache import CacheOptions
from appsdk_operator.manager import CacheSetup

from tenants_operator.accounts import Accounts

MANAGED: Final = {"app.kubernetes.io/managed-by": "tenants-operator"}
"""The labels of all that the operator makes in the cluster."""

_MADE: Final = CacheOptions(label_selector=MANAGED)

app = App(
    "tenants-operator",
    leader_election=True,
    cache=CacheSetup(
        # A cluster may have very many of these: only those that the operator has made are kept.
        by_kind={
            kinds.core.v1.Namespace: _MADE,
            kinds.core.v1.ResourceQuota: _MADE,
            kinds.rbac.v1.RoleBinding: _MADE,
        },
    ),
)

accounts = Accounts(os.environ.get("TENANTS_ACCOUNTS", "accounts.sqlite"))
