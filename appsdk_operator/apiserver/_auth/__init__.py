"""Authentication, impersonation, authorization, RBAC, and access reviews."""
