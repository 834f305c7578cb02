"""The command ``kvspec``."""
