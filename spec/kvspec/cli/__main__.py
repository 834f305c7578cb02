"""``python -m spec.cli``: the command line where the package is not installed."""

from kvspec.cli.main import main

main()
