"""Authentication, authorization, RBAC and reviews."""
