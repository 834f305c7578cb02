"""Tests run as from a terminal, also where a shell has started them in the background."""

import signal


def pytest_configure() -> None:
    """Have Ctrl-C heard again: what a script starts with ``&`` ignores it, and so would the commands under test."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
