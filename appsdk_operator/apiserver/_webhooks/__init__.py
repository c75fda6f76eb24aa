"""Client of admission and conversion webhooks, and the checks of their ``clientConfig``."""
