"""What a request has: its blocks, their readiness, and what its rows show."""
