"""Leader election on Leases, and the fence against late writes."""
