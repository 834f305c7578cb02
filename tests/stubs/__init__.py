"""What lets the pure-Python part of a serving engine be imported where the engine is not installed."""
