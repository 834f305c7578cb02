"""Which kinds of state each operation was called in, and how it ended: what happened, what cannot happen, and what is a gap."""
