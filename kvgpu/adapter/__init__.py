"""The manager behind the ``System`` protocol: operations in, observations out, nothing of the subject itself."""
