"""Batches: stable rows, their tables on the device, publications and exports (section 8)."""
