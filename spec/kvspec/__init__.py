"""What may be said of a KV-cache workload, what may be seen, and how two systems are compared."""
