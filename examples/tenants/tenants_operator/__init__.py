"""The operator tenants-operator: tenants of a cluster, and of an account service."""

from tenants_operator import audit as audit
from tenants_operator import grant as grant
from tenants_operator import grant_webhooks as grant_webhooks
from tenants_operator import tenant as tenant
from tenants_operator import tenant_v1alpha1 as tenant_v1alpha1
from tenants_operator import tenant_webhooks as tenant_webhooks
from tenants_operator.app import app

__all__ = ["app"]
