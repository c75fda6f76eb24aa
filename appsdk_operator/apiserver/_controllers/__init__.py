"""Controllers behind the API: garbage collection, deletion of namespaces and of CRDs."""
