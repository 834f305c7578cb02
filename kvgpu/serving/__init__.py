"""The executor's side: an iteration, and an attention kernel that reads the tables (section 11)."""
