"""The order of errors, verb by verb (section 9)."""
