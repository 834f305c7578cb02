"""Named breaks, which a suite of scenarios must notice."""
