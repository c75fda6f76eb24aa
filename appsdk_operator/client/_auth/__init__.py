"""Configuration and credentials: kubeconfig files, service accounts, tokens, exec plugins."""
