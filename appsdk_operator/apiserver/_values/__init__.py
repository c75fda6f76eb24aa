"""How Kubernetes and Go read and write values: Status, JSON, quantities, times, names, users."""
