"""Values as Kubernetes and Go read and write them: status, JSON, quantities, times, names."""
