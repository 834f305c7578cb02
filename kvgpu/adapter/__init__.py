"""The manager as a ``System`` of the harness: operations in, observations out, nothing of the subject itself."""
