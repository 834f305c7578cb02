"""Fetching selected history: reservations, the cache on the device, and the kernel (section 15)."""
