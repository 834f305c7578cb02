"""The implementation: pages that really move, and device tables that are really published."""
