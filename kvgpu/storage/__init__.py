"""Where pages lie: slots, fences, the prefix tree, the order of eviction, and the copies between pools."""
