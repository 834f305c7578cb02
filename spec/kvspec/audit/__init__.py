"""Checks of the checks: random lifecycles, failure sweeps, gate orders, mutants, vacuity."""
