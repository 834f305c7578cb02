"""Measurements, each with its peers in the same run. ``python -m bench`` runs them; figures go into ``bench/RESULTS.md``."""
