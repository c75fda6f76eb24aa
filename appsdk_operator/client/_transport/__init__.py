"""HTTP below the verbs: connections, TLS, framing, retries, watches."""
